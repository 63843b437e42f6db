"""Routes for the caller's jobs."""

from __future__ import annotations

from turnlog.jobs.models import Job, JobPage
from turnlog.routing import CURSOR, Parameter, Route

ROUTES: tuple[Route, ...] = (
    Route("GET /v1/jobs/{job_id}", "get_job", "One of the caller's jobs", answers={200: Job}),
    Route(
        "GET /v1/jobs",
        "list_jobs",
        "The caller's jobs, newest first",
        answers={200: JobPage},
        parameters=(
            Parameter("limit", "integer", "Jobs a page", 1, 100, 20),
            CURSOR,
            Parameter("status", "string", "Only jobs of this status", values=("queued", "done", "failed")),
        ),
    ),
)
