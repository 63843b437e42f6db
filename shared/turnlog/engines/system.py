"""`Clock` and `IdSource` of this machine."""

from __future__ import annotations

import base64
import random
import secrets
import time


class SystemClock:
    """`Clock` by the machine's time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class RandomIds:
    """`IdSource` by the system's random numbers."""

    def new_id(self) -> str:
        # A letter first, so that an id never begins with "h_" or "-".
        return "s" + base64.b32encode(secrets.token_bytes(20)).decode("ascii").lower()[:31]

    def nonce(self) -> bytes:
        return secrets.token_bytes(8)

    def jitter(self) -> float:
        return random.random()
