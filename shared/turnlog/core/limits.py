"""The largest position; limits of a call: its deadline, its work, and the bytes that a function on Lambda takes and returns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from turnlog.core.errors import TooMuchWorkError, UnavailableError
from turnlog.core.identity import Within

MAX_POSITION = 999_999_999_999
_T = TypeVar("_T")
_LEFT: ContextVar[Callable[[], float] | None] = ContextVar("turnlog_seconds_left", default=None)


def seconds_left() -> float:
    """Return the seconds until the deadline of the current call: infinity without one, negative after it."""
    left = _LEFT.get()
    return math.inf if left is None else left()


def with_deadline(left: Callable[[], float] | None) -> Within[Callable[[], float] | None]:
    """Give all calls in the block a deadline.

    ``left`` returns the seconds until the deadline; with None the calls have none. Engines begin no request that could
    outlast the deadline.
    """
    return Within(_LEFT, left)


def check_time(needed_seconds: float, what: str) -> None:
    """Raise `UnavailableError` when ``what``, which may take ``needed_seconds``, could end after the deadline."""
    if (left := seconds_left()) < needed_seconds:
        message = f"{what} may take {needed_seconds:g} s and was not begun: {max(left, 0):.1f} s were left; try again"
        raise UnavailableError(message, code="deadline", retry_after_seconds=1)


UNLIMITED = 2**63


class Work:
    """A counter for the steps of a task. Raises `TooMuchWorkError` with the task and its limit above ``limit``."""

    def __init__(self, task: str, *, limit: int = UNLIMITED) -> None:
        self.steps = 0
        self.limit = limit
        self._task = task

    @property
    def left(self) -> int:
        return self.limit - self.steps

    def spend(self, steps: int = 1) -> None:
        """Count steps before they are done. Raises `TooMuchWorkError` above the limit."""
        self.steps += steps
        if self.steps > self.limit:
            raise TooMuchWorkError(
                f"{self._task} takes more than {self.limit} steps of work", details={"limit": self.limit}
            )


def batches(
    entries: Iterable[_T], size_of: Callable[[_T], int], *, max_size: int, max_count: int = UNLIMITED
) -> Iterator[list[_T]]:
    """Yield the entries in batches of at most ``max_count`` entries and ``max_size`` together; a larger entry alone."""
    batch, size = list[_T](), 0
    for entry in entries:
        entry_size = size_of(entry)
        if batch and (len(batch) == max_count or size + entry_size > max_size):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry_size
    if batch:
        yield batch


MAX_BODY_BYTES = 4 * 1024 * 1024 + 256 * 1024
"""Most bytes of the body of a request over HTTP, but for an append that is uploaded first."""
MAX_UPLOAD_BYTES = 40 * 1024 * 1024
"""Most bytes of the body of an append that is uploaded first, or sent to a service whose storage has no addresses."""
MAX_EVENT_BYTES, MAX_RESPONSE_BYTES = 6_291_456, 6_291_556
_AROUND_BYTES = 64 * 1024
"""Room for the parts beside a body: headers (API Gateway allows 10,240 bytes), claims, and the request's context."""
MAX_EVENT_BODY_BYTES = MAX_EVENT_BYTES - _AROUND_BYTES
MAX_ANSWER_BYTES = (MAX_RESPONSE_BYTES - _AROUND_BYTES) // 4 * 3
"""Bytes of JSON that always fit into an answer, also as base64, which takes a third more."""
MAX_APPEND_MESSAGES = 25
MAX_WINDOW_MESSAGES = 10_000
"""Messages that a window considers, and that an append with results reads of an open loop. Each costs some 50 µs."""
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of JSON after which a page ends. A page with one entry may have more."""
_MAX_ESCAPED_BYTES = 6
"""Bytes that one byte of UTF-8 takes at most in escaped JSON: U+007F becomes ``\\u007f``."""


def event_bytes(body: bytes) -> int:
    """Return the bytes that a request's body takes in a Lambda event, with escapes."""
    return len(body) + sum(map(body.count, (b'"', b"\\", b"\n", b"\r", b"\t")))


def fits_as_text(body: str, size_bytes: int) -> bool:
    """Return whether an answer's body fits into a Lambda response as text, counted as if all non-ASCII text were escaped."""
    limit = MAX_RESPONSE_BYTES - _AROUND_BYTES
    return size_bytes * _MAX_ESCAPED_BYTES <= limit or (size_bytes <= limit and len(json.dumps(body)) <= limit)
