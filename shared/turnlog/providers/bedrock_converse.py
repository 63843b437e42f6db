"""The codec of Bedrock Converse.

Sources of the shapes and rules: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html, and on the
same site API_runtime_ContentBlock.html, API_runtime_ToolUseBlock.html, API_runtime_ToolResultBlock.html and
API_runtime_DocumentBlock.html. Bytes are base64, as in the HTTP API.

User and assistant must alternate, so consecutive messages of one role are merged. Reasoning is sent unchanged or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import Rendered, Turn
from turnlog.providers.alternation import AlternatingCodec, IdsToSend, Layout, ends_after_additions
from turnlog.providers.blocks import (
    content_blocks,
    given_role,
    is_safe_name,
    is_thinking,
    json_text,
    legal_tool_name,
    object_of,
    objects_in,
    placeholder_text,
    role_with,
    string_of,
    tool_input,
)
from turnlog.providers.shapes import CONVERSE_KINDS, FILE_TYPES, fitted
from turnlog.providers.token_rules import image_type

DOCUMENT_TEXT = "[document]"
_IMAGE_TYPES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_MEDIA_TYPES = {name: media_type for media_type, name in (_IMAGE_TYPES | FILE_TYPES).items()}
_LEGAL_NAME = re.compile(r"[A-Za-z0-9()\[\]\-]+(?: [A-Za-z0-9()\[\]\-]+)*")
_MAX_NAME = 200


def media_of(block: JsonObject) -> Media | None:
    """Return the image or document of a block; None when it has neither, or no bytes and no URI."""
    is_image = isinstance(block.get("image"), dict)
    inner = object_of(block.get("image" if is_image else "document"))
    source = object_of(inner.get("source"))
    data = string_of(source.get("bytes")) or None
    url = string_of(object_of(source.get("s3Location")).get("uri")) or None
    if not data and not url:
        return None
    media_type = _MEDIA_TYPES.get(string_of(inner.get("format")))
    name = string_of(inner.get("name")) or None
    return Media("image" if is_image else "file", media_type, data=data, url=url, name=name)


def is_document(block: JsonValue) -> bool:
    """Return whether the block is a document."""
    return isinstance(block, dict) and "document" in block


def document_name(name: str) -> str:
    """Return a name the provider accepts: only letters, digits, single spaces, hyphens, parentheses and brackets."""
    if len(name) <= _MAX_NAME and _LEGAL_NAME.fullmatch(name):
        return name
    legal_chars = re.sub(r"[^A-Za-z0-9()\[\]\-]+", " ", name).strip()
    return legal_chars[:_MAX_NAME].strip() or "document"


def _with_unique_names(message: JsonObject, names: set[str]) -> JsonObject:
    """Return a message whose documents have names that are legal and not in ``names``, and with a text if it has a document.

    The provider refuses repeated document names, and a document without a text.
    """
    content = message["content"]
    assert isinstance(content, list)  # noqa: S101 - every rendered body has a list
    named = [_with_unique_name(block, names) for block in content]
    if any(map(is_document, named)) and not any(isinstance(block, dict) and "text" in block for block in named):
        named.append({"text": DOCUMENT_TEXT})
    return message if named == content else {**message, "content": named}


def _with_unique_name(block: JsonValue, names: set[str]) -> JsonValue:
    if not isinstance(block, dict):
        return block
    result, document = block.get("toolResult"), block.get("document")
    inner = result.get("content") if isinstance(result, dict) else None
    if isinstance(result, dict) and isinstance(inner, list):
        named = [_with_unique_name(inner_block, names) for inner_block in inner]
        return block if named == inner else {**block, "toolResult": {**result, "content": named}}
    if not isinstance(document, dict):
        return block
    legal_name = document_name(string_of(document.get("name")))
    name, number = legal_name, 1
    while name.lower() in names:
        number += 1
        name = f"{legal_name[: _MAX_NAME - 8].rstrip()} ({number})"
    names.add(name.lower())
    return block if name == document.get("name") else {**block, "document": {**document, "name": name}}


FORMAT = "bedrock_converse"


class BedrockConverseCodec(AlternatingCodec):
    """Codec of the `bedrock_converse` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        blocks = objects_in(body.get("content"))
        return any("type" not in block and CONVERSE_KINDS.keys() & block.keys() for block in blocks)

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        role_name = given_role(body)
        content, calls, results = list[Block](), list[ToolCall](), list[ToolResult]()
        for index, block in enumerate(content_blocks(body.get("content"), "/content")):
            use, result = _run_by_caller(block, "toolUse"), _run_by_caller(block, "toolResult")
            if use is not None:
                calls.append(
                    ToolCall(string_of(use.get("toolUseId")), string_of(use.get("name")), json_text(use.get("input")))
                )
            elif result is not None:
                failed = result.get("status") == "error" if is_error is None else is_error
                inner = content_blocks(result.get("content"), f"/content/{index}/toolResult/content")
                results.append(
                    ToolResult(string_of(result.get("toolUseId")), tuple(map(_block, inner)), is_error=failed)
                )
            else:
                content.append(_block(block))
        role = role_with(body, tuple(content), calls=bool(calls), results=bool(results))
        return Message(role, tuple(content), tuple(calls), tuple(results), given_role=role_name)

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        rendered = super().render(turns, system=system, tools=tools)
        names = set[str]()
        messages = [_with_unique_names(message, names) for message in rendered.messages]
        return replace(
            rendered, messages=messages, ends=ends_after_additions(rendered.ends, rendered.messages, messages)
        )

    def repaired(self, turn: Turn, body: JsonObject) -> list[JsonObject] | None:
        return super().repaired(turn, body) if isinstance(body.get("content"), list) else None

    def continues(self, layout: Layout, body: JsonObject) -> bool:
        return layout.role == body["role"]

    @staticmethod
    def is_result(block: JsonValue) -> bool:
        return isinstance(block, dict) and "toolResult" in block

    @staticmethod
    def server_ids(block: JsonValue) -> tuple[str, str]:
        fields = object_of(block)
        return _server_id(fields.get("toolUse")), _server_id(fields.get("toolResult"))

    def legal(self, body: JsonObject) -> JsonObject | None:
        """Return the legal form of a message; None when nothing of it but reasoning can be sent."""
        legal = fitted(body, FORMAT)
        content = legal["content"] if legal is not None else None
        return None if not isinstance(content, list) or all(map(is_thinking, content)) else legal

    def repaired_block(self, block: JsonObject, ids: IdsToSend) -> JsonObject:
        use, result = _run_by_caller(block, "toolUse"), _run_by_caller(block, "toolResult")
        if use is not None:
            call, call_id = next(ids.calls)
            if is_safe_name(call.name) and isinstance(use.get("input"), dict):
                return block if use.get("toolUseId") == call_id else {**block, "toolUse": {**use, "toolUseId": call_id}}
            ids.is_altered = True
            return {**block, "toolUse": {**use, **_use(call, call_id)}}
        if result is not None and result.get("toolUseId") != (call_id := next(ids.results)):
            return {**block, "toolResult": {**result, "toolUseId": call_id}}
        return block

    def text_block(self, text: str) -> JsonObject:
        return {"text": text}

    def media_block(self, media: Media) -> JsonObject:
        is_image = media.kind == "image"
        known, default = (_IMAGE_TYPES, "image/png") if is_image else (FILE_TYPES, "application/pdf")
        kind = known.get((image_type(media.data) or "") if is_image and media.data else media.media_type or default)
        source: JsonObject | None = {"bytes": media.data} if media.data else None
        if source is None and media.url and media.url.startswith("s3://"):
            source = {"s3Location": {"uri": media.url}}
        if source is None or kind is None or media.kind == "audio":
            return self.text_block(placeholder_text(media))
        if is_image:
            return {"image": {"format": kind, "source": source}}
        return {"document": {"format": kind, "name": document_name(media.name or ""), "source": source}}

    def call_block(self, call: ToolCall, call_id: str) -> JsonObject:
        return {"toolUse": _use(call, call_id)}

    def result_block(self, call_id: str, content: list[JsonValue], *, is_error: bool) -> JsonObject:
        block: JsonObject = {"toolUseId": call_id, "content": content}
        return {"toolResult": block | ({"status": "error"} if is_error else {})}


