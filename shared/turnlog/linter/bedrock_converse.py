"""The checker of Amazon Bedrock Converse: rules for the ``messages`` of a request. Answers: `bedrock_converse_table`.

The shapes are those of the service's API model. An AWS SDK checks a request against that model before it sends it
(``ParamValidationError``): it refuses unknown keys, unknown members of a union and more than one member, and so do we.

Deliberately not checked:

* Whether ``toolConfig`` is sent when the history has tool blocks: it is not part of the messages.
* Text beside results in one message: Claude accepts it after them, some models do not
  (https://github.com/langchain-ai/langchain-aws/issues/141).
* Claude's rules for reasoning (first, signed, not last): other models send it otherwise.
* A model's own limits on media, and whether it accepts them at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from turnlog.linter import bedrock_converse_table as table
from turnlog.linter.rules import (
    MessageReader,
    TurnPairing,
    describe_value,
    image_side,
    image_type,
    is_filled,
    is_match,
    is_one_of,
    kind_of,
)

_TOOL_USE_ID = re.compile(rf"[a-zA-Z0-9_.:-]{{1,{table.MAX_ID}}}")
_TOOL_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{table.MAX_NAME}}}")
# The reference does not list "_", but the service accepts it. The only white space it accepts is the plain space.
_DOCUMENT_NAME = re.compile(rf"(?!.*  )[a-zA-Z0-9_ ()\[\]-]{{1,{table.MAX_DOCUMENT_NAME}}}")
_S3_URI = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?", re.DOTALL)

Spec: TypeAlias = str | frozenset[str] | tuple[str | frozenset[str]]
"""A name in `_LEAVES` or `_SHAPES`, the values of an enumeration, or a list (a tuple of one) of either."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """An object of the API model: its members with their specs. A ``union`` must have exactly one member."""

    members: Mapping[str, Spec]
    required: tuple[str, ...] = ()
    union: bool = False


def _union(**members: Spec) -> _Shape:
    return _Shape(members, union=True)


_IMAGES = frozenset({"png", "jpeg", "gif", "webp"})
_DOCUMENTS = frozenset({"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"})
_VIDEOS = frozenset({"mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"})
_AUDIOS = frozenset(
    {*("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg", "mpga", "pcm"), "webm"}
)
_QUALIFIERS = frozenset({"grounding_source", "query", "guard_content"})
_SHAPES: Mapping[str, _Shape] = {
    "Message": _Shape({"role": "any", "content": ("ContentBlock",)}, ("content",)),
    "ContentBlock": _union(
        text="visible text",
        image="Image",
        document="Document",
        video="Video",
        audio="Audio",
        toolUse="ToolUse",
        toolResult="ToolResult",
        guardContent="GuardContent",
        cachePoint="CachePoint",
        reasoningContent="Reasoning",
        citationsContent="CitationsContent",
        searchResult="SearchResult",
        toolAddition="ToolChange",
        toolRemoval="ToolChange",
    ),
    "Image": _Shape({"format": _IMAGES, "source": "MediaSource", "error": "object"}, ("format", "source")),
    "Video": _Shape({"format": _VIDEOS, "source": "MediaSource"}, ("format", "source")),
    "Audio": _Shape({"format": _AUDIOS, "source": "MediaSource", "error": "object"}, ("format", "source")),
    "MediaSource": _union(bytes="bytes", s3Location="S3Location"),
    "S3Location": _Shape({"uri": "uri", "bucketOwner": "string"}, ("uri",)),
    "Document": _Shape(
        {
            "format": _DOCUMENTS,
            "name": "document name",
            "source": "DocumentSource",
            "context": "string",
            "citations": "CitationsConfig",
        },
        ("name", "source"),
    ),
    "DocumentSource": _union(bytes="bytes", s3Location="S3Location", text="string", content=("Text",)),
    "Text": _union(text="string"),
    "CitationsConfig": _Shape({"enabled": "boolean"}, ("enabled",)),
    "ToolUse": _Shape(
        {"toolUseId": "id", "name": "tool name", "input": "input", "type": frozenset({"server_tool_use"})}
    ),
    "ToolResult": _Shape(
        {"toolUseId": "id", "content": ("ResultBlock",), "status": frozenset({"success", "error"}), "type": "string"},
        ("content",),
    ),
    "ResultBlock": _union(
        json="json", text="visible text", image="Image", document="Document", video="Video", searchResult="SearchResult"
    ),
    "GuardContent": _union(text="GuardText", image="GuardImage"),
    "GuardText": _Shape({"text": "string", "qualifiers": (_QUALIFIERS,)}, ("text",)),
    "GuardImage": _Shape({"format": frozenset({"png", "jpeg"}), "source": "GuardSource"}, ("format", "source")),
    "GuardSource": _union(bytes="bytes"),
    "CachePoint": _Shape({"type": frozenset({"default"}), "ttl": frozenset({"5m", "1h"})}, ("type",)),
    "Reasoning": _union(reasoningText="ReasoningText", redactedContent="bytes"),
    "ReasoningText": _Shape({"text": "string", "signature": "string"}, ("text",)),
    "CitationsContent": _Shape({"content": ("Text",), "citations": ("object",)}),
    "SearchResult": _Shape(
        {"source": "string", "title": "string", "content": ("SearchText",), "citations": "CitationsConfig"},
        ("source", "title", "content"),
    ),
    "SearchText": _Shape({"text": "string"}, ("text",)),
    "ToolChange": _Shape({"tool": "object"}, ("tool",)),
}


def _is_instance(*types: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, types)


_LEAVES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "any": (_is_instance(object), ""),
    "string": (_is_instance(str), "field_type"),
    "boolean": (_is_instance(bool), "field_type"),
    "object": (_is_instance(dict), "field_type"),
    "bytes": (lambda value: isinstance(value, str | bytes) and len(value) > 0, "field_type"),
    "visible text": (lambda value: isinstance(value, str) and value.strip() != "", "text_blank"),
    "uri": (partial(is_match, pattern=_S3_URI), "s3_uri"),
    "document name": (partial(is_match, pattern=_DOCUMENT_NAME), "document_name"),
    "id": (partial(is_match, pattern=_TOOL_USE_ID), "call_id"),
    "tool name": (partial(is_match, pattern=_TOOL_NAME), "call_name"),
    "input": (_is_instance(dict), "input_not_object"),
    "json": (_is_instance(dict), "json_not_object"),
}
"""Leaf -> the test of its value, and the rule that is broken when the test fails."""

_RULES_WHEN_MISSING: Mapping[str, str] = {"id": "call_id", "tool name": "call_name", "input": "input_not_object"}
"""Leaf -> the rule that is broken when the member is missing. The service has its own messages for these."""


class ConverseReader(MessageReader):
    """Reads the messages once. Keeps the role of the current turn and the calls that have no result yet."""

    def __init__(self) -> None:
        super().__init__(table.RULES)
        self._pairing = TurnPairing(self)
        self._role: object = None
        self._role_pointer = ""
        self._has_turns = False
        self._only_results = True
        self._documents: set[str] = set()
        self._cache_points = 0
        self._is_short_before = False

    def take(self, pointer: str, message: object) -> None:
        self._check_value(pointer, message, "Message")
        role = message.get("role") if isinstance(message, dict) else None
        if is_one_of(role, {"user", "assistant"}) and isinstance(message, dict):
            self._take_turn(pointer, role, message.get("content"))
        elif role == "system":
            self.add("system_role", f"{pointer}/role", "the list has a system message")
        else:
            if isinstance(message, dict):
                self.add("unknown_role", f"{pointer}/role", f"the role is {describe_value(role)}")
            self._pairing.end_turn()
            self._role, self._has_turns = None, True

    def end(self) -> None:
        if self._role == "assistant" and not self._pairing.open:
            self.add("ends_on_assistant", self._role_pointer, "the last message is the assistant's")
        self._pairing.end_turn()

    def _take_turn(self, pointer: str, role: str, content: object) -> None:
        self._role_pointer = f"{pointer}/role"
        if not self._has_turns and role == "assistant":
            self.add("first_not_user", self._role_pointer, "the first message is the assistant's")
        elif role == self._role:
            self.add("roles_not_alternating", self._role_pointer, f"the message before has the role {role} too")
        elif self._role == "user":
            self._pairing.end_turn()
        self._role, self._has_turns = role, True
        if isinstance(content, list):
            self._take_content(f"{pointer}/content", content)

    def _take_content(self, pointer: str, content: list[object]) -> None:
        counts = {"image": 0, "document": 0, "text": 0}
        self._only_results = True
        if not content:
            self.add("content_empty", pointer, "content is an empty list")
        for index, block in enumerate(content):
            if isinstance(block, dict):
                for key in counts:
                    counts[key] += key in block
                self._take_block(f"{pointer}/{index}", block)
                self._only_results &= not block.keys() - {"toolResult", "cachePoint"}
        if counts["image"] > table.MAX_IMAGES:
            self.add("too_many_images", pointer, f"the message has {counts['image']} images")
        if counts["document"] > table.MAX_DOCUMENTS:
            self.add("too_many_documents", pointer, f"the message has {counts['document']} documents")
        if counts["document"] and not counts["text"] and self._role == "user":
            self.add("document_without_text", pointer, "the message has a document and no text")

    def _take_block(self, pointer: str, block: dict[str, object]) -> None:
        for key in ("image", "document"):
            if key in block and self._role == "assistant":
                self.add("media_wrong_role", f"{pointer}/{key}", f"{key} in a message of the assistant")
        if "cachePoint" in block:
            self._take_cache_point(f"{pointer}/cachePoint", block["cachePoint"])
        for key, role in (("toolUse", "assistant"), ("toolResult", "user"), ("reasoningContent", "assistant")):
            body = block.get(key)
            if not isinstance(body, dict) or body.get("type") is not None:  # typed: run by the provider
                continue
            call_id = body.get("toolUseId")
            valid_id = call_id if is_match(call_id, _TOOL_USE_ID) else None
            if role != self._role:
                self.add("block_wrong_role", f"{pointer}/{key}", f"{key} in a message of the {self._role}")
            elif key == "toolUse":
                self._pairing.add_call(f"{pointer}/{key}", "toolUseId", valid_id)
            elif key == "toolResult":
                self._take_result(f"{pointer}/{key}", body, valid_id)

    def _take_cache_point(self, pointer: str, point: object) -> None:
        self._cache_points += 1
        if self._cache_points == table.MAX_CACHE_POINTS + 1:
            self.add("too_many_breakpoints", pointer, f"{table.MAX_CACHE_POINTS} cache points are before it")
        is_long = isinstance(point, dict) and point.get("ttl") == "1h"
        if is_long and self._is_short_before:
            self.add("breakpoint_order", f"{pointer}/ttl", "what is before it is cached for five minutes")
        self._is_short_before = self._is_short_before or not is_long

    def _take_result(self, pointer: str, body: dict[str, object], call_id: str | None) -> None:
        if self._pairing.add_result(f"{pointer}/toolUseId", call_id) and not self._only_results:
            self.add("result_after_content", pointer, "other content comes before the result")
        if body.get("status") == "error" and body.get("content") == []:
            self.add("error_empty", f"{pointer}/content", "the result is an error without content")

    def _check_value(self, pointer: str, value: object, spec: Spec) -> None:
        if isinstance(spec, frozenset):
            if not is_one_of(value, spec):
                self.add("enum_value", pointer, f"{describe_value(value)} is none of {', '.join(sorted(spec))}")
        elif isinstance(spec, tuple):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    self._check_value(f"{pointer}/{index}", item, spec[0])
            else:
                self.add("field_type", pointer, f"the value is {kind_of(value)}, not a list")
        elif spec in _SHAPES:
            self._check_shape(pointer, value, _SHAPES[spec])
        else:
            self._check_leaf(pointer, value, spec)

    def _check_shape(self, pointer: str, value: object, shape: _Shape) -> None:
        if not isinstance(value, dict):
            self.add("field_type", pointer, f"the value is {kind_of(value)}, not an object")
            return
        self.unknown_keys(pointer, value, shape.members)
        known = [key for key in shape.members if key in value]
        if shape.union and (len(known) > 1 or not value):
            self.add("union_members", pointer, f"the union has {len(known)} members: {', '.join(known) or 'none'}")
        if shape in (_SHAPES["Image"], _SHAPES["Document"]):
            self._check_media(pointer, value, "image" if shape is _SHAPES["Image"] else "document")
        for key, spec in shape.members.items():
            if key in value:
                self._check_value(f"{pointer}/{key}", value[key], spec)
            elif isinstance(spec, str) and spec in _RULES_WHEN_MISSING:
                self._check_leaf(f"{pointer}/{key}", None, spec)
            elif key in shape.required:
                self.add("field_missing", f"{pointer}/{key}", f"{key} is missing")

    def _check_media(self, pointer: str, media: dict[str, object], kind: str) -> None:
        source, format = media.get("source"), media.get("format")
        data = source.get("bytes") if isinstance(source, dict) else None
        if kind == "image" and is_one_of(format, _IMAGES) and is_filled(data) and image_type(data) != f"image/{format}":
            self.add("image_data", f"{pointer}/source/bytes", f"the bytes are no {format} in base64")
        size = len(data) * 3 // 4 if isinstance(data, str) else len(data) if isinstance(data, bytes) else 0
        if size > table.MAX_BYTES[kind]:
            self.add("media_bytes", pointer, f"the {kind} has {size} bytes")
        side = image_side(data) if kind == "image" else 0
        if side > table.MAX_SIDE:
            self.add("image_pixels", pointer, f"a side of the image has {side} pixels")

    def _check_leaf(self, pointer: str, value: object, leaf: str) -> None:
        is_valid, rule = _LEAVES[leaf]
        if is_valid(value):
            rule = ""
            if leaf == "document name" and isinstance(value, str):
                rule = "document_name_repeated" if value in self._documents else ""
                self._documents.add(value)
        elif leaf in {"visible text", "document name"} and not isinstance(value, str):
            rule = "field_type"
        if rule:
            # Arguments and texts can be anything, so violations do not quote them.
            description = kind_of(value) if leaf in {"input", "visible text"} else describe_value(value)
            self.add(rule, pointer, f"the value is {description}")
