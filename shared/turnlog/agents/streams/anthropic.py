"""Events of Anthropic Messages and of Bedrock's ConverseStream: https://docs.anthropic.com/en/docs/build-with-claude/streaming."""

from __future__ import annotations

import base64
import copy
from typing import cast

from turnlog.agents.streams.base import Event, counted, index_of, input_of, listed, mapping, text_of
from turnlog.core.json_values import JsonObject, JsonValue

_JOINED = {"text_delta": "text", "thinking_delta": "thinking"}
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicAccumulator:
    """`Accumulator` for Anthropic Messages."""

    format = "anthropic"

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.is_broken = False
        self._role = "assistant"
        self._blocks: dict[int, JsonObject] = {}
        self._inputs: dict[int, str] = {}
        self._usage: dict[str, int] = {}

    @property
    def usage(self) -> dict[str, int] | None:
        if "input_tokens" not in self._usage:
            return None
        return counted(sum(self._usage.get(name, 0) for name in _INPUT), self._usage.get("output_tokens"))

    def add(self, event: Event) -> None:
        kind, index = event.get("type"), index_of(event.get("index"), 0)
        if kind == "message_start":
            message = mapping(event.get("message"))
            self._role = text_of(message.get("role")) or self._role
            self._count(message)
            for block_index, block in enumerate(listed(message.get("content"))):
                self._blocks[block_index] = copy.deepcopy(dict(mapping(block)))
        elif kind == "content_block_start":
            self._blocks[index] = copy.deepcopy(dict(mapping(event.get("content_block"))))
        elif kind == "content_block_delta":
            self._add(index, mapping(event.get("delta")))
        elif kind == "message_delta":
            self.finish_reason = text_of(mapping(event.get("delta")).get("stop_reason")) or self.finish_reason
            self._count(event)
        elif kind == "error":
            self.is_broken = True

    @property
    def messages(self) -> list[JsonObject]:
        if not self._blocks:
            return []
        content = [copy.deepcopy(block) for _, block in sorted(self._blocks.items())]
        for position, (index, _) in enumerate(sorted(self._blocks.items())):
            if index in self._inputs:
                content[position]["input"] = input_of(self._inputs[index])
        return [{"role": self._role, "content": list(content)}]

    @property
    def text(self) -> str:
        blocks = [block for _, block in sorted(self._blocks.items())]
        return "".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")

    def _add(self, index: int, delta: Event) -> None:
        kind = text_of(delta.get("type"))
        block = self._blocks.setdefault(index, {"type": "thinking" if kind.startswith("think") else "text"})
        if kind in _JOINED:
            name = _JOINED[kind]
            block[name] = text_of(block.get(name)) + text_of(delta.get(name))
        elif kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + text_of(delta.get("partial_json"))
        elif kind == "signature_delta":
            block["signature"] = text_of(delta.get("signature"))
        elif kind == "citations_delta":
            citations = block.get("citations")
            block["citations"] = [
                *(citations if isinstance(citations, list) else []),
                copy.deepcopy(delta.get("citation")),
            ]

    def _count(self, event: Event) -> None:
        for name, value in mapping(event.get("usage")).items():
            if isinstance(value, int):
                self._usage[name] = value


_BEDROCK_CONVERSE_INPUT = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


class ConverseAccumulator:
    """`Accumulator` for Bedrock's ConverseStream."""

    format = "bedrock_converse"

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.is_broken = False
        self.usage: dict[str, int] | None = None
        self._role = "assistant"
        self._blocks: dict[int, JsonObject] = {}
        self._inputs: dict[int, str] = {}

    def add(self, event: Event) -> None:
        for kind, value in event.items():
            fields = mapping(value)
            index = index_of(fields.get("contentBlockIndex"), 0)
            if kind == "messageStart":
                self._role = text_of(fields.get("role")) or self._role
            elif kind == "contentBlockStart":
                self._blocks[index] = cast("JsonObject", copy.deepcopy(dict(mapping(fields.get("start")))))
            elif kind == "contentBlockDelta":
                self._add(index, mapping(fields.get("delta")))
            elif kind == "messageStop":
                self.finish_reason = text_of(fields.get("stopReason")) or "end_turn"
            elif kind == "metadata":
                usage = mapping(fields.get("usage"))
                if isinstance(usage.get("inputTokens"), int):
                    self.usage = counted(
                        sum(index_of(usage.get(name), 0) for name in _BEDROCK_CONVERSE_INPUT), usage.get("outputTokens")
                    )
            elif kind.endswith("Exception"):
                self.is_broken = True

    @property
    def messages(self) -> list[JsonObject]:
        content = list[JsonValue]()
        for index, block in sorted(self._blocks.items()):
            if not block:
                continue
            part = copy.deepcopy(block)
            if "toolUse" in part:
                part["toolUse"] = {
                    **cast("JsonObject", mapping(part["toolUse"])),
                    "input": input_of(self._inputs.get(index, "")),
                }
            content.append(part)
        return [{"role": self._role, "content": content}] if content else []

    @property
    def text(self) -> str:
        return "".join(_text(block) for _, block in sorted(self._blocks.items()))

    def _add(self, index: int, delta: Event) -> None:
        block = self._blocks.setdefault(index, {})
        if "text" in delta:
            if "citationsContent" in block:
                cited = _object(block, "citationsContent")
                cited["content"] = [{"text": _text(block) + text_of(delta["text"])}]
            else:
                block["text"] = text_of(block.get("text")) + text_of(delta["text"])
        elif "toolUse" in delta:
            block.setdefault("toolUse", {})
            self._inputs[index] = self._inputs.get(index, "") + text_of(mapping(delta["toolUse"]).get("input"))
        elif "reasoningContent" in delta:
            self._add_reasoning(block, mapping(delta["reasoningContent"]))
        elif "citation" in delta:
            self._add_citation(block, delta["citation"])

    def _add_reasoning(self, block: JsonObject, delta: Event) -> None:
        reasoning = _object(block, "reasoningContent")
        redacted = delta.get("redactedContent")
        if redacted is not None:
            data = base64.b64encode(redacted).decode() if isinstance(redacted, bytes) else redacted
            reasoning["redactedContent"] = text_of(reasoning.get("redactedContent")) + text_of(data)
            return
        reasoning.setdefault("reasoningText", {"text": ""})
        text = _object(reasoning, "reasoningText")
        for name in ("text", "signature"):
            if name in delta:
                text[name] = text_of(text.get(name)) + text_of(delta[name])

    def _add_citation(self, block: JsonObject, citation: object) -> None:
        if "citationsContent" not in block:
            block["citationsContent"] = {"content": [{"text": text_of(block.pop("text", ""))}], "citations": []}
        cited = _object(block, "citationsContent")
        cited["citations"] = [*listed(cited.get("citations")), cast("JsonValue", copy.deepcopy(citation))]


def _object(block: JsonObject, name: str) -> JsonObject:
    """Return the object under a name; a missing or other value is replaced by an empty one."""
    value = block.get(name)
    if not isinstance(value, dict):
        value = block[name] = {}
    return value


def _text(block: JsonObject) -> str:
    if "citationsContent" in block:
        parts = listed(mapping(block["citationsContent"]).get("content"))
        return "".join(text_of(mapping(part).get("text")) for part in parts)
    return text_of(block.get("text"))
