"""The codec of OpenAI Responses input items.

Sources of the shapes and rules: https://platform.openai.com/docs/api-reference/responses/create and
https://platform.openai.com/docs/guides/reasoning. Each body is one item. A ``function_call`` is an assistant message with one
call; consecutive ones are parallel calls of one turn. ``reasoning`` is thinking that is sent with the item it belongs to. A
call that the provider runs itself (``web_search_call`` and others) is kept unchanged, and only this format sends it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import BEFORE_ALL, Bodies, End, Rendered, Turn
from turnlog.providers.alternation import FIRST_USER
from turnlog.providers.blocks import (
    convert_tools,
    given_role,
    invalid_message,
    is_tool_name,
    json_text,
    legal_tool_name,
    marked_error,
    media_from_url,
    placeholder_text,
    result_text,
    role_of,
    string_of,
    text_with_placeholders,
)
from turnlog.providers.shapes import fitted

FORMAT = "openai_responses"
_MAX_ID = 64
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
_PARTS_OF_OTHER_ROLES = {
    "user": frozenset({"output_text", "refusal"}),
    "system": frozenset({"output_text", "refusal"}),
    "assistant": frozenset({"input_text", "input_image", "input_file"}),
}
"""Role -> the part types that only other roles may have."""
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL)
_ITEM_TYPE = re.compile(r"[a-z_]{1,64}")


class OpenAIResponsesCodec:
    """Codec of the `openai_responses` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        if isinstance(body.get("type"), str):
            return True
        content = body.get("content")
        parts = content if isinstance(content, list) else []
        kinds = [part.get("type") for part in parts if isinstance(part, dict)]
        return any(
            isinstance(kind, str) and kind != "input_audio" and kind.startswith(("input_", "output_text"))
            for kind in kinds
        )

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        kind = body.get("type", "message")
        if kind == "message":
            content = _content(body.get("content"), "/content")
            return Message(role_of(body), content, given_role=given_role(body))
        if not isinstance(kind, str) or not _ITEM_TYPE.fullmatch(kind):
            raise invalid_message("/type", "an item's type is letters and _")
        if kind in _CALLS:
            call = ToolCall(
                string_of(body.get("call_id")), string_of(body.get("name")), json_text(body.get(_CALLS[kind]))
            )
            return Message("assistant", tool_calls=(call,), given_role=kind)
        if kind in _OUTPUTS:
            output = body.get("output")
            blocks = _content(output, "/output") if not isinstance(output, dict) else (Text(json_text(output)),)
            text = "\n".join(block.text for block in blocks if isinstance(block, Text))
            failed = marked_error(text) if is_error is None else is_error
            result = ToolResult(string_of(body.get("call_id")), blocks, is_error=failed)
            return Message("tool", tool_results=(result,), given_role=kind)
        if kind == "reasoning":
            return Message("assistant", (Thinking(_reasoning_text(body)),), given_role=kind)
        return Message("assistant", (Opaque(FORMAT, body),), given_role=kind)

    def legal_id(self, call_id: str) -> bool:
        return 0 < len(call_id) <= _MAX_ID

    def render(
        self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject], bodies: Bodies | None = None
    ) -> Rendered:
        items = list[JsonObject]() if system is None else [_message("system", system)]
        lengths = [len(items)]
        for turn_bodies in [self.bodies(turn) for turn in turns] if bodies is None else bodies:
            items.extend(turn_bodies)
            lengths.append(len(items))
        kept_items = _without_lone_reasoning(_without_repeated_ids(_with_matching_outputs(items)))
        sent_counts = [0, *accumulate(item is not None for item in kept_items)]
        sent = [item for item in kept_items if item is not None]
        borders = [sent_counts[length] for length in lengths]
        return Rendered(
            sent or [_message("user", FIRST_USER)],
            tools=self.tools(tools),
            ends=tuple(End(border - 1, 1) if border else BEFORE_ALL for border in borders[1:]),
            bodies=[sent[start:end] for start, end in pairwise(borders)],
        )

    def bodies(self, turn: Turn) -> list[JsonObject]:
        repaired = _repaired_item(turn) if turn.format == FORMAT and turn.body is not None else None
        legal = fitted(repaired, FORMAT) if repaired is not None else None
        if legal is not None:
            return [legal]
        return [legal for body in _rendered_items(turn) if (legal := fitted(body, FORMAT)) is not None]

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        return convert_tools(tools, FORMAT)


