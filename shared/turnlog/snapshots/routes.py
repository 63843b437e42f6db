"""Routes of snapshots and downloads, with their requests and answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnlog.core.limits import MAX_POSITION
from turnlog.core.models import Answer, Body, GivenText, JsonObjectField, SnapshotName
from turnlog.jobs.models import Job
from turnlog.routing import CURSOR, Parameter, Response, Route
from turnlog.sessions.message_models import StoredMessage
from turnlog.sessions.models import MAX_KEPT, Session


class CreateSnapshot(Body):
    """A request to create a snapshot at the session's head. Several snapshots may share a name; it stands for the newest."""

    name: SnapshotName | None = None
    kind: Literal["ref", "full"] = Field(
        default="ref",
        description="ref: a pointer into the log. full: the history itself, which outlives the log when the session expires",
    )
    metadata: JsonObjectField | None = None
    agent_id: str | None = None
    if_name_absent: bool = Field(default=False, description="409 if a snapshot with this name exists")
    keep: Annotated[int, Field(ge=1, le=MAX_KEPT)] | None = Field(
        default=None,
        description="Afterwards, keep this many of the newest snapshots of this name, kind and agent, and delete the older ones",
    )
    pinned: bool = Field(default=False, description="The session's policy does not delete it, however old it is")
    mode: Literal["sync", "async"] = Field(
        default="sync",
        description="async: a job. A full snapshot of a long history that is not sealed yet is always a job",
    )


class RestoreSnapshot(Body):
    """A request to restore a snapshot, in its own session or in another one."""

    as_: Literal["rewind", "fork"] = Field(
        default="fork",
        alias="as",
        description="rewind: the session goes back to the snapshot. fork: another session begins with it",
    )
    session_id: str | None = Field(default=None, description="Id of the other session; generated when it is left out")


class Snapshot(Answer):
    """A snapshot without its content.

    For a ``full`` snapshot, ``size_bytes`` is the size of all its parts, and ``sha256`` is taken over a line
    ``<first>-<last>-<sha256>`` for each part. A ``ref`` holds no copy: ``size_bytes`` is its record's size. Its ``sha256``
    is the chain hash of the commit that it points to, which binds all history up to there.
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
    pinned: bool
    metadata: JsonObjectField | None


class SnapshotPart(Answer):
    """A part of a full snapshot's history: positions, and the hash and size of its bytes.

    The bytes are at ``url`` until ``expires_at``, or, for a small part, in ``data`` (base64). They have the form of segments
    (docs/reference/data-model.md).
    """

    first: int
    last: int
    sha256: str
    size_bytes: int
    url: str | None
    expires_at: str | None
    data: str | None


class SnapshotContent(Answer):
    """The session at the snapshot's position. ``messages`` is a page; pass ``next`` as ``after`` to get the next page."""

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
    """A snapshot with its content, or null when that is too large for an answer, and the parts of a full snapshot."""

    content: SnapshotContent | None
    parts: list[SnapshotPart]


class SnapshotPage(Answer):
    """A page of a session's snapshots, newest first."""

    snapshots: list[Snapshot]
    next_cursor: str | None


class SnapshotDeleted(Answer):
    """The answer to a deletion."""

    snapshot_id: str
    status: Literal["deleted"]


ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/sessions/{session_id}/snapshots",
        "create_snapshot",
        "Create a snapshot of the session",
        CreateSnapshot,
        {201: Snapshot, 202: Job},
        writes=True,
        optional_body=True,
    ),
    Route(
        "GET /v1/sessions/{session_id}/snapshots",
        "list_snapshots",
        "List the session's snapshots, newest first",
        answers={200: SnapshotPage},
        parameters=(
            Parameter("limit", "integer", "Snapshots per page", 1, 100, 50),
            CURSOR,
            Parameter("name", "string", "Only snapshots of this name"),
            Parameter("agent", "string", "Only snapshots of this agent"),
        ),
    ),
    Route(
        "GET /v1/sessions/{session_id}/snapshots/{snapshot}",
        "get_snapshot",
        "Get a snapshot, by id or name, with the session as it was",
        answers={200: WholeSnapshot},
        parameters=(Parameter("after", "integer", "`next` of the page of messages before", 0, MAX_POSITION, 0),),
    ),
    Route(
        "DELETE /v1/sessions/{session_id}/snapshots/{snapshot}",
        "delete_snapshot",
        "Delete a snapshot, by id or name",
        answers={200: SnapshotDeleted},
        writes=True,
    ),
    Route(
        "POST /v1/sessions/{session_id}/snapshots/{snapshot}/restore",
        "restore_snapshot",
        "Restore a snapshot, in its session or in another one",
        RestoreSnapshot,
        {201: Session, 202: Job},
        writes=True,
        optional_body=True,
    ),
    Route(
        "GET /v1/downloads/{token}",
        "download",
        "Download the bytes behind a link of the service, for storage that makes no links itself",
        endpoint=lambda app, request, query: Response(200, app.links.open(request.owner, request.path["token"])),
        is_file=True,
    ),
)
