"""Messages by words."""

from __future__ import annotations

from turnlog.bootstrap import Application
from turnlog.contracts.recall import SearchAnswer, SearchQuery
from turnlog.entrypoints.routing import MAX_POSITION, Parameter, Request, Response, Route, integer


def _search(app: Application, request: Request) -> Response:
    query = SearchQuery(
        q=request.query.get("q", ""),
        limit=integer(request, _SEARCH_LIMIT) or 10,
        role=request.query.get("role"),
        loop=integer(request, _OF_LOOP),
        tool=request.query.get("tool"),
    )
    return Response(200, app.search_session(request.owner, request.path["session_id"], query))


_SEARCH_LIMIT = Parameter("limit", "integer", "Results at most", 1, 50, 10)
_OF_LOOP = Parameter("loop", "integer", "Only messages of this loop", 1, MAX_POSITION)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/sessions/{session_id}/search",
        "search_session",
        "search",
        "The newest messages by the words of a question",
        _search,
        answers={200: SearchAnswer},
        parameters=(
            Parameter("q", "string", "The question, or some words"),
            _SEARCH_LIMIT,
            Parameter("role", "string", "Only messages of this role", values=("system", "user", "assistant", "tool")),
            _OF_LOOP,
            Parameter("tool", "string", "Only calls of this tool and their results"),
        ),
    ),
)
