"""The entry that a session made of stored commits has of that: its newest activity is now, so it does not expire at once."""

from __future__ import annotations

from dataclasses import replace

from turnlog.domain.errors import ConflictError
from turnlog.domain.events import NoteEvent
from turnlog.domain.jsonvalue import JsonObject
from turnlog.log.commits import Draft
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog

RESTORE = "restore"


def told(log: SessionLog, keys: SessionKeys, last: Header, token: bytes, metadata: JsonObject) -> Header:
    """Adds the entry behind the commit of a header, while nobody sees the session. Again, it is the same entry."""
    existing = log.commits.get(keys, last.last + 1)
    if existing is not None:
        return existing.header
    new = following(last, kind="h", events=1, now_ms=log.clock.now_ms())
    draft = Draft(replace(new, nonce=token[:8]), (NoteEvent(new.first, RESTORE, None, metadata),))
    made = log.commits.put(keys, draft, nonce=token[:8], previous=last.hash)
    if made is None:
        raise ConflictError("another restore goes on in this session", code="id_claimed")
    return made.header
