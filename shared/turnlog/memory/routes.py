"""Routes that list and forget the caller's memories, and their answers."""

from __future__ import annotations

from pydantic import Field

from turnlog.core.memory import MemoryKind
from turnlog.core.models import Answer, ListAnswer
from turnlog.routing import CURSOR, Parameter, Route


class StoredMemory(Answer):
    """One memory of a person.

    ``session_id`` and ``position`` say which message it came from; null when the engine does not know. ``replaced_by`` is
    the id of a newer memory that contradicts this one: this one is still listed, but not used. ``confirmations`` counts how
    often it was said.
    """

    memory_id: str
    kind: MemoryKind
    text: str
    created_at: str
    session_id: str | None
    position: int | None
    confirmations: int
    replaced_by: str | None


class MemoryList(ListAnswer):
    """A page of memories, newest first."""

    engine: str | None = Field(description="Name of the engine that stores them; null: long-term memory is off")
    memories: list[StoredMemory]
    next_cursor: str | None


class Forgotten(Answer):
    """The answer to forgetting a memory."""

    memory_id: str


ROUTES: tuple[Route, ...] = (
    Route(
        "GET /v1/users/me/memory",
        "list_memories",
        "List the caller's memories, newest first, including replaced ones; or find some",
        answers={200: MemoryList},
        parameters=(
            Parameter("limit", "integer", "Memories per page", 1, 100, 20),
            CURSOR,
            Parameter("q", "string", "Only memories that fit these words, best first, in one page"),
        ),
    ),
    Route(
        "DELETE /v1/users/me/memory/{memory_id}",
        "forget_memory",
        "Forget one memory for good",
        answers={200: Forgotten},
    ),
)
