"""Events of Anthropic Messages: https://docs.anthropic.com/en/docs/build-with-claude/streaming."""

from __future__ import annotations

import copy

from turnlog.client.streaming.base import Event, counted, index_of, input_of, listed, mapping, text_of
from turnlog.domain.jsonvalue import JsonObject

_JOINED = {"text_delta": "text", "thinking_delta": "thinking"}
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicAccumulator:
    """See `Accumulator`."""

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
            for at, block in enumerate(listed(message.get("content"))):
                self._blocks[at] = copy.deepcopy(dict(mapping(block)))
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
        for at, (index, _) in enumerate(sorted(self._blocks.items())):
            if index in self._inputs:
                content[at]["input"] = input_of(self._inputs[index])
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
            found = block.get("citations")
            block["citations"] = [*(found if isinstance(found, list) else []), copy.deepcopy(delta.get("citation"))]

    def _count(self, told: Event) -> None:
        for name, value in mapping(told.get("usage")).items():
            if isinstance(value, int):
                self._usage[name] = value
