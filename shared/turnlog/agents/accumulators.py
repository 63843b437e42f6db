"""Accumulators of each provider's events: Anthropic Messages, Bedrock's ConverseStream, OpenAI Chat Completions and Responses.

https://docs.anthropic.com/en/docs/build-with-claude/streaming, https://platform.openai.com/docs/api-reference/chat-streaming.
Many services have the protocol of Chat Completions. Some of them do not number the calls, or number all of them 0, and some
repeat an id or a name in each chunk. So a call begins with a new number or a new id.
"""

from __future__ import annotations

import base64
import copy
from abc import abstractmethod
from contextlib import suppress
from typing import Any, cast

from turnlog.agents.streams import (
    Accumulator,
    Event,
    integer_of,
    list_or_empty,
    mapping_or_empty,
    parsed_input,
    usage_of,
)
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.providers.blocks import string_of

_JOINED = {"text_delta": "text", "thinking_delta": "thinking"}


class _BlockAccumulator(Accumulator):
    """Base of the accumulators for messages of numbered blocks. ``_inputs`` are the JSON texts of the calls' inputs so far."""

    def __init__(self) -> None:
        self._role = "assistant"
        self._blocks: dict[int, JsonObject] = {}
        self._inputs: dict[int, str] = {}
        self._usage: dict[str, int] = {}

    @property
    def messages(self) -> list[JsonObject]:
        content: list[JsonValue] = [
            self._with_input(copy.deepcopy(block), self._inputs.get(index, ""))
            for index, block in sorted(self._blocks.items())
            if block
        ]
        return [{"role": self._role, "content": content}] if content else []

    @property
    def text(self) -> str:
        return "".join(self._text_of(block) for _, block in sorted(self._blocks.items()))

    @staticmethod
    @abstractmethod
    def _with_input(block: JsonObject, text: str) -> JsonObject:
        """Return a block with the input that the JSON ``text`` holds; one that is no call as it is."""

    @staticmethod
    @abstractmethod
    def _text_of(block: JsonObject) -> str:
        """Return what a block says, without thinking."""


class AnthropicAccumulator(_BlockAccumulator):
    """Accumulator for Anthropic Messages."""

    format = "anthropic"

    @staticmethod
    def recognises(event: Event) -> bool:
        return string_of(event.get("type")).startswith(("message_", "content_block_"))

    def add(self, event: Event) -> None:
        kind, index = event.get("type"), integer_of(event.get("index"))
        delta = mapping_or_empty(event.get("delta"))
        if kind == "message_start":
            message = mapping_or_empty(event.get("message"))
            self._role = string_of(message.get("role")) or self._role
            self._count(message)
            for block_index, block in enumerate(list_or_empty(message.get("content"))):
                self._blocks[block_index] = _copied(block)
        elif kind == "content_block_start":
            self._blocks[index] = _copied(event.get("content_block"))
        elif kind == "content_block_delta":
            self._add(index, delta)
        elif kind == "message_delta":
            self.finish_reason = string_of(delta.get("stop_reason")) or self.finish_reason
            self._count(event)
        elif kind == "error":
            self.fail(event.get("error"))

    @staticmethod
    def _with_input(block: JsonObject, text: str) -> JsonObject:
        return {**block, "input": parsed_input(text)} if text else block

    @staticmethod
    def _text_of(block: JsonObject) -> str:
        return string_of(block.get("text")) if block.get("type") == "text" else ""

    def _add(self, index: int, delta: Event) -> None:
        kind = string_of(delta.get("type"))
        block = self._blocks.setdefault(index, {"type": "thinking" if kind.startswith("think") else "text"})
        if kind in _JOINED:
            name = _JOINED[kind]
            block[name] = string_of(block.get(name)) + string_of(delta.get(name))
        elif kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + string_of(delta.get("partial_json"))
        elif kind == "signature_delta":
            block["signature"] = string_of(delta.get("signature"))
        elif kind == "compaction_delta":
            block |= {name: copy.deepcopy(value) for name, value in delta.items() if name != "type"}
        elif kind == "citations_delta":
            block["citations"] = [*list_or_empty(block.get("citations")), copy.deepcopy(delta.get("citation"))]

    def _count(self, event: Event) -> None:
        for name, value in mapping_or_empty(event.get("usage")).items():
            if isinstance(value, int):
                self._usage[name] = value
        self.usage = usage_of(self.format, self._usage)


