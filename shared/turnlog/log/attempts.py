"""How the compression of a session has been going: attempts in a row that brought no summary.

No part of the log: losing it means that a session which can't be compressed is tried a few times more.
"""

from __future__ import annotations

from dataclasses import replace

from turnlog.domain.values import dataclass
from turnlog.log.keys import SessionKeys
from turnlog.ports import Item, ItemTable

MAX_FAILURES, MAX_USELESS = 3, 2
REST_LOOPS = 10
"""After useless attempts a session is left alone until it has so many loops more."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """``failures``: what trying again can't mend; ``useless``: nothing to cover, or nothing saved. ``loop``: the open loop then."""

    failures: int = 0
    useless: int = 0
    loop: int = 0

    def is_off(self, loop: int) -> bool:
        """Whether an append to this loop leaves the session alone."""
        if self.failures >= MAX_FAILURES:
            return True
        return self.useless >= MAX_USELESS and loop < self.loop + REST_LOOPS

    def failed(self, loop: int) -> Attempts:
        return replace(self, failures=self.failures + 1, loop=loop)

    def saved_nothing(self, loop: int) -> Attempts:
        return replace(self, useless=self.useless + 1, loop=loop)


def read_attempts(items: ItemTable, keys: SessionKeys) -> Attempts:
    """The attempts since the newest summary, in one request."""
    item = items.get_many([keys.attempts]).get(keys.attempts)
    return Attempts(_int(item, "f"), _int(item, "u"), _int(item, "lo")) if item is not None else Attempts()


def write_attempts(items: ItemTable, keys: SessionKeys, attempts: Attempts) -> None:
    """Two workers at once may lose a count: the session is tried once more then."""
    key = keys.attempts
    items.put(
        {"pk": key.pk, "sk": key.sk, "f": attempts.failures, "u": attempts.useless, "lo": attempts.loop},
        condition=None,
    )


def _int(item: Item, name: str) -> int:
    value = item.get(name)
    return value if isinstance(value, int) else 0
