"""Why a window does not begin as the one before it: and what is planned otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from turnlog.domain.breaks import BreakReason
from turnlog.domain.values import dataclass
from turnlog.windows.view import Loop, Unit, View

_OF_PLAN: Mapping[str, BreakReason] = {
    "past_loop": "past_loop",
    "high_mark": "crossing",
    "digests_full": "crossing",
    "max_age": "age",
    "budget": "budget",
    "summary": "summary",
    "stub": "stub",
    "stub_tool_results": "stub",
    "fold": "fold",
}
"""BreakReason of a part -> reason of a break. All others are of limits, and of steps of a user's own: `evicted`."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What is not planned as before, and the position at which it begins. ``is_planned``: by policy and budget, else by what
    the messages are."""

    reason: BreakReason
    position: int
    is_planned: bool = False


def cause_of(then: View, now: View, position: int, *, at: int | None = None) -> Cause | None:
    """Why the later of two views is not the earlier one with more behind it: by the loop in which ``at`` lies, else by the
    first that is another one.

    ``position``: the earlier log ended before it. None where nothing is planned otherwise.
    """
    if (then.summary, then.told) != (now.summary, now.told):
        known = then.summary or now.summary
        return Cause("budget", known.first if known is not None else 0, is_planned=True)
    causes = [(one, cause) for one, other in _pairs(then, now, position) if (cause := _in_loop(one, other, position))]
    inside = [cause for loop, cause in causes if at is not None and loop.first <= at <= loop.last]
    return next(iter([*inside, *(cause for _, cause in causes)]), None)


def _pairs(then: View, now: View, position: int) -> Iterator[tuple[Loop, Loop]]:
    """The loops of both, as they were and as they are; one that is not there says nothing."""
    old = {loop.number: loop for loop in then.loops}
    new = {loop.number: loop for loop in now.loops if loop.first < position}
    for number in sorted(old | new):
        one, other = old.get(number), new.get(number)
        yield one or _silent(new[number]), other or _silent(old[number])


def _silent(loop: Loop) -> Loop:
    return replace(loop, units=(), level="whole", reason="", notes=())


def _in_loop(one: Loop, other: Loop, position: int) -> Cause | None:
    if (one.level, one.max_message_chars) != (other.level, other.max_message_chars):
        return Cause(_of_plan(other if other.level != "whole" else one), one.first, is_planned=True)
    old = {unit.position: unit for unit in one.units}
    new = {unit.position: unit for unit in other.units if unit.position < position}
    for place in sorted(old | new):
        found = _of_units(old.get(place), new.get(place))
        if found is not None:
            return found
    if one.notes == other.notes:
        return None
    return Cause("fold" if other.level == "whole" else _of_plan(other), one.first, is_planned=True)


def _of_units(one: Unit | None, other: Unit | None) -> Cause | None:
    if one is None or other is None:
        return _sent_now(other) if other is not None else None
    if _answers(one) != _answers(other):
        return Cause("late_result", other.position) if one.answers else _sent_now(other)
    if one.level != other.level:
        return Cause(_of_plan(other if other.level != "whole" else one), one.position, is_planned=True)
    return Cause("stub", one.position, is_planned=True) if one.stubs != other.stubs else None


def _sent_now(unit: Unit) -> Cause:
    """Its calls waited."""
    is_settled = any(answer.entry is None for answer in unit.answers)
    return Cause("settled" if is_settled else "open_call", unit.position)


def _answers(unit: Unit) -> list[tuple[int, int]]:
    return [(answer.entry.position if answer.entry is not None else 0, answer.index) for answer in unit.answers]


def _of_plan(part: Loop | Unit) -> BreakReason:
    return _OF_PLAN.get(part.reason, "evicted")