class ConverseAccumulator(_BlockAccumulator):
    """`Accumulator` for Bedrock's ConverseStream."""

    format = "bedrock_converse"

    @staticmethod
    def recognises(event: Event) -> bool:
        return not event.keys().isdisjoint(("messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"))

    def add(self, event: Event) -> None:
        for kind, value in event.items():
            fields = mapping_or_empty(value)
            index = integer_of(fields.get("contentBlockIndex"))
            if kind == "messageStart":
                self._role = string_of(fields.get("role")) or self._role
            elif kind == "contentBlockStart":
                self._blocks[index] = _copied(fields.get("start"))
            elif kind == "contentBlockDelta":
                self._add(index, mapping_or_empty(fields.get("delta")))
            elif kind == "messageStop":
                self.finish_reason = string_of(fields.get("stopReason")) or "end_turn"
            elif kind == "metadata":
                self.usage = usage_of(self.format, fields.get("usage")) or self.usage
            elif kind.endswith("Exception"):
                self.fail(fields)

    @staticmethod
    def _with_input(block: JsonObject, text: str) -> JsonObject:
        if "toolUse" not in block:
            return block
        return {**block, "toolUse": {**mapping_or_empty(block["toolUse"]), "input": parsed_input(text)}}

    @staticmethod
    def _text_of(block: JsonObject) -> str:
        if "citationsContent" in block:
            parts = list_or_empty(mapping_or_empty(block["citationsContent"]).get("content"))
            return "".join(string_of(mapping_or_empty(part).get("text")) for part in parts)
        return string_of(block.get("text"))

    def _add(self, index: int, delta: Event) -> None:
        block = self._blocks.setdefault(index, {})
        if "text" in delta:
            if "citationsContent" in block:
                cited = _object(block, "citationsContent")
                cited["content"] = [{"text": self._text_of(block) + string_of(delta["text"])}]
            else:
                block["text"] = string_of(block.get("text")) + string_of(delta["text"])
        elif "toolUse" in delta:
            block.setdefault("toolUse", {})
            self._inputs[index] = self._inputs.get(index, "") + string_of(
                mapping_or_empty(delta["toolUse"]).get("input")
            )
        elif "reasoningContent" in delta:
            self._add_reasoning(block, mapping_or_empty(delta["reasoningContent"]))
        elif "citation" in delta:
            self._add_citation(block, delta["citation"])
        elif "toolResult" in delta:
            self._add_result(_object(block, "toolResult"), list_or_empty(delta["toolResult"]))
        elif "image" in delta:
            self._add_image(_object(block, "image"), mapping_or_empty(delta["image"]))

    def _add_reasoning(self, block: JsonObject, delta: Event) -> None:
        reasoning = _object(block, "reasoningContent")
        if delta.get("redactedContent") is not None:
            _add_bytes(reasoning, "redactedContent", delta["redactedContent"])
            return
        reasoning.setdefault("reasoningText", {"text": ""})
        text = _object(reasoning, "reasoningText")
        for name in ("text", "signature"):
            if name in delta:
                text[name] = string_of(text.get(name)) + string_of(delta[name])

    def _add_citation(self, block: JsonObject, citation: object) -> None:
        if "citationsContent" not in block:
            block["citationsContent"] = {"content": [{"text": string_of(block.pop("text", ""))}], "citations": []}
        cited = _object(block, "citationsContent")
        cited["citations"] = [*list_or_empty(cited.get("citations")), cast("JsonValue", copy.deepcopy(citation))]

    def _add_result(self, result: JsonObject, parts: list[Any]) -> None:
        """Add parts to the result of a tool that Bedrock runs; a text continues the text before it."""
        content = result["content"] = list_or_empty(result.get("content"))
        for part in map(mapping_or_empty, parts):
            newest = content[-1] if content else None
            if "text" in part and isinstance(newest, dict) and "text" in newest:
                newest["text"] = string_of(newest["text"]) + string_of(part["text"])
            else:
                content.append(_copied(part))

    def _add_image(self, image: JsonObject, delta: Event) -> None:
        source = mapping_or_empty(delta.get("source"))
        image |= cast("JsonObject", copy.deepcopy({name: value for name, value in delta.items() if name != "source"}))
        if source.get("bytes") is not None:
            _add_bytes(_object(image, "source"), "bytes", source["bytes"])
        elif source:
            image["source"] = _copied(source)


