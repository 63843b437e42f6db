"""Idempotency keys of requests, and the records which say that a request with a key has begun, and where the log ended then.

A record is written before the commit of its request, so the commit comes after the record's position or does not exist. The
commit holds the hashes of key and payload; the record holds neither, and expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.core.errors import IdempotencyMismatchError, InvalidInputError
from turnlog.core.json_values import JsonObject, canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import DAY_MS
from turnlog.log.headers import HASH_BYTES, short_hash
from turnlog.log.keys import SessionKeys

if TYPE_CHECKING:
    from pydantic import BaseModel

    from turnlog.log.commit import Commit
    from turnlog.log.commits import CommitLog, Tail

MAX_KEY_CHARS = 255
KEPT_SECONDS = DAY_MS // 1000
"""Least time for which a key is remembered."""
SLACK_SECONDS = 3600
"""Greatest assumed difference between the clocks of writers and of the engine that deletes expired items."""


@lazy_dataclass(frozen=True, slots=True)
class RequestKey:
    """Hashes of a caller's idempotency key and of the payload sent with it."""

    key_hash: bytes
    payload_hash: bytes

    @property
    def stamp(self) -> bytes:
        """The bytes that the commit of the request holds: both hashes."""
        return self.key_hash + self.payload_hash

    def matches(self, stamp: bytes) -> bool:
        """Return whether a commit's stamp is of this request.

        Raises `IdempotencyMismatchError` for the same key with another payload.
        """
        if stamp[:HASH_BYTES] != self.key_hash:
            return False
        if stamp != self.stamp:
            raise IdempotencyMismatchError("this idempotency key was used with another payload")
        return True


_LATER = ("loop", "parent")
"""Fields that requests of older versions do not have: without a value they leave the payload as it was."""


def request_key(key: str | None, operation: str, body: BaseModel) -> RequestKey | None:
    """Return the hashed key and payload of a request, or None without a key.

    ``if_head`` and ``lease`` are not part of the payload, because a retry may name newer ones.
    """
    if key is None:
        return None
    later = {name for name in _LATER if getattr(body, name, None) is None}
    return raw_request_key(key, operation, body.model_dump(exclude={"if_head", "lenient", "lease", *later}))


def raw_request_key(key: str | None, operation: str, payload: JsonObject) -> RequestKey | None:
    """Return the hashed key and payload of a request whose payload is plain JSON, or None without a key."""
    if key is None:
        return None
    return RequestKey(short_hash(checked_key(key)), short_hash(operation + canonical_json(payload).decode("ascii")))


def checked_key(key: object) -> str:
    """Return the key. Raises `InvalidInputError` for a key that is no text, empty or too long."""
    if isinstance(key, str) and 0 < len(key) <= MAX_KEY_CHARS:
        return key
    size = f"of {len(key)}" if isinstance(key, str) else f"of type {type(key).__name__}"
    message = f"an idempotency key is a text of 1 to {MAX_KEY_CHARS} characters, not {size}"
    raise InvalidInputError.at("/headers/Idempotency-Key", message, "invalid_key")


class Attempt:
    """An attempt to write the commit of a request, which can find the commit of an earlier attempt."""

    def __init__(self, log: CommitLog, keys: SessionKeys, request: RequestKey | None) -> None:
        self.keys = keys
        self._log = log
        self._request = request
        self._seen: int | None = None
        self.is_first = False
        """Whether this is the first attempt of a request with a key. Known after `read`."""
        self.stamp = request.stamp if request is not None else b""
        """The stamp for the commit; empty for a request without a key."""

    def read(self) -> tuple[Tail, Commit | None]:
        """Return the end of the log, and the commit of an earlier attempt of the request up to there, or None.

        The first call records that a request with a key has begun there. Later calls, and every call of a retry, read the commits
        since then.
        """
        tail, request = self._log.tail(self.keys), self._request
        if request is None:
            return tail, None
        if self._seen is None:
            begun = self._log.begin_request(self.keys, request, head=tail.header.last)
            self.is_first = begun is None
            self._seen = begun if begun is not None else tail.header.last
            if self._seen > tail.header.last:
                tail = self._log.tail(self.keys)
        seen, last = self._seen, tail.header.last
        if seen == last:
            return tail, None
        # A recorded head beyond the log's end is from an earlier session with this id and is ignored.
        commit = self._log.made_by(self.keys, request, (seen if seen < last else 0) + 1, last)
        self._seen = last
        return tail, commit
