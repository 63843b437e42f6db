"""Routes for the caller's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from turnlog.jobs.models import Job, JobPage
from turnlog.routing import CURSOR, HttpRequest, Parameter, Response, Route, integer

if TYPE_CHECKING:
    from turnlog.app import Application


def _get_job(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.get_job(request.owner, request.path["job_id"]))


def _list_jobs(app: Application, request: HttpRequest) -> Response:
    status = cast("Literal['queued', 'done', 'failed'] | None", request.query.get("status"))
    limit = integer(request, _JOB_LIMIT) or 20
    return Response(200, app.list_jobs(request.owner, limit=limit, cursor=request.query.get("cursor"), status=status))


_JOB_LIMIT = Parameter("limit", "integer", "Jobs a page", 1, 100, 20)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/jobs/{job_id}", "get_job", "jobs", "One of the caller's jobs", _get_job, answers={200: Job}),
    Route(
        "GET",
        "/v1/jobs",
        "list_jobs",
        "jobs",
        "The caller's jobs, newest first",
        _list_jobs,
        answers={200: JobPage},
        parameters=(
            _JOB_LIMIT,
            CURSOR,
            Parameter("status", "string", "Only jobs of this status", values=("queued", "done", "failed")),
        ),
    ),
)
