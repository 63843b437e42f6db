"""Routes that build windows of a session, or over a list of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.routing import HttpRequest, Response, Route, read_body
from turnlog.sessions.context_models import BuildContext, BuildWindow, WindowAnswer

if TYPE_CHECKING:
    from turnlog.app import Application


def _context(app: Application, request: HttpRequest) -> Response:
    return Response(
        200,
        app.build_context(
            request.owner, request.path["session_id"], read_body(request, BuildContext, is_optional=True)
        ),
    )


def _window(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.build_window(read_body(request, BuildWindow)))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions/{session_id}/context",
        "build_context",
        "build_context",
        "The window for the next model call",
        _context,
        BuildContext,
        {200: WindowAnswer},
    ),
    Route(
        "POST",
        "/v1/window",
        "build_window",
        "build_context",
        "A window over a list of messages; nothing is stored",
        _window,
        BuildWindow,
        {200: WindowAnswer},
    ),
)
