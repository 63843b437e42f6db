"""The HTTP route of recall: a tool call and its result, or a message, whole or a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.routing import MAX_POSITION, HttpRequest, Parameter, Query, Response, Route
from turnlog.search.models import DEFAULT_RECALL_TOKENS, MAX_RECALL_TOKENS, Recalled, RecallQuery

if TYPE_CHECKING:
    from turnlog.app import Application


def _recall(app: Application, request: HttpRequest, query: Query) -> Response:
    return Response(200, app.recall(request.owner, request.path["session_id"], RecallQuery(**query)))


ROUTES: tuple[Route, ...] = (
    Route(
        "GET /v1/sessions/{session_id}/recall",
        "recall",
        "A tool call and its result, whole or a part",
        answers={200: Recalled},
        parameters=(
            Parameter("ref", "string", "The ref of the call: position.index; or the position of a message"),
            Parameter("call_id", "string", "The newest call of this id"),
            Parameter("pattern", "string", "Only lines that match this regular expression, with their numbers"),
            Parameter("from_line", "integer", "The first line, counted from 1", 1, MAX_POSITION),
            Parameter("to_line", "integer", "The last line", 1, MAX_POSITION),
            Parameter("pointer", "string", "JSON pointer (RFC 6901) into a result that is JSON"),
            Parameter(
                "max_tokens",
                "integer",
                "Tokens at most; a longer text is cut",
                minimum=64,
                maximum=MAX_RECALL_TOKENS,
                default=DEFAULT_RECALL_TOKENS,
            ),
        ),
        endpoint=_recall,
    ),
)
