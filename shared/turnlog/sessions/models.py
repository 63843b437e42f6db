"""Models of sessions: what creating, changing, reading and listing them sends and gets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.core.models import Answer, At, Body, JsonObjectField, Recall, SessionStatus
from turnlog.sessions.message_models import HeldLease

Title = Annotated[str, Field(max_length=200)]
Model = Annotated[str, Field(min_length=1, max_length=200)]
OutputReserve = Annotated[int, Field(ge=0, le=10_000_000)]


def _named(tools: list[JsonObject]) -> list[JsonObject]:
    """Refuse what no provider takes: a function without a name, and two of one name."""
    from turnlog.providers.blocks import names_declared

    names = set[str]()
    for index, tool in enumerate(tools):
        for name in names_declared(tool):
            if not isinstance(name, str) or not name:
                raise InvalidInputError.at(f"/tools/{index}", f"tool {index} has no name, or one that is not a text")
            if name in names:
                raise InvalidInputError.at(f"/tools/{index}", f"tool {index} has the name of another, {name[:64]!r}")
            names.add(name)
    return tools


Tools = Annotated[list[JsonObjectField], Field(max_length=512), AfterValidator(_named)]
System = Annotated[str, Field(max_length=1_000_000)]
LoopTimeout = Annotated[int, Field(ge=1, le=31_536_000)]
Days = Annotated[int, Field(ge=1, le=36_500)]
Minutes = Annotated[int, Field(ge=1, le=36_500 * 24 * 60)]
_TTL = "Days after the newest activity until the session expires; without it the session stays"
_INACTIVE = "Minutes after the newest activity until the session is inactive; the next append makes it active"

MAX_KEPT = 1_000
ORIGIN = "imported"
"""Key of a session's metadata that holds the origin of an imported session."""


class SnapshotPolicy(Body):
    """A policy by which a session makes snapshots of kind ``ref`` automatically, and deletes old named ones.

    Named ones are deleted, the oldest first, when the session makes a snapshot and at the first append of a day.
    """

    every_loops: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Make a snapshot after this many loops; without it the session makes none"
    )
    keep: Annotated[int, Field(ge=1, le=MAX_KEPT)] = Field(
        default=20, description="Number of these snapshots that are kept, newest first"
    )
    keep_named: Annotated[int, Field(ge=1, le=MAX_KEPT)] | None = Field(
        default=None,
        description="Number of named snapshots that are kept, newest first; pinned ones stay and do not count",
    )
    named_days: Days | None = Field(
        default=None, description="Days after which a named snapshot is deleted, unless it is pinned"
    )


class Bootstrap(Body):
    """A request for memories that a new session begins with.

    When memory is unavailable, the session is created without them, and its ``bootstrap`` says why.
    """

    question: Annotated[str, Field(max_length=1_000)] | None = Field(
        default=None,
        description="Memories most relevant to it come first; without it, the newest or most important ones",
    )
    max_tokens: Annotated[int, Field(ge=50, le=20_000)] = Field(
        default=1_000, description="Token limit of the message of memories, in every window"
    )
    limit: Annotated[int, Field(ge=1, le=100)] = Field(default=20, description="Maximum number of memories")
    timeout_seconds: Annotated[float, Field(gt=0, le=20, allow_inf_nan=False)] = Field(
        default=2, description="Maximum time to wait for the memory engine while the session is created"
    )


class Bootstrapped(Answer):
    """Memories that a session began with.

    ``ok``: the message at ``position`` holds ``memories`` memories in ``tokens`` tokens; ``left_out`` did not fit. ``empty``:
    there are no memories, or none fits. ``unavailable``, ``timed_out``: the engine did not answer, for ``reason``. ``off``: the
    service has no memory engine.
    """

    status: Literal["ok", "empty", "unavailable", "timed_out", "off"]
    engine: str | None
    memories: int
    left_out: int
    tokens: int
    position: int | None
    reason: str | None


class ForkPoint(Body):
    """The parent session of a fork, of the same owner, and the position or time (RFC 3339) to fork at. Default: its head."""

    session_id: str
    at: At | None = None


