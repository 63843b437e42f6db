"""The view of an earlier moment, made from the current view: unchanged loops and units are reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnlog.windows.items import is_item
from turnlog.windows.view import Entry, Unit, WindowDraft, is_turn, never_sent


def newest_answer(entries: Sequence[Entry]) -> int | None:
    """Return the position where the newest assistant answer begins; None when there is none.

    For an answer of several items it is the position of the first.
    """
    index = next((index for index in range(len(entries) - 1, -1, -1) if entries[index].facts.role == "assistant"), None)
    if index is None:
        return None
    while index and is_item(entries[index]) and is_item(entries[index - 1]):
        index -= 1
    return entries[index].position


def truncated(
    view: WindowDraft, kept: Sequence[Entry], position: int, *, total: int, answer_open_calls: bool
) -> WindowDraft | None:
    """Return the assembled view as if the log ended before ``position``; None when it must be assembled anew.

    ``kept`` are the entries before that position, ``total`` is their running total. None means that later messages changed earlier
    ones, e.g. a late result, or a call that was still waiting.
    """
    last_turn = next((entry.position for entry in reversed(kept) if is_turn(entry) and not never_sent(entry)), 0)
    units = [unit for loop in (view.preamble, *(loop.units for loop in view.loops)) for unit in loop]
    if not all(_is_as_it_was(unit, position, last_turn, answer_open_calls=answer_open_calls) for unit in units):
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


def _is_as_it_was(unit: Unit, position: int, last_turn: int, *, answer_open_calls: bool) -> bool:
    """Return whether the unit was the same then, or not there at all."""
    if unit.position >= position:
        return all(entry.position >= position for entry in unit.entries)
    if any(entry.position >= position for entry in unit.entries):
        return False
    # A call that has a neutral result now may have been waiting then.
    is_settled = any(answer.entry is None for answer in unit.answers)
    return answer_open_calls or not is_settled or unit.said[-1].position < last_turn
