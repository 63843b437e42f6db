"""When a session asks for its next summary: once for each crossing of its trigger, and again when a job got lost.

What was asked for stands in the header of the commit that asked, so one of several appends at once asks, and no item of its
own is read or written for it.
"""

from __future__ import annotations

from turnlog.domain.values import dataclass

COOL_DOWN_LOOPS = 2
"""So many loops must have been opened since the newest request before there is another."""
LEASE_MS = 10 * 60 * 1000
"""After that time without a summary a request counts as lost (the process ended before its job was sent, the model is down)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The newest request: the open loop and the time of the commit that made it. ``is_answered``: a summary came of it."""

    loop: int
    time_ms: int
    is_answered: bool = False

    def encode(self) -> str:
        return f"{self.loop} {self.time_ms} {int(self.is_answered)}"

    @classmethod
    def decode(cls, text: str) -> Asked:
        loop, time_ms, is_answered = text.split(" ")
        return cls(int(loop), int(time_ms), is_answered == "1")

    def allows_another(self, *, loop: int, now_ms: int) -> bool:
        """Whether an append to this loop at this time may ask again."""
        if loop >= self.loop + COOL_DOWN_LOOPS:
            return True
        return not self.is_answered and now_ms - self.time_ms >= LEASE_MS
