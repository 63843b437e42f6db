"""Sessions: creating, changing, reading and listing them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from turnlog.core.models import Answer, At, Body, JsonObjectField

Title = Annotated[str, Field(max_length=200)]
Model = Annotated[str, Field(min_length=1, max_length=200)]
OutputReserve = Annotated[int, Field(ge=0, le=10_000_000)]
Tools = Annotated[list[JsonObjectField], Field(max_length=512)]
System = Annotated[str, Field(max_length=1_000_000)]
LoopTimeout = Annotated[int, Field(ge=1, le=31_536_000)]
Days = Annotated[int, Field(ge=1, le=36_500)]
Status: TypeAlias = Literal["active", "inactive", "ended"]
_TTL = "The session is gone so many days after its newest activity; without it, it stays"
_INACTIVE = "The session is inactive so many days after its newest activity, until the next append"

MAX_KEPT = 1_000


class SnapshotPolicy(Body):
    """Snapshots of kind ref that the session makes by itself."""

    every_loops: Annotated[int, Field(ge=1, le=100_000)] = Field(description="One whenever so many loops have ended")
    keep: Annotated[int, Field(ge=1, le=MAX_KEPT)] = Field(
        default=20, description="How many of the newest of them are kept"
    )


class Bootstrap(Body):
    """What a new session asks long-term memory for. Without it the session begins all the same, and says so."""

    question: Annotated[str, Field(max_length=1_000)] | None = Field(
        default=None, description="What matters most for it comes first; without it, what is newest or most telling"
    )
    max_tokens: Annotated[int, Field(ge=50, le=20_000)] = Field(
        default=1_000, description="The most that it takes of every window"
    )
    limit: Annotated[int, Field(ge=1, le=100)] = Field(default=20, description="The most memories")
    timeout_seconds: Annotated[float, Field(gt=0, le=20, allow_inf_nan=False)] = Field(
        default=2, description="Creating the session waits so long for the engine, and no longer"
    )


class Bootstrapped(Answer):
    """What a session was begun with. ``ok``: ``memories`` of them stand in the message at ``position``, with ``tokens`` in all;
    ``left_out`` had no room. ``empty``: nothing is known, or nothing has room. ``unavailable``, ``timed_out``: the engine did not
    say, ``reason`` tells why. ``off``: the service has no memory."""

    status: Literal["ok", "empty", "unavailable", "timed_out", "off"]
    engine: str | None
    memories: int
    left_out: int
    tokens: int
    position: int | None
    reason: str | None


class ForkPoint(Body):
    """A session of the same owner, and the position or time (RFC 3339) that a fork begins at: by default its head."""

    session_id: str
    at: At | None = None


class CreateSession(Body):
    """A new session. ``session_id`` is made when it is left out: from the idempotency key if there is one."""

    session_id: str | None = Field(default=None, description="[A-Za-z0-9_-]{1,64}, not beginning with 'h_'")
    title: Title | None = None
    system: System | None = Field(default=None, description="System text, sent first in every window")
    model: Model | None = Field(default=None, description="Decides the budget when a context call gives none")
    tools: Tools | None = Field(default=None, description="Tool schemas, sent with every window")
    output_reserve: OutputReserve | None = Field(
        default=None, description="Tokens kept free for the model's answer (4096)"
    )
    policy: str | JsonObjectField | None = Field(default=None, description="A preset's name or a policy's body")
    metadata: JsonObjectField | None = None
    state: JsonObjectField | None = None
    state_schema: JsonObjectField | None = Field(
        default=None,
        description="JSON Schema 2020-12 that the state must fit, without `agents`; can't be changed later",
    )
    strict: bool = Field(default=False, description="Refuse disorder with 422 instead of keeping it with a warning")
    recall: Literal["always", "never"] = Field(
        default="always", description="Whether windows have the recall tools; can't be changed later"
    )
    loop_timeout_seconds: LoopTimeout = 3600
    ttl_days: Days | None = Field(default=None, description=_TTL)
    inactive_after_days: Days | None = Field(default=None, description=_INACTIVE)
    snapshots: SnapshotPolicy | None = Field(
        default=None, description="Snapshots that the session makes by itself; null: none"
    )
    if_exists: Literal["error", "return"] = "error"
    fork: ForkPoint | None = Field(
        default=None,
        description="Begin as another session was; settings that are given here are put in place of its own",
    )
    bootstrap: Annotated[
        Annotated[bool, Tag("bool")] | Annotated[Bootstrap, Tag("options")],
        Discriminator(lambda value: "bool" if isinstance(value, bool) else "options"),
    ] = Field(
        default=False,
        description="Begin with what long-term memory knows of the user, as a pinned message of fenced data",
    )


class UpdateSession(Body):
    """Other settings. What is left out stays as it is; null sets a field to what it is in a session that was created without it."""

    title: Title | None = None
    system: System | None = Field(default=None, description="System text, sent first in every window")
    model: Model | None = Field(default=None, description="Decides the budget when a context call gives none")
    tools: Tools | None = Field(
        default=None, description="Tool schemas, sent with every window, in place of those there are"
    )
    output_reserve: OutputReserve | None = Field(
        default=None, description="Tokens kept free for the model's answer (4096)"
    )
    policy: str | JsonObjectField | None = Field(default=None, description="A preset's name or a policy's body")
    metadata: JsonObjectField | None = Field(default=None, description="In place of what there is")
    strict: bool | None = Field(
        default=None, description="Refuse disorder with 422 instead of keeping it with a warning"
    )
    loop_timeout_seconds: LoopTimeout | None = None
    ttl_days: Days | None = Field(default=None, description=_TTL)
    inactive_after_days: Days | None = Field(default=None, description=_INACTIVE)
    snapshots: SnapshotPolicy | None = Field(
        default=None, description="Snapshots that the session makes by itself; null: none"
    )


class Session(Answer):
    """``messages``, ``loops`` and ``tokens`` are totals in view; ``head`` is the position of the newest event.

    ``summary_to``: up to this position a summary stands for the history in windows. ``last_sent_position`` is that of the
    newest window that an append has named as sent, ``last_sent_at`` the time of that append. ``reset_of`` is the session that
    ended when this one was begun in its place; ``forked_from`` that which this one was at position ``forked_at``. From
    ``expires_at`` on it is as if it were not there; each activity moves that. ``bootstrap`` is null where none was asked for.
    """

    session_id: str
    user: str
    title: str | None
    status: Status
    created_at: str
    updated_at: str
    head: int
    messages: int
    loops: int
    tokens: int
    summary_to: int | None
    last_sent_at: str | None
    last_sent_position: int | None
    policy: str | JsonObjectField
    model: str | None
    recall: Literal["always", "never"]
    metadata: JsonObjectField | None
    reset_of: str | None
    forked_from: str | None
    forked_at: int | None
    ttl_days: int | None
    expires_at: str | None
    inactive_after_days: int | None
    bootstrap: Bootstrapped | None
    schema_version: int


class SessionPage(Answer):
    """With a filter a page may be short or empty and have a next one."""

    sessions: list[Session]
    next_cursor: str | None