def _add_bytes(block: JsonObject, name: str, added: object) -> None:
    """Add bytes, or their base64, to the base64 under a name. Text that is no base64 stays as it is."""
    piece = base64.b64encode(added).decode() if isinstance(added, bytes) else string_of(added)
    pieces = [string_of(block.get(name)), piece]
    block[name] = "".join(pieces)
    with suppress(ValueError):
        block[name] = base64.b64encode(b"".join(map(base64.b64decode, pieces))).decode()


def _object(block: JsonObject, name: str) -> JsonObject:
    """Return the object under a name; a missing or other value is replaced by an empty one."""
    value = block.get(name)
    if not isinstance(value, dict):
        value = block[name] = {}
    return value


def _copied(value: object) -> JsonObject:
    """Return a copy of a mapping, an empty object for another value."""
    return copy.deepcopy(dict(mapping_or_empty(value)))


_OWN = frozenset({"role", "content", "tool_calls"})


class ChatAccumulator(Accumulator):
    """`Accumulator` for Chat Completions: chunks, or the events of OpenAI's own helper. It reads the first choice only."""

    format = "openai_chat"

    def __init__(self) -> None:
        self._role = "assistant"
        self._content: str | list[JsonValue] | None = None
        self._calls: list[_Call] = []
        self._others: JsonObject = {}

    @staticmethod
    def recognises(event: Event) -> bool:
        return "choices" in _chunk_of(event)

    def add(self, event: Event) -> None:
        event = _chunk_of(event)
        self.usage = usage_of(self.format, event.get("usage")) or self.usage
        if event.get("error"):
            self.fail(event["error"])
        for choice in map(mapping_or_empty, list_or_empty(event.get("choices"))):
            index = integer_of(choice.get("index"))
            self.choices = max(self.choices, index + 1)
            if index == 0:
                self._add(mapping_or_empty(choice.get("delta")))
                self.finish_reason = string_of(choice.get("finish_reason")) or self.finish_reason

    @property
    def messages(self) -> list[JsonObject]:
        if self.finish_reason is None and self._content is None and not (self._calls or self._others):
            return []
        has_others = bool(self._calls or self._others.keys() & {"function_call", "refusal"})
        content = copy.deepcopy(self._content) or (None if has_others else "")
        message: JsonObject = {"role": self._role, "content": content}
        message |= copy.deepcopy(self._others)
        if self._calls:
            message["tool_calls"] = [call.body() for call in self._calls]
        return [message]

    @property
    def text(self) -> str:
        if isinstance(self._content, list):
            return "".join(string_of(mapping_or_empty(part).get("text")) for part in self._content)
        return self._content or ""

    def _add(self, delta: Event) -> None:
        self._role = string_of(delta.get("role")) or self._role
        if "content" in delta:
            self._content = _joined(self._content, delta["content"])
        for part in list_or_empty(delta.get("tool_calls")):
            self._add_call(mapping_or_empty(part))
        for name, value in delta.items():
            if name not in _OWN and value not in (None, {}):
                self._others[name] = _merged(self._others.get(name), value)
        if mapping_or_empty(delta.get("audio")).keys() == {"expires_at"}:
            # The last that an answer of audio may say (https://github.com/openai/openai-node/pull/1991).
            self.finish_reason = "stop"

    def _add_call(self, part: Event) -> None:
        """Add a part of a tool call to the call with its index or id, or to a new call."""
        call_id, index = string_of(part.get("id")), part.get("index")
        call = next((other for other in self._calls if other.index == index), None) if index is not None else None
        if index is None and self._calls and not call_id:
            call = self._calls[-1]
        if call is None or (call_id and call.id and call_id != call.id):
            known = next((other for other in self._calls if call_id and other.id == call_id), None)
            call = known or _Call(index)
            if known is None:
                for other in self._calls:
                    other.index = None if other.index == index else other.index
                self._calls.append(call)
        call.add(part)


