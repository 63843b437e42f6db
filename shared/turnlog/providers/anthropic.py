"""The codec of Anthropic Messages.

Sources of the shapes and rules: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use and
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking.

Consecutive messages of one role are sent as they are, because the provider merges them. Only the results that answer one
assistant message are gathered into one user message. Thinking is sent unchanged or not at all.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Literal

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Bodies
from turnlog.providers.alternation import AlternatingCodec, IdsToSend, Layout, blocks_of
from turnlog.providers.blocks import (
    content_blocks,
    given_role,
    invalid_message,
    is_safe_name,
    is_thinking,
    json_text,
    legal_tool_name,
    object_of,
    placeholder_text,
    plain_text,
    role_of,
    role_with,
    string_of,
    tool_input,
)
from turnlog.providers.hosted_calls import has_failed, is_call, is_result, result_blocks
from turnlog.providers.shapes import fitted
from turnlog.providers.token_rules import image_type

FORMAT = "anthropic"
_OWN_BLOCK_TYPES = frozenset(
    {"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "search_result", "mcp_tool_use"}
)


class AnthropicCodec(AlternatingCodec):
    """Codec of the `anthropic` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        content = body.get("content")
        return isinstance(content, list) and any(map(_is_own_block, content))

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        role_name, is_assistant = given_role(body), role_of(body) == "assistant"
        content, calls, results, before_result = list[Block](), list[ToolCall](), list[ToolResult](), 0
        for index, block in enumerate(content_blocks(body.get("content"), "/content")):
            pointer = f"/content/{index}"
            kind = _kind(block, pointer)
            if is_call(kind) and (kind == "tool_use" or block.get("id")):
                is_hosted = is_assistant and kind != "tool_use"
                name, arguments = string_of(block.get("name")), json_text(block.get("input"))
                calls.append(ToolCall(string_of(block.get("id")), name, arguments, is_hosted))
            elif is_result(kind) and (kind == "tool_result" or block.get("tool_use_id")):
                results.append(_parsed_result(block, f"{pointer}/content", is_error, hosted=is_assistant))
                before_result = len(content)
            else:
                content.append(_block(block, pointer))
        has_user_results = not all(result.hosted for result in results)
        role = role_with(body, tuple(content), calls=bool(calls), results=has_user_results)
        is_answered = bool(calls) and {call.id for call in calls} <= {result.tool_call_id for result in results}
        closing = len(content) - before_result if is_answered and not has_user_results else 0
        blocks = (tuple(content), tuple(calls), tuple(results))
        return Message(role, *blocks, given_role=role_name, closing=closing, compacts=self.may_begin(body))

    def arranged(self, turns: Bodies) -> Bodies:
        return self.with_thinking_first(self._with_compaction_first(self.with_paired_server_calls(turns)))

    def _with_compaction_first(self, turns: Bodies) -> Bodies:
        """Return the messages of each turn with a summary of the provider's only as the first block of all.

        Elsewhere a signed summary is refused (https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand), and
        another one hides from the model what stands before it.
        """
        first = next((body for bodies in turns for body in bodies), None)

        def without_compaction(body: JsonObject) -> JsonObject | None:
            blocks, is_base = blocks_of(body), body is first and self.may_begin(body)
            kept = [block for index, block in enumerate(blocks) if (is_base and not index) or not _is_compaction(block)]
            return body if len(kept) == len(blocks) else self.legal({**body, "content": kept})

        return [[legal for body in bodies if (legal := without_compaction(body)) is not None] for bodies in turns]

    def continues(self, layout: Layout, body: JsonObject) -> bool:
        return layout.has_only_results and any(map(self.is_result, blocks_of(body)))

    def is_going_on(self, message: JsonObject) -> bool:
        """Return whether a server call of the message has no result in it."""
        ids = [self.server_ids(block) for block in blocks_of(message)]
        return not {call_id for call_id, _ in ids} <= {"", *(result_id for _, result_id in ids)}

    def may_begin(self, message: JsonObject) -> bool:
        """Return whether the message begins with a summary of the provider's, which nothing may precede.

        https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand
        """
        content = message.get("content")
        return isinstance(content, list) and bool(content) and _is_compaction(content[0])

    @staticmethod
    def is_result(block: JsonValue) -> bool:
        return isinstance(block, dict) and block.get("type") == "tool_result"

    @staticmethod
    def server_ids(block: JsonValue) -> tuple[str, str]:
        fields = object_of(block)
        kind = string_of(fields.get("type"))
        if kind in ("server_tool_use", "mcp_tool_use"):
            return string_of(fields.get("id")), ""
        return "", string_of(fields.get("tool_use_id")) if kind.endswith("_tool_result") else ""

    def legal(self, body: JsonObject) -> JsonObject | None:
        """Return the legal form of a message; None when nothing of it can be sent. Thinking with nothing behind it can't."""
        legal = fitted(body, FORMAT)
        content = legal["content"] if legal is not None else None
        if legal is None or not isinstance(content, list):
            return legal
        end = len(content)
        while end and is_thinking(content[end - 1]):
            end -= 1
        if not end:
            return None
        return legal if end == len(content) else {**legal, "content": content[:end]}

    def repaired_block(self, block: JsonObject, ids: IdsToSend) -> JsonObject:
        kind = string_of(block.get("type"))
        if is_call(kind) and (kind == "tool_use" or block.get("id")):
            call, call_id = next(ids.calls)
            if kind != "tool_use":
                return block if call_id == call.id else {**block, "id": _hosted_id(call_id, kind)}
            if is_safe_name(call.name) and isinstance(block.get("input"), dict):
                return block if block.get("id") == call_id else {**block, "id": call_id}
            ids.is_altered = True
            return {**block, **self.call_block(call, call_id)}
        if is_result(kind) and (kind == "tool_result" or block.get("tool_use_id")):
            call_id = next(ids.results)
            if call_id == block.get("tool_use_id"):
                return block
            return {**block, "tool_use_id": call_id if kind == "tool_result" else _hosted_id(call_id, kind)}
        return block

    def text_block(self, text: str) -> JsonObject:
        return {"type": "text", "text": text}

    def media_block(self, media: Media) -> JsonObject:
        source = _source(media)
        if source is None:
            return self.text_block(placeholder_text(media))
        if media.kind == "image":
            return {"type": "image", "source": source}
        document: JsonObject = {"type": "document", "source": source}
        return document | ({"title": media.name} if media.name else {})

    def call_block(self, call: ToolCall, call_id: str) -> JsonObject:
        return {"type": "tool_use", "id": call_id, "name": legal_tool_name(call.name), "input": tool_input(call)}

    def result_block(self, call_id: str, content: list[JsonValue], *, is_error: bool) -> JsonObject:
        block: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
        return block | ({"content": content} if content else {}) | ({"is_error": True} if is_error else {})

    def message(self, role: str, blocks: list[JsonValue]) -> JsonObject:
        """Return the message with these blocks; a single text is sent as a string, as most callers write it."""
        only = blocks[0] if len(blocks) == 1 else None
        if isinstance(only, dict) and only.keys() == {"type", "text"}:
            return {"role": role, "content": only["text"]}
        return {"role": role, "content": blocks}


