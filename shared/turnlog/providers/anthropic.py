"""The codec of Anthropic Messages.

Sources of the shapes and rules: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use and
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking.

Consecutive messages of one role are sent as they are, because the provider merges them. Only the results that answer one
assistant message are gathered into one user message. Thinking is sent unchanged or not at all.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Literal

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import once
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Rendered, Turn
from turnlog.providers.alternation import (
    IdsToSend,
    Layout,
    ServerBlocks,
    has_results,
    repaired_blocks,
    split_system,
    with_paired_server_calls,
    with_thinking_first,
)
from turnlog.providers.blocks import (
    content_blocks,
    convert_tools,
    given_role,
    invalid_message,
    is_safe_id,
    is_tool_name,
    json_text,
    legal_tool_name,
    placeholder_text,
    role_of,
    role_with,
    string_of,
    tool_input,
)
from turnlog.providers.hosted_calls import has_failed, is_call, is_result, result_blocks
from turnlog.providers.shapes import fitted

FORMAT = "anthropic"
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_THINKING = ("thinking", "redacted_thinking")
_OWN_BLOCK_TYPES = frozenset(
    {"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "search_result", "mcp_tool_use"}
)


class AnthropicCodec:
    """Codec of the `anthropic` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        content = body.get("content")
        return isinstance(content, list) and any(map(_is_own_block, content))

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        role_name, is_assistant = given_role(body), role_of(body) == "assistant"
        content, calls, results, said = list[Block](), list[ToolCall](), list[ToolResult](), 0
        for index, block in enumerate(content_blocks(body.get("content"), "/content")):
            pointer = f"/content/{index}"
            kind = _kind(block, pointer)
            if is_call(kind) and (kind == "tool_use" or block.get("id")):
                is_hosted = is_assistant and kind != "tool_use"
                name, arguments = string_of(block.get("name")), json_text(block.get("input"))
                calls.append(ToolCall(string_of(block.get("id")), name, arguments, is_hosted))
            elif is_result(kind) and (kind == "tool_result" or block.get("tool_use_id")):
                results.append(_parsed_result(block, f"{pointer}/content", is_error, hosted=is_assistant))
                said = len(content)
            else:
                content.append(_block(block, pointer))
        has_user_results = not all(result.hosted for result in results)
        role = role_with(body, tuple(content), calls=bool(calls), results=has_user_results)
        is_answered = bool(calls) and {call.id for call in calls} <= {result.tool_call_id for result in results}
        closing = len(content) - said if is_answered and not has_user_results else 0
        blocks = (tuple(content), tuple(calls), tuple(results))
        return Message(role, *blocks, given_role=role_name, closing=closing, compacts=_begins_with_compaction(body))

    def legal_id(self, call_id: str) -> bool:
        return is_safe_id(call_id)

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        system_text, conversation = split_system(turns, system)
        in_system = len(turns) - len(conversation)
        layout = Layout(_is_tool_result, in_system=in_system)
        rendered_turns = [_bodies(turn) for turn in conversation]
        paired = with_paired_server_calls(rendered_turns, _SERVER_BLOCKS, _is_tool_result, _legal)
        sent_turns = with_thinking_first(_with_compaction_first(paired), _is_thinking)
        for turn_bodies in sent_turns:
            for body in turn_bodies:
                if layout.has_only_results and has_results(body, _is_tool_result):
                    layout.extend_message(body)
                else:
                    layout.add_message(body)
            layout.end_turn()
        messages, ends = layout.finish(_user_message, _SERVER_BLOCKS.is_open, _begins_with_compaction)
        return Rendered(
            messages, system=system_text, tools=self.tools(tools), ends=ends, bodies=[*([()] * in_system), *sent_turns]
        )

    def bodies(self, turn: Turn) -> list[JsonObject]:
        return _bodies(turn)

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        return convert_tools(tools, FORMAT)


@once
def _bodies(turn: Turn) -> list[JsonObject]:
    repaired = _repaired_bodies(turn, turn.body) if turn.format == FORMAT and turn.body is not None else None
    bodies = _rendered_message(turn) if repaired is None else repaired
    return [legal for body in bodies if (legal := _legal(body)) is not None]


def _is_own_block(block: JsonValue) -> bool:
    """Return whether no other format has such a block."""
    if not isinstance(block, dict):
        return False
    kind = string_of(block.get("type"))
    if kind in ("image", "document"):
        return isinstance(block.get("source"), dict)
    is_known = kind in _OWN_BLOCK_TYPES or kind.endswith("_tool_result")
    return is_known or (kind == "thinking" and isinstance(block.get("thinking"), str))


def _kind(block: JsonObject, pointer: str) -> str:
    if not isinstance(block.get("type"), str):
        raise invalid_message(pointer, "a content block has no type")
    return string_of(block["type"])


def _block(block: JsonObject, pointer: str) -> Block:
    kind = _kind(block, pointer)
    if kind == "text" and isinstance(block.get("text"), str):
        return Text(string_of(block["text"]))
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        return Thinking(string_of(block["thinking"]), string_of(block.get("signature")) or None)
    if kind == "redacted_thinking":
        return Thinking("", string_of(block.get("data")) or None)
    source = block.get("source")
    if kind in ("image", "document") and isinstance(source, dict):
        media = _media(source, "image" if kind == "image" else "file", string_of(block.get("title")) or None)
        if media is not None:
            return media
    return Opaque(FORMAT, block)


