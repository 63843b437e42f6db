"""Policy steps that send past loops as digests, or a summary in their place."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from typing import Literal, TypeAlias

from pydantic import ConfigDict, Field

from turnlog.core.events import SummaryEvent
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.blocks import escaped
from turnlog.windows.digests import final_reply, value_cost
from turnlog.windows.steps import LEDGER_PER_LOOP, MAX_MESSAGE_CHARS, Room, Step, digest, out
from turnlog.windows.text import most_tokens_around, summary_tokens
from turnlog.windows.view import Loop, SummaryWording, WindowDraft

WEEK_SECONDS = 7 * 24 * 3600
NO_REPLY = "no_reply"
Interrupted: TypeAlias = Literal["mark", "drop"]


class Loops(Step):
    """Past loops become digests, except the newest ``whole``; at most ``max`` of them, none older than ``max_age_seconds``.

    A digest is the user's messages and the final reply, each cut to its first ``max_message_chars`` characters. Its note has a
    line for each tool call and at most ``ledger`` values from calls and results. Age is measured at the time of the commit that
    opened the current loop. null: no such limit. The digest of a loop without a final reply says so; with
    ``interrupted: "drop"`` such a loop is out instead.
    """

    step: Literal["loops"] = "loops"
    max: int | None = Field(default=10, ge=0, le=1_000_000)
    max_age_seconds: int | None = Field(default=WEEK_SECONDS, ge=0)
    max_message_chars: int = Field(default=MAX_MESSAGE_CHARS, ge=1, le=1_000_000)
    whole: int = Field(default=0, ge=0, le=1_000_000)
    ledger: int = Field(default=LEDGER_PER_LOOP, ge=0, le=1_000)
    interrupted: Interrupted = "mark"

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        now_ms = view.loops[-1].opened_ms if view.loops else 0
        changed = [self._demoted(loop, newer, now_ms) for newer, loop in enumerate(reversed(view.past))]
        return view.with_past(reversed(changed))

    def _demoted(self, loop: Loop, newer: int, now_ms: int) -> Loop:
        """Return the loop at its level, when ``newer`` past loops came after it."""
        if self.max is not None and newer >= self.max:
            return out(loop, "max_loops")
        if self.max_age_seconds is not None and now_ms - loop.last_ms > self.max_age_seconds * 1000:
            return out(loop, "max_age")
        if newer < self.whole:
            return loop
        return _as_digest(loop, "past_loop", self)


def _as_digest(loop: Loop, reason: str, step: Loops) -> Loop:
    """Return the loop as a digest; out, when it has no reply and the step drops such loops."""
    if step.interrupted == "drop" and loop.level == "whole" and final_reply(loop) is None:
        return out(loop, NO_REPLY)
    return digest(loop, reason, step.max_message_chars, step.ledger)


Facts: TypeAlias = "tuple[tuple[int, str], ...]"
MAX_LABEL_CHARS = 100
_LINE = re.compile(r"^(?=.)", re.M)
_WORD = re.compile(r"(?<=[\s。！？；，、])(?=\S)")
_FACTS_SHARE = 0.5
"""Least share of the room for values, as when the summary is made."""
_VALUES_TOKENS = upper_bound_tokens("\nvalues: ")


class Summary(Step):
    """The current summary stands for the loops that it covers. Without this step those loops are read and sent like any other.

    The summary takes at most ``max_tokens`` of the window, its fence included; null: as many as it was made with. Beyond that its
    oldest lines and values are not shown, and its first line says how much is missing. The stored summary stays whole.

    The summary is a message of the role ``as``, fenced as data in every role; the default is ``user``. ``label`` introduces its
    text; null: a label in the text's language.
    """

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    step: Literal["summary"] = "summary"
    max_tokens: int | None = Field(default=None, ge=128, le=1_000_000)
    as_: Literal["user", "assistant", "system"] = Field(default="user", alias="as")
    label: str | None = Field(default=None, max_length=MAX_LABEL_CHARS)

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        if view.summary is None:
            return view
        covered = view.summary.last_loop
        view = view.with_past(out(loop, "summary") if loop.number <= covered else loop for loop in view.past)
        view = replace(view, wording=SummaryWording(self.as_, self.label))
        if view.summary is None or self.max_tokens is None:
            return view
        if summary_tokens(view.summary, self.label) <= self.max_tokens:
            return view
        return replace(view, summary=_shortened(view.summary, self.max_tokens, self.label), summary_reason="max_tokens")


def _shortened(event: SummaryEvent, max_tokens: int, label: str | None) -> SummaryEvent:
    """Return the newest lines and values of the summary within ``max_tokens``, after a line that says how much is missing.

    The text is cut at the beginning of a line, else of a word, else of a character. Charged with upper bounds, because the rest
    has no stored count.
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
    """Return the newest values that fit into ``room`` tokens, and the most that they take together."""
    tokens, first = _VALUES_TOKENS, len(facts)
    while first and tokens + value_cost(facts[first - 1][1]) <= room:
        first -= 1
        tokens += value_cost(facts[first][1])
    return facts[first:], tokens if first < len(facts) else 0


def _start(text: str, room: int) -> int:
    """Return the index from which the rest of the text takes at most ``room`` tokens."""
    for starts in (_starts(_LINE, text), _starts(_WORD, text), range(len(text))):
        index = bisect_left(starts, True, key=lambda start: _tokens(text[start:].strip()) <= room)
        if index < len(starts):
            return starts[index]
    return len(text)


def _starts(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.start() for match in pattern.finditer(text)]


def _tokens(text: str) -> int:
    return upper_bound_tokens(escaped(text))


def _mark(chars: int, values: int) -> str:
    return f"[shortened: {chars} characters and {values} values of this summary are not shown here]"