def _is_own_block(block: JsonValue) -> bool:
    """Return whether no other format has such a block."""
    fields = object_of(block)
    kind = string_of(fields.get("type"))
    if kind in ("image", "document"):
        return isinstance(fields.get("source"), dict)
    is_known = kind in _OWN_BLOCK_TYPES or kind.endswith("_tool_result")
    return is_known or (kind == "thinking" and isinstance(fields.get("thinking"), str))


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
    document = object_of(value).get("content")
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


def _is_compaction(block: JsonValue) -> bool:
    """Return whether the API drops what stands before the block; one without a summary failed and has no effect.

    https://platform.claude.com/docs/en/build-with-claude/compaction
    """
    fields = object_of(block)
    return fields.get("type") == "compaction" and bool(string_of(fields.get("content")).strip())


def _hosted_id(call_id: str, kind: str) -> str:
    """Return a made id as the provider's own tools have it."""
    return call_id if kind.startswith("mcp_") else f"srvtoolu_{call_id}"


def _source(media: Media) -> JsonObject | None:
    is_image = media.kind == "image"
    if media.kind == "audio":
        return None
    if media.data:
        media_type = image_type(media.data) if is_image else media.media_type or "application/pdf"
        if is_image or media_type == "application/pdf":
            return {"type": "base64", "media_type": media_type, "data": media.data} if media_type else None
        text = plain_text(media)
        return {"type": "text", "media_type": "text/plain", "data": text} if text.strip() else None
    if media.file_id:
        return {"type": "file", "file_id": media.file_id}
    if media.url and media.url.startswith(("https://", "http://")):
        return {"type": "url", "url": media.url}
    return None