def _parsed_result(block: JsonObject, pointer: str, is_error: bool | None, *, hosted: bool) -> ToolResult:
    """Return the result of a block: of the caller's tool, or as a provider tells that of its own."""
    call_id, value = string_of(block.get("tool_use_id")), block.get("content")
    failed = block.get("is_error") is True if is_error is None else is_error
    if block["type"] == "tool_result":
        blocks = tuple(_block(inner, pointer) for inner in content_blocks(value, pointer))
        return ToolResult(call_id, blocks, is_error=failed)
    document = value.get("content") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(document, dict):
        rest: JsonValue = {key: inner for key, inner in value.items() if key != "content"}
        blocks = (*result_blocks(rest), *_document(document, pointer))
    else:
        blocks = tuple(result_blocks(value))
    is_failed = failed or (is_error is None and has_failed([value]))
    return ToolResult(call_id, blocks, is_error=is_failed, hosted=hosted)


def _document(block: JsonObject, pointer: str) -> Iterator[Block]:
    """Yield the document of a fetched page, a text as such."""
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
        yield Text(string_of(source["data"]))
    else:
        yield _block(block, pointer)


def _media(source: JsonObject, kind: Literal["image", "file"], name: str | None) -> Media | None:
    source_type, data = source.get("type"), string_of(source.get("data"))
    media_type = string_of(source.get("media_type")) or None
    if source_type == "text" and data and kind == "file":
        encoded = base64.b64encode(data.encode("utf-8", "surrogatepass")).decode("ascii")
        return Media("file", media_type or "text/plain", data=encoded, name=name)
    if source_type == "base64" and data:
        return Media(kind, media_type, data=data, name=name)
    if source_type == "url" and isinstance(source.get("url"), str):
        return Media(kind, url=string_of(source["url"]), name=name)
    if source_type == "file" and isinstance(source.get("file_id"), str):
        return Media(kind, file_id=string_of(source["file_id"]), name=name)
    return None


