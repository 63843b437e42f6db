"""Routes that read and write documents of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.routing import HttpRequest, Response, Route, read_body
from turnlog.sessions.document_models import DocumentsAnswer, ReadDocuments, WriteDocuments, WrittenDocuments

if TYPE_CHECKING:
    from turnlog.app import Application


def _put(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, WriteDocuments)
    answer = app.put_documents(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(200, answer)


def _get(app: Application, request: HttpRequest) -> Response:
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
