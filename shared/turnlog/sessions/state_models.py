"""The session's state."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from turnlog.core.models import Answer, At, Body, JsonObjectField
from turnlog.sessions.message_models import StoredMessage

ACTION_PATTERN = r"^[A-Za-z][A-Za-z0-9_.:-]{0,63}$"
Action: TypeAlias = Annotated[str, Field(pattern=ACTION_PATTERN)]
Version: TypeAlias = Annotated[int, Field(ge=0)]


class ReplaceState(Body):
    """The whole state in place of the one before."""

    state: JsonObjectField
    action: Action | None = Field(default=None, description="What history tells (state_change)")
    if_version: Version | None = Field(default=None, description="409 unless this is the state's version")


class StateAnswer(Answer):
    """``version`` is the position of the newest state event, 0 before the first."""

    state: JsonObjectField
    version: int


class AgentState(Answer):
    """``version`` is the position of the newest state event; ``state`` has the fields of the agent's execution state."""

    agent_id: str
    state: JsonObjectField
    version: int


class DecidePending(Body):
    """The decision on what an agent waits for."""

    decision: Literal["approve", "reject"]
    reason: str | None = Field(default=None, max_length=10_000, description="Told to the model with a refusal")


class Decided(AgentState):
    """``refusal`` is the position of the result that refuses the call; null when approved, or when there is no such call."""

    refusal: int | None


class Health(Answer):
    status: str
    version: str
    engine: str
    schema_version: int


MAX_ENTRIES = 1_000


class RecordHistory(Body):
    """An entry of the caller's own; nothing changes."""

    action: Action
    agent_id: str | None = None
    metadata: JsonObjectField | None = None


class HistoryEntry(Answer):
    """``history_id`` is the position of the event in the log, as text. ``first`` and ``last`` are the positions that it is about.

    ``diff`` of a change of the state is what was applied: an object is a Merge Patch, a list is a JSON Patch. ``metadata`` of
    one has ``old_state_keys`` and ``new_state_keys``, the first 100 of each; null in entries from before they were kept.
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
    """``next`` is the ``before`` of the next page; null at the end. A page with few entries or none may have a next one."""

    entries: list[HistoryEntry]
    next: int | None = Field(description="`before` of the next page; null at the end")


class RewindSession(Body):
    """``to`` is the last position that stays in view, also one that an earlier rewind has taken out of it."""

    to: At = Field(description="The last position in view, or a time (RFC 3339)")
    if_head: int | None = Field(default=None, ge=1, description="Only while this is the head")


class Stretch(Answer):
    """Positions ``first`` to ``last``."""

    first: int
    last: int


class Diff(Answer):
    """From one moment to another: the messages that came into view, in order, and the stretches of positions that left it.

    ``state`` is a JSON Patch that makes the one state of the other. ``settings`` names those that differ, ``summary_from`` and
    ``summary_to`` are the positions of the summaries in force. ``next`` is the ``after`` of the next page of messages.
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
