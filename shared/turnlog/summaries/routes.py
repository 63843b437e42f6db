"""The HTTP routes of summaries: make, show and discard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.jobs.models import Job
from turnlog.routing import HttpRequest, Response, Route, read_body
from turnlog.summaries.models import Compressed, CompressSession, SummaryAnswer

if TYPE_CHECKING:
    from turnlog.app import Application


def _compress(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, CompressSession, is_optional=True)
    answer = app.compress_session(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(202 if isinstance(answer, Job) else 200, answer)


def _get_summary(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.get_summary(request.owner, request.path["session_id"]))


def _discard_summary(app: Application, request: HttpRequest) -> Response:
    answer = app.discard_summary(request.owner, request.path["session_id"], key=request.idempotency_key)
    return Response(202, answer)


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions/{session_id}/compress",
        "compress_session",
        "compress",
        "Summarise closed loops; the log keeps them",
        _compress,
        CompressSession,
        {200: Compressed, 202: Job},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/summary",
        "get_summary",
        "compress",
        "The current summary",
        _get_summary,
        answers={200: SummaryAnswer},
    ),
    Route(
        "DELETE",
        "/v1/sessions/{session_id}/summary",
        "discard_summary",
        "compress",
        "Discard the current summary, and make a new one from the history",
        _discard_summary,
        answers={202: Job},
        writes=True,
    ),
)
