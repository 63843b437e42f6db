"""Models of long-term memory: what is known of a person."""

from __future__ import annotations

from pydantic import Field

from turnlog.core.memory import MemoryKind
from turnlog.core.models import Answer


class StoredMemory(Answer):
    """One thing that is known. ``session_id`` and ``position`` say where it was said; null where the engine does not tell.

    ``replaced_by`` is the id of a newer one that says otherwise: this one is listed, and used no more. ``confirmations``: how often
    it was said.
    """

    memory_id: str
    kind: MemoryKind
    text: str
    created_at: str
    session_id: str | None
    position: int | None
    confirmations: int
    replaced_by: str | None


class MemoryList(Answer):
    engine: str | None = Field(description="Which engine keeps them; null: long-term memory is off")
    memories: list[StoredMemory]
    next_cursor: str | None


class Forgotten(Answer):
    memory_id: str


MAX_LIMIT = 100