def _block(block: JsonObject) -> Block:
    if isinstance(block.get("text"), str):
        return Text(string_of(block["text"]))
    if "json" in block:
        return Text(json_text(block["json"]))
    parts = object_of(block.get("citationsContent")).get("content")
    if isinstance(parts, list):
        return Text("".join(string_of(part.get("text")) for part in objects_in(parts)))
    reasoning = block.get("reasoningContent")
    if isinstance(reasoning, dict):
        text = reasoning.get("reasoningText")
        if isinstance(text, dict):
            return Thinking(string_of(text.get("text")), string_of(text.get("signature")) or None)
        return Thinking("", string_of(reasoning.get("redactedContent")) or None)
    return media_of(block) or Opaque(FORMAT, block)


def _run_by_caller(block: JsonObject, member: str) -> JsonObject | None:
    """Return the call or result in a block; None when there is none, or when its type says that the provider runs the tool."""
    value = block.get(member)
    return value if isinstance(value, dict) and not isinstance(value.get("type"), str) else None


def _server_id(value: JsonValue) -> str:
    """Return the id of a call or result whose type says that the provider runs the tool; empty for another."""
    return string_of(value.get("toolUseId")) if isinstance(value, dict) and isinstance(value.get("type"), str) else ""


def _use(call: ToolCall, call_id: str) -> JsonObject:
    return {"toolUseId": call_id, "name": legal_tool_name(call.name), "input": tool_input(call)}
