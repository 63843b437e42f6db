"""The HTTP route of recall: a tool call and its result, whole or a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.routing import MAX_POSITION, HttpRequest, Parameter, Response, Route, integer
from turnlog.search.models import DEFAULT_RECALL_TOKENS, MAX_RECALL_TOKENS, Recalled, RecallQuery

if TYPE_CHECKING:
    from turnlog.app import Application


def _recall(app: Application, request: HttpRequest) -> Response:
    query = RecallQuery(
        ref=request.query.get("ref"),
        call_id=request.query.get("call_id"),
        pattern=request.query.get("pattern"),
        from_line=integer(request, _FROM_LINE),
        to_line=integer(request, _TO_LINE),
        pointer=request.query.get("pointer"),
        max_tokens=integer(request, _RECALL_TOKENS) or DEFAULT_RECALL_TOKENS,
    )
    return Response(200, app.recall(request.owner, request.path["session_id"], query))


_FROM_LINE = Parameter("from_line", "integer", "The first line, counted from 1", 1, MAX_POSITION)
_TO_LINE = Parameter("to_line", "integer", "The last line", 1, MAX_POSITION)
_RECALL_TOKENS = Parameter(
    "max_tokens", "integer", "Tokens at most; a longer text is cut", 64, MAX_RECALL_TOKENS, DEFAULT_RECALL_TOKENS
)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/sessions/{session_id}/recall",
        "recall",
        "recall",
        "A tool call and its result, whole or a part",
        _recall,
        answers={200: Recalled},
        parameters=(
            Parameter("ref", "string", "The ref of the call: position.index"),
            Parameter("call_id", "string", "The newest call of this id"),
            Parameter("pattern", "string", "Only lines that match this regular expression, with their numbers"),
            _FROM_LINE,
            _TO_LINE,
            Parameter("pointer", "string", "JSON pointer (RFC 6901) into a result that is JSON"),
            _RECALL_TOKENS,
        ),
    ),
)
