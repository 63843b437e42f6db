"""Routes that erase a message, a session or a person for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.core.errors import NotFoundError
from turnlog.core.limits import MAX_POSITION
from turnlog.jobs.models import Job
from turnlog.routing import HttpRequest, Query, Response, Route

if TYPE_CHECKING:
    from turnlog.app import Application


def _redact_message(app: Application, request: HttpRequest, query: Query) -> Response:
    position = request.path["position"]
    if not (position.isascii() and position.isdigit() and 0 < int(position[:20]) <= MAX_POSITION):
        raise NotFoundError(f"no message at position {position[:80]!r}", code="no_message")
    return Response(
        202, app.redact_message(request.owner, request.path["session_id"], int(position), key=request.idempotency_key)
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "DELETE /v1/sessions/{session_id}", "erase_session", "Erase a session for good", answers={202: Job}, writes=True
    ),
    Route(
        "POST /v1/sessions/{session_id}/messages/{position}/redact",
        "redact_message",
        "Redact one message: nothing of its content is left",
        answers={202: Job},
        endpoint=_redact_message,
        writes=True,
    ),
    Route(
        "DELETE /v1/users/me", "erase_user", "Erase all data of the caller for good", answers={202: Job}, writes=True
    ),
)
