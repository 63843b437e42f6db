"""Routes that export and import sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.jobs.models import Job
from turnlog.routing import HttpRequest, Response, Route, read_body
from turnlog.snapshots.models import Export, ExportSession, ImportCommits, Imported

if TYPE_CHECKING:
    from turnlog.app import Application


def _export_session(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, ExportSession, is_optional=True)
    answer = app.export_sessions(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(202 if isinstance(answer, Job) else 200, answer)


def _export_everything(app: Application, request: HttpRequest) -> Response:
    job = app.export_sessions.everything(request.owner)
    return Response(202, job if job.status == "queued" else app.get_job(request.owner, job.job_id))


def _import_session(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, ImportCommits)
    return Response(200, app.import_session(request.owner, request.path["session_id"], body))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions/{session_id}/export",
        "export_session",
        "export",
        "Export a session as a file",
        _export_session,
        ExportSession,
        {200: Export, 202: Job},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/users/me/export",
        "export_everything",
        "export",
        "Export all data of the caller as a file; within an hour it is the same job",
        _export_everything,
        answers={202: Job},
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/import",
        "import_session",
        "export",
        "Import commits of an exported session; it appears with the last of them",
        _import_session,
        ImportCommits,
        {200: Imported},
        writes=True,
    ),
)
