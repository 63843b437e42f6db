"""The HTTP routes of search, in one session and over the caller's sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.routing import MAX_POSITION, HttpRequest, Parameter, Response, Route, integer, moment
from turnlog.search.models import SearchAnswer, SearchQuery, SearchSessionsAnswer

if TYPE_CHECKING:
    from turnlog.app import Application


def _search(app: Application, request: HttpRequest) -> Response:
    query = SearchQuery(
        q=request.query.get("q", ""),
        limit=integer(request, _SEARCH_LIMIT) or 10,
        role=request.query.get("role"),
        loop=integer(request, _OF_LOOP),
        tool=request.query.get("tool"),
        after=moment(request, _AFTER),
        before=moment(request, _BEFORE),
    )
    return Response(200, app.search_session(request.owner, request.path["session_id"], query))


def _search_all(app: Application, request: HttpRequest) -> Response:
    query = SearchQuery(
        q=request.query.get("q", ""),
        limit=integer(request, _SEARCH_LIMIT) or 10,
        role=request.query.get("role"),
        tool=request.query.get("tool"),
        after=moment(request, _AFTER),
        before=moment(request, _BEFORE),
    )
    return Response(200, app.search_sessions(request.owner, query))


_QUESTION = Parameter("q", "string", "The question, or some words")
_ROLE = Parameter("role", "string", "Only messages of this role", values=("system", "user", "assistant", "tool"))
_TOOL = Parameter("tool", "string", "Only calls of this tool and their results")
_SEARCH_LIMIT = Parameter("limit", "integer", "Results at most", 1, 50, 10)
_OF_LOOP = Parameter("loop", "integer", "Only messages of this loop", 1, MAX_POSITION)
_AFTER = Parameter("after", "string", "Only messages after this position, or from this time (RFC 3339) on")
_BEFORE = Parameter("before", "string", "Only messages before this position, or time (RFC 3339)")

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/sessions/{session_id}/search",
        "search_session",
        "search",
        "Search a session's messages by the words of a question",
        _search,
        answers={200: SearchAnswer},
        parameters=(
            _QUESTION,
            _SEARCH_LIMIT,
            _ROLE,
            _OF_LOOP,
            _TOOL,
            _AFTER,
            _BEFORE,
        ),
    ),
    Route(
        "GET",
        "/v1/search",
        "search_sessions",
        "search",
        "Search the caller's sessions by the words of a question",
        _search_all,
        answers={200: SearchSessionsAnswer},
        parameters=(
            _QUESTION,
            _SEARCH_LIMIT,
            _ROLE,
            _TOOL,
            Parameter("after", "string", "Only messages from this time (RFC 3339) on"),
            Parameter("before", "string", "Only messages before this time (RFC 3339)"),
        ),
    ),
)
