"""How much is tried: a sixth in `make pr`, all of it in `make full`."""

from __future__ import annotations

import os

FULL = "TURNLOG_TEST_FULL"
"""Set by the option ``--full``, before any test module is read."""


def examples(full: int) -> int:
    """So many examples of a property."""
    return full if os.environ.get(FULL) else max(8, full // 6)


def boundaries(calls: int, engine: str) -> list[int]:
    """Which of so many calls fail, one after the other: all on SQLite, every ninth on an emulated engine."""
    step = 1 if engine == "sqlite" or os.environ.get(FULL) else 9
    return list(range(1, calls + 1, step))
