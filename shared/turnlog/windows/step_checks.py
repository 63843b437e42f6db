"""Steps of a user's own are run here: what they return is checked, so that no law of windows depends on them.

A step may make past loops digests or take them out, take messages out of past loops, and pin. It can't raise what is lowered
but by a pin, invent, reorder or rewrite anything, touch the current loop but for pins, take what is pinned, or give no reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from turnlog.domain.errors import StepError
from turnlog.windows.digests import digest_pieces, with_note
from turnlog.windows.registry import is_built_in
from turnlog.windows.steps import Room, Step, pinned
from turnlog.windows.view import Loop, Unit, View

_REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OURS = frozenset({"summary", "not_included"})
"""Reasons with a meaning: of what a summary stands for, and of a current loop that is not wanted."""
_RANKS = {"whole": 0, "digest": 1, "out": 2}


def applied(step: Step, view: View, room: Room) -> View:
    """The view after a step. `StepError` when one of a user's own fails, or returns what a step may not."""
    if is_built_in(step):
        return step.apply(view, room)
    try:
        after = step.apply(view, room)
    except Exception as error:
        raise StepError(f"step {step.step!r} failed: {type(error).__name__}", details={"step": step.step}) from error
    problem = _problem(view, after)
    if problem:
        raise StepError(f"step {step.step!r} {problem}", details={"step": step.step})
    return after


def _problem(before: View, after: object) -> str:
    """What a step has done that it may not; empty when nothing."""
    if not isinstance(after, View):
        return f"returned a {type(after).__name__}, not a view"
    if replace(after, loops=before.loops) != before:
        return "changed more of the view than its loops"
    if len(after.loops) != len(before.loops):
        return "added or removed a loop: one is taken out by its level"
    found = [_of_loop(*pair) for pair in zip(before.past, after.past, strict=True)]
    found += [_of_current(*pair) for pair in zip(before.loops[-1:], after.loops[-1:], strict=True)]
    return next(filter(None, found), "")


def _of_current(before: Loop, after: Loop) -> str:
    if after is before:
        return ""
    is_pinned = len(after.units) == len(before.units) and all(
        new == old or new == pinned(old) for old, new in zip(before.units, after.units, strict=True)
    )
    same = is_pinned and replace(after, units=before.units) == before
    return "" if same else f"changed the current loop, {before.number}, otherwise than by pins"


def _of_loop(before: Loop, after: Loop) -> str:
    if after is before:
        return ""
    lowered = replace(
        before,
        units=after.units,
        level=after.level,
        reason=after.reason,
        notes=after.notes,
        max_message_chars=after.max_message_chars,
    )
    if lowered != after:
        return f"changed more of loop {before.number} than its level and units"
    if after.level not in _RANKS or _RANKS[after.level] < _RANKS[before.level]:
        return f"raised loop {before.number} from {before.level} to {after.level}"
    if before.level == "out" and after.reason != before.reason:
        return f"gave loop {before.number}, which was out, another reason"
    if after.level != "whole" and not _is_reason(after.reason, before.reason if after.level == before.level else ""):
        return (
            f"made loop {before.number} {after.level} with the reason {after.reason[:64]!r}, which is none of its own"
        )
    return _of_units(before, after.units) or _of_notes(before, after)


def _of_notes(before: Loop, after: Loop) -> str:
    if after.level == "digest":
        # Made by `digest`, whatever its ledger: a digest says nothing but what its loop said.
        values = sum(len(note.values) for note in after.notes)
        if after.max_message_chars < 1 or with_note(after, max_values=values).notes != after.notes:
            return f"made a digest of loop {before.number} otherwise than by digest()"
        if not after.notes and not digest_pieces(after):
            return f"made a digest of loop {before.number} that says nothing: such a loop is out"
    elif after.level == "out" and after.notes:
        return f"left notes of loop {before.number}, which is out"
    elif after.level == "whole" and replace(after, units=before.units) != before:
        return f"gave loop {before.number}, which is whole, a reason or notes"
    return ""


def _of_units(before: Loop, after: Iterable[Unit]) -> str:
    units = tuple(after)
    if len(units) != len(before.units):
        return f"added or removed a message of loop {before.number}: one is taken out by its level"
    for old, new in zip(before.units, units, strict=True):
        is_out = new.level == "out" and not old.pinned and new == replace(old, level="out", reason=new.reason)
        if not (new is old or new == old or new == pinned(old) or (is_out and _is_reason(new.reason, old.reason))):
            return (
                f"changed message {old.position} otherwise than by taking it out, with a reason of its own, or by a pin"
            )
    return ""


def _is_reason(reason: str, before: str) -> bool:
    """Whether it can stand in a manifest: a word of the step's own, or what was the reason before."""
    is_own = _REASON.fullmatch(reason) is not None and reason not in _OURS
    return is_own or (bool(before) and reason == before)
