"""Routes that list and forget the caller's memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.memory.models import Forgotten, MemoryList
from turnlog.routing import CURSOR, HttpRequest, Parameter, Response, Route, integer

if TYPE_CHECKING:
    from turnlog.app import Application


def _list_memories(app: Application, request: HttpRequest) -> Response:
    limit = integer(request, _LIMIT) or 20
    return Response(200, app.list_memories(request.owner, limit=limit, cursor=request.query.get("cursor")))


def _forget_memory(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.forget_memory(request.owner, request.path["memory_id"]))


_LIMIT = Parameter("limit", "integer", "Memories per page", 1, 100, 20)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/users/me/memory",
        "list_memories",
        "memory",
        "List the caller's memories, newest first, including replaced ones",
        _list_memories,
        answers={200: MemoryList},
        parameters=(_LIMIT, CURSOR),
    ),
    Route(
        "DELETE",
        "/v1/users/me/memory/{memory_id}",
        "forget_memory",
        "memory",
        "Forget one memory for good",
        _forget_memory,
        answers={200: Forgotten},
    ),
)
