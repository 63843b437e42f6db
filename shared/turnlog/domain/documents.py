"""Documents of a session: bytes by key, for what belongs to a session and is no part of its conversation."""

from __future__ import annotations

from dataclasses import field

from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.values import dataclass

MAX_KEY_BYTES = 512


@dataclass(frozen=True, slots=True)
class Document:
    """``revision`` is another one after each writing; it tells nothing else. ``updated_ms`` is the time of the writing."""

    key: str
    data: bytes = field(repr=False)
    revision: str
    updated_ms: int


@dataclass(frozen=True, slots=True)
class Writing:
    """What a document is to be. ``if_revision``: only in place of this one; an empty one: only where there is none.
    ``updated_ms`` is the time of one that was written elsewhere before."""

    key: str
    data: bytes = field(repr=False)
    revision: str
    if_revision: str | None = None
    updated_ms: int | None = None


def check_document_key(key: str, *, pointer: str = "/key") -> str:
    """``key`` when it is a legal one, else `InvalidInputError`."""
    if not 0 < len(key.encode("utf-8", "surrogatepass")) <= MAX_KEY_BYTES or not key.isprintable():
        message = f"key {key[:80]!r} is empty, longer than {MAX_KEY_BYTES} bytes, or not printable"
        raise InvalidInputError(message, problems=[Problem("invalid_key", pointer, message)])
    return key
