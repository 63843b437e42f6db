"""The budget is hard: what the policy's steps leave is made to fit, or the call is refused with what is needed.

The ladder: past loops to digests, oldest first; then out, oldest first; then `BudgetTooSmallError`.
"""

from __future__ import annotations

from dataclasses import replace

from turnlog.domain.errors import BudgetTooSmallError
from turnlog.windows.costs import LINE_TOKENS, bare_tokens, has_evicted, is_evicted, message_tokens
from turnlog.windows.notes import Tally
from turnlog.windows.steps import LEDGER_PER_LOOP, MAX_MESSAGE_CHARS, digest, out
from turnlog.windows.view import View


def fit(view: View, *, room: int) -> View:
    """The view within ``room`` tokens of messages, or `BudgetTooSmallError` whose detail ``needed`` is for messages alone."""
    digested = _digested(view, room)
    evicted = _evicted(digested, room)
    if message_tokens(evicted) > room:
        # The line about what is left out may take more than small digests do.
        needed = min(message_tokens(digested), message_tokens(evicted))
        raise BudgetTooSmallError(f"the least window needs {needed} tokens of messages", details={"needed": needed})
    return evicted


def _digested(view: View, room: int) -> View:
    """Past loops as digests, oldest first, until the view fits."""
    total, past, tally = message_tokens(view), list(view.past), _tally(view)
    for at, loop in enumerate(past):
        if total <= room:
            break
        if loop.level != "whole":
            continue
        smaller = digest(loop, "budget", MAX_MESSAGE_CHARS, LEDGER_PER_LOOP)
        saved = bare_tokens(loop) - bare_tokens(smaller) - tally.add(smaller.note)
        if smaller.level == "digest" and saved > 0:
            past[at], total = smaller, total - saved
        else:
            tally.remove(smaller.note)
    return view.with_past(past)


def _evicted(view: View, room: int) -> View:
    """Past loops out, oldest first, until the view fits."""
    total, past, line, tally = message_tokens(view), list(view.past), has_evicted(view), _tally(view)
    for at, loop in enumerate(past):
        if total <= room:
            break
        past[at] = smaller = out(loop, "budget")
        total -= bare_tokens(loop) - bare_tokens(smaller) + tally.remove(loop.note)
        if not line and any(is_evicted(smaller, unit) for unit in smaller.units):
            total, line = total + LINE_TOKENS, True
    return replace(view, loops=(*past, *view.loops[-1:]))


def _tally(view: View) -> Tally:
    """The notes that the view has."""
    tally = Tally()
    for loop in view.loops:
        tally.add(loop.note)
    return tally
