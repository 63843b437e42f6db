"""Removing erased bytes from files of this machine, at a cost that many erasures share.

A purge writes a whole file anew. One that begins after an erasure has ended removes its bytes, whoever asked for it. So the purge
after an erasure's first pass is usually enough for its second pass, which erases nothing any more.
"""

from __future__ import annotations

import secrets
import threading

from turnlog.ports import BlobStore, Clock, ItemTable, Purgeable

_IDLE_FACTOR = 9
"""First passes leave the engine alone for so many times as long as the last purge took. Second passes do not wait."""


class Purging:
    """Purges the files of an engine. For any number of threads."""

    def __init__(self, items: ItemTable, blobs: BlobStore, clock: Clock) -> None:
        self._stores = [store for store in (items, blobs) if isinstance(store, Purgeable)]
        self._clock = clock
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._begun = self._done = 0
        self._idle_until_ms = 0

    def after_first_pass(self) -> str:
        """Purge, unless that was done just now. Return a mark for `after_last_pass`: what the pass has erased is older."""
        mark = f"{self._process}-{self._begun}"
        now = self._clock.now_ms()
        # A clock that went back may make this one purge more.
        if not now < self._idle_until_ms <= now + 3_600_000:
            self._purge()
        return mark

    def after_last_pass(self, mark: str) -> None:
        """Purge, unless one that was begun after the mark is done. An empty mark: purge in any case.

        When this returns, nothing is left in the files. `UnavailableError`: not now, try again.
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
