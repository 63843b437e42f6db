"""The sessions and messages that readers of sources return, before anything is compared or written."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from turnlog.core.errors import ConflictError, InvalidInputError
from turnlog.core.identity import check_session_id
from turnlog.core.lazy_dataclass import lazy_dataclass

IMPORTED = "imported"
"""The metadata key, of a session and of a message, that holds the source's other fields."""
MADE_ID, NOT_AN_OBJECT, MALFORMED = "id_made", "not_an_object", "malformed"
MAX_NAME, MAX_SYSTEM = 128, 1_000_000


@lazy_dataclass(frozen=True, slots=True)
class Noted:
    """A remark about a place in the source."""

    place: str
    reason: str


@lazy_dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message to append. ``place`` is its name in the source; ``meta`` has only what the source gives.

    ``pieces`` are the parts that it was joined from. A log that was written when the source had fewer of them holds the first
    pieces as one message.
    """

    place: str
    body: dict[str, Any]
    meta: dict[str, Any] = field(default_factory=dict)
    pieces: tuple[SourceMessage, ...] = ()

    @property
    def created_at(self) -> str | None:
        """The time of the message, or None."""
        time = self.meta.get("created_at")
        return time if isinstance(time, str) else None

    def first(self, count: int) -> SourceMessage:
        """Return the message of the first ``count`` pieces."""
        return joined(self.pieces[:count])

    def rest(self, count: int) -> SourceMessage:
        """Return the message of the pieces after the first ``count``."""
        return joined(self.pieces[count:])


@lazy_dataclass(frozen=True, slots=True)
class SourceSession:
    """A session of a source.

    ``settings`` are fields of a new session, ``state`` is its state, ``extra`` holds all other fields of the source.
    ``skipped`` lists entries of the source that are not messages; they are kept in ``extra`` or in a message's metadata.
    ``last_sent_at`` is the time (RFC 3339) when the source last sent messages to the model.
    """

    id: str
    shape: str
    source_id: str
    format: str
    messages: tuple[SourceMessage, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    last_sent_at: str | None = None
    skipped: tuple[Noted, ...] = ()
    warnings: tuple[Noted, ...] = ()


def session_id_of(source_id: str) -> str:
    """Return the source's id when it is valid, else an id derived from it; equal sources give equal ids."""
    try:
        return check_session_id(source_id)
    except InvalidInputError:
        digest = hashlib.sha256(source_id.encode("utf-8", "surrogatepass")).digest()
        return "i" + base64.b32encode(digest).decode("ascii").rstrip("=").lower()[:31]


def made_id(source_id: str) -> tuple[Noted, ...]:
    """Return the warning that the session's id differs from the source's, or nothing."""
    return () if session_id_of(source_id) == source_id else (Noted("session", MADE_ID),)


def with_extra(metadata: dict[str, Any] | None, extra: dict[str, Any]) -> dict[str, Any] | None:
    """Add ``extra`` to metadata under `IMPORTED`, or under that name with underscores when the source uses it."""
    if not extra:
        return metadata
    name, own = IMPORTED, metadata or {}
    while name in own:
        name += "_"
    return {**own, name: extra}


def joined(pieces: Sequence[SourceMessage]) -> SourceMessage:
    """Join pieces to one message: their blocks and lines, with the id and time of the first piece."""
    first = pieces[0]
    if len(pieces) == 1:
        return replace(first, pieces=(replace(first, pieces=()),))
    blocks = [block for piece in pieces for block in _blocks(piece.body["content"])]
    lines = [line for piece in pieces for line in piece.meta["metadata"][IMPORTED]["lines"]]
    meta = {**first.meta, "metadata": {IMPORTED: {"lines": lines}}}
    reasons = [piece.meta["finish_reason"] for piece in pieces if "finish_reason" in piece.meta]
    if reasons:
        meta["finish_reason"] = reasons[-1]
    return SourceMessage(first.place, {**first.body, "content": blocks}, meta, tuple(pieces))


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


class UnknownSourceError(InvalidInputError):
    """Raised when a file has no known shape, or not the one that the caller named."""

    code = "unknown_source"


class NewerSourceError(InvalidInputError):
    """Raised when a newer version of a program wrote the source. ``details["version"]`` is the source's version."""

    code = "newer_source"


class SourceChangedError(ConflictError):
    """Raised when the source differs from what was imported, or others have written to the session.

    ``details["place"]`` is the message of the source, ``details["position"]`` the message of the log.
    """

    code = "source_changed"
