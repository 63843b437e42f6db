"""The lease of a session for one run: who may append to it as that run, and until when.

The newest commit's header holds the lease. Its token is the position of the commit that took it, so a later holder has a greater
one, and an append that names another token than the current one is refused. Times are those of commits, which always increase:
a clock that is wrong makes a take-over early or late, but never lets two holders append.
"""

from __future__ import annotations

from turnlog.core.errors import RunActiveError, RunLostError
from turnlog.core.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class RunLease:
    """A lease that a holder has until ``expires_ms``, the time of a commit. Each renewal moves that time by ``seconds``."""

    token: int
    seconds: int
    expires_ms: int
    holder: str

    def is_held(self, time_ms: int) -> bool:
        """Return whether nobody else may take the lease in a commit of this time."""
        return time_ms < self.expires_ms

    def encode(self) -> str:
        return f"{self.token} {self.seconds} {self.expires_ms} {self.holder}"

    @classmethod
    def decode(cls, text: str) -> RunLease:
        token, seconds, expires_ms, holder = text.split(" ", 3)
        return cls(int(token), int(seconds), int(expires_ms), holder)


def acquired(lease: RunLease | None, holder: str, seconds: int, *, position: int, time_ms: int) -> RunLease:
    """Return the lease of a holder that takes it in the commit at ``position``.

    Raises `RunActiveError` while another holder has it. A holder that takes it again gets a new token.
    """
    if lease is not None and lease.holder != holder and lease.is_held(time_ms):
        wait_seconds = -(-(lease.expires_ms - time_ms) // 1000)
        message = f"another run has the session for {wait_seconds} s more, unless it renews its lease"
        raise RunActiveError(message, details={"token": lease.token}, retry_after_seconds=wait_seconds)
    return RunLease(position, seconds, time_ms + seconds * 1000, holder)


def current(lease: RunLease | None, token: int) -> RunLease:
    """Return the lease with this token. Raises `RunLostError` when it was released, or another run has taken the session."""
    if lease is None or lease.token != token:
        holder = "no run has the session" if lease is None else f"another run has taken it at position {lease.token}"
        raise RunLostError(f"the lease {token} is not the session's: {holder}")
    return lease


def renewed(lease: RunLease | None, token: int, seconds: int | None, *, time_ms: int) -> RunLease:
    """Return the lease with this token, renewed, by default for as long as before. Raises `RunLostError`."""
    lease = current(lease, token)
    seconds = lease.seconds if seconds is None else seconds
    return RunLease(token, seconds, time_ms + seconds * 1000, lease.holder)
