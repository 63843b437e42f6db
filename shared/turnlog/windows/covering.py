"""The input of a summary: shortened closed loops, the values that occur in them, and the messages that stay in the window."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from turnlog.core.calls import Ref
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.summaries import LoopText
from turnlog.windows.build import Source, entry_of
from turnlog.windows.digests import final_reply
from turnlog.windows.keep_newest import Pin
from turnlog.windows.ledger import MAX_VALUES, distinct, is_identifier, ledger_of_facts, ledger_of_message, said_values
from turnlog.windows.steps import Room
from turnlog.windows.text import cut
from turnlog.windows.view import Entry, Loop, Unit, WindowDraft, assemble

Facts: TypeAlias = "tuple[tuple[int, str], ...]"
"""Values, each with its first position, in the order of their last occurrence. Later values are kept longer."""
_LEAST_TOKENS = 2
"""Tokens of a value and its separator, at least."""
_MEASURE = re.compile(
    r"\d{4}-\d{2}(?:-\d{2})?(?:T[\d:.]+(?:Z|[+-]\d{2}:?\d{2})?)?"  # a date, a point in time
    r"|\d{1,4}\.\d{1,2}\.\d{1,4}"
    r"|\d{1,2}:\d{2}(?::\d{2})?(?:-\d{1,2}:\d{2}(?::\d{2})?)?"  # a time of day, two of them
    r"|\d+\.\d+"  # an amount
)

_SAID_MEASURE = re.compile(r"[$€£¥₩₹] ?\d|\d[\d,.:]* ?[^\W\d]")
"""How an amount, a day or an address begins that somebody said."""


def seen(*known: Iterable[tuple[int, str]]) -> Facts:
    """Return each value once with its first position, in the order of the last occurrences."""
    first_positions = dict[str, int]()
    for facts in known:
        for position, value in facts:
            first_positions[value] = first_positions.pop(value, position)
    return tuple((position, value) for value, position in first_positions.items())


def chosen_facts(facts: Facts, room: int, cost: Callable[[Facts], int]) -> Facts:
    """Return as many facts as cost at most ``room`` tokens, in the order of their last occurrence.

    Identifiers are kept longest, because nothing else leads back to what they name. Then come dates, times and amounts, which are
    many and long in results; then amounts and days as people say them; then other scalars, which people and models repeat by
    themselves. Within each kind the values that occurred last are kept: a value that occurs again is still in use. Search finds
    the others in the log.
    """
    ranked = sorted(facts, key=lambda fact: _rank(fact[1]))
    limit = min(len(ranked), max(room, 0) // _LEAST_TOKENS)
    # Facts are sent as one text, so their cost is that of all of them together.
    count = bisect_right(range(1, limit + 1), room, key=lambda number: cost(tuple(ranked[-number:])))
    return tuple(ranked[len(ranked) - count :])


def _rank(value: str) -> int:
    if is_identifier(value):
        return 2 if _MEASURE.fullmatch(value) else 3
    return 1 if _SAID_MEASURE.match(value) else 0


ASKED_CHARS = 500
_ARGUMENT_CHARS = 120


@lazy_dataclass(frozen=True, slots=True)
class Coverage:
    """Messages in short.

    ``facts`` are values with their first positions, in the order of their last occurrence. The messages at the positions
    ``kept`` stay in windows; ``saved`` are the tokens of all others.
    """

    first: int
    last: int
    messages: int
    tokens: int
    saved: int
    loops: tuple[LoopText, ...]
    facts: Facts
    kept: tuple[int, ...]


def cover(sources: Sequence[Source], *, pins: Iterable[Pin] = (), before: int = 0) -> Coverage:
    """Return the coverage of whole closed loops, and of the messages before the first loop if they are among the sources.

    Messages that ``pins`` select are kept as if they were pinned. ``before`` is the number of messages before the sources.
    """
    entries = [entry_of(source) for source in sources]
    view = assemble(entries, total=sum(entry.event.tokens for entry in entries), answer_open_calls=True, unread=before)
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
        facts=seen(_facts(entries, stays)),
        kept=tuple(sorted(stays)),
    )


def _staying(view: WindowDraft) -> Iterator[Unit]:
    """Yield the units that stay in windows: messages before the first loop, and pinned ones."""
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
    called = [(entry.position, index, call) for entry in unit.said for index, call in enumerate(entry.facts.calls)]
    for position, index, call in called:
        answer = answers.get(Ref(position, index))
        result = answer.entry.facts.results[answer.index] if answer is not None and answer.entry is not None else None
        outcome = " -> no result" if result is None else " -> error" if result.is_error else ""
        yield f"{call.name} {cut(call.arguments, _ARGUMENT_CHARS)}{outcome}"


def _facts(entries: Sequence[Entry], stays: Collection[int]) -> Iterator[tuple[int, str]]:
    """Yield the values of messages. What a message says that ``stays`` in windows needs no second place."""
    for entry in entries:
        ledger = entry.event.facts.ledger if entry.event.facts is not None else ()
        if entry.message is not None:
            ledger = ledger_of_message(entry.message)
        elif not ledger:
            ledger = ledger_of_facts(entry.facts)
        # A card has the beginning of a text: so much is read of every message.
        is_told = entry.facts.role in ("user", "assistant") and entry.position not in stays
        said = said_values(entry.facts.head[:ASKED_CHARS]) if is_told else ()
        yield from ((entry.position, value) for value in distinct((*said, *ledger), MAX_VALUES))
