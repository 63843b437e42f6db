"""How much is tried: a part of it in `make pr`, all of it in `make full`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

FULL = "TURNLOG_TEST_FULL"
"""Set by the option ``--full``, before any test module is read."""

FEWEST = 3
"""However few are tried, they are at least so many (if there are so many)."""


def is_full() -> bool:
    """Whether everything is tried."""
    return bool(os.environ.get(FULL))


def examples(full: int) -> int:
    """So many examples of a property."""
    return full if is_full() else max(8, full // 16)


def some(cases: Iterable[T], one_of: int) -> list[T]:
    """One of so many cases, the first among them; in `make full` all of them."""
    return list(cases)[:: 1 if is_full() else one_of]


def boundaries(calls: int, engine: str, *, sqlite: int = 2, emulated: int = 29) -> list[int]:
    """Which of so many calls fail, one after the other: spread evenly, the first and the last among them.

    One of ``sqlite`` calls there, one of ``emulated`` on an emulated engine, and all of them in `make full`."""
    step = 1 if is_full() else sqlite if engine == "sqlite" else emulated
    count = min(calls, max(FEWEST, -(-calls // step)))
    return [1 + round(each * (calls - 1) / max(1, count - 1)) for each in range(count)]
