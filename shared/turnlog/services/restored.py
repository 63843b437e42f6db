"""The entry that a session made of stored commits has of that: its newest activity is now, so it does not expire at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnlog.domain.errors import ConflictError
from turnlog.domain.events import Event, NoteEvent
from turnlog.domain.jsonvalue import JsonObject
from turnlog.log.commits import Commit, Draft
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import RequestKey
from turnlog.log.sessions import SessionLog

RESTORE = "restore"


def told(
    log: SessionLog,
    keys: SessionKeys,
    last: Header,
    token: bytes,
    metadata: JsonObject,
    *,
    request: RequestKey | None = None,
) -> Header:
    """Adds the entry behind the commit of a header, while nobody sees the session. Again, it is the same entry.

    It carries the request's key, so that the same request finds its commit when the session is there again.
    """
    existing = log.commits.get(keys, last.last + 1)
    if existing is not None:
        return existing.header
    if request is not None:
        log.commits.request_keys.put(keys, request, head=last.last)
    new = following(last, kind="h", events=1, now_ms=log.clock.now_ms())
    new = replace(new, nonce=token[:8], idempotency=request.stamp if request is not None else b"")
    draft = Draft(new, (NoteEvent(new.first, RESTORE, None, metadata),))
    made = log.commits.put(keys, draft, nonce=token[:8], previous=last.hash)
    if made is None:
        raise ConflictError("another restore goes on in this session", code="id_claimed")
    return made.header


def tells_of(commit: Commit | None, events: Sequence[Event], snapshot_id: str) -> bool:
    """Whether a commit is the entry of a session that was made of this snapshot."""
    note = events[0] if commit is not None and events else None
    metadata = note.metadata if isinstance(note, NoteEvent) and note.action == RESTORE else None
    return metadata is not None and metadata.get("snapshot_id") == snapshot_id
