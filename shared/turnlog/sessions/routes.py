"""Routes that create, list, read, change, end and reset sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from turnlog.routing import CURSOR, HttpRequest, Parameter, Response, Route, integer, read_body
from turnlog.sessions.models import CreateSession, Session, SessionPage, Status, UpdateSession

if TYPE_CHECKING:
    from turnlog.app import Application


def _create(app: Application, request: HttpRequest) -> Response:
    created = app.create_session(request.owner, read_body(request, CreateSession), key=request.idempotency_key)
    return Response(201 if created.is_new else 200, created.session)


def _list(app: Application, request: HttpRequest) -> Response:
    status = cast("Status | None", request.query.get("status"))
    limit = integer(request, _LIST_LIMIT)
    return Response(
        200, app.list_sessions(request.owner, limit=limit or 20, cursor=request.query.get("cursor"), status=status)
    )


def _get(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.get_session(request.owner, request.path["session_id"]))


def _update(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, UpdateSession)
    answer = app.update_session(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(200, answer)


def _end(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.end_session(request.owner, request.path["session_id"], key=request.idempotency_key))


def _reset(app: Application, request: HttpRequest) -> Response:
    return Response(201, app.reset_session(request.owner, request.path["session_id"], key=request.idempotency_key))


_LIST_LIMIT = Parameter("limit", "integer", "Sessions a page", 1, 100, 20)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions",
        "create_session",
        "sessions",
        "Create a session",
        _create,
        CreateSession,
        {201: Session, 200: Session},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions",
        "list_sessions",
        "sessions",
        "The caller's sessions, newest activity first",
        _list,
        answers={200: SessionPage},
        parameters=(
            _LIST_LIMIT,
            CURSOR,
            Parameter("status", "string", "Only sessions of this status", values=("active", "inactive", "ended")),
        ),
    ),
    Route("GET", "/v1/sessions/{session_id}", "get_session", "sessions", "One session", _get, answers={200: Session}),
    Route(
        "PATCH",
        "/v1/sessions/{session_id}",
        "update_session",
        "sessions",
        "Change settings",
        _update,
        UpdateSession,
        {200: Session},
        writes=True,
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/end",
        "end_session",
        "sessions",
        "End a session",
        _end,
        answers={200: Session},
        writes=True,
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/reset",
        "reset_session",
        "sessions",
        "End a session and begin another with its settings",
        _reset,
        answers={201: Session},
        writes=True,
    ),
)
