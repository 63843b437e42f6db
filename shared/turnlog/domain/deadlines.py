"""The deadline of the call under way in this thread or task. Adapters begin no request that could outlast it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from turnlog.domain.errors import UnavailableError

_LEFT: ContextVar[Callable[[], float] | None] = ContextVar("turnlog_seconds_left", default=None)


def seconds_left() -> float:
    """Return the seconds until the deadline: infinity where there is none, and less than 0 when it is over."""
    left = _LEFT.get()
    return math.inf if left is None else left()


@contextmanager
def within(left: Callable[[], float] | None) -> Iterator[None]:
    """Give all calls in the block the deadline that ``left`` counts down to, in seconds; with None they have none."""
    token = _LEFT.set(left)
    try:
        yield
    finally:
        _LEFT.reset(token)


def check_time(needed_seconds: float, what: str) -> None:
    """Raise `UnavailableError` when ``what``, which may take so long, could end after the deadline."""
    if (left := seconds_left()) < needed_seconds:
        message = (
            f"{what} may take {needed_seconds:g} s and was not begun, as {max(left, 0):.1f} s were left; try again"
        )
        raise UnavailableError(message, code="deadline", retry_after_seconds=1)