def _chunk_of(event: Event) -> Event:
    """Return the chunk in an event of ``client.chat.completions.stream()``; any other event unchanged."""
    return mapping_or_empty(event.get("chunk")) if event.get("type") == "chunk" else event


class _Call:
    """A tool call in progress. ``index`` identifies it in later chunks; None when another call has taken the number."""

    def __init__(self, index: object) -> None:
        self.index = index
        self.id = ""
        self._kind = ""
        self._name = ""
        self._arguments = ""
        self._others: JsonObject = {}

    def add(self, part: Event) -> None:
        self.id = self.id or string_of(part.get("id"))
        self._kind = string_of(part.get("type")) or self._kind or ("custom" if "custom" in part else "")
        function = mapping_or_empty(part.get("function")) or mapping_or_empty(part.get("custom"))
        name = string_of(function.get("name"))
        self._name += "" if name == self._name else name
        arguments = function.get("arguments", function.get("input"))
        self._arguments += string_of(arguments)
        for key, value in part.items():
            if key not in ("index", "id", "type", "function", "custom") and value is not None:
                self._others[key] = _merged(self._others.get(key), value)

    def body(self) -> JsonObject:
        kind = self._kind or "function"
        function: JsonObject = {"name": self._name, "input" if kind == "custom" else "arguments": self._arguments}
        return {"id": self.id, "type": kind, kind: function, **copy.deepcopy(self._others)}


def _joined(before: str | list[JsonValue] | None, content: Any) -> str | list[JsonValue] | None:
    """Append content to the content before: text to text, otherwise parts to parts."""
    if content is None:
        return before
    if isinstance(content, str) and not isinstance(before, list):
        return (before or "") + content
    parts = before if isinstance(before, list) else [{"type": "text", "text": before}] if before else []
    added = [{"type": "text", "text": content}] if isinstance(content, str) else copy.deepcopy(list_or_empty(content))
    return [*parts, *added]


def _merged(before: JsonValue, value: Any) -> JsonValue:
    """Merge a value into the one before: texts are joined, objects merged, lists extended; any other value, or id, replaces it."""
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, dict) and isinstance(value, dict):
        merged = {name: item if name == "id" else _merged(before.get(name), item) for name, item in value.items()}
        return {**before, **merged}
    if isinstance(before, list) and isinstance(value, list):
        return [*before, *copy.deepcopy(value)]
    newest: JsonValue = copy.deepcopy(value)
    return newest


_ENDS = {"response.completed": "completed", "response.incomplete": "incomplete"}
_PARTS = {"response.output_text.delta": ("content", "text"), "response.refusal.delta": ("content", "refusal")}
_TEXTS = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
    "response.mcp_call_arguments.delta": "arguments",
    "response.code_interpreter_call_code.delta": "code",
}
_THOUGHTS = {
    "response.reasoning_summary_text.delta": ("summary", "summary_text"),
    "response.reasoning_text.delta": ("content", "reasoning_text"),
}


