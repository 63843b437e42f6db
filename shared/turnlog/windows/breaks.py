"""Breaks: since when windows of a log have begun as this one does, as results, answers and turns decide it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest

from turnlog.core.lazy_dataclass import lazy_dataclass, once
from turnlog.core.loops import is_empty
from turnlog.core.window_parts import BreakReason, BrokeAt
from turnlog.windows.view import Entry, Unit, WindowDraft, continues_answer, is_item, is_turn, never_sent


@lazy_dataclass(frozen=True, slots=True)
class EpochStart:
    """Since when windows have begun as this one does.

    ``position``: windows at positions below it began otherwise; 0 when there never was a break. ``broke_at`` is the position or the
    part of the window that differs from the epoch before.
    """

    position: int = 0
    reason: BreakReason | None = None
    broke_at: BrokeAt = None


NEVER_BROKEN = EpochStart()
_PARTS = ("tools", "system", "summary", "base")


def first_in_window(breaks: Sequence[EpochStart]) -> EpochStart:
    """Return the break that comes first in the window, in the order tools, system text, summary, base, messages."""
    return min(breaks, key=_place)


def _place(start: EpochStart) -> tuple[int, int]:
    place = start.broke_at
    return (-1, _PARTS.index(place)) if isinstance(place, str) else (place or 0, 0)


def turns_of(view: WindowDraft) -> list[tuple[int, str]]:
    """Return the position and role of each turn in the loops of a view, those with open calls included; in order."""
    turns = {unit.position: str(unit.entry.facts.role) for unit in view.units if is_turn(unit.entry)}
    waiting = {ref.position: "assistant" for ref in view.open_calls}
    aside = {
        entry.position: str(entry.facts.role) for entry, _ in view.set_aside if is_turn(entry) and not never_sent(entry)
    }
    # Of an answer whose calls wait, the first item with a call is the turn, as when they are sent.
    items = [entry for entry, reason in view.set_aside if reason == "open_call" and is_item(entry)]
    others, has_leader = set[int](), False
    for previous, entry in zip([None, *items], items, strict=False):
        has_leader = has_leader and previous is not None and continues_answer(entry, previous)
        if has_leader or not entry.facts.calls:
            others.add(entry.position)
        has_leader = has_leader or bool(entry.facts.calls)
    return sorted((place, role) for place, role in (waiting | aside | turns).items() if place not in others)


def breaks_of_results(view: WindowDraft, *, answer_open_calls: bool) -> Iterator[EpochStart]:
    """Yield since when results of the view have replaced what an answer's window had for their calls.

    That was a neutral text, or an earlier result of the call, or nothing: a call whose result is awaited is not sent. A loop that
    is out has none: it left with a later break, or its results came when it was out. A pinned result shows its call again, which
    was counted in the omission notice before.
    """
    shown = (unit for loop in view.loops for unit in loop.units if loop.level != "out" or unit.pinned)
    units = [*view.preamble, *shown]
    if not any(unit.answers for unit in units):
        return
    out = [unit for loop in view.past if loop.level == "out" for unit in loop.units]
    counted = {unit.position for unit in out if unit.pinned and not unit.entry.event.envelope.pin}
    roles = dict(turns_of(view))
    turns = list(roles)
    said = [position for position, role in roles.items() if role == "assistant"]
    said += [entry.position for entry, _ in view.set_aside if entry.facts.role == "assistant" and never_sent(entry)]
    said.sort()
    steps = sorted({*turns, *said})
    superseded = sorted(entry.position for entry, reason in view.set_aside if reason == "superseded_result")
    for unit, following in zip_longest(units, units[1:]):
        if not unit.answers:
            continue
        last, completed_at = unit.said[-1].position, _completed_at(unit)
        if completed_at is not None and (_next(steps, last) or completed_at + 1) > completed_at:
            continue  # nothing was said before all its results were there
        is_user_s = unit.entry.facts.role != "assistant"
        place: BrokeAt = "base" if unit.position in counted else unit.position
        settled_at = _next(turns, last)
        for position in {answer.entry.position for answer in unit.answers if answer.entry is not None}:
            is_replacing = answer_open_calls or is_user_s or (_next(superseded, last) or position) < position
            sent_at = last if is_replacing else settled_at
            if sent_at is not None and (_next(said, sent_at) or position + 1) <= position:
                yield EpochStart(position, "late_result", place)
        shown_at = settled_at if settled_at is not None and not _is_complete(unit, settled_at) else completed_at
        if answer_open_calls or shown_at is None:
            continue
        answers = bisect_right(said, shown_at)
        answered_at = said[answers - 1] if answers else 0
        # The newest answer that was given while the call waited: its window had neither the call nor its place.
        if answered_at > last and (is_user_s or (following is not None and following.position < answered_at)):
            yield EpochStart(shown_at, "late_result", place)


def _next(positions: Sequence[int], position: int) -> int | None:
    """Return the first of ordered positions that is larger than ``position``."""
    index = bisect_right(positions, position)
    return positions[index] if index < len(positions) else None


@once
def _completed_at(unit: Unit) -> int | None:
    """Return the position of the last result of a unit; None while a call has none."""
    positions = [answer.entry.position for answer in unit.answers if answer.entry is not None]
    return max(positions) if len(positions) == len(unit.answers) else None


def _is_complete(unit: Unit, position: int) -> bool:
    """Return whether all results of a unit came before a position."""
    return (_completed_at(unit) or position) < position


def sent_before(view: WindowDraft, position: int, *, answer_open_calls: bool) -> int:
    """Return the position up to which an answer at ``position`` was made behind the same messages.

    That is the answer's own position, or that of a call whose results it did not wait for.
    """
    if answer_open_calls:
        return position
    units = [unit for unit in view.units if unit.answers and unit.position < position]
    waiting = [unit for unit in units if not _is_complete(unit, position)]
    last_turn = max((turn for turn, _ in turns_of(view) if turn < position), default=0) if waiting else 0
    return min((unit.position for unit in waiting if unit.said[-1].position >= last_turn), default=position)


def newest_unprompted(view: WindowDraft, *, answer_open_calls: bool) -> int:
    """Return the position of the newest answer whose window is the beginning of no later window; 0 when there is none.

    It is the log's first message, or directly behind another answer, whose calls waited if it had any: its window ended with a
    neutral message, or lacked those calls. Or its caller says that messages came after its window was built.
    """
    units = {unit.said[-1].position: unit for unit in view.units}
    # What is sent of an empty message is nothing.
    silent = {unit.position for unit in view.units if not unit.answers and _says_nothing(unit.entry)}
    turns = [(position, role) for position, role in turns_of(view) if position not in silent]
    is_first = (
        not (view.unread or view.compacted_to) and view.summary is None and bool(turns) and turns[0][1] == "assistant"
    )
    newest = turns[0][0] if is_first else 0
    for (before, role), (position, next_role) in pairwise(turns):
        unit = units.get(before)
        is_prompted = unit is not None and _is_prompt(unit, position, answer_open_calls=answer_open_calls)
        if role == next_role == "assistant" and not is_prompted:
            newest = position
    sent = {entry.position for unit in (*view.preamble, *units.values()) for entry in unit.entries} - silent
    positions = sorted(sent | {position for position, _ in turns})
    for unit in units.values():
        first, notes = unit.said[0].position, unit.said[0].event.notes
        built_at = notes.window[0] if notes is not None and notes.window is not None else first
        if (_next(positions, built_at) or first) < first:
            newest = max(newest, unit.said[-1].position)
    return newest


def _is_prompt(unit: Unit, position: int, *, answer_open_calls: bool) -> bool:
    """Return whether the results of an answer's calls stand between it and the next answer, at ``position``.

    Results within the answer, of a provider's own tools, do not.
    """
    completed_at = (_completed_at(unit) or position) if unit.answers else 0
    return completed_at > unit.said[-1].position and (answer_open_calls or completed_at < position)


def _says_nothing(entry: Entry) -> bool:
    message = entry.message
    return message is not None and not message.tool_results and is_empty(message)
