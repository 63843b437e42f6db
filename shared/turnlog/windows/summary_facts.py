"""The facts of a summary: which values of what it covers stand beside its text, when not all of them have room."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import TypeAlias

from turnlog.windows.ledger import is_identifier

Facts: TypeAlias = "tuple[tuple[int, str], ...]"
"""Values, each with the position where it stood first; the later in the order, the longer it stays."""
_LEAST_TOKENS = 2
"""Of a value and of what sets it apart from the next."""
_MEASURE = re.compile(
    r"\d{4}-\d{2}(?:-\d{2})?(?:T[\d:.]+(?:Z|[+-]\d{2}:?\d{2})?)?"  # a date, a point in time
    r"|\d{1,4}\.\d{1,2}\.\d{1,4}"
    r"|\d{1,2}:\d{2}(?::\d{2})?(?:-\d{1,2}:\d{2}(?::\d{2})?)?"  # a time of day, two of them
    r"|\d+\.\d+"  # an amount
)


def seen(*known: Iterable[tuple[int, str]]) -> Facts:
    """Each value once, where it was seen first; in the order in which values were seen last."""
    found = dict[str, int]()
    for facts in known:
        for position, value in facts:
            found[value] = found.pop(value, position)
    return tuple((position, value) for value, position in found.items())


def chosen_facts(facts: Facts, room: int, cost: Callable[[Facts], int]) -> Facts:
    """As many facts as cost at most ``room``, given in the order in which they were seen last.

    What names something stays longest: nothing else finds it again. Then dates, times and amounts, which are many in results
    and long; then other scalars, which people and models say again by themselves. Of each, what was seen last stays: a value
    that comes again is still in use, however early it stood first. Search finds the others in the log.
    """
    ranked = sorted(facts, key=lambda fact: _rank(fact[1]))
    most = min(len(ranked), max(room, 0) // _LEAST_TOKENS)
    # Costs are counted as facts are told, together.
    count = bisect_right(range(1, most + 1), room, key=lambda number: cost(tuple(ranked[-number:])))
    return tuple(ranked[len(ranked) - count :])


def _rank(value: str) -> int:
    return 0 if not is_identifier(value) else 1 if _MEASURE.fullmatch(value) else 2
