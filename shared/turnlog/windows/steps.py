"""Turnlog's own policy steps: models with a pure function that returns a view with less in it.

A step lowers the levels of past loops, takes messages out of them, or pins messages. It never removes the current loop, a
system message before the first loop, or a pinned message, and it gives a reason for everything that it removes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from turnlog.windows.digests import (
    LEDGER_PER_LOOP,
    MAX_MESSAGE_CHARS,
    NO_FINAL_REPLY,
    Tally,
    digest,
    digest_pieces,
    is_dropped,
    with_note,
)
from turnlog.windows.stubs import OVER_TOKENS, PREVIEW_TOKENS, result_entries, stub_results
from turnlog.windows.text import shortened_summary
from turnlog.windows.triggers import Clause, any_crossed, past_of
from turnlog.windows.view import Entry, Loop, Room, Unit, WindowDraft, out, pinned, unit_out

MAX_LABEL_CHARS = 100
WEEK_SECONDS = 7 * 24 * 3600


class Step(BaseModel):
    """A step as data. A subclass has ``step: Literal["its_name"] = "its_name"``, fields with defaults, and `apply`.

    Unknown fields and values of another type are refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    step: str

    @abstractmethod
    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        """Return the view after this step. Must be pure: the same view, fields and room give the same view in every process."""


