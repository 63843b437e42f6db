"""The budget is hard: what the policy's steps leave is made to fit, or the call is refused with what is needed.

The ladder: past loops to digests, oldest first; the oldest digests out while they take more than their share; then the
current loop (`ladder`): results to stubs, steps to notes, but for its newest part; then the other digests out; then the
newest part; then `BudgetTooSmallError`.
"""

from __future__ import annotations

from turnlog.domain.errors import BudgetTooSmallError
from turnlog.windows.costs import LINE_TOKENS, bare_tokens, has_evicted, is_evicted, message_tokens, past_tokens
from turnlog.windows.ladder import least, shortened
from turnlog.windows.notes import Tally
from turnlog.windows.steps import LEDGER_PER_LOOP, MAX_MESSAGE_CHARS, digest, out
from turnlog.windows.view import View

DIGESTS = 0.2
"""Their share of the room: past loops have more of it only while the current loop is whole."""


def fit(view: View, *, room: int) -> View:
    """The view within ``room`` tokens of messages, or `BudgetTooSmallError` whose detail ``needed`` is for messages alone."""
    if message_tokens(view) <= room:
        return view
    digested = _digested(view, room)
    fitted = _evicted(digested, room, keep=DIGESTS * room)
    fitted = shortened(fitted, room, newest=False)
    fitted = _evicted(fitted, room, keep=0)
    fitted = shortened(fitted, room, newest=True)
    if message_tokens(fitted) <= room:
        return fitted
    # The line about what is left out may take more than small digests do, and a note more than small steps.
    candidates = [one for past in (digested, _evicted(digested, -1, keep=0)) for one in (past, *least(past))]
    smallest = min(candidates, key=message_tokens)
    needed = message_tokens(smallest)
    if needed > room:
        raise BudgetTooSmallError(f"the least window needs {needed} tokens of messages", details={"needed": needed})
    return smallest


def _digested(view: View, room: int) -> View:
    """Past loops as digests, oldest first, until the view fits."""
    total, past, tally = message_tokens(view), list(view.past), _tally(view)
    for at, loop in enumerate(past):
        if total <= room:
            break
        if loop.level != "whole":
            continue
        smaller = digest(loop, "budget", MAX_MESSAGE_CHARS, LEDGER_PER_LOOP)
        saved = bare_tokens(loop) - bare_tokens(smaller) - tally.add(*smaller.notes)
        if smaller.level == "digest" and saved > 0:
            past[at], total = smaller, total - saved
        else:
            tally.remove(*smaller.notes)
    return view.with_past(past)


def _evicted(view: View, room: int, *, keep: float) -> View:
    """Past loops out, oldest first, until the view fits or they take no more than ``keep``."""
    total, past, line, tally = message_tokens(view), list(view.past), has_evicted(view), _tally(view)
    if total <= room:
        return view
    taken = past_tokens(past)
    for at, loop in enumerate(past):
        if total <= room or taken <= keep:
            break
        past[at] = smaller = out(loop, "budget")
        saved = bare_tokens(loop) - bare_tokens(smaller) + tally.remove(*loop.notes)
        total, taken = total - saved, taken - saved
        if not line and any(is_evicted(smaller, unit) for unit in smaller.units):
            total, line = total + LINE_TOKENS, True
    return view.with_past(past)


def _tally(view: View) -> Tally:
    """The notes that the view has."""
    tally = Tally()
    for loop in view.loops:
        tally.add(*loop.notes)
    return tally
