"""Documents of a session."""

from __future__ import annotations

from turnlog.bootstrap import Application
from turnlog.contracts.documents import DocumentsAnswer, ReadDocuments, WriteDocuments, WrittenDocuments
from turnlog.entrypoints.routing import Request, Response, Route, read_body


def _put(app: Application, request: Request) -> Response:
    body = read_body(request, WriteDocuments)
    answer = app.put_documents(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(200, answer)


def _get(app: Application, request: Request) -> Response:
    body = read_body(request, ReadDocuments)
    return Response(200, app.get_documents(request.owner, request.path["session_id"], body))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/sessions/{session_id}/documents",
        "put_documents",
        "state",
        "Write and delete documents: bytes by key, beside the log",
        _put,
        WriteDocuments,
        {200: WrittenDocuments},
        writes=True,
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/documents/read",
        "get_documents",
        "state",
        "Documents by their keys, or a range of them",
        _get,
        ReadDocuments,
        {200: DocumentsAnswer},
    ),
)
