"""What a source is read as: sessions of settings and messages, before anything is compared or written."""

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
"""The key under which a session's and a message's metadata holds what the source had beside what we have a place for."""
MADE_ID, NOT_AN_OBJECT, MALFORMED = "id_made", "not_an_object", "malformed"
MAX_NAME, MAX_SYSTEM = 128, 1_000_000


@lazy_dataclass(frozen=True, slots=True)
class Noted:
    """One thing to be told of a place in the source."""

    place: str
    reason: str


@lazy_dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message as it will be appended. ``place`` is the source's name of it; ``meta`` has only what the source gives.

    ``pieces`` are the parts that it was put together from: a log that had fewer of them holds the first ones as a message.
    """

    place: str
    body: dict[str, Any]
    meta: dict[str, Any] = field(default_factory=dict)
    pieces: tuple[SourceMessage, ...] = ()

    @property
    def created_at(self) -> str | None:
        found = self.meta.get("created_at")
        return found if isinstance(found, str) else None

    def first(self, count: int) -> SourceMessage:
        return joined(self.pieces[:count])

    def rest(self, count: int) -> SourceMessage:
        return joined(self.pieces[count:])


@lazy_dataclass(frozen=True, slots=True)
class SourceSession:
    """``settings`` are fields of a new session, ``state`` its state, ``extra`` all that we have no place for.

    ``skipped`` are things of the source that are no messages; they are in ``extra`` or in a message's metadata all the same.
    ``last_sent_at`` is when the model was last sent the messages up to then, as the source knows it (RFC 3339).
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
    """The source's id where it is a legal one, else an id that is always the same for it."""
    try:
        return check_session_id(source_id)
    except InvalidInputError:
        digest = hashlib.sha256(source_id.encode("utf-8", "surrogatepass")).digest()
        return "i" + base64.b32encode(digest).decode("ascii").rstrip("=").lower()[:31]


def made_id(source_id: str) -> tuple[Noted, ...]:
    """The warning that a session can't have the id that its source gives."""
    return () if session_id_of(source_id) == source_id else (Noted("session", MADE_ID),)


def with_extra(metadata: dict[str, Any] | None, extra: dict[str, Any]) -> dict[str, Any] | None:
    """Metadata that holds the extra too, under `IMPORTED`; where the source uses that name itself, under one like it."""
    if not extra:
        return metadata
    name, own = IMPORTED, metadata or {}
    while name in own:
        name += "_"
    return {**own, name: extra}


def joined(pieces: Sequence[SourceMessage]) -> SourceMessage:
    """One message of the blocks and lines of its pieces, with the first one's id and time."""
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
    """The file has no shape that we know, or not the one that was named."""

    code = "unknown_source"


class NewerSourceError(InvalidInputError):
    """The source was written by a newer version of its program than we know. ``details["version"]`` is what it says."""

    code = "newer_source"


class SourceChangedError(ConflictError):
    """What was imported is no longer what the source says, or others have written into the session.

    ``details["place"]`` is the message of the source, ``details["position"]`` that of the log.
    """

    code = "source_changed"
