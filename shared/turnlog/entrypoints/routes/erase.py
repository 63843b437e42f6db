"""Erasing for good: a session."""

from __future__ import annotations

from turnlog.bootstrap import Application
from turnlog.contracts.jobs import Job
from turnlog.entrypoints.routing import Request, Response, Route


def _erase_session(app: Application, request: Request) -> Response:
    return Response(202, app.erase_session(request.owner, request.path["session_id"], key=request.idempotency_key))


ROUTES: tuple[Route, ...] = (
    Route(
        "DELETE",
        "/v1/sessions/{session_id}",
        "erase_session",
        "erase",
        "Erase a session for good",
        _erase_session,
        answers={202: Job},
        writes=True,
    ),
)
