"""Events of OpenAI Responses: https://platform.openai.com/docs/api-reference/responses-streaming.

Each output item is a message of its own. What an item is at its end is told whole, and counts; until then it is what its deltas
say.
"""

from __future__ import annotations

import copy
from typing import Any, cast

from turnlog.client.streaming.base import Event, counted, index_of, listed, mapping, text_of
from turnlog.domain.jsonvalue import JsonObject, JsonValue

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


class ResponsesAccumulator:
    """See `Accumulator`."""

    format = "openai_responses"

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.is_broken = False
        self.usage: dict[str, int] | None = None
        self._items: dict[int, JsonObject] = {}

    def add(self, event: Event) -> None:
        kind, index = text_of(event.get("type")), index_of(event.get("output_index"), 0)
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._items[index] = copy.deepcopy(dict(mapping(event.get("item"))))
        elif kind in _ENDS:
            self._end(_ENDS[kind], mapping(event.get("response")))
        elif kind in ("response.failed", "error"):
            self.is_broken = True
        elif index in self._items:
            self._add(self._items[index], kind, event)

    @property
    def messages(self) -> list[JsonObject]:
        return [copy.deepcopy(item) for _, item in sorted(self._items.items()) if not _is_empty(item)]

    @property
    def text(self) -> str:
        parts = [
            mapping(part)
            for _, item in sorted(self._items.items())
            if item.get("type") == "message"
            for part in listed(item.get("content"))
        ]
        return "".join(text_of(part.get("text")) for part in parts)

    def _end(self, reason: str, response: Event) -> None:
        self.finish_reason = text_of(mapping(response.get("incomplete_details")).get("reason")) or reason
        usage = mapping(response.get("usage"))
        self.usage = counted(usage.get("input_tokens"), usage.get("output_tokens")) or self.usage
        output = response.get("output")
        if isinstance(output, list) and len(output) >= len(self._items):
            self._items = {at: copy.deepcopy(dict(mapping(item))) for at, item in enumerate(output)}

    def _add(self, item: JsonObject, kind: str, event: Event) -> None:
        delta, at = text_of(event.get("delta")), index_of(event.get("content_index"), 0)
        if kind == "response.content_part.added":
            _set(item, "content", at, mapping(event.get("part")))
        elif kind == "response.reasoning_summary_part.added":
            _set(item, "summary", index_of(event.get("summary_index"), 0), mapping(event.get("part")))
        elif kind in _PARTS:
            field, name = _PARTS[kind]
            part = _at(item, field, at, "output_text" if name == "text" else name)
            part[name] = text_of(part.get(name)) + delta
        elif kind in _TEXTS:
            item[_TEXTS[kind]] = text_of(item.get(_TEXTS[kind])) + delta
        elif kind in _THOUGHTS:
            field, part_type = _THOUGHTS[kind]
            place = index_of(event.get("summary_index"), 0) if field == "summary" else at
            part = _at(item, field, place, part_type)
            part["text"] = text_of(part.get("text")) + delta
        elif kind == "response.output_text.annotation.added":
            part = _at(item, "content", at, "output_text")
            found = part.get("annotations")
            added = cast("JsonValue", copy.deepcopy(event.get("annotation")))
            part["annotations"] = [*(found if isinstance(found, list) else []), added]


def _parts(item: JsonObject, field: str) -> list[Any]:
    found = item.get(field)
    parts = found if isinstance(found, list) else []
    item[field] = parts
    return parts


def _set(item: JsonObject, field: str, index: int, part: Event) -> None:
    parts = _parts(item, field)
    if index >= len(parts):
        parts.append(copy.deepcopy(dict(part)))


def _at(item: JsonObject, field: str, index: int, kind: str) -> JsonObject:
    parts = _parts(item, field)
    if index >= len(parts):
        parts.append({"type": kind})
    place = min(index, len(parts) - 1)
    if not isinstance(parts[place], dict):
        parts[place] = {"type": kind}
    return cast("JsonObject", parts[place])


def _is_empty(item: JsonObject) -> bool:
    return item.get("type") == "message" and not item.get("content")
