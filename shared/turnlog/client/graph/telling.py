"""What other parts of a graph have changed or removed of what the log has: entries of the session's history, each made once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from turnlog.client.graph.aligning import Aligned
from turnlog.client.graph.messages import Said
from turnlog.client.model import Session
from turnlog.domain.jsonvalue import JsonValue, canonical_json

EDITED, REMOVED = "message_edited", "messages_removed"
_TOLD = 50


def tell_edited(session: Session, messages: Sequence[Said | None], aligned: Aligned) -> None:
    """Tells each message of an id that the log has with another body."""
    bodies = {one.identity.id: one.identity.body for one in messages if one is not None}
    for identity, position in aligned.known:
        body = bodies.get(identity.id) if identity.id is not None else None
        if body is not None and body != identity.body:
            told = {"message_id": identity.id, "position": position}
            session.record(EDITED, metadata=told, key=f"edited-{position}-{_digest(body)}")


def tell_removed(session: Session, before: Sequence[Any], messages: Sequence[Any]) -> None:
    """Tells the messages with an id that were there ``before``."""
    left = {one.id for one in messages}
    removed: list[JsonValue] = [one.id for one in before if one.id is not None and one.id not in left]
    if removed:
        told = {"message_ids": removed[-_TOLD:], "count": len(removed)}
        session.record(REMOVED, metadata=told, key=f"removed-{_digest(canonical_json(removed))}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
