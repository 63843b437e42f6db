"""Policy steps that keep the newest part of the past and leave out the rest, and the step that pins messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from turnlog.windows.digests import Tally, digest_pieces, with_note
from turnlog.windows.steps import Room, Step, out, pinned, unit_out
from turnlog.windows.triggers import Clause, any_crossed, past_of
from turnlog.windows.view import Entry, Loop, Unit, WindowDraft


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
    left, changed, full = limit, list[Loop](), False
    for loop in reversed(view.past):
        if loop.level == "out":
            changed.append(loop)
            continue
        if loop.level == "digest":
            cost = measure.digest(loop)
            full = full or cost > left
            left -= 0 if full else cost
            changed.append(out(loop, reason) if full else loop)
            continue
        units = list[Unit]()
        for unit in reversed(loop.units):
            if unit.level != "out" and not unit.pinned:
                cost = measure.unit(unit)
                full = full or cost > left
                left -= 0 if full else cost
            units.append(unit_out(unit, reason) if full else unit)
        kept = replace(loop, units=tuple(reversed(units)))
        changed.append(kept if any(unit.level != "out" for unit in units) else out(kept, reason))
    return view.with_past(reversed(changed))


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
        if not any(self._finds(unit, first) for unit in loop.units):
            return loop
        units = tuple(pinned(unit) if self._finds(unit, first) else unit for unit in loop.units)
        changed = replace(loop, units=units)
        # The note of a digest does not repeat the values of pinned messages.
        is_told = loop.level == "digest"
        return with_note(changed, max_values=sum(len(note.values) for note in loop.notes)) if is_told else changed

    def _finds(self, unit: Unit, first: int | None) -> bool:
        return any(self._agrees(entry, first) for entry in unit.entries)

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
    users = [unit.entry for loop in view.loops for unit in loop.units if unit.entry.facts.role == "user"]
    opening = next((entry.position for entry in users if entry.event.opens_loop == 1), None)
    # A user message that did not open a loop is known to be the first only when all messages are in the view.
    is_whole = not view.unread and view.summary is None
    return opening if opening is not None or not is_whole else next((entry.position for entry in users), None)
