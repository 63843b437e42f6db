"""Idempotency keys: the same key and payload have one effect and one answer; the same key with another payload is refused."""

from __future__ import annotations

from typing import TypedDict

from pydantic import BaseModel

from turnlog.domain.errors import IdempotencyMismatchError, InvalidInputError, Problem
from turnlog.domain.jsonvalue import JsonObject, canonical_json
from turnlog.domain.values import dataclass
from turnlog.log.commits import Commit, CommitLog
from turnlog.log.headers import HASH_BYTES, Header, position_of_key, short_hash
from turnlog.log.keys import SessionKeys

MAX_KEY_CHARS = 255


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A caller's key and the hash of what it was sent with."""

    key_hash: bytes
    payload_hash: bytes

    @property
    def stamp(self) -> bytes:
        """What the commit of the request carries."""
        return self.key_hash + self.payload_hash


def request_key(key: str | None, operation: str, body: BaseModel) -> RequestKey | None:
    """The key of a request, or None without one. ``if_head`` is no part of the payload: a retry may know a newer head."""
    if key is None:
        return None
    return raw_request_key(key, operation, body.model_dump(exclude={"if_head"}))


def raw_request_key(key: str | None, operation: str, payload: JsonObject) -> RequestKey | None:
    """As `request_key`, for a payload that is no model."""
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"an idempotency key has 1 to {MAX_KEY_CHARS} characters, not {len(key)}"
        raise InvalidInputError(message, problems=[Problem("invalid_key", "/headers/Idempotency-Key", message)])
    return RequestKey(short_hash(key), short_hash(operation + canonical_json(payload).decode("ascii")))


class Stamped(TypedDict):
    """What a commit's header takes of its request's key."""

    key_hash: bytes
    stamp: bytes


def stamped(key: RequestKey | None) -> Stamped:
    return {"key_hash": key.key_hash, "stamp": key.stamp} if key is not None else {"key_hash": b"", "stamp": b""}


def earlier(commits: CommitLog, keys: SessionKeys, header: Header, key: RequestKey | None) -> Commit | None:
    """The commit of an earlier request with this key among the newest 24, or None."""
    if key is None:
        return None
    position = position_of_key(header.keys, key.key_hash)
    if position is None:
        return None
    commit = commits.get(keys, position)
    return commit if commit is not None and is_of(commit, key) else None


def is_of(commit: Commit, key: RequestKey) -> bool:
    """Whether the commit was made by a request with this key; another payload is a `IdempotencyMismatchError`."""
    stamp = commit.header.idempotency
    if stamp[:HASH_BYTES] != key.key_hash:
        return False
    if stamp != key.stamp:
        raise IdempotencyMismatchError("this idempotency key was used with another payload")
    return True
