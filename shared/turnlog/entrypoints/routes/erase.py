"""Erasing for good: a session, a person."""

from __future__ import annotations

from turnlog.bootstrap import Application
from turnlog.contracts.jobs import Job
from turnlog.entrypoints.routing import Request, Response, Route


def _erase_session(app: Application, request: Request) -> Response:
    return Response(202, app.erase_session(request.owner, request.path["session_id"], key=request.idempotency_key))


def _erase_user(app: Application, request: Request) -> Response:
    return Response(202, app.erase_user(request.owner, key=request.idempotency_key))


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
    Route(
        "DELETE",
        "/v1/users/me",
        "erase_user",
        "erase",
        "Erase everything of the caller for good",
        _erase_user,
        answers={202: Job},
        writes=True,
    ),
)
