"""Routes of the history: list, record, compare, rewind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.routing import (
    MAX_POSITION,
    HttpRequest,
    Parameter,
    Response,
    Route,
    integer,
    invalid_parameter,
    moment,
    read_body,
)
from turnlog.sessions.models import Session
from turnlog.sessions.state_models import MAX_ENTRIES, Diff, HistoryEntry, HistoryPage, RecordHistory, RewindSession

if TYPE_CHECKING:
    from turnlog.app import Application


def _read(app: Application, request: HttpRequest) -> Response:
    page = app.read_history(
        request.owner,
        request.path["session_id"],
        limit=integer(request, _LIMIT) or 100,
        before=integer(request, _BEFORE),
        action=request.query.get("action"),
        agent=request.query.get("agent"),
    )
    return Response(200, page)


def _record(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, RecordHistory)
    answer = app.record_history(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(201, answer)


def _rewind(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, RewindSession)
    answer = app.rewind_session(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(200, answer)


def _diff(app: Application, request: HttpRequest) -> Response:
    begin = moment(request, _FROM)
    if begin is None:
        raise invalid_parameter("/query/from", "from is missing")
    answer = app.compare_moments(
        request.owner,
        request.path["session_id"],
        from_=begin,
        to=moment(request, _TO),
        after=integer(request, _AFTER) or 0,
        limit=integer(request, _MESSAGES) or 100,
    )
    return Response(200, answer)


_FROM = Parameter("from", "string", "This position, or time (RFC 3339)")
_TO = Parameter("to", "string", "This position, or time; the head when it is left out")
_AFTER = Parameter("after", "integer", "Messages of positions greater than this", 0, MAX_POSITION)
_MESSAGES = Parameter("limit", "integer", "Messages a page", 1, 100, 100)
_LIMIT = Parameter("limit", "integer", "Entries a page", 1, MAX_ENTRIES, 100)
_BEFORE = Parameter("before", "integer", "Entries older than this position", 1, MAX_POSITION)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/sessions/{session_id}/history",
        "read_history",
        "history",
        "What was done, newest first",
        _read,
        answers={200: HistoryPage},
        parameters=(
            _LIMIT,
            _BEFORE,
            Parameter("action", "string", "Only entries of this action"),
            Parameter("agent", "string", "Only entries of this agent"),
        ),
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/history",
        "record_history",
        "history",
        "Record an entry; nothing changes",
        _record,
        RecordHistory,
        {201: HistoryEntry},
        writes=True,
    ),
    Route(
        "GET",
        "/v1/sessions/{session_id}/diff",
        "diff_session",
        "history",
        "What is different between two moments",
        _diff,
        answers={200: Diff},
        parameters=(_FROM, _TO, _AFTER, _MESSAGES),
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/rewind",
        "rewind_session",
        "history",
        "Go back: later events leave window and state; the log keeps them",
        _rewind,
        RewindSession,
        {200: Session},
        writes=True,
    ),
)
