"""Steps that send past loops as digests."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from pydantic import Field, model_validator

from turnlog.windows.costs import LINE_TOKENS, bare_tokens, past_tokens
from turnlog.windows.digests import final_reply
from turnlog.windows.notes import Tally
from turnlog.windows.steps import LEDGER_PER_LOOP, MAX_MESSAGE_CHARS, Room, Step, digest, out
from turnlog.windows.summaries import summary_tokens
from turnlog.windows.view import Loop, View

WEEK_SECONDS = 7 * 24 * 3600
NO_REPLY = "no_reply"
Interrupted: TypeAlias = Literal["mark", "drop"]


class Loops(Step):
    """Past loops become digests, the newest ``whole`` excepted; at most ``max`` of them, none older than ``max_age_seconds``.

    A digest is the user's messages and the final reply, each cut to its first ``max_message_chars`` characters, and a note
    with a line per tool call and at most ``ledger`` values that stood in calls and results. Age is measured
    at the time of the commit that opened the current loop. null: no such limit. A loop without a final reply is a digest that
    says so; with ``interrupted: "drop"`` it is out instead.
    """

    step: Literal["loops"] = "loops"
    max: int | None = Field(default=10, ge=0, le=1_000_000)
    max_age_seconds: int | None = Field(default=WEEK_SECONDS, ge=0)
    max_message_chars: int = Field(default=MAX_MESSAGE_CHARS, ge=1, le=1_000_000)
    whole: int = Field(default=0, ge=0, le=1_000_000)
    ledger: int = Field(default=LEDGER_PER_LOOP, ge=0, le=100)
    interrupted: Interrupted = "mark"

    def apply(self, view: View, room: Room) -> View:
        now_ms = view.loops[-1].opened_ms if view.loops else 0
        changed = [self._demoted(loop, newer, now_ms) for newer, loop in enumerate(reversed(view.past))]
        return view.with_past(reversed(changed))

    def _demoted(self, loop: Loop, newer: int, now_ms: int) -> Loop:
        """``newer`` past loops came after it."""
        if self.max is not None and newer >= self.max:
            return out(loop, "max_loops")
        if self.max_age_seconds is not None and now_ms - loop.last_ms > self.max_age_seconds * 1000:
            return out(loop, "max_age")
        if newer < self.whole:
            return loop
        return _as_digest(loop, "past_loop", self)


class Crossing(Step):
    """All whole until the messages reach the ``high`` mark of the budget; then the oldest loops become digests, down to ``low``.

    Borders stand on a grid over the running totals, so the window's beginning stays the same between two crossings and a
    provider's prompt cache holds. Digests have room up to what ``high`` leaves; the oldest beyond it are out. A loop without a
    final reply is a digest that says so; with ``interrupted: "drop"`` it is out instead.
    """

    step: Literal["crossing"] = "crossing"
    high: float = Field(default=0.8, gt=0, le=1)
    low: float = Field(default=0.5, ge=0, lt=1)
    max_message_chars: int = Field(default=MAX_MESSAGE_CHARS, ge=1, le=1_000_000)
    ledger: int = Field(default=LEDGER_PER_LOOP, ge=0, le=100)
    interrupted: Interrupted = "mark"

    @model_validator(mode="after")
    def _ordered(self) -> Crossing:
        if self.low >= self.high:
            raise ValueError("low must be smaller than high")
        return self

    def apply(self, view: View, room: Room) -> View:
        border = self.border(view.total, room, summary_tokens(view.summary, view.told.label))
        before = [loop for loop in view.past if loop.before < border]
        digests = [_as_digest(loop, "high_mark", self) for loop in before]
        least = [_least(loop, smaller) for loop, smaller in zip(before, digests, strict=True)]
        if past_tokens(least) > LINE_TOKENS:
            # Else the line about what is left out would take more than all of them do.
            least = _evicted(digests, (1 - self.high) * room.tokens)
        return view.with_past([*least, *view.past[len(before) :]])

    def border(self, total: int, room: Room, summary: int) -> float:
        """Loops that were opened at a smaller running total than this become digests. ``total`` is the one at the log's end,
        ``summary`` what a summary takes of the window."""
        high = self.high * room.tokens - room.fixed - summary
        size = max(1.0, (self.high - self.low) * room.tokens)
        return size * math.ceil(max(0.0, total - high) / size)


def _as_digest(loop: Loop, reason: str, step: Loops | Crossing) -> Loop:
    """The loop as a digest; or out, where it has no reply and the step drops such loops."""
    if step.interrupted == "drop" and loop.level == "whole" and final_reply(loop) is None:
        return out(loop, NO_REPLY)
    return digest(loop, reason, step.max_message_chars, step.ledger)


def _least(loop: Loop, smaller: Loop) -> Loop:
    """The loop as a digest, where one says something and is smaller; out where it is dropped."""
    if smaller.reason == NO_REPLY:
        return smaller
    return smaller if smaller.level == "digest" and past_tokens([smaller]) < past_tokens([loop]) else loop


def _evicted(digests: list[Loop], room: float) -> list[Loop]:
    """Digests have the room beyond the high mark; the oldest that do not fit are out."""
    if past_tokens(digests) <= room:
        return digests
    room, kept, full, tally = room - LINE_TOKENS, list[Loop](), False, Tally()
    for loop in reversed(digests):
        cost = bare_tokens(loop) + tally.add(*loop.notes)
        full = full or cost > room
        room -= 0 if full else cost
        kept.append(out(loop, "digests_full") if full else loop)
    return kept[::-1]
