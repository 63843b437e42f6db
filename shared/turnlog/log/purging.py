"""Purging of erased bytes from local files, shared by concurrent erasures.

A purge rewrites a file completely. A purge that begins after an erasure has ended removes the erasure's bytes, also when
another erasure started the purge. So the purge after an erasure's first pass usually serves its second pass too, which erases
nothing more.
"""

from __future__ import annotations

import secrets
import threading

from turnlog.ports import BlobStore, Clock, ItemTable, Purgeable

_IDLE_FACTOR = 9
"""Pause between purges after first passes, as a multiple of the last purge's duration. Second passes don't wait."""


class Purging:
    """A thread-safe purger of an engine's files."""

    def __init__(self, items: ItemTable, blobs: BlobStore, clock: Clock) -> None:
        self._stores = [store for store in (items, blobs) if isinstance(store, Purgeable)]
        self._clock = clock
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._begun = self._done = 0
        self._idle_until_ms = 0

    def after_first_pass(self) -> str:
        """Purge after an erasure's first pass, unless a purge was done recently. Return a mark for `after_last_pass`.

        A purge that begins after the mark removes everything that the pass erased.
        """
        mark = f"{self._process}-{self._begun}"
        now = self._clock.now_ms()
        # After the clock went back, this may purge once more than needed.
        if not now < self._idle_until_ms <= now + 3_600_000:
            self._purge()
        return mark

    def after_last_pass(self, mark: str) -> None:
        """Purge after an erasure's last pass, unless a purge that began after ``mark`` has ended.

        With an empty mark it always purges. When it returns, the files hold nothing that the erasure deleted. Raises
        `UnavailableError` when a purge is not possible at the moment.
        """
        process, _, begun = mark.partition("-")
        if process != self._process or self._done <= int(begun):
            self._purge()

    def _purge(self) -> None:
        with self._lock:
            self._begun += 1
            number, began_ms = self._begun, self._clock.now_ms()
        for store in self._stores:
            store.purge()
        with self._lock:
            self._done = max(self._done, number)
            ended_ms = self._clock.now_ms()
            self._idle_until_ms = ended_ms + _IDLE_FACTOR * (ended_ms - began_ms)