class ResponsesAccumulator(Accumulator):
    """`Accumulator` for OpenAI Responses."""

    format = "openai_responses"

    def __init__(self) -> None:
        self._items: dict[int, JsonObject] = {}

    @staticmethod
    def recognises(event: Event) -> bool:
        return string_of(event.get("type")).startswith("response.")

    def add(self, event: Event) -> None:
        kind, index = string_of(event.get("type")), integer_of(event.get("output_index"))
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._items[index] = _copied(event.get("item"))
        elif kind in _ENDS:
            self._end(_ENDS[kind], mapping_or_empty(event.get("response")))
        elif kind in ("response.failed", "error"):
            self.fail(mapping_or_empty(event.get("response")).get("error") or event)
        elif index in self._items:
            self._add(self._items[index], kind, event)

    @property
    def messages(self) -> list[JsonObject]:
        items = [item for _, item in sorted(self._items.items())]
        return [copy.deepcopy(item) for item in items if item.get("type") != "message" or item.get("content")]

    @property
    def text(self) -> str:
        messages = (item for _, item in sorted(self._items.items()) if item.get("type") == "message")
        parts = (mapping_or_empty(part) for item in messages for part in list_or_empty(item.get("content")))
        return "".join(string_of(part.get("text")) for part in parts)

    def _end(self, reason: str, response: Event) -> None:
        self.finish_reason = string_of(mapping_or_empty(response.get("incomplete_details")).get("reason")) or reason
        self.usage = usage_of(self.format, response.get("usage")) or self.usage
        output = response.get("output")
        if isinstance(output, list) and len(output) >= len(self._items):
            self._items = dict(enumerate(map(_copied, output)))

    def _add(self, item: JsonObject, kind: str, event: Event) -> None:
        delta, index = string_of(event.get("delta")), integer_of(event.get("content_index"))
        if kind == "response.content_part.added":
            _set(item, "content", index, mapping_or_empty(event.get("part")))
        elif kind == "response.reasoning_summary_part.added":
            _set(item, "summary", integer_of(event.get("summary_index")), mapping_or_empty(event.get("part")))
        elif kind in _PARTS:
            field, name = _PARTS[kind]
            part = _part_at(item, field, index, "output_text" if name == "text" else name)
            part[name] = string_of(part.get(name)) + delta
        elif kind in _TEXTS:
            item[_TEXTS[kind]] = string_of(item.get(_TEXTS[kind])) + delta
        elif kind in _THOUGHTS:
            field, part_type = _THOUGHTS[kind]
            part_index = integer_of(event.get("summary_index")) if field == "summary" else index
            part = _part_at(item, field, part_index, part_type)
            part["text"] = string_of(part.get("text")) + delta
        elif kind == "response.output_text.annotation.added":
            part = _part_at(item, "content", index, "output_text")
            part["annotations"] = [*list_or_empty(part.get("annotations")), copy.deepcopy(event.get("annotation"))]


def _parts(item: JsonObject, field: str) -> list[Any]:
    parts = item[field] = list_or_empty(item.get(field))
    return parts


def _set(item: JsonObject, field: str, index: int, part: Event) -> None:
    parts = _parts(item, field)
    if index >= len(parts):
        parts.append(copy.deepcopy(part))


def _part_at(item: JsonObject, field: str, index: int, kind: str) -> JsonObject:
    """Return the part of an item at an index; create it when it is missing."""
    parts = _parts(item, field)
    if index >= len(parts):
        parts.append({"type": kind})
    position = min(index, len(parts) - 1)
    if not isinstance(parts[position], dict):
        parts[position] = {"type": kind}
    return cast("JsonObject", parts[position])


ACCUMULATORS: dict[str, type[Accumulator]] = {
    kind.format: kind for kind in (ChatAccumulator, ResponsesAccumulator, AnthropicAccumulator, ConverseAccumulator)
}
