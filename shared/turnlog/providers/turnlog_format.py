"""The codec of Turnlog's own, provider-neutral message format.

A message is ``{id, created_at, role, author, content (text, blocks or null), tool_calls: [{id, name, args: object}],
tool_results: [{tool_call_id, result: any JSON, media: blocks, is_error}], metadata, finish_reason}`` and may have several results.
Blocks are
``{"type": "text", "text"}``, ``{"type": "thinking", "text", "signature"}`` and ``{"type": "image" | "file" | "audio",
"media_type", "data" | "url" | "file_id", "name", "detail"}``. Any other block is kept, and no other format sends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Codec, End, Rendered, Turn
from turnlog.providers.blocks import (
    arguments_value,
    content_blocks,
    given_role,
    invalid_message,
    json_text,
    objects_in,
    placeholder_text,
    role_with,
    string_of,
    text_with_placeholders,
)

FORMAT = "turnlog"
_MEDIA = ("image", "file", "audio")


class TurnlogCodec(Codec):
    """Codec of the `turnlog` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        has_args = any("args" in call for call in objects_in(body.get("tool_calls")))
        return has_args or "tool_results" in body or "author" in body

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        results, calls = _entries(body, "tool_results"), _entries(body, "tool_calls")
        content = tuple(map(_block, content_blocks(body.get("content"), "/content")))
        return Message(
            role_with(body, content, calls=bool(calls), results=bool(results)),
            content=content,
            tool_calls=tuple(_call(call, index) for index, call in enumerate(calls)),
            tool_results=tuple(_result(result, index, is_error) for index, result in enumerate(results)),
            name=string_of(body.get("author")),
            given_role=given_role(body),
        )

    def legal_id(self, call_id: str) -> bool:
        return call_id != ""

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        bodies = [self.bodies(turn) for turn in turns]
        ends = tuple(End(index, 1) for index in range(len(bodies)))
        return Rendered([body for (body,) in bodies], system=system, tools=list(tools), ends=ends, bodies=bodies)

    def repaired(self, turn: Turn, body: JsonObject) -> list[JsonObject]:
        return [_with_ids(body, turn)]

    def rendered(self, turn: Turn) -> list[JsonObject]:
        message = turn.message
        body: JsonObject = {
            "role": message.given_role if message.role == "unknown" else message.role,
            "content": _rendered_content(message),
        }
        if message.name:
            body["author"] = message.name
        if message.tool_calls:
            body["tool_calls"] = [
                {"id": call.id, "name": call.name, "args": arguments_value(call)} for call in message.tool_calls
            ]
        if message.tool_results:
            body["tool_results"] = [
                {
                    "tool_call_id": result.tool_call_id,
                    "result": text_with_placeholders(block for block in result.content if not isinstance(block, Media)),
                    "is_error": result.is_error,
                    **({"media": media} if (media := media_blocks(result.content)) else {}),
                }
                for result in message.tool_results
            ]
        return [_with_ids(body, turn)]

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        return list(tools)


def _entries(body: JsonObject, name: str) -> list[JsonValue]:
    """Return the list under a name, empty for null. Raises `InvalidInputError` for another value."""
    value = body.get(name)
    if value is not None and not isinstance(value, list):
        raise invalid_message(f"/{name}", f"{name} is neither a list nor null")
    return value or []


def _block(block: JsonObject) -> Block:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return Text(string_of(block["text"]))
    if kind == "thinking" and isinstance(block.get("text"), str):
        return Thinking(string_of(block["text"]), string_of(block.get("signature")) or None)
    if kind in _MEDIA:
        fields = ("media_type", "data", "url", "file_id", "name", "detail")
        return Media(kind, **{name: string_of(block.get(name)) or None for name in fields})  # type: ignore[arg-type]
    return Opaque(FORMAT, block)


def _call(call: JsonValue, index: int) -> ToolCall:
    if not isinstance(call, dict):
        raise invalid_message(f"/tool_calls/{index}", "a tool call is not an object")
    return ToolCall(string_of(call.get("id")), string_of(call.get("name")), json_text(call.get("args")))


def _result(result: JsonValue, index: int, is_error: bool | None) -> ToolResult:
    if not isinstance(result, dict):
        raise invalid_message(f"/tool_results/{index}", "a tool result is not an object")
    failed = result.get("is_error") is True if is_error is None else is_error
    text = json_text(result.get("result"))
    content = (*((Text(text),) if text else ()), *media_of(result.get("media")))
    return ToolResult(string_of(result.get("tool_call_id")), content, is_error=failed)


def media_of(blocks: JsonValue) -> tuple[Media, ...]:
    """Return the media in a list of blocks."""
    return tuple(block for block in map(_block, objects_in(blocks)) if isinstance(block, Media))


def media_blocks(content: Sequence[Block]) -> list[JsonValue]:
    """Return the media of a content as blocks of this format."""
    return [_written(block) for block in content if isinstance(block, Media)]


def _written(block: Block) -> JsonObject | None:
    """Return a block in this format; None for one of another format without a text."""
    if isinstance(block, Opaque):
        text = placeholder_text(block)
        return {"type": "text", "text": text} if text else None
    kind = block.kind if isinstance(block, Media) else "thinking" if isinstance(block, Thinking) else "text"
    members = {
        key: value for key, value in asdict(block).items() if value is not None and key not in ("kind", "options")
    }
    return {"type": kind, **members}


def _with_ids(body: JsonObject, turn: Turn) -> JsonObject:
    body = dict(body)
    for key, field, ids in (("tool_calls", "id", turn.call_ids), ("tool_results", "tool_call_id", turn.result_ids)):
        entries = body.get(key)
        if isinstance(entries, list) and ids:
            body[key] = [
                {**entry, field: call_id} if isinstance(entry, dict) and entry.get(field) != call_id else entry
                for entry, call_id in zip(entries, ids, strict=True)
            ]
    return body


def _rendered_content(message: Message) -> JsonValue:
    if not message.content:
        return None
    if all(isinstance(block, Text) for block in message.content):
        return message.text
    return [written for block in message.content if (written := _written(block)) is not None]
