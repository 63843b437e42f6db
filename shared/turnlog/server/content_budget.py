"""Limits the content that `turnlog serve` works on at once.

Parsed JSON may take 50 times its bytes as Python objects (a list of empty lists does). Requests therefore share a budget of
bytes, counted over request bodies and stored content as it is read. One request at a time may exceed the budget, however large;
the others wait for it. A request that waits too long is refused as ``busy`` and can be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from turnlog.core.errors import UnavailableError
from turnlog.log.packing import counting_content


class ContentBudget:
    """A budget of content bytes that requests share. At most ``waiting`` requests wait, each in a thread of the server."""

    def __init__(self, size_bytes: int, *, waiting: int, wait_seconds: float) -> None:
        self._free = size_bytes
        self._waiting_left = waiting
        self._wait_seconds = wait_seconds
        self._is_exceeded = False
        self._changed = threading.Condition()

    @contextmanager
    def request(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes bytes for one request. Bytes of stored content are taken too; all are released at the end.

        The function raises `UnavailableError` (``busy``) when too many requests wait, or when one waits too long.
        """
        share = _Share(self)
        try:
            with counting_content(share.take):
                yield share.take
        finally:
            self._give_back(share)

    def take(self, share: _Share, size: int) -> None:
        with self._changed:
            if not (share.is_beyond or self._has_room(size)):
                self._wait(size)
            if share.is_beyond:
                return
            if size <= self._free:
                self._free -= size
                share.held += size
            else:
                self._is_exceeded = share.is_beyond = True

    def _has_room(self, size: int) -> bool:
        return size <= self._free or not self._is_exceeded

    def _wait(self, size: int) -> None:
        is_free = False
        if self._waiting_left:
            self._waiting_left -= 1
            try:
                is_free = self._changed.wait_for(lambda: self._has_room(size), self._wait_seconds)
            finally:
                self._waiting_left += 1
        if not is_free:
            raise UnavailableError(
                "other requests hold as much content as this server works on at once; try again",
                code="busy",
                retry_after_seconds=1,
            )

    def _give_back(self, share: _Share) -> None:
        with self._changed:
            self._free += share.held
            if share.is_beyond:
                self._is_exceeded = False
            self._changed.notify_all()


class _Share:
    """A request's part of the budget. ``is_beyond``: this request is the one that may exceed the budget."""

    def __init__(self, budget: ContentBudget) -> None:
        self.held = 0
        self.is_beyond = False
        self._budget = budget

    def take(self, size: int) -> None:
        self._budget.take(self, size)
