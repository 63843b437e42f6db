"""Routes that build windows of a session, or over a list of messages."""

from __future__ import annotations

from turnlog.routing import Response, Route, read_body
from turnlog.sessions.context_models import BuildContext, BuildWindow, WindowAnswer

ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/sessions/{session_id}/context",
        "build_context",
        "The window for the next model call",
        BuildContext,
        {200: WindowAnswer},
        optional_body=True,
    ),
    Route(
        "POST /v1/window",
        "build_window",
        "A window over a list of messages; nothing is stored",
        BuildWindow,
        {200: WindowAnswer},
        endpoint=lambda app, request, query: Response(200, app.build_window(read_body(request.body, BuildWindow))),
    ),
)