class DigestWhenFull(Step):
    """Everything is sent while it fits; then the oldest part becomes the base of an epoch: digests and notes.

    Behind the border stands the tail, whole. A new epoch begins when the tail takes more than ``high`` of the room for messages;
    its tail begins with about ``low`` of it. So the beginning of the window stays the same for many calls, and a provider's prompt
    cache holds. The base takes what ``high`` leaves. A digest has at most ``max_message_chars`` characters of each message and
    ``ledger`` values. The digest of a loop without a final reply says so; with ``interrupted: "drop"`` such a loop is out instead.

    Every policy is fitted to the budget in this way; the step sets the numbers.
    """

    step: Literal["digest_when_full"] = "digest_when_full"
    high: float = Field(default=0.7, gt=0, le=1)
    low: float = Field(default=0.35, ge=0, lt=1)
    max_message_chars: int = Field(default=MAX_MESSAGE_CHARS, ge=1, le=1_000_000)
    ledger: int = Field(default=LEDGER_PER_LOOP, ge=0, le=1_000)
    interrupted: Literal["mark", "drop"] = "mark"

    @model_validator(mode="after")
    def _ordered(self) -> DigestWhenFull:
        if self.low >= self.high:
            raise ValueError("low must be smaller than high")
        return self

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return view

    def summary_border(self, total: int, room: Room, summary: int) -> float:
        """Return the border between the loops that a summary covers and the newer ones, as a running total of tokens.

        A loop is covered if the log had fewer tokens than that when the loop began. ``total`` is the running total at the log's
        end; ``summary`` is the number of tokens that a summary takes of the window.
        """
        high = self.high * room.tokens - room.fixed - summary
        size = max(1.0, (self.high - self.low) * room.tokens)
        return size * math.ceil(max(0.0, total - high) / size)

    def steps_border(self, total: int, room: Room, summary: int) -> float:
        """Return the border between the steps of the open loop that a summary covers and the newer ones, like `summary_border`.

        Where system text and tools leave little room it moves no sooner than the log has grown by as much again.
        """
        size = max(1.0, (self.high - self.low) * room.tokens)
        return min(self.summary_border(total, room, summary), size * (total // size))


class Turns(Step):
    """The newest ``n`` past loops stay whole; older ones are out."""

    step: Literal["turns"] = "turns"
    n: int = Field(default=10, ge=0, le=1_000_000)

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        past = view.past
        kept = max(0, len(past) - self.n)
        return view.with_past(out(loop, "turns") if index < kept else loop for index, loop in enumerate(past))


class Messages(Step):
    """The newest ``n`` messages of past loops stay; older ones are out. A call and its results stay or go together."""

    step: Literal["messages"] = "messages"
    n: int = Field(default=20, ge=0, le=1_000_000)

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return newest(view, limit=self.n, measure=_MESSAGES, reason="messages")


class Tokens(Step):
    """The newest messages of past loops with at most ``n`` tokens together stay; older ones are out."""

    step: Literal["tokens"] = "tokens"
    n: int = Field(default=4000, ge=0, le=100_000_000)

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        return newest(view, limit=self.n, measure=_TOKENS, reason="tokens")


class Recent(Step):
    """The newest messages of past loops stay, at most ``messages`` of them and at most ``tokens`` tokens; older ones are out.

    null: no such limit. With ``once`` nothing is left out until the past loops cross one of its clauses. The clauses count what
    the log has since the current summary. null: the limits always apply.
    """

    step: Literal["recent"] = "recent"
    messages: int | None = Field(default=20, ge=0, le=1_000_000)
    tokens: int | None = Field(default=4000, ge=0, le=100_000_000)
    once: tuple[Clause, ...] | None = Field(default=None, min_length=1, max_length=8)

    @model_validator(mode="after")
    def _limited(self) -> Recent:
        if self.messages is None and self.tokens is None:
            raise PydanticCustomError("no_limit", "recent needs a limit: messages, tokens or both")
        return self

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        if self.once is not None and not any_crossed(self.once, past_of(view), budget=room.tokens):
            return view
        if self.messages is not None:
            view = newest(view, limit=self.messages, measure=_MESSAGES, reason="messages")
        if self.tokens is not None:
            view = newest(view, limit=self.tokens, measure=_TOKENS, reason="tokens")
        return view


class Measure(NamedTuple):
    """The size of a message with its results, and of a digest, as a limit counts it.

    Pinned messages in a digest are not counted.
    """

    unit: Callable[[Unit], int]
    digest: Callable[[Loop], int]


_MESSAGES = Measure(
    lambda unit: len(unit.entries),
    lambda loop: sum(not piece.unit.pinned for piece in digest_pieces(loop)) + len(loop.notes),
)
_TOKENS = Measure(
    lambda unit: unit.tokens,
    lambda loop: sum(piece.tokens for piece in digest_pieces(loop) if not piece.unit.pinned) + Tally().add(*loop.notes),
)


def newest(view: WindowDraft, *, limit: int, measure: Measure, reason: str) -> WindowDraft:
    """Return the view with the newest messages of past loops within ``limit``; everything older is out.

    The first message that does not fit is out, and so are all before it. A message goes with its results, a digest as a whole.
    Messages that are out already, or pinned, cost nothing.
    """
    left, changed = limit, list[Loop]()
    for loop in reversed(view.past):
        if loop.level == "out":
            changed.append(loop)
            continue
        if loop.level == "digest":
            left -= measure.digest(loop)
            changed.append(out(loop, reason) if left < 0 else loop)
            continue
        units = list[Unit]()
        for unit in reversed(loop.units):
            if unit.level != "out" and not unit.pinned:
                left -= measure.unit(unit)
            units.append(unit_out(unit, reason) if left < 0 else unit)
        kept = replace(loop, units=tuple(reversed(units)))
        changed.append(kept if any(unit.level != "out" for unit in units) else out(kept, reason))
    return view.with_past(reversed(changed))


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
    interrupted: Literal["mark", "drop"] = "mark"

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
        if is_dropped(loop, self.interrupted):
            return out(loop, NO_FINAL_REPLY)
        return digest(loop, "past_loop", self.max_message_chars, self.ledger)


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
        summary = view.summary
        if summary is None:
            return view
        view = view.with_past(out(loop, "summary") if loop.number <= summary.last_loop else loop for loop in view.past)
        view = replace(view, summary_role=self.as_, summary_label=self.label)
        if self.max_tokens is None or view.summary_tokens <= self.max_tokens:
            return view
        shortened = shortened_summary(summary, self.max_tokens, self.label)
        return replace(view, summary=shortened, summary_reason="max_tokens")


class StubToolResults(Step):
    """Tool results of more than ``over_tokens`` are sent as stubs: their first ``preview_tokens``, their ref and their values.

    The newest ``keep_newest`` messages with results stay whole, and so do pinned ones. Applies to the current loop too. Without
    this step, results are stubbed only when the budget demands it.
    """

    step: Literal["stub_tool_results"] = "stub_tool_results"
    keep_newest: int = Field(default=3, ge=0, le=1_000_000)
    over_tokens: int = Field(default=OVER_TOKENS, ge=0, le=100_000_000)
    preview_tokens: int = Field(default=PREVIEW_TOKENS, ge=0, le=1_000)

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        units = [unit for loop in view.loops if loop.level == "whole" for unit in loop.units if unit.level == "whole"]
        positions = sorted({entry.position for unit in units for entry in result_entries(unit)})
        kept = frozenset(positions[max(0, len(positions) - self.keep_newest) :])
        if len(kept) == len(positions):
            return view
        over, preview = self.over_tokens, self.preview_tokens
        shortened = partial(stub_results, reason=self.step, over_tokens=over, preview_tokens=preview, whole=kept)
        loops = [
            replace(loop, units=tuple(map(shortened, loop.units))) if loop.level == "whole" else loop
            for loop in view.loops
        ]
        return replace(view, loops=tuple(loops))


PinnedRole = Literal["user", "assistant", "system", "tool"]


class Pin(Step):
    """Messages that match all selectors of this step stay in the window. The order of steps makes no difference to a pin.

    ``roles``, ``positions``, ``authors``: the message has one of them. ``first_user``: it is the session's first user message.
    ``flag``: its metadata has this key with the value true. A call stays with its results, and results with their call.
    A summary keeps the messages that the session's policy pins when it is made. The other messages it covers are not read again.
    """

    step: Literal["pin"] = "pin"
    roles: tuple[PinnedRole, ...] | None = Field(default=None, min_length=1, max_length=4)
    positions: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(default=None, min_length=1, max_length=100)
    authors: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=20)
    first_user: bool = False
    flag: str | None = Field(default=None, min_length=1, max_length=128)

    @model_validator(mode="after")
    def _selective(self) -> Pin:
        if not self.first_user and not any((self.roles, self.positions, self.authors, self.flag)):
            message = "pin needs a selector: roles, positions, authors, first_user or flag"
            raise PydanticCustomError("no_selector", message)
        return self

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        first = _first_user(view) if self.first_user else None
        return replace(view, loops=tuple(self._pinned(loop, first) for loop in view.loops))

    def _pinned(self, loop: Loop, first: int | None) -> Loop:
        chosen = [any(self._agrees(entry, first) for entry in unit.entries) for unit in loop.units]
        if not any(chosen):
            return loop
        units = zip(loop.units, chosen, strict=True)
        changed = replace(loop, units=tuple(pinned(unit) if is_chosen else unit for unit, is_chosen in units))
        # The note of a digest does not repeat the values of pinned messages.
        if loop.level != "digest":
            return changed
        return with_note(changed, max_values=sum(len(note.values) for note in loop.notes))

    def _agrees(self, entry: Entry, first: int | None) -> bool:
        envelope = entry.event.envelope
        return (
            (self.roles is None or entry.facts.role in self.roles)
            and (self.positions is None or entry.position in self.positions)
            and (self.authors is None or envelope.author in self.authors)
            and (not self.first_user or entry.position == first)
            and (self.flag is None or (envelope.metadata or {}).get(self.flag) is True)
        )


def _first_user(view: WindowDraft) -> int | None:
    """Return the position of the session's first user message; None when it is not in the view."""
    users = [unit.entry for unit in view.units if unit.entry.facts.role == "user"]
    opening = next((entry.position for entry in users if entry.event.opens_loop == 1), None)
    # A user message that did not open a loop is known to be the first only when all messages are in the view.
    is_whole = not view.unread and view.summary is None
    return opening if opening is not None or not is_whole else next((entry.position for entry in users), None)
