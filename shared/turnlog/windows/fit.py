"""The budget is hard: what the policy's steps leave is made to fit, or the call is refused with what is needed.

The ladder: past loops to digests, oldest first; then out, oldest first; then `BudgetTooSmallError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from turnlog.domain.errors import BudgetTooSmallError
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.digests import MESSAGE_OVERHEAD, digest_tokens, pinned_pieces
from turnlog.windows.policy import MAX_MESSAGE_CHARS
from turnlog.windows.steps import digest, out
from turnlog.windows.text import left_out_line
from turnlog.windows.view import Loop, View

_LONGEST_LINE = left_out_line(loops=999_999_999_999, messages=999_999_999_999)
LINE_TOKENS = upper_bound_tokens(_LONGEST_LINE) + MESSAGE_OVERHEAD


def loop_tokens(loop: Loop) -> int:
    """The most that a loop takes at its level."""
    if loop.level == "digest":
        return digest_tokens(loop)
    if loop.level == "out":
        return sum(piece.tokens for piece in pinned_pieces(loop))
    return sum(unit.tokens for unit in loop.units if unit.level == "whole")


def has_evicted(view: View) -> bool:
    """Whether messages that could be sent are neither shown nor digested."""
    return bool(view.unread) or any(
        loop.level == "out" or any(unit.level == "out" for unit in loop.units) for loop in view.loops
    )


def message_tokens(view: View) -> int:
    """The most that the view's messages take, the line about what is left out included."""
    preamble = sum(unit.tokens for unit in view.preamble)
    return preamble + sum(map(loop_tokens, view.loops)) + (LINE_TOKENS if has_evicted(view) else 0)


def fit(view: View, *, room: int) -> View:
    """The view within ``room`` tokens of messages, or `BudgetTooSmallError` whose detail ``needed`` is for messages alone."""
    view = _shrink(view, room, lambda loop: digest(loop, "budget", MAX_MESSAGE_CHARS))
    view = _shrink(view, room, lambda loop: out(loop, "budget"))
    needed = message_tokens(view)
    if needed > room:
        raise BudgetTooSmallError(f"the least window needs {needed} tokens of messages", details={"needed": needed})
    return view


def _shrink(view: View, room: int, change: Callable[[Loop], Loop]) -> View:
    """Changes past loops, oldest first, until the view fits."""
    total = message_tokens(view)
    past, line = list(view.past), has_evicted(view)
    for at, loop in enumerate(past):
        if total <= room:
            break
        smaller = change(loop)
        saved = loop_tokens(loop) - loop_tokens(smaller)
        if smaller.level != "out" and saved <= 0:
            continue
        past[at], total = smaller, total - saved
        if smaller.level == "out" and not line:
            total, line = total + LINE_TOKENS, True
    return replace(view, loops=(*past, *view.loops[-1:]))
