"""Values of long-term memory: parts of sessions for a memory engine, and the memories it keeps of a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Role

OffloadReason: TypeAlias = Literal["ended", "reset", "inactive"]
MemoryKind: TypeAlias = Literal["entity", "preference", "decision", "other"]


@lazy_dataclass(frozen=True, slots=True)
class SpokenMessage:
    """A message in the form that a memory engine reads: never empty text, with tool calls and blocks put into words."""

    position: int
    role: Role
    text: str
    time_ms: int


@lazy_dataclass(frozen=True, slots=True)
class Offloaded:
    """A part of a session that is handed to a memory engine for the first time, or again after a failure.

    ``id`` stays the same when the part is handed over again. ``read_messages`` reads the messages in view, in order, anew at each
    call, without redacted ones. ``first`` and ``last`` are positions; ``ended_ms`` is the time when the session ended or
    became inactive.
    """

    id: str
    owner: Owner
    session_id: str
    first: int
    last: int
    ended_ms: int
    reason: OffloadReason
    read_messages: Callable[[], Iterable[SpokenMessage]]


@lazy_dataclass(frozen=True, slots=True)
class Memory:
    """A memory of a person, and the place where it was said (None when the engine does not report it).

    ``replaced_by`` is the id of a newer memory that contradicts this one; a replaced memory is listed but not used.
    ``confirmations`` counts how often the person said it, as far as the engine counts. The embedded engine adds its
    ``facts``, each with its session.
    """

    id: str
    text: str
    created_ms: int
    kind: MemoryKind = "other"
    session_id: str | None = None
    position: int | None = None
    replaced_by: str | None = None
    score: float | None = None
    confirmations: int = 1
    facts: tuple[tuple[str, MemoryFact], ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class MemoryPage:
    """A page of memories. ``next`` is the cursor of the next page, None on the last page."""

    memories: tuple[Memory, ...]
    next: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class MemoryFact:
    """A fact that the embedded engine keeps of a message.

    Among facts with the same ``subject`` only the newest is used. A fact with an empty ``subject`` stands alone.
    """

    kind: MemoryKind
    text: str
    subject: str
    position: int
    time_ms: int


@lazy_dataclass(frozen=True, slots=True)
class MadeFacts:
    """Facts, and the tokens that a provider charges for them (none without a model)."""

    facts: tuple[MemoryFact, ...]
    input_tokens: int = 0
    output_tokens: int = 0
