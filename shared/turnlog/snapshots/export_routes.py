"""Routes that export and import sessions, with their requests and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from turnlog.core.errors import SessionExistsError
from turnlog.core.limits import MAX_POSITION
from turnlog.core.models import Answer, Body, JsonObjectField, SnapshotName
from turnlog.core.times import LAST_MS
from turnlog.jobs.models import Job
from turnlog.routing import HttpRequest, Query, Response, Route, read_body
from turnlog.sessions.document_models import MAX_WRITTEN, Base64, Key

if TYPE_CHECKING:
    from turnlog.app import Application


FORMAT, FORMAT_VERSION = "turnlog-export", 2
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class ExportSession(Body):
    """A request to export a session."""

    mode: Literal["sync", "async"] = Field(default="sync", description="async: a job. A long history is always a job")


class Export(Answer):
    """A zip of JSON Lines with a manifest. It can be downloaded from ``url`` until ``expires_at``; ``sha256`` is the file's."""

    url: str
    expires_at: str
    size_bytes: int
    sha256: str
    sessions: int
    positions: int


class ExportedDocument(Body):
    """A line of ``documents.jsonl``. ``data`` is base64."""

    key: Key
    data: Base64
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    updated_at: Annotated[str, Field(max_length=64)]


class ExportedSnapshot(Body):
    """A line of ``snapshots.jsonl``. ``hash`` is the chain hash at its position, as ``sha256`` of a ``ref`` is."""

    snapshot_id: Annotated[str, Field(pattern=r"^[0-9]{13}-[A-Za-z0-9_-]{1,50}$")]
    name: SnapshotName | None
    agent_id: str | None
    kind: Literal["ref", "full"]
    position: Annotated[int, Field(ge=1, le=MAX_POSITION)]
    created_at: Annotated[str, Field(max_length=64)]
    size_bytes: int
    sha256: str
    hash: str = ""
    status: Literal["ready"]
    pinned: bool = False  # lines of version 1 lack it
    metadata: JsonObjectField | None


class ExportedFact(Body):
    """A fact of a memory. Of the facts with one ``subject`` the newest is used."""

    kind: Literal["entity", "preference", "decision", "other"]
    text: Annotated[str, Field(min_length=1, max_length=4_000)]
    subject: Annotated[str, Field(max_length=4_000)]
    position: Annotated[int, Field(ge=1, le=MAX_POSITION)]
    time_ms: Annotated[int, Field(ge=-62_135_596_800_000, le=LAST_MS)]


class ImportCommits(Body):
    """Commits of an exported session, in order, as lines of its ``log.jsonl``.

    With the last commits, or after them, come lines of ``documents.jsonl`` and of ``snapshots.jsonl``, and facts of
    ``memory.jsonl``. ``head`` and ``hash`` are the session's, from the manifest; ``head`` is 0 where only memories are left.
    The session appears with its last commit; with ``more``, it appears with a later request that has no ``more``.
    """

    head: Annotated[int, Field(ge=0, le=MAX_POSITION)]
    hash: Hash
    commits: Annotated[list[str | JsonObjectField], Field(max_length=1_000)] = Field(
        default_factory=list, description="Lines as text, or as JSON objects, which makes long lines shorter"
    )
    documents: Annotated[list[ExportedDocument], Field(max_length=MAX_WRITTEN)] = Field(default_factory=list)
    snapshots: Annotated[list[ExportedSnapshot], Field(max_length=MAX_WRITTEN)] = Field(
        default_factory=list, description="A `full` one comes back as a `ref`"
    )
    memories: Annotated[list[ExportedFact], Field(max_length=100)] = Field(default_factory=list)
    more: bool = Field(
        default=False, description="More lines follow in a later request: the session does not appear yet"
    )


class Imported(Answer):
    """The state of an import.

    ``status`` is ``partial`` while something is missing, and ``existing`` for a session that already existed with this
    history up to ``head`` or beyond. ``snapshots_left_out`` counts the snapshots whose commit the imported log does not have,
    ``memories`` those that the embedded engine keeps now.
    """

    session_id: str
    status: Literal["partial", "imported", "existing"]
    position: int
    snapshots_left_out: int = 0
    memories: int = 0


def never_added(session_id: str) -> SessionExistsError:
    """Return the error for an import into a session that is another one, or has only the beginning of the export."""
    detail = f"session {session_id!r} exists and has not all of this export, which is never added to a session"
    return SessionExistsError(f"{detail}: import it with another session_id")


def _export_everything(app: Application, request: HttpRequest, query: Query) -> Response:
    job = app.export_session.everything(request.owner, key=request.idempotency_key)
    return Response(202, job if job.status == "queued" else app.get_job(request.owner, job.job_id))


def _import_session(app: Application, request: HttpRequest, query: Query) -> Response:
    body = read_body(request.body, ImportCommits)
    return Response(200, app.import_session(request.owner, request.path["session_id"], body))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/sessions/{session_id}/export",
        "export_session",
        "Export a session as a file",
        ExportSession,
        {200: Export, 202: Job},
        writes=True,
        optional_body=True,
    ),
    Route(
        "GET /v1/users/me/export",
        "export_everything",
        "Export all data of the caller as a file; without a key, within an hour it is the same job",
        answers={202: Job},
        endpoint=_export_everything,
        writes=True,
    ),
    Route(
        "POST /v1/sessions/{session_id}/import",
        "import_session",
        "Import commits of an exported session; it appears with the last of them",
        ImportCommits,
        {200: Imported},
        endpoint=_import_session,
        writes=True,
    ),
)
