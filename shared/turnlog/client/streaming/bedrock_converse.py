"""Events of Bedrock's ConverseStream, as boto3 gives them.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html. A block of text begins without a word.
"""

from __future__ import annotations

import base64
import copy
from typing import cast

from turnlog.client.streaming.base import Event, counted, index_of, input_of, listed, mapping, text_of
from turnlog.domain.jsonvalue import JsonObject, JsonValue

_INPUT = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


class ConverseAccumulator:
    """See `Accumulator`."""

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
            told = mapping(value)
            index = index_of(told.get("contentBlockIndex"), 0)
            if kind == "messageStart":
                self._role = text_of(told.get("role")) or self._role
            elif kind == "contentBlockStart":
                self._blocks[index] = cast("JsonObject", copy.deepcopy(dict(mapping(told.get("start")))))
            elif kind == "contentBlockDelta":
                self._add(index, mapping(told.get("delta")))
            elif kind == "messageStop":
                self.finish_reason = text_of(told.get("stopReason")) or "end_turn"
            elif kind == "metadata":
                usage = mapping(told.get("usage"))
                if isinstance(usage.get("inputTokens"), int):
                    self.usage = counted(
                        sum(index_of(usage.get(name), 0) for name in _INPUT), usage.get("outputTokens")
                    )
            elif kind.endswith("Exception"):
                self.is_broken = True

    @property
    def messages(self) -> list[JsonObject]:
        content = list[JsonValue]()
        for index, block in sorted(self._blocks.items()):
            if not block:
                continue
            told = copy.deepcopy(block)
            if "toolUse" in told:
                told["toolUse"] = {
                    **cast("JsonObject", mapping(told["toolUse"])),
                    "input": input_of(self._inputs.get(index, "")),
                }
            content.append(told)
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
            told = base64.b64encode(redacted).decode() if isinstance(redacted, bytes) else redacted
            reasoning["redactedContent"] = text_of(reasoning.get("redactedContent")) + text_of(told)
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
    """The object under a name; what else was there is passed over."""
    found = block.get(name)
    if not isinstance(found, dict):
        found = block[name] = {}
    return found


def _text(block: JsonObject) -> str:
    if "citationsContent" in block:
        parts = listed(mapping(block["citationsContent"]).get("content"))
        return "".join(text_of(mapping(part).get("text")) for part in parts)
    return text_of(block.get("text"))
