"""Routes that list messages and run loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from turnlog.core.models import FORMATS
from turnlog.routing import MAX_POSITION, HttpRequest, Parameter, Response, Route, integer, moment
from turnlog.sessions.message_models import LoopPage, MessagePage

if TYPE_CHECKING:
    from turnlog.app import Application


def _messages(app: Application, request: HttpRequest) -> Response:
    page = app.read_messages(
        request.owner,
        request.path["session_id"],
        after=integer(request, _AFTER) or 0,
        before=integer(request, _BEFORE),
        limit=integer(request, _PAGE_LIMIT) or 100,
        order=cast("Literal['asc', 'desc']", request.query.get("order", "asc")),
        format=request.query.get("format"),
        at=moment(request, _AT),
        in_view=request.query.get("in_view") == "true",
    )
    return Response(200, page)


def _loops(app: Application, request: HttpRequest) -> Response:
    limit, before = integer(request, _LOOP_LIMIT), integer(request, _BEFORE_LOOP)
    return Response(200, app.read_loops(request.owner, request.path["session_id"], limit=limit or 20, before=before))


_PAGE_LIMIT = Parameter("limit", "integer", "Messages a page; a page ends after 4 MB", 1, 100, 100)
_LOOP_LIMIT = Parameter("limit", "integer", "Loops a page", 1, 100, 20)
_AFTER = Parameter("after", "integer", "Positions greater than this", 0, MAX_POSITION)
_BEFORE = Parameter("before", "integer", "Positions smaller than this", 1, MAX_POSITION)
_AT = Parameter("at", "string", "What was in view at this position, or time (RFC 3339)")
_BEFORE_LOOP = Parameter("before", "integer", "Loops with a smaller number", 1, MAX_POSITION)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/sessions/{session_id}/messages",
        "read_messages",
        "messages",
        "The full history",
        _messages,
        answers={200: MessagePage},
        parameters=(
            _AFTER,
            _BEFORE,
            _PAGE_LIMIT,
            Parameter("order", "string", "By position", default="asc", values=("asc", "desc")),
            Parameter("format", "string", "Convert bodies to this format", values=FORMATS),
            _AT,
            Parameter("in_view", "string", "Without what a rewind has taken out of view", values=("true", "false")),
        ),
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/loops",
        "read_loops",
        "messages",
        "Run loops, newest first",
        _loops,
        answers={200: LoopPage},
        parameters=(_LOOP_LIMIT, _BEFORE_LOOP),
    ),
)
