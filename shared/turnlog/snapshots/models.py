"""Snapshots of sessions."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from turnlog.core.models import Answer, Body, GivenText, JsonObjectField
from turnlog.sessions.message_models import StoredMessage
from turnlog.sessions.models import MAX_KEPT

SnapshotName: TypeAlias = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^/\x00-\x1f]+$")]


class CreateSnapshot(Body):
    """A named point of the session, at its head. Several may have one name; the name stands for the newest."""

    name: SnapshotName | None = None
    kind: Literal["ref", "full"] = Field(
        default="ref",
        description="ref: a pointer into the log. full: the history itself, which outlives the log when the session expires",
    )
    metadata: JsonObjectField | None = None
    agent_id: str | None = None
    if_name_absent: bool = Field(default=False, description="409 when a snapshot has this name")
    keep: Annotated[int, Field(ge=1, le=MAX_KEPT)] | None = Field(
        default=None,
        description="Afterwards, snapshots of this kind and agent without a name are deleted but for so many of the newest",
    )
    mode: Literal["sync", "async"] = Field(
        default="sync",
        description="async: a job. A full one of a long history that is not sealed yet is a job in any case",
    )


class RestoreSnapshot(Body):
    """What a snapshot was, again: in its own session, or in another one."""

    as_: Literal["rewind", "fork"] = Field(
        default="fork",
        alias="as",
        description="rewind: the session goes back to it. fork: another session begins with it",
    )
    session_id: str | None = Field(default=None, description="Of the other session; made when it is left out")


class Snapshot(Answer):
    """``size_bytes`` and ``sha256`` of a ``full`` one are those of its parts: the bytes of all of them, and a SHA-256 over a line
    ``<first>-<last>-<sha256>`` for each. Of a ``ref``, which holds no copy, they are what the snapshot itself holds, and the chain
    hash of the commit that it points to, which binds all history up to there.
    """

    snapshot_id: str
    name: GivenText | None
    agent_id: str | None
    kind: Literal["ref", "full"]
    position: int
    created_at: str
    size_bytes: int
    sha256: str
    status: Literal["ready"]
    metadata: JsonObjectField | None


class SnapshotPart(Answer):
    """A stretch of a full snapshot's history: positions, hash and size of its bytes, and where they are until ``expires_at``;
    or the bytes themselves (base64), where they are few. Parts are in the form of segments (docs/data-model.md)."""

    first: int
    last: int
    sha256: str
    size_bytes: int
    url: str | None
    expires_at: str | None
    data: str | None


class SnapshotContent(Answer):
    """The session at the snapshot's position. ``messages`` is the first page of them; ``next`` is the ``after`` of the next page of
    this snapshot."""

    system: GivenText | None
    model: str | None
    tools: list[JsonObjectField]
    policy: str | JsonObjectField
    metadata: JsonObjectField | None
    state: JsonObjectField
    message_count: int
    loops: int
    tokens: int
    messages: list[StoredMessage]
    next: int | None


class WholeSnapshot(Snapshot):
    """``content`` is null where it is larger than an answer may be. ``parts`` are a full one's history, all of it."""

    content: SnapshotContent | None
    parts: list[SnapshotPart]


class SnapshotPage(Answer):
    snapshots: list[Snapshot]
    next_cursor: str | None


class SnapshotDeleted(Answer):
    snapshot_id: str
    status: Literal["deleted"]
