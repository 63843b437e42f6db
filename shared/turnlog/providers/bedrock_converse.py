"""Bedrock Converse messages.

Sources of the shapes and rules: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html,
API_runtime_ContentBlock.html, API_runtime_ToolUseBlock.html, API_runtime_ToolResultBlock.html and
API_runtime_DocumentBlock.html beside it. Bytes are base64, as in the HTTP API.

User and assistant alternate: neighbours of one role are one message. Reasoning is sent as it came, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers.alternation import Layout, apart, grown, with_results_first, with_thinking_first
from turnlog.providers.base import Bodies, Rendered, Turn
from turnlog.providers.blocks import (
    given_role,
    invalid,
    is_safe_id,
    is_tool_name,
    json_text,
    legal_tool_name,
    placeholder_text,
    role_with,
    string,
    tool_input,
)
from turnlog.providers.tools import converted

DOCUMENT_TEXT = "[document]"
_IMAGE_TYPES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_FILE_TYPES = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_OF_FORMAT = {name: media_type for media_type, name in (_IMAGE_TYPES | _FILE_TYPES).items()}
_LEGAL_NAME = re.compile(r"[A-Za-z0-9()\[\]\-]+(?: [A-Za-z0-9()\[\]\-]+)*")
_MAX_NAME = 200


def media_of(block: JsonObject) -> Media | None:
    """An image or a document; None where the block is neither, or says not where it is."""
    image, document = block.get("image"), block.get("document")
    inner = image if isinstance(image, dict) else document
    source = inner.get("source") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(source, dict):
        return None
    place = source.get("s3Location")
    data = string(source.get("bytes")) or None
    url = (string(place.get("uri")) if isinstance(place, dict) else "") or None
    if not data and not url:
        return None
    media_type = _OF_FORMAT.get(string(inner.get("format")))
    name = string(inner.get("name")) or None
    return Media("image" if inner is image else "file", media_type, data=data, url=url, name=name)


def is_document(block: JsonValue) -> bool:
    return isinstance(block, dict) and "document" in block


def media_block(media: Media) -> JsonObject:
    """The block; the name as text where the provider takes no such media."""
    is_image = media.kind == "image"
    default = "png" if is_image else "pdf"
    known = _IMAGE_TYPES if is_image else _FILE_TYPES
    kind = known.get(media.media_type) if media.media_type else default
    source: JsonObject | None = {"bytes": media.data} if media.data else None
    if source is None and media.url and media.url.startswith("s3://"):
        source = {"s3Location": {"uri": media.url}}
    if source is None or kind is None or media.kind == "audio":
        return {"text": placeholder_text(media)}
    if is_image:
        return {"image": {"format": kind, "source": source}}
    return {"document": {"format": kind, "name": document_name(media.name or ""), "source": source}}


def document_name(name: str) -> str:
    """A name that the provider takes: letters, digits, single spaces, hyphens, parentheses and brackets."""
    if len(name) <= _MAX_NAME and _LEGAL_NAME.fullmatch(name):
        return name
    legal = re.sub(r"[^A-Za-z0-9()\[\]\-]+", " ", name).strip()
    return legal[:_MAX_NAME].strip() or "document"


def with_documents(messages: list[JsonObject]) -> list[JsonObject]:
    """The messages, every document's name legal and its own, with text beside documents."""
    names = set[str]()
    return [_with_named(message, names) for message in messages]


def _with_named(message: JsonObject, names: set[str]) -> JsonObject:
    content = message["content"]
    assert isinstance(content, list)  # noqa: S101 - every body that is rendered has a list
    named = [_named(block, names) for block in content]
    if any(map(is_document, named)) and not any(isinstance(block, dict) and "text" in block for block in named):
        named.append({"text": DOCUMENT_TEXT})
    return message if named == content else {**message, "content": named}


def _named(block: JsonValue, names: set[str]) -> JsonValue:
    if not isinstance(block, dict):
        return block
    result, document = block.get("toolResult"), block.get("document")
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        inner = result["content"]
        assert isinstance(inner, list)  # noqa: S101 - looked at just now
        named = [_named(one, names) for one in inner]
        return block if named == inner else {**block, "toolResult": {**result, "content": named}}
    if not isinstance(document, dict):
        return block
    legal = document_name(string(document.get("name")))
    name, again = legal, 1
    while name.lower() in names:
        again += 1
        name = f"{legal[: _MAX_NAME - 8]} ({again})"
    names.add(name.lower())
    return block if name == document.get("name") else {**block, "document": {**document, "name": name}}


