"""What people do without a library, as plainly as they do it: it cuts anywhere, so it makes windows that providers refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from benchmarks.windows.histories import History
from turnlog.providers.token_rules import WINDOW_OVERHEAD

PLAIN_TOKENS = 4_000
"""What ``last-tokens`` keeps where no budget is given, as the preset ``tokens`` does."""
CUT_CHARS = 4_000
"""What ``cut-results`` keeps of each tool result."""
SUMMARY_TOKENS = 300
"""What ``summary`` takes for everything older than the newest half of the budget."""
DEFAULTS = ("full-history", "user+reply", "last-20", "last-20+system", "last-tokens", "last-tokens+system")
Baseline: TypeAlias = Callable[[History, int, int | None], list[int] | None]
"""(history, messages so far, budget) -> the window's messages by number, or None when none fits."""

_NAMED = re.compile(r"last-(?P<n>[0-9]+|tokens)(?P<system>\+system)?")


def baseline_of(name: str) -> Baseline | None:
    """Return the baseline of a name: one of `DEFAULTS`, or ``last-N`` with any N, ``+system`` or not. None: there is none."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    match = _NAMED.fullmatch(name)
    if match is None:
        return None
    keeps_system = match["system"] is not None
    if match["n"] == "tokens":
        return lambda history, upto, budget: last_tokens(history, upto, budget, keeps_system=keeps_system)
    count = int(match["n"])
    return lambda history, upto, budget: last_messages(history, upto, count, keeps_system=keeps_system)


def last_messages(history: History, upto: int, count: int, *, keeps_system: bool) -> list[int]:
    """Return ``messages[-count:]``, behind the system messages at the beginning when these are kept."""
    first = _leading_system(history, upto) if keeps_system else 0
    start = max(first, upto - count)
    return [*_kept_head(history, first, keeps_system=keeps_system), *history.numbers[start:upto]]


def last_tokens(history: History, upto: int, budget: int | None, *, keeps_system: bool) -> list[int] | None:
    """Drops messages from the front until the rest fits. None when nothing is left."""
    first = _leading_system(history, upto) if keeps_system else 0
    head = _kept_head(history, first, keeps_system=keeps_system)
    room = (PLAIN_TOKENS if budget is None else budget) - WINDOW_OVERHEAD - history.tools_tokens
    total = history.tokens(head) + sum(history.sizes[first:upto])
    start = first
    while start < upto and total > room:
        total -= history.sizes[start]
        start += 1
    return [*head, *history.numbers[start:upto]] if start < upto else None


def cut_results(history: History, upto: int, budget: int | None) -> list[int] | None:
    """Cut each tool result to its beginning; then drop messages from the front until the rest fits."""
    first = _leading_system(history, upto)
    head = _kept_head(history, first, keeps_system=True)
    room = (PLAIN_TOKENS if budget is None else budget) - WINDOW_OVERHEAD - history.tools_tokens - history.tokens(head)
    kept = list[int]()
    for at in range(upto - 1, first - 1, -1):
        body = history.bodies[at]
        content, number = body.get("content"), history.numbers[at]
        if body.get("role") == "tool" and isinstance(content, str) and len(content) > CUT_CHARS:
            number = history.messages.number({**body, "content": content[:CUT_CHARS] + "..."})
        room -= history.tokens([number])
        if room < 0:
            break
        kept.append(number)
    return [*head, *reversed(kept)] if kept else None


def summary(history: History, upto: int, budget: int | None) -> list[int] | None:
    """Return the newest messages in half of the budget behind a summary of the others; everything where it fits."""
    first = _leading_system(history, upto)
    head = _kept_head(history, first, keeps_system=True)
    room = (PLAIN_TOKENS if budget is None else budget) - WINDOW_OVERHEAD - history.tools_tokens - history.tokens(head)
    if sum(history.sizes[first:upto]) <= room:
        return [*head, *history.numbers[first:upto]]
    start, taken = upto, SUMMARY_TOKENS
    while start > first and taken + history.sizes[start - 1] <= room / 2:
        start -= 1
        taken += history.sizes[start]
    text = history.messages.number({"role": "user", "content": "Summary of what was said: " + "and so on " * 145})
    return [*head, text, *history.numbers[start:upto]]


def user_and_reply(history: History, upto: int, budget: int | None) -> list[int]:
    """Return what the user said in past loops and their last replies without calls, and the whole current loop."""
    current = history.loops[upto - 1]
    kept, replies = list[int](), dict[int, int]()
    for at in range(upto):
        body = history.bodies[at]
        if body.get("role") == "assistant" and not body.get("tool_calls") and history.loops[at] < current:
            replies[history.loops[at]] = at
    for at in range(upto):
        body, loop = history.bodies[at], history.loops[at]
        is_said = body.get("role") in ("system", "user") or replies.get(loop) == at
        if loop == current or is_said:
            kept.append(history.numbers[at])
    return [*history.head(), *kept]


def _leading_system(history: History, upto: int) -> int:
    return next((at for at in range(upto) if history.bodies[at].get("role") != "system"), upto)


def _kept_head(history: History, first: int, *, keeps_system: bool) -> list[int]:
    return [*history.head(), *history.numbers[:first]] if keeps_system else []


_BY_NAME: dict[str, Baseline] = {
    "full-history": lambda history, upto, budget: history.full(upto),
    "user+reply": user_and_reply,
    "cut-results": cut_results,
    "summary": summary,
}
