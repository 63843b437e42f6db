"""A view as it was at an earlier moment, made of the view of now: the loops and units that have not changed are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnlog.windows.items import is_item
from turnlog.windows.view import Entry, Unit, WindowDraft, is_turn, never_sent


def newest_answer(entries: Sequence[Entry]) -> int | None:
    """The position at which the newest assistant message begins: the first item of an answer that came in items."""
    at = next((at for at in range(len(entries) - 1, -1, -1) if entries[at].facts.role == "assistant"), None)
    if at is None:
        return None
    while at and is_item(entries[at]) and is_item(entries[at - 1]):
        at -= 1
    return entries[at].position


def truncated(
    view: WindowDraft, kept: Sequence[Entry], position: int, *, total: int, settle: bool
) -> WindowDraft | None:
    """The assembled view as if the log ended before a position; ``kept`` are the entries before it, ``total`` their running total.

    None where what has come since has changed what stood before: a late result, a call that waited then. Such a view has to
    be assembled anew.
    """
    last_turn = next((one.position for one in reversed(kept) if is_turn(one) and not never_sent(one)), 0)
    units = [unit for loop in (view.preamble, *(loop.units for loop in view.loops)) for unit in loop]
    if not all(_is_as_it_was(unit, position, last_turn, settle=settle) for unit in units):
        return None
    current = max((entry.loop for entry in kept), default=0)
    loops = [loop for loop in view.loops if loop.number <= current]
    if current and (not loops or loops[-1].number != current):
        return None
    if loops:
        inside = tuple(unit for unit in loops[-1].units if unit.position < position)
        last = max(entry.position for entry in kept if entry.loop == current)
        loops[-1] = replace(loops[-1], units=inside, last=last) if last != loops[-1].last else loops[-1]
    preamble = tuple(unit for unit in view.preamble if unit.position < position)
    set_aside = tuple((entry, reason) for entry, reason in view.set_aside if entry.position < position)
    return replace(view, preamble=preamble, loops=tuple(loops), total=total, set_aside=set_aside, open_calls=())


def _is_as_it_was(unit: Unit, position: int, last_turn: int, *, settle: bool) -> bool:
    """Whether the unit stood there as it is now, or not at all."""
    if unit.position >= position:
        return all(entry.position >= position for entry in unit.entries)
    if any(entry.position >= position for entry in unit.entries):
        return False
    # One that is settled now may have waited then.
    is_settled = any(answer.entry is None for answer in unit.answers)
    return settle or not is_settled or unit.said[-1].position < last_turn
