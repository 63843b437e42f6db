"""The rules of Amazon Bedrock Converse for the ``messages`` of a request, each with its answer and its source.

The shapes are those of the service's model, to which an AWS SDK holds a request before it sends it
(``ParamValidationError``): unknown keys, unknown members of a union and more than one member are refused there, so they
are violations here.

Not rules, on purpose:

* That ``toolConfig`` is sent when a tool block is in the history: it is no part of the messages.
* Text beside results in one message: Claude takes it behind them, some models do not
  (https://github.com/langchain-ai/langchain-aws/issues/141).
* What Claude demands of reasoning (first, signed, not last): other models send it otherwise.
* What a model takes of the media: sizes, the number of bytes, whether it takes them at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from turnlog.linter.bedrock_converse_table import MAX_DOCUMENT_NAME, MAX_DOCUMENTS, MAX_ID, MAX_IMAGES, MAX_NAME, RULES
from turnlog.linter.reading import Findings, TurnPairing, entries, is_one_of, kind_of, quoted
from turnlog.linter.rules import Violation

_TOOL_USE_ID = re.compile(rf"[a-zA-Z0-9_.:-]{{1,{MAX_ID}}}")
_TOOL_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
# The reference does not name "_", and the service takes it; of white space it takes the plain space only.
_DOCUMENT_NAME = re.compile(rf"(?!.*  )[a-zA-Z0-9_ ()\[\]-]{{1,{MAX_DOCUMENT_NAME}}}")
_S3_URI = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?", re.DOTALL)

# --- the shapes of the service's model

Spec: TypeAlias = str | frozenset[str] | tuple[str | frozenset[str]]
"""The name of a leaf or of a shape; the values of an enumeration; a list of one of them."""


@dataclass(frozen=True, slots=True)
class _Shape:
    members: Mapping[str, Spec]
    required: tuple[str, ...] = ()
    union: bool = False


def _union(**members: Spec) -> _Shape:
    return _Shape(members, union=True)


_IMAGES = frozenset({"png", "jpeg", "gif", "webp"})
_DOCUMENTS = frozenset({"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"})
_VIDEOS = frozenset({"mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"})
_AUDIOS = frozenset(
    {
        *("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg", "mpga", "pcm"),
        "webm",
    }
)
_QUALIFIERS = frozenset({"grounding_source", "query", "guard_content"})
_SHAPES: Mapping[str, _Shape] = {
    "Message": _Shape({"role": "any", "content": ("ContentBlock",)}, ("content",)),
    "ContentBlock": _union(
        text="said",
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
        {
            "toolUseId": "id",
            "content": ("ResultBlock",),
            "status": frozenset({"success", "error"}),
            "type": "string",
        },
        ("content",),
    ),
    "ResultBlock": _union(
        json="json", text="said", image="Image", document="Document", video="Video", searchResult="SearchResult"
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


def _is(*types: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, types)


def _like(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


_LEAVES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "any": (_is(object), ""),
    "string": (_is(str), "field_type"),
    "boolean": (_is(bool), "field_type"),
    "object": (_is(dict), "field_type"),
    "bytes": (lambda value: isinstance(value, str | bytes) and len(value) > 0, "field_type"),
    "said": (lambda value: isinstance(value, str) and value.strip() != "", "text_blank"),
    "uri": (_like(_S3_URI), "s3_uri"),
    "document name": (_like(_DOCUMENT_NAME), "document_name"),
    "id": (_like(_TOOL_USE_ID), "call_id"),
    "tool name": (_like(_TOOL_NAME), "call_name"),
    "input": (_is(dict), "input_not_object"),
    "json": (_is(dict), "json_not_object"),
}
"""Leaf -> what its value must be, and the rule that is broken when it is not."""

_SPOKEN: Mapping[str, str] = {"id": "call_id", "tool name": "call_name", "input": "input_not_object"}
"""Leaf -> the rule that is broken when it lacks: for these the service has words of its own."""


def check(messages: object) -> list[Violation]:
    """Every violation, in the order in which a reader from the top can know of it. Never raises; linear."""
    found = Findings(RULES)
    reader = _Reader(found)
    for at, message in entries(found, messages):
        reader.take(at, message)
    reader.end()
    return found.violations


class _Reader:
    """Goes through the messages once; knows whose turn it is, and the calls that wait."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._pairing = TurnPairing(found)
        self._role: object = None
        self._at = ""
        self._any_turn = False
        self._only_results = True
        self._documents: set[str] = set()

    # --- messages

    def take(self, at: str, message: object) -> None:
        self._check(at, message, "Message")
        role = message.get("role") if isinstance(message, dict) else None
        if is_one_of(role, {"user", "assistant"}) and isinstance(message, dict):
            self._take_turn(at, role, message.get("content"))
        elif role == "system":
            self._found.add("system_role", f"{at}/role", "a system message stands in the list")
        else:
            if isinstance(message, dict):
                self._found.add("unknown_role", f"{at}/role", f"the role is {quoted(role)}")
            self._pairing.close()
            self._role, self._any_turn = None, True

    def end(self) -> None:
        if self._role == "assistant" and not self._pairing.open:
            self._found.add("ends_on_assistant", self._at, "the last message is the assistant's")
        self._pairing.close()

    def _take_turn(self, at: str, role: str, content: object) -> None:
        self._at = f"{at}/role"
        if not self._any_turn and role == "assistant":
            self._found.add("first_not_user", self._at, "the first message is the assistant's")
        elif role == self._role:
            self._found.add("roles_not_alternating", self._at, f"the message before has the role {role} too")
        elif self._role == "user":
            self._pairing.close()
        self._role, self._any_turn = role, True
        if isinstance(content, list):
            self._take_content(f"{at}/content", content)

    def _take_content(self, at: str, content: list[object]) -> None:
        counts = {"image": 0, "document": 0, "text": 0}
        self._only_results = True
        if not content:
            self._found.add("content_empty", at, "content is an empty list")
        for index, block in enumerate(content):
            if isinstance(block, dict):
                for key in counts:
                    counts[key] += key in block
                self._take_block(f"{at}/{index}", block)
                self._only_results &= not block.keys() - {"toolResult", "cachePoint"}
        if counts["image"] > MAX_IMAGES:
            self._found.add("too_many_images", at, f"the message has {counts['image']} images")
        if counts["document"] > MAX_DOCUMENTS:
            self._found.add("too_many_documents", at, f"the message has {counts['document']} documents")
        if counts["document"] and not counts["text"] and self._role == "user":
            self._found.add("document_without_text", at, "the message has a document and no text")

    def _take_block(self, at: str, block: dict[str, object]) -> None:
        for key in ("image", "document"):
            if key in block and self._role == "assistant":
                self._found.add("media_wrong_role", f"{at}/{key}", f"{key} in a message of the assistant")
        for key, role in (("toolUse", "assistant"), ("toolResult", "user"), ("reasoningContent", "assistant")):
            body = block.get(key)
            if not isinstance(body, dict) or body.get("type") is not None:  # with a type: of the server, in one message
                continue
            call_id = body.get("toolUseId")
            valid = call_id if isinstance(call_id, str) and _TOOL_USE_ID.fullmatch(call_id) else None
            if role != self._role:
                self._found.add("block_wrong_role", f"{at}/{key}", f"{key} in a message of the {self._role}")
            elif key == "toolUse":
                self._pairing.call(f"{at}/{key}", "toolUseId", valid)
            elif key == "toolResult":
                if self._pairing.result(f"{at}/{key}/toolUseId", valid) and not self._only_results:
                    self._found.add("result_after_content", f"{at}/{key}", "other content comes before the result")
                if body.get("status") == "error" and body.get("content") == []:
                    self._found.add("error_empty", f"{at}/{key}/content", "the result is an error without content")

    # --- shapes

    def _check(self, at: str, value: object, spec: Spec) -> None:
        if isinstance(spec, frozenset):
            if not is_one_of(value, spec):
                self._found.add("enum_value", at, f"{quoted(value)} is none of {', '.join(sorted(spec))}")
        elif isinstance(spec, tuple):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    self._check(f"{at}/{index}", item, spec[0])
            else:
                self._found.add("field_type", at, f"the value is {kind_of(value)}, not a list")
        elif spec in _SHAPES:
            self._check_shape(at, value, _SHAPES[spec])
        else:
            self._check_leaf(at, value, spec)

    def _check_shape(self, at: str, value: object, shape: _Shape) -> None:
        if not isinstance(value, dict):
            self._found.add("field_type", at, f"the value is {kind_of(value)}, not an object")
            return
        self._found.unknown_keys(at, value, shape.members)
        known = [key for key in shape.members if key in value]
        if shape.union and (len(known) > 1 or not value):
            self._found.add("union_members", at, f"the union has {len(known)} members: {', '.join(known) or 'none'}")
        for key, spec in shape.members.items():
            if key in value:
                self._check(f"{at}/{key}", value[key], spec)
            elif isinstance(spec, str) and spec in _SPOKEN:
                self._check_leaf(f"{at}/{key}", None, spec)
            elif key in shape.required:
                self._found.add("field_missing", f"{at}/{key}", f"{key} is missing")

    def _check_leaf(self, at: str, value: object, leaf: str) -> None:
        holds, rule = _LEAVES[leaf]
        if holds(value):
            rule = ""
            if leaf == "document name" and isinstance(value, str):
                rule = "document_name_repeated" if value in self._documents else ""
                self._documents.add(value)
        elif leaf in {"said", "document name"} and not isinstance(value, str):
            rule = "field_type"
        if rule:
            # What a tool is called with may be anything: it is not quoted.
            told = kind_of(value) if leaf in {"input", "said"} else quoted(value)
            self._found.add(rule, at, f"the value is {told}")
