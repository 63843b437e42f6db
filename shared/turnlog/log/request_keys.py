"""Idempotency keys of requests: a record beside the log tells that a request with a key has begun, and where the log ended then.

The record is put before the first commit of the request, so that commit lies behind the record's position or nowhere. The commit
itself has the hashes of key and payload; the record has neither, and expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.core.errors import CorruptError, IdempotencyMismatchError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import DAY_MS
from turnlog.log.headers import HASH_BYTES, KEY_ENTRY_BYTES, KEY_HASH_BYTES, Header
from turnlog.log.keys import SessionKeys
from turnlog.ports import Absent, Clock, ItemTable

if TYPE_CHECKING:
    from turnlog.log.commits import Commit, CommitLog, Tail

KEPT_SECONDS = DAY_MS // 1000
"""A key is remembered for at least that long."""
_SLACK_SECONDS = 3600
"""Clocks of writers, and of the engine that deletes what has expired, differ by less."""


@lazy_dataclass(frozen=True, slots=True)
class RequestKey:
    """A caller's key and the payload that it was sent with, as hashes."""

    key_hash: bytes
    payload_hash: bytes

    @property
    def stamp(self) -> bytes:
        """What the commit of the request carries."""
        return self.key_hash + self.payload_hash

    def matches(self, stamp: bytes) -> bool:
        """Tell whether a stamp is of this request; `IdempotencyMismatchError` when it is of the same key with another payload."""
        if stamp[:HASH_BYTES] != self.key_hash:
            return False
        if stamp != self.stamp:
            raise IdempotencyMismatchError("this idempotency key was used with another payload")
        return True


class KeyRecords:
    """Records of the keys of requests that have begun, one item each in the session's partition."""

    def __init__(self, items: ItemTable, clock: Clock) -> None:
        self._items = items
        self._clock = clock

    def put(self, keys: SessionKeys, request: RequestKey, *, head: int) -> int | None:
        """Record that a request begins at this head of the log. Return None, or the head that an earlier attempt has recorded:
        behind it lies the commit of the request, if there is one."""
        key = keys.request(request.key_hash)
        ttl = self._clock.now_ms() // 1000 + KEPT_SECONDS + _SLACK_SECONDS
        lost = self._items.put({"pk": key.pk, "sk": key.sk, "pos": head, "ttl": ttl}, condition=Absent())
        if lost is None:
            return None
        position = lost.existing.get("pos") if lost.existing is not None else 0
        if not isinstance(position, int):
            raise CorruptError("the record of an idempotency key is damaged", item=key.sk)
        return position


class Attempt:
    """An attempt to write the commit of a request. Knows whether an earlier attempt of the same request has written it."""

    def __init__(self, log: CommitLog, keys: SessionKeys, request: RequestKey | None) -> None:
        self.keys = keys
        self._log = log
        self._request = request
        self._seen: int | None = None
        self.is_first = False
        """Whether no earlier attempt of the request has begun, as far as a key tells. Known after `tail`."""

    @property
    def stamp(self) -> bytes:
        """What the commit carries of the request's key."""
        return self._request.stamp if self._request is not None else b""

    def tail(self) -> Tail:
        """Return the end of the log. The first call records that a request with a key has begun there."""
        tail = self._log.tail(self.keys)
        if self._request is not None and self._seen is None:
            begun = self._log.request_keys.put(self.keys, self._request, head=tail.header.last)
            self.is_first = begun is None
            self._seen = begun if begun is not None else tail.header.last
            if self._seen > tail.header.last:
                tail = self._log.tail(self.keys)
        return tail

    def earlier(self, tail: Tail) -> Commit | None:
        """Return the commit of an earlier attempt of the request, if the log has one up to ``tail``.

        Reads what has come since the request began; nothing in the first attempt.
        """
        header, request, seen = tail.header, self._request, self._seen or 0
        if request is None or seen == header.last:
            return self._in_ring(header)
        # A record behind the end of the log was left by another session of this id: it tells nothing.
        commit = self._log.made_by(self.keys, request, (seen if seen < header.last else 0) + 1, header.last)
        self._seen = header.last
        return commit or self._in_ring(header)

    def _in_ring(self, header: Header) -> Commit | None:
        """Return the commit of the request where the ring of keys of an older Turnlog has it."""
        request = self._request
        position = _position_in_ring(header.keys, request.key_hash) if request is not None else None
        commit = self._log.get(self.keys, position) if position is not None else None
        return commit if commit is not None and request and request.matches(commit.header.idempotency) else None


def _position_in_ring(ring: bytes, key_hash: bytes) -> int | None:
    """Return where the newest commit with this key may be, by the ring of keys that headers had before key records.

    The ring has the first bytes of a hash only: the whole hash must be compared at the position.
    """
    wanted = key_hash[:KEY_HASH_BYTES]
    for start in range(len(ring) - KEY_ENTRY_BYTES, -1, -KEY_ENTRY_BYTES):
        if ring.startswith(wanted, start):
            return int.from_bytes(ring[start + KEY_HASH_BYTES : start + KEY_ENTRY_BYTES], "big")
    return None