class CreateSession(Body):
    """A new session. Without a ``session_id`` one is generated, derived from the idempotency key if there is one."""

    session_id: str | None = Field(
        default=None, description="1 to 256 of A-Z a-z 0-9 _ - @ : . + /, not beginning with 'h_'"
    )
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
    recall: Recall = Field(
        default="auto",
        description="Which windows have the recall tools: auto, from the first one on that leaves something out; always; never. "
        "Can't be changed later",
    )
    loop_timeout_seconds: LoopTimeout = 3600
    ttl_days: Days | None = Field(default=None, description=_TTL)
    inactive_after_minutes: Minutes | None = Field(default=None, description=_INACTIVE)
    snapshots: SnapshotPolicy | None = Field(
        default=None, description="Snapshots that the session makes by itself; null: none"
    )
    if_exists: Literal["error", "return"] = "error"
    fork: ForkPoint | None = Field(
        default=None,
        description="Begin as another session was at a moment; settings in this request replace the parent's",
    )
    bootstrap: Annotated[
        Annotated[bool, Tag("bool")] | Annotated[Bootstrap, Tag("options")],
        Discriminator(lambda value: "bool" if isinstance(value, bool) else "options"),
    ] = Field(
        default=False, description="Begin with memories about the user, in a pinned message that fences them as data"
    )


class UpdateSession(Body):
    """Changes of settings. Fields that are left out stay unchanged; null resets a field to its default."""

    title: Title | None = None
    system: System | None = Field(default=None, description="System text, sent first in every window")
    model: Model | None = Field(default=None, description="Decides the budget when a context call gives none")
    tools: Tools | None = Field(
        default=None, description="Tool schemas, sent with every window; they replace the current ones"
    )
    output_reserve: OutputReserve | None = Field(
        default=None, description="Tokens kept free for the model's answer (4096)"
    )
    policy: str | JsonObjectField | None = Field(default=None, description="A preset's name or a policy's body")
    metadata: JsonObjectField | None = Field(default=None, description="Replaces the current metadata")
    strict: bool | None = Field(
        default=None, description="Refuse disorder with 422 instead of keeping it with a warning"
    )
    loop_timeout_seconds: LoopTimeout | None = None
    ttl_days: Days | None = Field(default=None, description=_TTL)
    inactive_after_minutes: Minutes | None = Field(default=None, description=_INACTIVE)
    snapshots: SnapshotPolicy | None = Field(
        default=None, description="Snapshots that the session makes by itself; null: none"
    )


class Session(Answer):
    """A session with its settings and totals.

    ``messages``, ``loops`` and ``tokens`` count what is in view; ``head`` is the position of the newest event. A summary replaces
    the history up to ``summary_to`` in windows. ``last_sent_position`` is the position of the newest window that an append has
    reported as sent, and ``last_sent_at`` the time of that append. ``reset_of`` is the ended session that this one replaces.
    ``forked_from`` and ``forked_at`` are parent and fork point. From ``expires_at`` on the session is treated as missing; each
    activity moves that time. ``bootstrap`` is null when the session was created without one. ``lease`` is that of the run which has
    taken the session, until the run gives it back; after its ``expires_at`` another may take it. Lists do not have it.
    """

    session_id: str
    user: str
    title: str | None
    status: SessionStatus
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
    recall: Recall
    metadata: JsonObjectField | None
    reset_of: str | None
    forked_from: str | None
    forked_at: int | None
    ttl_days: int | None
    expires_at: str | None
    inactive_after_minutes: int | None
    bootstrap: Bootstrapped | None
    output_reserve: int | None = None
    strict: bool = False
    loop_timeout_seconds: int = 3600
    snapshots: JsonObjectField | None = None
    lease: HeldLease | None = None
    schema_version: int

    def __repr_name__(self) -> str:
        return "SessionInfo"


class SessionPage(Answer):
    """A page of sessions. With a filter a page may be short or even empty although another one follows."""

    sessions: list[Session]
    next_cursor: str | None
