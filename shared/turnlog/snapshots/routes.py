"""Routes of snapshots and downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.jobs.models import Job
from turnlog.routing import CURSOR, MAX_POSITION, HttpRequest, Parameter, Response, Route, integer, read_body
from turnlog.sessions.models import Session
from turnlog.snapshots.models import (
    CreateSnapshot,
    RestoreSnapshot,
    Snapshot,
    SnapshotDeleted,
    SnapshotPage,
    WholeSnapshot,
)

if TYPE_CHECKING:
    from turnlog.app import Application


def _create_snapshot(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, CreateSnapshot, is_optional=True)
    answer = app.create_snapshot(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(202 if isinstance(answer, Job) else 201, answer)


def _list_snapshots(app: Application, request: HttpRequest) -> Response:
    page = app.list_snapshots(
        request.owner,
        request.path["session_id"],
        limit=integer(request, _SNAPSHOT_LIMIT) or 50,
        cursor=request.query.get("cursor"),
        name=request.query.get("name"),
        agent=request.query.get("agent"),
    )
    return Response(200, page)


def _get_snapshot(app: Application, request: HttpRequest) -> Response:
    answer = app.get_snapshot(
        request.owner,
        request.path["session_id"],
        request.path["snapshot"],
        after=integer(request, _SNAPSHOT_AFTER) or 0,
    )
    return Response(200, answer)


def _delete_snapshot(app: Application, request: HttpRequest) -> Response:
    answer = app.delete_snapshot(
        request.owner, request.path["session_id"], request.path["snapshot"], key=request.idempotency_key
    )
    return Response(200, answer)


def _restore_snapshot(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, RestoreSnapshot, is_optional=True)
    answer = app.restore_snapshot(
        request.owner, request.path["session_id"], request.path["snapshot"], body, key=request.idempotency_key
    )
    return Response(202 if isinstance(answer, Job) else 201, answer)


def _download(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.links.open(request.owner, request.path["token"]))


_SNAPSHOT_AFTER = Parameter("after", "integer", "`next` of the page of messages before", 0, MAX_POSITION, 0)
_SNAPSHOT_LIMIT = Parameter("limit", "integer", "Snapshots per page", 1, 100, 50)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions/{session_id}/snapshots",
        "create_snapshot",
        "snapshot",
        "Create a snapshot of the session",
        _create_snapshot,
        CreateSnapshot,
        {201: Snapshot, 202: Job},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/snapshots",
        "list_snapshots",
        "snapshot",
        "List the session's snapshots, newest first",
        _list_snapshots,
        answers={200: SnapshotPage},
        parameters=(
            _SNAPSHOT_LIMIT,
            CURSOR,
            Parameter("name", "string", "Only snapshots of this name"),
            Parameter("agent", "string", "Only snapshots of this agent"),
        ),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/snapshots/{snapshot}",
        "get_snapshot",
        "snapshot",
        "Get a snapshot, by id or name, with the session as it was",
        _get_snapshot,
        answers={200: WholeSnapshot},
        parameters=(_SNAPSHOT_AFTER,),
    ),
    Route(
        "DELETE",
        "/v1/sessions/{session_id}/snapshots/{snapshot}",
        "delete_snapshot",
        "snapshot",
        "Delete a snapshot, by id or name",
        _delete_snapshot,
        answers={200: SnapshotDeleted},
        writes=True,
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/snapshots/{snapshot}/restore",
        "restore_snapshot",
        "snapshot",
        "Restore a snapshot, in its session or in another one",
        _restore_snapshot,
        RestoreSnapshot,
        {201: Session, 202: Job},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/downloads/{token}",
        "download",
        "snapshot",
        "Download the bytes behind a link of the service, for storage that makes no links itself",
        _download,
        is_file=True,
    ),
)
