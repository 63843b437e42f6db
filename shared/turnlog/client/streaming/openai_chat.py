"""Chunks of OpenAI Chat Completions, and of the many services that speak like it.

https://platform.openai.com/docs/api-reference/chat-streaming. Some of these services number no calls, or give each the number 0,
and some tell an id or a name again in each chunk: a call begins with a number that is new, or with an id that is.
"""

from __future__ import annotations

import copy
from typing import Any

from turnlog.client.streaming.base import Event, counted, index_of, listed, mapping, text_of
from turnlog.domain.jsonvalue import JsonObject, JsonValue

_OWN = frozenset({"role", "content", "tool_calls", "function_call"})


class ChatAccumulator:
    """See `Accumulator`. Of several choices it is the first."""

    format = "openai_chat"

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.is_broken = False
        self.usage: dict[str, int] | None = None
        self._role = "assistant"
        self._content: str | list[JsonValue] | None = None
        self._calls: list[_Call] = []
        self._function: JsonObject | None = None
        self._others: JsonObject = {}

    def add(self, event: Event) -> None:
        usage = mapping(event.get("usage"))
        self.usage = counted(usage.get("prompt_tokens"), usage.get("completion_tokens")) or self.usage
        self.is_broken = self.is_broken or bool(event.get("error"))
        for choice in listed(event.get("choices")):
            if index_of(mapping(choice).get("index"), 0) == 0:
                self._add(mapping(mapping(choice).get("delta")))
                self.finish_reason = text_of(mapping(choice).get("finish_reason")) or self.finish_reason

    @property
    def messages(self) -> list[JsonObject]:
        if self._content is None and not (self._calls or self._function or self._others):
            return [] if self.finish_reason is None else [{"role": self._role, "content": ""}]
        content = copy.deepcopy(self._content) or (None if self._calls or self._function else "")
        message: JsonObject = {"role": self._role, "content": content}
        message |= copy.deepcopy(self._others)
        if self._calls:
            message["tool_calls"] = [call.told() for call in self._calls]
        if self._function is not None:
            message["function_call"] = dict(self._function)
        return [message]

    @property
    def text(self) -> str:
        if isinstance(self._content, list):
            return "".join(text_of(mapping(part).get("text")) for part in self._content)
        return self._content or ""

    def _add(self, delta: Event) -> None:
        self._role = text_of(delta.get("role")) or self._role
        if "content" in delta:
            self._content = _joined(self._content, delta["content"])
        for part in listed(delta.get("tool_calls")):
            self._add_call(mapping(part))
        function = mapping(delta.get("function_call"))
        if function:
            self._function = self._function or {"name": "", "arguments": ""}
            for name in ("name", "arguments"):
                self._function[name] = text_of(self._function[name]) + text_of(function.get(name))
        for name, value in delta.items():
            if name not in _OWN and value is not None:
                self._others[name] = _merged(self._others.get(name), value)

    def _add_call(self, part: Event) -> None:
        call_id, index = text_of(part.get("id")), part.get("index")
        call = next((one for one in self._calls if one.index == index), None) if index is not None else None
        if index is None and self._calls and not call_id:
            call = self._calls[-1]
        if call is None or (call_id and call.id and call_id != call.id):
            known = next((one for one in self._calls if call_id and one.id == call_id), None)
            call = known or _Call(index)
            if known is None:
                for one in self._calls:
                    one.index = None if one.index == index else one.index
                self._calls.append(call)
        call.add(part)


class _Call:
    """One tool call. ``index`` is what its next chunks are known by."""

    def __init__(self, index: object) -> None:
        self.index = index
        self.id = ""
        self._kind = ""
        self._name = ""
        self._given = ""
        self._others: JsonObject = {}

    def add(self, part: Event) -> None:
        self.id = self.id or text_of(part.get("id"))
        self._kind = text_of(part.get("type")) or self._kind or ("custom" if "custom" in part else "")
        body = mapping(part.get("function")) or mapping(part.get("custom"))
        name = text_of(body.get("name"))
        self._name += "" if name == self._name else name
        given = body.get("arguments", body.get("input"))
        self._given += text_of(given)
        for key, value in part.items():
            if key not in ("index", "id", "type", "function", "custom") and value is not None:
                self._others[key] = _merged(self._others.get(key), value)

    def told(self) -> JsonObject:
        kind = self._kind or "function"
        body: JsonObject = {"name": self._name, "input" if kind == "custom" else "arguments": self._given}
        return {"id": self.id, "type": kind, kind: body, **copy.deepcopy(self._others)}


def _joined(before: str | list[JsonValue] | None, content: Any) -> str | list[JsonValue] | None:
    if content is None:
        return before
    if isinstance(content, str) and not isinstance(before, list):
        return (before or "") + content
    parts = before if isinstance(before, list) else [{"type": "text", "text": before}] if before else []
    return [
        *parts,
        *([{"type": "text", "text": content}] if isinstance(content, str) else copy.deepcopy(listed(content))),
    ]


def _merged(before: JsonValue, value: Any) -> JsonValue:
    """Texts are continued, objects merged, and lists go on; of all else the newest is right."""
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, dict) and isinstance(value, dict):
        return {**before, **{name: _merged(before.get(name), one) for name, one in value.items()}}
    if isinstance(before, list) and isinstance(value, list):
        return [*before, *copy.deepcopy(value)]
    newest: JsonValue = copy.deepcopy(value)
    return newest
