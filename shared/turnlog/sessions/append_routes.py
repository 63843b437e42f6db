"""The route that appends messages."""

from __future__ import annotations

from turnlog.routing import Route
from turnlog.sessions.message_models import Appended, AppendMessages

ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/sessions/{session_id}/messages",
        "append_messages",
        "Append 1 to 25 messages in one commit",
        AppendMessages,
        {201: Appended},
        writes=True,
    ),
)
