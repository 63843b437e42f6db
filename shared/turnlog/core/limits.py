"""The deadline of the call under way in this thread or task. Adapters begin no request that could outlast it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from turnlog.core.errors import TooMuchWorkError, UnavailableError

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


UNLIMITED = 2**63


class Work:
    """Count steps of one task; `TooMuchWorkError` names the task and its limit."""

    def __init__(self, task: str, *, limit: int = UNLIMITED) -> None:
        self.steps = 0
        self.limit = limit
        self._task = task

    @property
    def left(self) -> int:
        return self.limit - self.steps

    def spend(self, steps: int = 1) -> None:
        """Add steps. Called before the work is done, so that what is refused is not done."""
        self.steps += steps
        if self.steps > self.limit:
            raise TooMuchWorkError(
                f"{self._task} takes more than {self.limit} steps of work", details={"limit": self.limit}
            )


MAX_EVENT_BYTES, MAX_RESPONSE_BYTES = 6_291_456, 6_291_556
_AROUND_BYTES = 64 * 1024
"""For what is beside a body: headers, of which API Gateway takes 10,240 bytes, claims, and the request's context."""
MAX_EVENT_BODY_BYTES = MAX_EVENT_BYTES - _AROUND_BYTES
MAX_ANSWER_BYTES = (MAX_RESPONSE_BYTES - _AROUND_BYTES) // 4 * 3
"""Bytes of JSON that fit into every answer, whatever they are: as base64 they take a third more."""
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of JSON after which a page ends. One entry alone may have more."""
_MOST_FOR_A_BYTE = 6
"""U+007F is one byte of UTF-8, and ``\\u007f`` where all beyond printable ASCII is escaped; nothing takes more."""


def event_bytes(body: bytes) -> int:
    """Return the bytes of a request's body in the event of a function."""
    return len(body) + sum(map(body.count, (b'"', b"\\", b"\n", b"\r", b"\t")))


def fits_as_text(body: str, size_bytes: int) -> bool:
    """Return whether an answer's body fits into a function's response as it is. Counted as if all beyond ASCII were escaped."""
    most = MAX_RESPONSE_BYTES - _AROUND_BYTES
    return size_bytes * _MOST_FOR_A_BYTE <= most or (size_bytes <= most and len(json.dumps(body)) <= most)
