"""Models of the state, of agents' execution state, of history entries, and of rewinds and comparisons."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from turnlog.core.models import Answer, At, Body, JsonObjectField
from turnlog.sessions.message_models import StoredMessage

ACTION_PATTERN = r"^[A-Za-z][A-Za-z0-9_.:-]{0,63}$"
Action: TypeAlias = Annotated[str, Field(pattern=ACTION_PATTERN)]
Version: TypeAlias = Annotated[int, Field(ge=0)]


class ReplaceState(Body):
    """A new state that replaces the current one."""

    state: JsonObjectField
    action: Action | None = Field(default=None, description="Action of the history entry (default state_change)")
    if_version: Version | None = Field(default=None, description="409 unless this is the state's version")


class StateAnswer(Answer):
    """The state of a session. ``version`` is the position of the newest state event, 0 before the first."""

    state: JsonObjectField
    version: int


class AgentState(Answer):
    """The execution state of an agent. ``version`` is the position of the session's newest state event."""

    agent_id: str
    state: JsonObjectField
    version: int


class DecidePending(Body):
    """A decision on an agent's pending action."""

    decision: Literal["approve", "reject"]
    reason: str | None = Field(default=None, max_length=10_000, description="Sent to the model with a rejection")


class Decided(AgentState):
    """The execution state after a decision.

    ``refusal`` is the position of the tool result that rejects the call; null when approved, or when no open call was found.
    """

    refusal: int | None


class Health(Answer):
    """The state of the service."""

    status: str
    version: str
    engine: str
    schema_version: int


MAX_ENTRIES = 1_000


class RecordHistory(Body):
    """A history entry of the caller. It changes nothing else."""

    action: Action
    agent_id: str | None = None
    metadata: JsonObjectField | None = None


class HistoryEntry(Answer):
    """An entry of the history: one event of the log.

    ``history_id`` is the event's position, as text; ``first`` and ``last`` are the positions that the entry covers. ``diff`` is
    the patch of a state change: an object is a Merge Patch, a list a JSON Patch. ``metadata`` of a state change has
    ``old_state_keys`` and ``new_state_keys``, at most 100 each; null for old entries without them.
    """

    history_id: str
    agent_id: str | None
    action: str
    created_at: str
    first: int
    last: int
    diff: JsonObjectField | list[Any] | None
    metadata: JsonObjectField


class HistoryPage(Answer):
    """A page of the history. With a filter a page may be short or even empty although another one follows."""

    entries: list[HistoryEntry]
    next: int | None = Field(description="`before` of the next page; null at the end")


class RewindSession(Body):
    """A rewind. ``to`` is the last position in view afterwards; it may be one that an earlier rewind has taken out of view."""

    to: At = Field(description="The last position in view, or a time (RFC 3339)")
    if_head: int | None = Field(default=None, ge=1, description="Rewind only while this is the head")


class Stretch(Answer):
    """The positions from ``first`` to ``last``, both included."""

    first: int
    last: int


class Diff(Answer):
    """The differences between two moments.

    ``messages`` came into view, ``left`` are ranges of positions that left it. ``state`` is a JSON Patch from the
    state at the first moment to that at the second. ``settings`` are the names of settings that differ. ``summary_from`` and
    ``summary_to`` are the positions of the summaries at both moments. ``next`` is the ``after`` of the next page of messages.
    """

    from_position: int
    to_position: int
    messages: list[StoredMessage]
    next: int | None
    left: list[Stretch]
    state: list[Any]
    settings: list[str]
    summary_from: int | None
    summary_to: int | None
