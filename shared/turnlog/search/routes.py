"""The HTTP routes of recall, and of search in one session and over the caller's sessions."""

from __future__ import annotations

from turnlog.core.limits import MAX_POSITION
from turnlog.routing import Parameter, Response, Route
from turnlog.search import models

_FILTERS = (
    Parameter("q", "string", "The question, or some words", 1, models.MAX_QUESTION_CHARS, required=True),
    Parameter("limit", "integer", "Results at most", 1, 50, 10),
    Parameter("role", "string", "Only messages of this role", values=("system", "user", "assistant", "tool")),
)
_TOOL = Parameter("tool", "string", "Only calls of this tool and their results")

ROUTES: tuple[Route, ...] = (
    Route(
        "GET /v1/sessions/{session_id}/recall",
        "recall",
        "A tool call and its result, whole or a part",
        answers={200: models.Recalled},
        parameters=(
            Parameter("ref", "string", "The ref of the call: position.index; or the position of a message"),
            Parameter("call_id", "string", "The newest call of this id", 1),
            Parameter("pattern", "string", "Only lines that match this regular expression, with their numbers"),
            Parameter("from_line", "integer", "The first line, counted from 1", 1, MAX_POSITION),
            Parameter("to_line", "integer", "The last line", 1, MAX_POSITION),
            Parameter("pointer", "string", "JSON pointer (RFC 6901) into a result that is JSON"),
            Parameter(
                "max_tokens",
                "integer",
                "Tokens at most; a longer text is cut",
                64,
                models.MAX_RECALL_TOKENS,
                models.DEFAULT_RECALL_TOKENS,
            ),
        ),
        endpoint=lambda app, request, query: Response(
            200, app.recall(request.owner, request.path["session_id"], models.RecallQuery(**query))
        ),
    ),
    Route(
        "GET /v1/sessions/{session_id}/search",
        "search_session",
        "Search a session's messages by the words of a question",
        answers={200: models.SearchAnswer},
        parameters=(
            *_FILTERS,
            Parameter("loop", "integer", "Only messages of this loop", 1, MAX_POSITION),
            _TOOL,
            Parameter("after", "moment", "Only messages after this position, or from this time (RFC 3339) on"),
            Parameter("before", "moment", "Only messages before this position, or time (RFC 3339)"),
        ),
        endpoint=lambda app, request, query: Response(
            200, app.search_session(request.owner, request.path["session_id"], models.SearchQuery(**query))
        ),
    ),
    Route(
        "GET /v1/search",
        "search_sessions",
        "Search the caller's sessions by the words of a question",
        answers={200: models.SearchSessionsAnswer},
        parameters=(
            *_FILTERS,
            _TOOL,
            Parameter("after", "moment", "Only messages from this time (RFC 3339) on"),
            Parameter("before", "moment", "Only messages before this time (RFC 3339)"),
        ),
        endpoint=lambda app, request, query: Response(
            200, app.search_sessions(request.owner, models.SearchQuery(**query))
        ),
    ),
)
