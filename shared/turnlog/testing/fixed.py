"""Ports that a test controls: a clock that stands still, and ids that count."""

from __future__ import annotations

import threading


class FixedClock:
    """A `Clock` that stands still until `advance`. `sleep` advances it too, so that retries end at once."""

    def __init__(self, now_ms: int = 1_763_683_200_000) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        with self._lock:
            return self._now_ms

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now_ms += round(seconds * 1000)


class SequentialIds:
    """An `IdSource` that counts, so that a run can be repeated."""

    def __init__(self, start: int = 0) -> None:
        self._next = start
        self._lock = threading.Lock()

    def new_id(self) -> str:
        return f"s{self._count():011d}"

    def nonce(self) -> bytes:
        return self._count().to_bytes(8, "big")

    def jitter(self) -> float:
        return 0.5

    def _count(self) -> int:
        with self._lock:
            self._next += 1
            return self._next
