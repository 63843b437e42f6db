"""Routes that create, list, read, change, end and reset sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.core.errors import ForbiddenError
from turnlog.routing import CURSOR, HttpRequest, Parameter, Query, Response, Route, read_body
from turnlog.sessions.models import CreateSession, Session, SessionPage, UpdateSession

if TYPE_CHECKING:
    from turnlog.app import Application


def _create(app: Application, request: HttpRequest, query: Query) -> Response:
    created = app.create_session(request.owner, read_body(request.body, CreateSession), key=request.idempotency_key)
    return Response(201 if created.is_new else 200, created.session)


def _list(app: Application, request: HttpRequest, query: Query) -> Response:
    user = query.get("user", request.owner.user)
    if user != request.owner.user and not request.is_operator:
        raise ForbiddenError("only an operator of the tenant lists the sessions of other users", code="operator_only")
    return Response(200, app.list_sessions(request.owner, **query))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/sessions",
        "create_session",
        "Create a session",
        CreateSession,
        {201: Session, 200: Session},
        endpoint=_create,
        writes=True,
    ),
    Route(
        "GET /v1/sessions",
        "list_sessions",
        "The caller's sessions, newest activity first; for an operator those of any user of the tenant",
        answers={200: SessionPage},
        endpoint=_list,
        parameters=(
            Parameter("limit", "integer", "Sessions a page", 1, 100, 20),
            CURSOR,
            Parameter("status", "string", "Only sessions of this status", values=("active", "inactive", "ended")),
            Parameter("user", "string", "For an operator: sessions of this user of the tenant, or `*` for every user"),
        ),
    ),
    Route("GET /v1/sessions/{session_id}", "get_session", "One session", answers={200: Session}),
    Route(
        "PATCH /v1/sessions/{session_id}",
        "update_session",
        "Change settings",
        UpdateSession,
        {200: Session},
        writes=True,
    ),
    Route("POST /v1/sessions/{session_id}/end", "end_session", "End a session", answers={200: Session}, writes=True),
    Route(
        "POST /v1/sessions/{session_id}/reset",
        "reset_session",
        "End a session and begin another with its settings",
        answers={201: Session},
        writes=True,
    ),
)
