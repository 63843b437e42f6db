"""The route that appends messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.routing import HttpRequest, Response, Route, read_body
from turnlog.sessions.message_models import Appended, AppendMessages

if TYPE_CHECKING:
    from turnlog.app import Application


def _append(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, AppendMessages)
    return Response(
        201, app.append_messages(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions/{session_id}/messages",
        "append_messages",
        "append",
        "Append 1 to 25 messages in one commit",
        _append,
        AppendMessages,
        {201: Appended},
        writes=True,
    ),
)
