"""Routes that list messages and run loops."""

from __future__ import annotations

from turnlog.core.limits import MAX_POSITION
from turnlog.core.models import FORMATS
from turnlog.routing import Parameter, Route
from turnlog.sessions.message_models import LoopPage, MessagePage

ROUTES: tuple[Route, ...] = (
    Route(
        "GET /v1/sessions/{session_id}/messages",
        "read_messages",
        "The full history",
        answers={200: MessagePage},
        parameters=(
            Parameter("after", "integer", "Positions greater than this", 0, MAX_POSITION),
            Parameter("before", "integer", "Positions smaller than this", 1, MAX_POSITION),
            Parameter("limit", "integer", "Messages a page; a page ends after 4 MB", 1, 100, 100),
            Parameter("order", "string", "By position", default="asc", values=("asc", "desc")),
            Parameter("format", "string", "Convert bodies to this format", values=FORMATS),
            Parameter("at", "moment", "What was in view at this position, or time (RFC 3339)"),
            Parameter("in_view", "flag", "Without what a rewind has taken out of view", values=("true", "false")),
        ),
    ),
    Route(
        "GET /v1/sessions/{session_id}/loops",
        "read_loops",
        "Run loops, newest first",
        answers={200: LoopPage},
        parameters=(
            Parameter("limit", "integer", "Loops a page", 1, 100, 20),
            Parameter("before", "integer", "Loops with a smaller number", 1, MAX_POSITION),
        ),
    ),
)
