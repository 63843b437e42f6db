"""How much is tried: a third in `make pr`, all of it in `make full`."""

from __future__ import annotations

import os

FULL = "TURNLOG_TEST_FULL"
"""Set by the option ``--full``, before any test module is read."""


def examples(full: int) -> int:
    """So many examples of a property."""
    return full if os.environ.get(FULL) else max(10, full // 3)
