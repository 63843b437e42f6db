"""Snapshots of sessions."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from turnlog.contracts.base import Answer, Body, GivenText, JsonObjectField
from turnlog.contracts.messages import StoredMessage

SnapshotName: TypeAlias = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^/\x00-\x1f]+$")]


class CreateSnapshot(Body):
    """A named point of the session, at its head. Several may have one name; the name stands for the newest."""

    name: SnapshotName | None = None
    kind: Literal["ref"] = Field(default="ref", description="ref: a pointer into the log")
    metadata: JsonObjectField | None = None
    agent_id: str | None = None
    if_name_absent: bool = Field(default=False, description="409 when a snapshot has this name")
    mode: Literal["sync", "async"] = Field(default="sync", description="async: a job")


class Snapshot(Answer):
    """``sha256`` is the chain hash of the commit that it points to, in hexadecimal: it binds all history up to there.

    ``size_bytes`` is what the snapshot itself holds; a ``ref`` holds no copy.
    """

    snapshot_id: str
    name: GivenText | None
    agent_id: str | None
    kind: Literal["ref"]
    position: int
    created_at: str
    size_bytes: int
    sha256: str
    status: Literal["ready"]
    metadata: JsonObjectField | None


class SnapshotContent(Answer):
    """The session at the snapshot's position. ``messages`` is the first page of them; ``next`` as in ``GET …/messages``,
    to be read on with ``after=next&before=position+1``."""

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
    content: SnapshotContent


class SnapshotPage(Answer):
    snapshots: list[Snapshot]
    next_cursor: str | None
