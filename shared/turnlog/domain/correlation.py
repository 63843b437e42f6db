"""The correlation id: what ties a call to the logs of all it causes, in the API, in the queue and in the worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from turnlog.domain.errors import InvalidInputError

CORRELATION_PATTERN = r"^[A-Za-z0-9_.:/+=@-]{1,128}$"
"""It is written into logs as it is: an id of somebody's, no text."""
_PATTERN = re.compile(CORRELATION_PATTERN)
_CURRENT: ContextVar[str | None] = ContextVar("turnlog_correlation_id", default=None)


def correlation_id() -> str | None:
    """That of the call under way in this thread or task, if it has one."""
    return _CURRENT.get()


def is_correlation_id(value: object) -> bool:
    return isinstance(value, str) and _PATTERN.fullmatch(value) is not None


@contextmanager
def correlated(value: str | None) -> Iterator[None]:
    """All calls in the block have this correlation id; with None they have none.

    1 to 128 of ``A-Z a-z 0-9 _ . : / + = @ -``, else `InvalidInputError`. An engine in this process writes it into the jobs that
    the calls start, a service gets it as ``X-Correlation-Id``.
    """
    if value is not None and not is_correlation_id(value):
        message = f"a correlation id is 1 to 128 of A-Z a-z 0-9 _ . : / + = @ -, not {value!r:.80}"
        raise InvalidInputError(message, code="invalid_correlation_id")
    token = _CURRENT.set(value)
    try:
        yield
    finally:
        _CURRENT.reset(token)