def _is_tool_result(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _is_compaction(block: JsonValue) -> bool:
    """Return whether the API drops what stands before the block; one without a summary failed and has no effect.

    https://platform.claude.com/docs/en/build-with-claude/compaction
    """
    if not isinstance(block, dict) or block.get("type") != "compaction":
        return False
    return bool(string_of(block.get("content")).strip())


def _with_compaction_first(turns: Sequence[Sequence[JsonObject]]) -> list[list[JsonObject]]:
    """Return the messages of each turn with a summary of the provider's only as the first block of all.

    Elsewhere a signed summary is refused (https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand), and another
    one hides from the model what stands before it.
    """
    first = next((body for bodies in turns for body in bodies), None)

    def kept(body: JsonObject) -> JsonObject | None:
        content = body.get("content")
        blocks = content if isinstance(content, list) else []
        is_base = body is first and _begins_with_compaction(body)
        left = [block for index, block in enumerate(blocks) if (is_base and not index) or not _is_compaction(block)]
        return body if len(left) == len(blocks) else _legal({**body, "content": left})

    return [[left for body in bodies if (left := kept(body)) is not None] for bodies in turns]


def _begins_with_compaction(message: JsonObject) -> bool:
    """Return whether the conversation begins with a summary of the provider's, which nothing may precede.

    https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand
    """
    content = message.get("content")
    return isinstance(content, list) and bool(content) and _is_compaction(content[0])


def _server_call_id(block: JsonValue) -> str:
    if not isinstance(block, dict) or block.get("type") not in ("server_tool_use", "mcp_tool_use"):
        return ""
    return string_of(block.get("id"))


def _server_result_id(block: JsonValue) -> str:
    if not isinstance(block, dict) or not string_of(block.get("type")).endswith("_tool_result"):
        return ""
    return string_of(block.get("tool_use_id"))


_SERVER_BLOCKS = ServerBlocks(_server_call_id, _server_result_id)


def _user_message(text: str) -> JsonObject:
    return {"role": "user", "content": text}


# ---------------------------------------------------------------- rendering


def _repaired_bodies(turn: Turn, body: JsonObject) -> list[JsonObject] | None:
    """Return the body as it was appended, or a copy with repairs; None when it must be rendered from the message."""
    message = turn.message
    role = "user" if message.role == "tool" else message.role
    content = body.get("content")
    if body.get("role") != role or role not in ("user", "assistant"):
        return None
    is_native = role == "assistant" and all(result.hosted for result in message.tool_results)
    if (message.tool_calls and role != "assistant") or (message.tool_results and role != "user" and not is_native):
        return None
    if not isinstance(content, list):
        return [body]
    # Results of an assistant are hosted here: a message with others has been refused.
    has_hosted = bool(message.tool_results) or any(call.hosted for call in message.tool_calls)
    if role == "assistant" and any(isinstance(block, Media) for block in message.content) and not has_hosted:
        return None
    repaired = repaired_blocks(turn, content, _repaired_block, is_thinking=_is_thinking, is_result=_is_tool_result)
    return [body] if repaired == content else [{**body, "content": repaired}]


def _repaired_block(block: JsonObject, ids: IdsToSend) -> JsonObject:
    if block.get("type") == "tool_use":
        call, call_id = next(ids.calls)
        if is_tool_name(call.name) and isinstance(block.get("input"), dict):
            return block if block.get("id") == call_id else {**block, "id": call_id}
        ids.is_altered = True
        return {**block, "id": call_id, "name": legal_tool_name(call.name), "input": tool_input(call)}
    kind = string_of(block.get("type"))
    if is_call(kind) and block.get("id"):
        call, call_id = next(ids.calls)
        return block if call_id == call.id else {**block, "id": _hosted_id(call_id, kind)}
    if _is_tool_result(block) or (is_result(kind) and block.get("tool_use_id")):
        call_id = next(ids.results)
        if call_id == block.get("tool_use_id"):
            return block
        return {**block, "tool_use_id": call_id if _is_tool_result(block) else _hosted_id(call_id, kind)}
    return block


def _hosted_id(call_id: str, kind: str) -> str:
    """Return a made id as the provider's own tools have it."""
    return call_id if kind.startswith("mcp_") else f"srvtoolu_{call_id}"


def _legal(body: JsonObject) -> JsonObject | None:
    """Return the legal form of a message; None when nothing of it can be sent. Thinking with nothing behind it can't."""
    legal = fitted(body, FORMAT)
    content = legal["content"] if legal is not None else None
    if legal is None or not isinstance(content, list):
        return legal
    said = len(content)
    while said and _is_thinking(content[said - 1]):
        said -= 1
    if not said:
        return None
    return legal if said == len(content) else {**legal, "content": content[:said]}


def _is_thinking(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") in _THINKING


def _rendered_message(turn: Turn) -> list[JsonObject]:
    """Render a message without its body: as one body, or as two when an assistant message has results."""
    message = turn.message
    results: list[JsonValue] = [
        _result_block(result, call_id) for result, call_id in zip(message.tool_results, turn.result_ids, strict=True)
    ]
    calls: list[JsonValue] = [
        {"type": "tool_use", "id": call_id, "name": legal_tool_name(call.name), "input": tool_input(call)}
        for call, call_id in zip(message.tool_calls, turn.call_ids, strict=True)
    ]
    is_assistant = message.role == "assistant" or bool(calls)
    content = _rendered_blocks(message.content, has_media=not is_assistant)
    if is_assistant:
        said, answers = _message("assistant", [*content, *calls]), _message("user", results)
        bodies = [said, answers] if turn.has_own_results else [answers, said]
    else:
        bodies = [_message("user", [*results, *content])]
    return [body for body in bodies if body["content"]]


def _message(role: str, blocks: list[JsonValue]) -> JsonObject:
    """Return a message; a single text is sent as a string, as most callers write it."""
    only = blocks[0] if len(blocks) == 1 else None
    if isinstance(only, dict) and only.keys() == {"type", "text"}:
        return {"role": role, "content": only["text"]}
    return {"role": role, "content": blocks}


def _result_block(result: ToolResult, call_id: str) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
    if content := _rendered_blocks(result.content):
        block["content"] = content
    return block | ({"is_error": True} if result.is_error else {})


def _rendered_blocks(blocks: Sequence[Block], *, has_media: bool = True) -> list[JsonValue]:
    """Return the content blocks that this format has: no thinking, no blank text; other formats' blocks as text.

    Without ``has_media``, as in an assistant message, media are only named.
    """
    made = list[JsonValue]()
    for block in blocks:
        if isinstance(block, Media):
            made.append(_media_block(block) if has_media else {"type": "text", "text": placeholder_text(block)})
        elif isinstance(block, Opaque) and block.format == FORMAT:
            made.append(block.value)
        elif (text := placeholder_text(block)).strip():
            made.append({"type": "text", "text": text})
    return made


def _media_block(media: Media) -> JsonObject:
    """Return the block of the media, or its name as text when the provider does not accept such media."""
    source = _source(media)
    if source is None:
        return {"type": "text", "text": placeholder_text(media)}
    if media.kind == "image":
        return {"type": "image", "source": source}
    document: JsonObject = {"type": "document", "source": source}
    return document | ({"title": media.name} if media.name else {})


def _source(media: Media) -> JsonObject | None:
    is_image = media.kind == "image"
    if media.kind == "audio":
        return None
    if media.data:
        media_type = media.media_type or ("image/png" if is_image else "application/pdf")
        if media_type in (_IMAGES if is_image else {"application/pdf"}):
            return {"type": "base64", "media_type": media_type, "data": media.data}
        text = "" if is_image or media_type != "text/plain" else _plain_text(media.data)
        return {"type": "text", "media_type": "text/plain", "data": text} if text.strip() else None
    if media.file_id:
        return {"type": "file", "file_id": media.file_id}
    if media.url and media.url.startswith(("https://", "http://")):
        return {"type": "url", "url": media.url}
    return None


def _plain_text(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""
