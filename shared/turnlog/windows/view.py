"""The view: the session as a window's steps see it.

Messages are grouped into units that are in or out together (a call with its results), units into loops. What can never be
sent (an interrupted stream, an unknown role, a result without a call) is set aside with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from turnlog.domain.events import MessageEvent
from turnlog.domain.facts import Facts
from turnlog.domain.messages import Message
from turnlog.domain.pairing import pair
from turnlog.domain.refs import Ref

Level: TypeAlias = Literal["whole", "digest", "out"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A message and what is known of it. ``message`` is None while its payload has not been fetched."""

    event: MessageEvent
    facts: Facts
    loop: int
    time_ms: int
    message: Message | None = None

    @property
    def position(self) -> int:
        return self.event.position


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call of a unit: where it stands. ``entry`` None: there is none, so a neutral text stands for it."""

    ref: Ref
    entry: Entry | None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """One message, or a message with calls and their results. ``tokens`` is what it takes when it is sent whole."""

    entry: Entry
    answers: tuple[Answer, ...] = ()
    tokens: int = 0
    level: Level = "whole"
    reason: str = ""

    @property
    def position(self) -> int:
        return self.entry.position

    @property
    def pinned(self) -> bool:
        return any(entry.event.envelope.pin for entry in self.entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The unit's messages, each once, in order."""
        found = {self.entry.position: self.entry}
        found |= {answer.entry.position: answer.entry for answer in self.answers if answer.entry is not None}
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Loop:
    """A run loop. ``before`` is the running total of tokens when it was opened; ``level`` is how it is sent."""

    number: int
    units: tuple[Unit, ...]
    first: int
    last: int
    opened_ms: int
    last_ms: int
    before: int
    level: Level = "whole"
    reason: str = ""
    max_message_chars: int = 0

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)


@dataclass(frozen=True, slots=True)
class View:
    """``preamble``: system messages before the first loop. The last loop is the current one.

    ``total`` is the running total of all stored tokens. ``unread`` positions before the first were not read.
    """

    preamble: tuple[Unit, ...]
    loops: tuple[Loop, ...]
    total: int = 0
    set_aside: tuple[tuple[Entry, str], ...] = ()
    open_calls: tuple[Ref, ...] = ()
    unread: int = 0

    @property
    def past(self) -> tuple[Loop, ...]:
        return self.loops[:-1]

    def with_past(self, past: Iterable[Loop]) -> View:
        return replace(self, loops=(*past, *self.loops[-1:]))


@dataclass(slots=True)
class _Extent:
    """Where a loop begins and ends, and the running total before it."""

    first: int
    opened_ms: int
    before: int
    last: int = 0
    last_ms: int = 0


def assemble(
    entries: Sequence[Entry], *, total: int, settle: bool = False, settlement_tokens: int = 0, unread: int = 0
) -> View:
    """The view of entries in order of position. ``total`` is the log's running total of tokens at its end.

    A call without a result, with a later user or assistant message, is settled: its answer has no entry. One at the log's
    end is left out with its message and named in ``open_calls``; with ``settle`` it is settled too.
    """
    set_aside, sendable = list[tuple[Entry, str]](), list[Entry]()
    for entry in entries:
        reason = _never_sent(entry)
        if reason:
            set_aside.append((entry, reason))
        else:
            sendable.append(entry)
    pairing = pair((entry.position, entry.facts) for entry in sendable)
    by_position = {entry.position: entry for entry in sendable}
    last_turn = max((entry.position for entry in sendable if _is_turn(entry)), default=0)
    units, open_calls = list[Unit](), list[Ref]()
    placed = set[int]()
    for entry in sendable:
        position = entry.position
        if entry.facts.calls:
            answers = list[Answer]()
            for at in range(len(entry.facts.calls)):
                place = pairing.result_of.get(Ref(position, at))
                answers.append(
                    Answer(Ref(position, at), by_position[place[0]] if place else None, place[1] if place else 0)
                )
            unanswered = [answer.ref for answer in answers if answer.entry is None]
            results = [answer.entry for answer in answers if answer.entry is not None]
            placed.update(result.position for result in results)
            if unanswered and position >= last_turn and not settle:
                open_calls.extend(unanswered)
                set_aside.extend((left, "open_call") for left in Unit(entry, tuple(answers)).entries)
                continue
            answers.sort(
                key=lambda answer: (answer.entry.position if answer.entry else answer.ref.position, answer.index)
            )
            tokens = sum(one.event.tokens for one in Unit(entry, tuple(answers)).entries) + settlement_tokens * len(
                unanswered
            )
            units.append(Unit(entry, tuple(answers), tokens))
        elif not entry.facts.results:
            units.append(Unit(entry, tokens=entry.event.tokens))
    for entry in sendable:
        if entry.facts.results and not entry.facts.calls and entry.position not in placed:
            if entry.facts.head and entry.facts.role != "tool":
                units.append(Unit(entry, tokens=entry.event.tokens))
            else:
                set_aside.append((entry, _orphan_reason(entry, pairing.call_of)))
    return _grouped(entries, sorted(units, key=lambda unit: unit.position), set_aside, open_calls, total, unread)


def _grouped(
    entries: Sequence[Entry],
    units: Sequence[Unit],
    set_aside: list[tuple[Entry, str]],
    open_calls: list[Ref],
    total: int,
    unread: int,
) -> View:
    running = total - sum(entry.event.tokens for entry in entries)
    extents = dict[int, _Extent]()
    for entry in entries:
        extent = extents.setdefault(entry.loop, _Extent(entry.position, entry.time_ms, running))
        extent.last, extent.last_ms = entry.position, entry.time_ms
        running += entry.event.tokens
    by_loop = dict[int, list[Unit]]()
    for unit in units:
        by_loop.setdefault(unit.entry.loop, []).append(unit)
    current = max(extents, default=0)
    loops = tuple(
        Loop(
            number,
            tuple(by_loop.get(number, ())),
            extent.first,
            extent.last,
            extent.opened_ms,
            extent.last_ms,
            extent.before,
        )
        for number, extent in sorted(extents.items())
        # The current loop is there even when nothing of it can be sent: the one before it is past.
        if number and (number in by_loop or number == current)
    )
    set_aside.sort(key=lambda one: one[0].position)
    return View(tuple(by_loop.get(0, ())), loops, total, tuple(set_aside), tuple(open_calls), unread)


def _never_sent(entry: Entry) -> str:
    if entry.event.envelope.status == "interrupted":
        return "interrupted"
    return "unknown_role" if entry.facts.role == "unknown" else ""


def _is_turn(entry: Entry) -> bool:
    return entry.facts.role in ("user", "assistant")


def _orphan_reason(entry: Entry, call_of: dict[tuple[int, int], Ref]) -> str:
    paired = any((entry.position, at) in call_of for at in range(len(entry.facts.results)))
    return "superseded_result" if paired else "orphan_result"