FORMAT = "bedrock_converse"
NO_OUTPUT = "[no output]"
_MAX_ID = 64
_KEYS = frozenset(
    {
        "text",
        "image",
        "document",
        "video",
        "audio",
        "toolUse",
        "toolResult",
        "reasoningContent",
        "cachePoint",
        "guardContent",
        "citationsContent",
        "searchResult",
    }
)
"""A content block is a union: an object with one of these keys, and no ``type``."""


class BedrockConverseCodec:
    """The `bedrock_converse` format; see `turnlog.providers.base.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        content = body.get("content")
        blocks = content if isinstance(content, list) else []
        return any(isinstance(block, dict) and "type" not in block and _KEYS & block.keys() for block in blocks)

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        given = given_role(body)
        content, calls, results = list[Block](), list[ToolCall](), list[ToolResult]()
        for at, block in enumerate(_content(body.get("content"), "/content")):
            use, result = block.get("toolUse"), block.get("toolResult")
            if isinstance(use, dict):
                calls.append(
                    ToolCall(string(use.get("toolUseId")), string(use.get("name")), json_text(use.get("input")))
                )
            elif isinstance(result, dict):
                failed = result.get("status") == "error" if is_error is None else is_error
                inner = _content(result.get("content"), f"/content/{at}/toolResult/content")
                results.append(ToolResult(string(result.get("toolUseId")), tuple(map(_block, inner)), is_error=failed))
            else:
                content.append(_block(block))
        role = role_with(body, tuple(content), calls=bool(calls), results=bool(results))
        return Message(role, tuple(content), tuple(calls), tuple(results), given_role=given)

    def legal_id(self, call_id: str) -> bool:
        return is_safe_id(call_id, longest=_MAX_ID)

    def render(
        self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject], bodies: Bodies | None = None
    ) -> Rendered:
        text, rest = apart(turns, system)
        in_system = len(turns) - len(rest)
        layout, told = Layout(_is_result, in_system=in_system), list[Sequence[JsonObject]]([()] * in_system)
        made = [self.bodies(turn) for turn in rest] if bodies is None else bodies[in_system:]
        valid = with_thinking_first(chain.from_iterable(made), _is_reasoning)
        for one in made:
            told.append(tuple(islice(valid, len(one))))
            for body in told[-1]:
                if layout.role == body["role"]:
                    layout.join(body)
                else:
                    layout.put(body)
            layout.end_turn()
        framed, ends = layout.framed(_line)
        messages = with_documents(framed)
        ends = grown(ends, framed, messages)
        return Rendered(messages, system=text, tools=self.tools(tools), ends=ends, bodies=told)

    def bodies(self, turn: Turn) -> list[JsonObject]:
        repaired = _repaired(turn) if turn.format == FORMAT and turn.body is not None else None
        return _made(turn) if repaired is None else repaired

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        return converted(tools, FORMAT)


def _content(value: JsonValue, pointer: str) -> list[JsonObject]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"text": value}]
    if not isinstance(value, list) or not all(isinstance(block, dict) for block in value):
        raise invalid(pointer, "content is neither a list of blocks, a string nor null")
    return [block for block in value if isinstance(block, dict)]


def _block(block: JsonObject) -> Block:
    if isinstance(block.get("text"), str):
        return Text(string(block["text"]))
    if "json" in block:
        return Text(json_text(block["json"]))
    cited = block.get("citationsContent")
    if isinstance(cited, dict) and isinstance(cited.get("content"), list):
        said = cited["content"]
        assert isinstance(said, list)  # noqa: S101 - looked at just now
        return Text("".join(string(one.get("text")) for one in said if isinstance(one, dict)))
    reasoning = block.get("reasoningContent")
    if isinstance(reasoning, dict):
        text = reasoning.get("reasoningText")
        if isinstance(text, dict):
            return Thinking(string(text.get("text")), string(text.get("signature")) or None)
        return Thinking("", string(reasoning.get("redactedContent")) or None)
    return media_of(block) or Opaque(FORMAT, block)


def _is_result(block: JsonValue) -> bool:
    return isinstance(block, dict) and "toolResult" in block


def _is_blank(block: JsonValue) -> bool:
    """Text without a sign in it, which the provider refuses."""
    if not isinstance(block, dict) or "text" not in block:
        return False
    return not string(block["text"]).strip()


def _line(text: str) -> JsonObject:
    return {"role": "user", "content": [{"text": text}]}


# ---------------------------------------------------------------- rendering


@dataclass(slots=True)
class _Ids:
    calls: Iterator[tuple[ToolCall, str]]
    results: Iterator[str]
    is_altered: bool = False


def _repaired(turn: Turn) -> list[JsonObject] | None:
    """The body as given, or a copy with repairs; None where it has to be made anew."""
    body, message = turn.body, turn.message
    assert body is not None  # noqa: S101 - the caller has looked
    role = "user" if message.role == "tool" else message.role
    content = body.get("content")
    if body.get("role") != role or role not in ("user", "assistant") or not isinstance(content, list):
        return None
    if (message.tool_calls and role != "assistant") or (message.tool_results and role != "user"):
        return None
    if role == "assistant" and any(isinstance(block, Media) for block in message.content):
        return None
    ids = _Ids(iter(zip(message.tool_calls, turn.call_ids, strict=True)), iter(turn.result_ids))
    kept = [block if not isinstance(block, dict) else _repaired_block(block, ids) for block in content]
    kept = [block for block in kept if not _is_blank(block)]
    if ids.is_altered:
        kept = [block for block in kept if not _is_reasoning(block)]
    if all(map(_is_reasoning, kept)):
        return []
    if message.tool_results:
        kept = with_results_first(kept, _is_result)
    return [body] if kept == content else [{**body, "content": kept}]


def _repaired_block(block: JsonObject, ids: _Ids) -> JsonObject:
    use, result = block.get("toolUse"), block.get("toolResult")
    if isinstance(use, dict):
        call, call_id = next(ids.calls)
        if is_tool_name(call.name) and isinstance(use.get("input"), dict):
            return block if use.get("toolUseId") == call_id else {**block, "toolUse": {**use, "toolUseId": call_id}}
        ids.is_altered = True
        repaired: JsonObject = {"toolUseId": call_id, "name": legal_tool_name(call.name), "input": tool_input(call)}
        return {**block, "toolUse": {**use, **repaired}}
    if isinstance(result, dict):
        call_id, inner = next(ids.results), result.get("content")
        kept: list[JsonValue] = [one for one in inner if not _is_blank(one)] if isinstance(inner, list) else []
        if isinstance(inner, str) and inner.strip():
            kept = [{"text": inner}]
        kept = kept or [{"text": NO_OUTPUT}]
        if inner == kept and result.get("toolUseId") == call_id:
            return block
        return {**block, "toolResult": {**result, "toolUseId": call_id, "content": kept}}
    return block


def _is_reasoning(block: JsonValue) -> bool:
    return isinstance(block, dict) and "reasoningContent" in block


def _made(turn: Turn) -> list[JsonObject]:
    message = turn.message
    results: list[JsonValue] = [
        _made_result(result, call_id) for result, call_id in zip(message.tool_results, turn.result_ids, strict=True)
    ]
    calls: list[JsonValue] = [
        {"toolUse": {"toolUseId": call_id, "name": legal_tool_name(call.name), "input": tool_input(call)}}
        for call, call_id in zip(message.tool_calls, turn.call_ids, strict=True)
    ]
    if message.role == "assistant" or calls:
        content = _made_blocks(message.content, has_media=False)
        said: JsonObject = {"role": "assistant", "content": [*content, *calls]}
        answers: JsonObject = {"role": "user", "content": results}
        # Results of the message's own calls come after them, results of others before.
        is_own = bool(set(turn.call_ids) & set(turn.result_ids))
        both = [said, answers] if is_own else [answers, said]
    else:
        both = [{"role": "user", "content": [*results, *_made_blocks(message.content)]}]
    return [body for body in both if body["content"]]


def _made_result(result: ToolResult, call_id: str) -> JsonObject:
    content = _made_blocks(result.content) or [{"text": NO_OUTPUT}]
    made: JsonObject = {"toolUseId": call_id, "content": content}
    return {"toolResult": made | ({"status": "error"} if result.is_error else {})}


def _made_blocks(blocks: Sequence[Block], *, has_media: bool = True) -> list[JsonValue]:
    """The blocks that are told here: no reasoning, nothing that only another format has, no blank text; media by name only
    where an assistant would show them."""
    found = list[JsonValue]()
    for block in blocks:
        if isinstance(block, Media):
            found.append(media_block(block) if has_media else {"text": placeholder_text(block)})
        elif isinstance(block, Text) and block.text.strip():
            found.append({"text": block.text})
        elif isinstance(block, Opaque) and block.format == FORMAT:
            found.append(block.value)
    return found
