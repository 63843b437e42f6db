"""The step that lets the summary in force stand for the loops that it covers, whole or as far as it has room."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from typing import Literal, TypeAlias

from pydantic import ConfigDict, Field

from turnlog.domain.events import SummaryEvent
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.notes import value_cost
from turnlog.windows.steps import Room, Step, out
from turnlog.windows.summaries import most_tokens_around, summary_tokens
from turnlog.windows.text import escaped
from turnlog.windows.view import Told, View

Facts: TypeAlias = "tuple[tuple[int, str], ...]"
MAX_LABEL_CHARS = 100
_LINE = re.compile(r"^(?=.)", re.M)
_WORD = re.compile(r"(?<=[\s。！？；，、])(?=\S)")
_FACTS_SHARE = 0.5
"""Values have at least this share of the room, as when the summary is made."""
_VALUES_TOKENS = upper_bound_tokens("\nvalues: ")


class Summary(Step):
    """The summary in force stands for the loops that it covers. Without this step they are read and sent as any other.

    It takes at most ``max_tokens`` of the window, its fence included; null: as many as it was made with. Beyond that its oldest
    lines and values are not shown, and its first line says how much: the summary itself stays whole.

    It is the message of ``as``, fenced as data whoever's it is: ``user``, unless there is a reason for another. ``label``
    introduces its text; null: in the text's language.
    """

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    step: Literal["summary"] = "summary"
    max_tokens: int | None = Field(default=None, ge=128, le=1_000_000)
    as_: Literal["user", "assistant", "system"] = Field(default="user", alias="as")
    label: str | None = Field(default=None, max_length=MAX_LABEL_CHARS)

    def apply(self, view: View, room: Room) -> View:
        if view.summary is None:
            return view
        covered = view.summary.last_loop
        view = view.with_past(out(loop, "summary") if loop.number <= covered else loop for loop in view.past)
        view = replace(view, told=Told(self.as_, self.label))
        if view.summary is None or self.max_tokens is None:
            return view
        if summary_tokens(view.summary, self.label) <= self.max_tokens:
            return view
        return replace(view, summary=_shortened(view.summary, self.max_tokens, self.label), summary_reason="max_tokens")


def _shortened(event: SummaryEvent, max_tokens: int, label: str | None) -> SummaryEvent:
    """The summary's newest lines and values within a bound, and a line that says what is missing.

    Cut where a line begins, else a word, else a character. Charged with upper bounds: what is left has no stored count.
    """
    text = event.text.strip()
    mark_tokens = upper_bound_tokens(_mark(len(text), len(event.facts)) + "\n")
    room = max_tokens - most_tokens_around(event, label) - mark_tokens
    facts, facts_tokens = _newest(event.facts, max(int(room * _FACTS_SHARE), room - _tokens(text)))
    start = _start(text, room - facts_tokens)
    left = text[start:].strip()
    mark = _mark(len(text) - len(left), len(event.facts) - len(facts))
    shown = "\n".join(part for part in (mark, left) if part)
    return replace(event, text=shown, facts=facts, tokens=mark_tokens + _tokens(left) + facts_tokens)


def _newest(facts: Facts, room: int) -> tuple[Facts, int]:
    """The newest values that there is room for, and the most that they take together."""
    tokens, first = _VALUES_TOKENS, len(facts)
    while first and tokens + value_cost(facts[first - 1][1]) <= room:
        first -= 1
        tokens += value_cost(facts[first][1])
    return facts[first:], tokens if first < len(facts) else 0


def _start(text: str, room: int) -> int:
    """Where the text's end begins that takes at most so many tokens."""
    for starts in (_starts(_LINE, text), _starts(_WORD, text), range(len(text))):
        at = bisect_left(starts, True, key=lambda start: _tokens(text[start:].strip()) <= room)
        if at < len(starts):
            return starts[at]
    return len(text)


def _starts(pattern: re.Pattern[str], text: str) -> list[int]:
    return [found.start() for found in pattern.finditer(text)]


def _tokens(text: str) -> int:
    return upper_bound_tokens(escaped(text))


def _mark(chars: int, values: int) -> str:
    return f"[shortened: {chars} characters and {values} values of this summary are not shown here]"
