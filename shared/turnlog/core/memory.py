"""Long-term memory: what of a session is handed to a memory engine, and what the engine knows of a person."""

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
    """One message as a memory engine reads it: its text, with tool calls and blocks in words. Never empty."""

    position: int
    role: Role
    text: str
    time_ms: int


@lazy_dataclass(frozen=True, slots=True)
class Offloaded:
    """A part of a session that no engine has had before. ``id`` is the same whenever this part is handed over again.

    ``said`` reads the messages in view, in order, anew at each call; redacted ones are not among them.
    ``first`` and ``last`` are positions; ``ended_ms`` is when the session ended or fell silent.
    """

    id: str
    owner: Owner
    session_id: str
    first: int
    last: int
    ended_ms: int
    reason: OffloadReason
    said: Callable[[], Iterable[SpokenMessage]]


@lazy_dataclass(frozen=True, slots=True)
class Memory:
    """One thing that is known of a person, and where it was said (None: the engine does not tell).

    ``replaced_by`` is the id of a newer one that says otherwise: this one is listed, and used no more. ``confirmations`` is how
    often it was said, as far as the engine counts.
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


@lazy_dataclass(frozen=True, slots=True)
class MemoryPage:
    """``next`` continues the list; None: it is at its end."""

    memories: tuple[Memory, ...]
    next: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class MemoryFact:
    """What the embedded engine keeps of one message. Of facts with the same ``subject`` the newest is in force; without one it
    speaks for itself.
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
