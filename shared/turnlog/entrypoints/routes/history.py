"""The history of a session."""

from __future__ import annotations

from turnlog.bootstrap import Application
from turnlog.contracts.history import MAX_ENTRIES, HistoryEntry, HistoryPage, RecordHistory
from turnlog.entrypoints.routing import MAX_POSITION, Parameter, Request, Response, Route, integer, read_body


def _read(app: Application, request: Request) -> Response:
    page = app.read_history(
        request.owner,
        request.path["session_id"],
        limit=integer(request, _LIMIT) or 100,
        before=integer(request, _BEFORE),
        action=request.query.get("action"),
        agent=request.query.get("agent"),
    )
    return Response(200, page)


def _record(app: Application, request: Request) -> Response:
    body = read_body(request, RecordHistory)
    answer = app.record_history(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(201, answer)


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
)