def _content(value: JsonValue, pointer: str) -> tuple[Block, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),)
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise invalid_message(pointer, "content is neither a string, a list of parts nor null")
    return tuple(_part(part) for part in value if isinstance(part, dict))


def _part(part: JsonObject) -> Block:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return Text(string_of(part["text"]))
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return Text(string_of(part["refusal"]))
    if kind == "input_image":
        detail, url = string_of(part.get("detail")) or None, string_of(part.get("image_url"))
        if url:
            return media_from_url(url, detail=detail)
        if isinstance(part.get("file_id"), str):
            return Media("image", file_id=string_of(part["file_id"]), detail=detail)
    if kind == "input_file" and any(isinstance(part.get(key), str) for key in ("file_id", "file_data", "file_url")):
        data_url = _DATA_URL.fullmatch(string_of(part.get("file_data")))
        return Media(
            "file",
            media_type=data_url[1] or None if data_url else None,
            data=data_url[2] if data_url else string_of(part.get("file_data")) or None,
            url=string_of(part.get("file_url")) or None,
            file_id=string_of(part.get("file_id")) or None,
            name=string_of(part.get("filename")) or None,
        )
    return Opaque(FORMAT, part)


def _reasoning_text(body: JsonObject) -> str:
    texts = list[str]()
    for key in ("summary", "content"):
        parts = body.get(key)
        texts += (
            [string_of(part.get("text")) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        )
    return "\n".join(text for text in texts if text)


def _message(role: str, content: JsonValue) -> JsonObject:
    return {"role": role, "content": content}


# ---------------------------------------------------------------- rendering


def _repaired_item(turn: Turn) -> JsonObject | None:
    """Return the item as it was appended, or a copy with repairs; None when it must be rendered from the message."""
    body, message = turn.body, turn.message
    assert body is not None  # noqa: S101 - checked by the caller
    kind = body.get("type", "message")
    if kind in _CALLS:
        call, call_id = message.tool_calls[0], turn.call_ids[0]
        if not is_tool_name(call.name) or not isinstance(body.get(_CALLS[str(kind)]), str):
            return None
        return body if body.get("call_id") == call_id else {**body, "call_id": call_id}
    if kind in _OUTPUTS:
        output = body.get("output")
        if not isinstance(output, str) and not (isinstance(output, list) and output):
            return None
        call_id = turn.result_ids[0]
        return body if body.get("call_id") == call_id else {**body, "call_id": call_id}
    if kind != "message":
        return body
    role, content = message.role, body.get("content")
    if isinstance(content, list):
        kinds = {string_of(part.get("type")) for part in content if isinstance(part, dict)}
        is_legal = bool(content) and role != "tool" and not kinds & _PARTS_OF_OTHER_ROLES.get(role, frozenset())
    else:
        is_legal = isinstance(content, str) and role != "tool"
    return body if is_legal else None


def _with_matching_outputs(items: list[JsonObject]) -> list[JsonObject]:
    """Return the items; each output gets the type that fits its call, of a custom tool or of a function."""
    kinds = {item["call_id"]: item["type"] for item in items if item.get("type") in _CALLS}
    matched = list[JsonObject]()
    for item in items:
        kind = item.get("type")
        expected = f"{kinds.get(item['call_id'], kind)}_output" if kind in _OUTPUTS else kind
        matched.append(item if kind == expected else {**item, "type": expected})
    return matched


def _without_repeated_ids(items: list[JsonObject]) -> list[JsonObject | None]:
    """Return the items without item ids that an earlier item has: the provider refuses repeated ids.

    None stands for an item that cannot be sent without its id.
    """
    used, kept = set[str](), list[JsonObject | None]()
    for item in items:
        item_id = item.get("id")
        if not isinstance(item_id, str) or item_id not in used:
            kept.append(item)
        elif item.get("type", "message") == "message" or item.get("type") in (*_CALLS, *_OUTPUTS):
            kept.append({key: value for key, value in item.items() if key != "id"})
        else:
            kept.append(None)
        if isinstance(item_id, str):
            used.add(item_id)
    return kept


def _without_lone_reasoning(items: list[JsonObject | None]) -> list[JsonObject | None]:
    """Return the items without reasoning that no item of the model follows: the provider refuses it."""
    kept, is_followed = list(items), False
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if item is None:
            continue
        kind = string_of(item.get("type", "message"))
        if kind != "reasoning":
            is_followed = item.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")
        elif not is_followed:
            kept[index] = None
    return kept


def _rendered_items(turn: Turn) -> list[JsonObject]:
    message = turn.message
    results: list[JsonObject] = [
        {"type": "function_call_output", "call_id": call_id, "output": _output(result)}
        for result, call_id in zip(message.tool_results, turn.result_ids, strict=True)
    ]
    calls: list[JsonObject] = [
        {
            "type": "function_call",
            "call_id": call_id,
            "name": legal_tool_name(call.name),
            "arguments": call.arguments,
        }
        for call, call_id in zip(message.tool_calls, turn.call_ids, strict=True)
    ]
    messages = list[JsonObject]()
    if message.role == "user":
        content = _user_content(message)
        messages = [_message("user", content)] if content else []
    elif message.role in ("assistant", "system"):
        text = text_with_placeholders(message)
        role = "developer" if message.given_role == "developer" else message.role
        messages = [_message(role, text)] if text else []
    is_own = bool(set(turn.call_ids) & set(turn.result_ids))
    return [*messages, *calls, *results] if is_own else [*results, *messages, *calls]


def _output(result: ToolResult) -> JsonValue:
    """Return the output of a result: text as a string, or a list of parts when it has images or files."""
    parts = [_media_part(block) for block in result.content if isinstance(block, Media)]
    if all(part["type"] == "input_text" for part in parts):
        return result_text(result)
    text = result_text(
        ToolResult("", tuple(b for b in result.content if isinstance(b, Text)), is_error=result.is_error)
    )
    texts: list[JsonValue] = [{"type": "input_text", "text": text}] if text else []
    return [*texts, *parts]


def _user_content(message: Message) -> JsonValue:
    if not any(isinstance(block, Media) for block in message.content):
        return text_with_placeholders(message)
    parts = list[JsonValue]()
    for block in message.content:
        if isinstance(block, Text) and block.text:
            parts.append({"type": "input_text", "text": block.text})
        elif isinstance(block, Media):
            parts.append(_media_part(block))
    return parts


def _media_part(media: Media) -> JsonObject:
    """Return the part of the media, or its name as text when the provider does not accept such media."""
    if media.kind == "image" and (media.data or media.url or media.file_id):
        part: JsonObject = {"type": "input_image"}
        if media.file_id and not (media.data or media.url):
            part["file_id"] = media.file_id
        else:
            part["image_url"] = media.url or f"data:{media.media_type or 'image/png'};base64,{media.data}"
        return part | ({"detail": media.detail} if media.detail else {"detail": "auto"})
    if media.kind == "file" and (media.data or media.file_id or media.url):
        return {"type": "input_file", **_file(media)} | ({"filename": media.name} if media.name else {})
    return {"type": "input_text", "text": placeholder_text(media)}


def _file(media: Media) -> JsonObject:
    if media.file_id:
        return {"file_id": media.file_id}
    if media.data:
        return {"file_data": f"data:{media.media_type};base64,{media.data}" if media.media_type else media.data}
    return {"file_url": media.url}
