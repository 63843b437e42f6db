"""The steps of policies: pure functions from a view to a view with less in it.

A step never takes the current loop, a system message before the first loop, or a pinned message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from turnlog.windows import policy
from turnlog.windows.costs import LINE_TOKENS, bare_tokens, past_tokens
from turnlog.windows.digests import digest_pieces, with_note
from turnlog.windows.notes import Tally
from turnlog.windows.summaries import summary_tokens
from turnlog.windows.view import Loop, Unit, View


def apply(view: View, step: policy.Step, *, room: int, fixed: int) -> View:
    """The view after one step. ``room`` is the budget, ``fixed`` what system text, tools and preamble take of it, in tokens."""
    if isinstance(step, policy.Turns):
        return _turns(view, step)
    if isinstance(step, policy.Messages):
        return _newest_units(view, limit=step.n, cost=lambda unit: len(unit.entries), reason="messages")
    if isinstance(step, policy.Tokens):
        return _newest_units(view, limit=step.n, cost=lambda unit: unit.tokens, reason="tokens")
    if isinstance(step, policy.Loops):
        return _loops(view, step)
    if isinstance(step, policy.Summary):
        return _summary(view)
    return _crossing(view, step, room=room, fixed=fixed)


def _summary(view: View) -> View:
    """Of the loops that the summary covers only what is kept is left."""
    if view.summary is None:
        return view
    covered = view.summary.last_loop
    return view.with_past(out(loop, "summary") if loop.number <= covered else loop for loop in view.past)


def _turns(view: View, step: policy.Turns) -> View:
    past = view.past
    kept = max(0, len(past) - step.n)
    return view.with_past(out(loop, "turns") if at < kept else loop for at, loop in enumerate(past))


def _newest_units(view: View, *, limit: int, cost: Callable[[Unit], int], reason: str) -> View:
    left, changed, full = limit, list[Loop](), False
    for loop in reversed(view.past):
        units = list[Unit]()
        for unit in reversed(loop.units):
            if unit.level != "out" and not unit.pinned:
                full = full or cost(unit) > left
                unit = replace(unit, level="out", reason=reason) if full else unit  # noqa: PLW2901
                left -= 0 if full else cost(unit)
            units.append(unit)
        kept = tuple(reversed(units))
        if any(unit.level != "out" for unit in kept):
            changed.append(replace(loop, units=kept))
        else:
            changed.append(replace(loop, units=kept, level="out", reason=reason))
    return view.with_past(reversed(changed))


def _loops(view: View, step: policy.Loops) -> View:
    past = view.past
    now_ms = view.loops[-1].opened_ms if view.loops else 0
    changed = list[Loop]()
    for newer, loop in enumerate(reversed(past)):
        too_old = step.max_age_seconds is not None and now_ms - loop.last_ms > step.max_age_seconds * 1000
        if step.max is not None and newer >= step.max:
            changed.append(out(loop, "max_loops"))
        elif too_old:
            changed.append(out(loop, "max_age"))
        else:
            changed.append(
                loop if newer < step.whole else digest(loop, "past_loop", step.max_message_chars, step.ledger)
            )
    return view.with_past(reversed(changed))


def _crossing(view: View, step: policy.Crossing, *, room: int, fixed: int) -> View:
    fixed += summary_tokens(view.summary)
    high, low = step.high * room - fixed, step.low * room - fixed
    size = max(1.0, high - low)
    border = size * math.ceil(max(0.0, view.total - high) / size)
    before = [loop for loop in view.past if loop.before < border]
    digests = [digest(loop, "high_mark", step.max_message_chars, step.ledger) for loop in before]
    least = [_least(loop, smaller) for loop, smaller in zip(before, digests, strict=True)]
    if past_tokens(least) > LINE_TOKENS:
        # Else the line about what is left out would take more than all of them do.
        least = _evicted(digests, (1 - step.high) * room)
    return view.with_past([*least, *view.past[len(before) :]])


def _least(loop: Loop, smaller: Loop) -> Loop:
    """The loop as a digest, where one says something and is smaller."""
    return smaller if smaller.level == "digest" and past_tokens([smaller]) < past_tokens([loop]) else loop


def _evicted(digests: list[Loop], room: float) -> list[Loop]:
    """Digests have the room beyond the high mark; the oldest that do not fit are out."""
    if past_tokens(digests) <= room:
        return digests
    room, kept, full, tally = room - LINE_TOKENS, list[Loop](), False, Tally()
    for loop in reversed(digests):
        cost = bare_tokens(loop) + tally.add(*loop.notes)
        full = full or cost > room
        room -= 0 if full else cost
        kept.append(out(loop, "digests_full") if full else loop)
    return kept[::-1]


def digest(loop: Loop, reason: str, max_message_chars: int, ledger: int) -> Loop:
    """The loop as a digest, unless it is out already; out, and so declared, when its digest would say nothing."""
    if loop.level != "whole":
        return loop
    key = (reason, max_message_chars, ledger)
    units, known = loop.digests.get(key, ((), None))
    if known is not None and units is loop.units:
        return known
    made = with_note(
        replace(loop, level="digest", reason=reason, max_message_chars=max_message_chars), max_values=ledger
    )
    made = made if made.notes or digest_pieces(made) else out(loop, reason)
    loop.digests[key] = (loop.units, made)
    return made


def out(loop: Loop, reason: str) -> Loop:
    return loop if loop.level == "out" else replace(loop, level="out", reason=reason, notes=())
