"""What a summary is made of: closed loops in short, the values that stood in them, and what stays in the window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from turnlog.domain.refs import Ref
from turnlog.domain.summaries import LoopText
from turnlog.domain.values import dataclass
from turnlog.windows.build import Source, entry_of
from turnlog.windows.digests import final_reply
from turnlog.windows.ledger import ledger_of_facts, ledger_of_message
from turnlog.windows.pins import Pin
from turnlog.windows.steps import Room
from turnlog.windows.summary_facts import Facts, seen
from turnlog.windows.text import cut
from turnlog.windows.view import Entry, Loop, Unit, View, assemble

ASKED_CHARS = 500
_ARGUMENT_CHARS = 120


@dataclass(frozen=True, slots=True)
class Coverage:
    """Messages in short. ``facts`` are values with the position where each stood first, in the order in which they were seen
    last; ``kept`` positions stay in windows, ``saved`` is what the others take."""

    first: int
    last: int
    messages: int
    tokens: int
    saved: int
    loops: tuple[LoopText, ...]
    facts: Facts
    kept: tuple[int, ...]


def cover(sources: Sequence[Source], *, pins: Iterable[Pin] = (), before: int = 0) -> Coverage:
    """The coverage of whole closed loops, with the messages before the first loop if they are among the sources.

    What ``pins`` find is kept as if it were pinned. ``before``: so many messages came before the sources.
    """
    entries = [entry_of(source) for source in sources]
    view = assemble(entries, total=sum(entry.event.tokens for entry in entries), settle=True, unread=before)
    for pin in pins:
        view = pin.apply(view, Room(0, 0))
    stays = {entry.position for unit in _staying(view) for entry in unit.entries}
    return Coverage(
        first=entries[0].position,
        last=entries[-1].position,
        messages=len(entries),
        tokens=sum(entry.event.tokens for entry in entries),
        saved=sum(entry.event.tokens for entry in entries if entry.position not in stays),
        loops=tuple(_loop_text(loop) for loop in view.loops if loop.number),
        facts=seen(_facts(entries)),
        kept=tuple(sorted(stays)),
    )


def _staying(view: View) -> Iterator[Unit]:
    """Messages before the first loop, and pinned ones."""
    yield from view.preamble
    for loop in view.loops:
        yield from (unit for unit in loop.units if unit.pinned)


def _loop_text(loop: Loop) -> LoopText:
    reply = final_reply(loop)
    asked = " / ".join(unit.entry.facts.head for unit in loop.units if unit.entry.facts.role == "user")
    calls = [line for unit in loop.units for line in _call_lines(unit)]
    said = reply.entry.facts.head if reply is not None else ""
    return LoopText(loop.number, cut(asked, ASKED_CHARS), cut(said, ASKED_CHARS), tuple(calls), reply is None)


def _call_lines(unit: Unit) -> Iterator[str]:
    answers = {answer.ref: answer for answer in unit.answers}
    called = [(entry.position, at, call) for entry in unit.said for at, call in enumerate(entry.facts.calls)]
    for position, at, call in called:
        answer = answers.get(Ref(position, at))
        result = answer.entry.facts.results[answer.index] if answer is not None and answer.entry is not None else None
        outcome = " -> no result" if result is None else " -> error" if result.is_error else ""
        yield f"{call.name} {cut(call.arguments, _ARGUMENT_CHARS)}{outcome}"


def _facts(entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    for entry in entries:
        ledger = entry.event.facts.ledger if entry.event.facts is not None else ()
        if entry.message is not None:
            ledger = ledger_of_message(entry.message)
        elif not ledger:
            ledger = ledger_of_facts(entry.facts)
        yield from ((entry.position, value) for value in ledger)
