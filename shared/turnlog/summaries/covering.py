"""The input of a summary: shortened loops, the values that occur in them, and the messages that stay in the window."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from turnlog.core.calls import Ref
from turnlog.core.events import LoggedMessage
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.summaries import LoopText
from turnlog.summaries.passages import is_stop_word
from turnlog.windows.assembly import assemble
from turnlog.windows.digests import final_reply
from turnlog.windows.ledger import MAX_VALUES, distinct, is_identifier, ledger_of_facts, said_values
from turnlog.windows.plan import entry_of
from turnlog.windows.steps import Pin
from turnlog.windows.text import cut
from turnlog.windows.view import Entry, Loop, Room, Unit

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
    """Return as many facts as cost at most ``room`` tokens; those that are kept longest come last.

    Identifiers are kept longest, because nothing else leads back to what they name. Then come dates, times and amounts, which are
    many and long in results; then amounts and days as people say them; then other scalars, which people and models repeat by
    themselves. Within each kind the values that occurred last are kept: a value that occurs again is still in use. Search finds
    the others in the log.
    """
    ranked = sorted(facts, key=lambda fact: _rank(fact[1]))
    limit = min(len(ranked), room // _LEAST_TOKENS)
    # Facts are sent as one text, so their cost is that of all of them together.
    count = bisect_right(range(1, limit + 1), room, key=lambda number: cost(tuple(ranked[-number:])))
    return tuple(ranked[len(ranked) - count :])


def _rank(value: str) -> int:
    if is_identifier(value):
        return 2 if _MEASURE.fullmatch(value) else 3
    return 1 if _SAID_MEASURE.match(value) else 0


ASKED_CHARS = 500
_ARGUMENT_CHARS = 120
KEEP_STEPS = 2
"""Newest steps of the open loop that no summary covers."""
_STEPS = 8
"""Steps of the open loop that are one text."""


@lazy_dataclass(frozen=True, slots=True)
class Coverage:
    """Messages in short.

    ``facts`` are values with their first positions, in the order of their last occurrence. The messages at the positions
    ``kept`` stay in windows, those at ``parted`` until the open loop is covered whole; ``saved`` are the tokens of all others.
    """

    first: int
    last: int
    messages: int
    tokens: int
    saved: int
    loops: tuple[LoopText, ...]
    facts: Facts
    kept: tuple[int, ...]
    parted: tuple[int, ...] = ()


def cover(
    sources: Sequence[LoggedMessage],
    *,
    pins: Iterable[Pin] = (),
    before: int = 0,
    opening: Sequence[LoggedMessage] = (),
    open_loop: int = 0,
) -> Coverage:
    """Return the coverage of whole closed loops, and of the messages before the first loop if they are among the sources.

    Messages that ``pins`` select are kept as if they were pinned. ``before`` is the number of messages before the sources.
    ``opening`` are earlier messages of the first loop that have stayed in windows and do so no longer. ``open_loop`` is the last
    loop if only steps of it are covered, else 0.
    """
    entries = [entry_of(source) for source in (*opening, *sources)]
    view = assemble(entries, total=sum(entry.event.tokens for entry in entries), answer_open_calls=True, unread=before)
    for pin in pins:
        view = pin.apply(view, Room(0, 0))
    staying = [*view.preamble, *(unit for loop in view.loops for unit in loop.units if unit.pinned)]
    kept = {entry.position for unit in staying for entry in unit.entries}
    units = [unit for loop in view.loops if loop.number == open_loop for unit in loop.units if not _is_step(unit)]
    parted = {entry.position for unit in units for entry in unit.entries} - kept
    covered = entries[len(opening) :]
    return Coverage(
        first=covered[0].position,
        last=covered[-1].position,
        messages=len(covered),
        tokens=sum(entry.event.tokens for entry in covered),
        saved=sum(entry.event.tokens for entry in entries if entry.position not in kept | parted),
        loops=tuple(text for loop in view.loops for text in _loop_texts(loop, is_open=loop.number == open_loop)),
        facts=seen(_facts(entries, kept | parted)),
        kept=tuple(sorted(kept)),
        parted=tuple(sorted(parted)),
    )


def closed_steps(sources: Sequence[LoggedMessage], *, before: int, border: float) -> int:
    """Return how many messages of an open loop a summary may cover: whole steps that began before a running total of tokens.

    ``before`` is the total before the sources. A call and its result are both covered or both not; a call without a result and
    the newest steps are not. 0 when no step can be covered.
    """
    entries = [entry_of(source) for source in sources]
    units = [unit for loop in assemble(entries, total=0, answer_open_calls=True).loops for unit in loop.units]
    steps = [_span(unit) for unit in units if _is_step(unit)]
    if len(steps) <= KEEP_STEPS:
        return 0
    ends, newest = dict(map(_span, units)), min(first for first, _ in steps[-KEEP_STEPS:])
    count, end = 0, 0.0
    for number, entry in enumerate(entries, start=1):
        if before >= border and entry.position > end:
            break
        before += entry.event.tokens
        end = max(end, ends.get(entry.position, entry.position))
        if end >= newest:  # a late result would take the newest steps along
            break
        if entry.position == end:
            count = number
    return count if count and entries[count - 1].position >= steps[0][0] else 0


def _span(unit: Unit) -> tuple[int, float]:
    """Return the positions of a unit's first and last message; the last is infinite while a call waits for its result."""
    calls = {entry.position: entry.facts.calls for entry in unit.said}
    waiting = [answer.ref for answer in unit.answers if answer.entry is None]
    is_open = any(not calls[ref.position][ref.index].hosted for ref in waiting)
    positions = [entry.position for entry in unit.entries]
    return min(positions), math.inf if is_open else max(positions)


def _is_step(unit: Unit) -> bool:
    return unit.entry.facts.role == "assistant"


def _loop_texts(loop: Loop, *, is_open: bool) -> Iterator[LoopText]:
    """Yield the text of a loop, or texts of some steps each."""
    if not is_open:
        yield _loop_text(loop)
        return
    steps = [unit for unit in loop.units if _is_step(unit)]
    for start in range(0, len(steps), _STEPS):
        units = steps[start : start + _STEPS]
        answers = " / ".join(entry.facts.head for unit in units for entry in unit.said if entry.facts.head)
        calls = (line for unit in units for line in _call_lines(unit))
        yield LoopText(loop.number, "", cut(answers, ASKED_CHARS), tuple(calls))


def _loop_text(loop: Loop) -> LoopText:
    reply = final_reply(loop)
    question = " / ".join(unit.entry.facts.head for unit in loop.units if unit.entry.facts.role == "user")
    calls = [line for unit in loop.units for line in _call_lines(unit)]
    answer = reply.entry.facts.head if reply is not None else ""
    return LoopText(loop.number, cut(question, ASKED_CHARS), cut(answer, ASKED_CHARS), tuple(calls), reply is None)


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
        card = entry.event.facts if entry.message is None else None
        ledger = (card.ledger if card is not None else ()) or ledger_of_facts(entry.facts)
        # A card has the beginning of a text: so much is read of every message.
        is_of_talk = entry.facts.role in ("user", "assistant") and entry.position not in stays
        said = said_values(entry.facts.head[:ASKED_CHARS]) if is_of_talk else ()
        values = (value for value in said if not is_stop_word(value))
        yield from ((entry.position, value) for value in distinct((*values, *ledger), MAX_VALUES))
