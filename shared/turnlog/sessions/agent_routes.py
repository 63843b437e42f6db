"""Routes of agents' execution state."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from turnlog.core.json_values import JsonObject
from turnlog.routing import HttpRequest, Response, Route, not_an_object, read_body
from turnlog.sessions.state_models import AgentState, Decided, DecidePending

if TYPE_CHECKING:
    from turnlog.app import Application


def _get_agent(app: Application, request: HttpRequest) -> Response:
    return Response(200, app.get_agent(request.owner, request.path["session_id"], request.path["agent_id"]))


def _patch_agent(app: Application, request: HttpRequest) -> Response:
    if not isinstance(request.body, dict):
        raise not_an_object()
    patch = cast("JsonObject", request.body)
    answer = app.patch_agent(
        request.owner, request.path["session_id"], request.path["agent_id"], patch, key=request.idempotency_key
    )
    return Response(200, answer)


def _decide(app: Application, request: HttpRequest) -> Response:
    body, path = read_body(request, DecidePending), request.path
    answer = app.decide_pending(request.owner, path["session_id"], path["agent_id"], body, key=request.idempotency_key)
    return Response(200, answer)


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/sessions/{session_id}/agents/{agent_id}",
        "get_agent",
        "state",
        "The execution state of an agent",
        _get_agent,
        answers={200: AgentState},
    ),
    Route(
        "PATCH",
        "/v1/sessions/{session_id}/agents/{agent_id}",
        "patch_agent",
        "state",
        "Change an agent's execution state by a JSON Merge Patch",
        _patch_agent,
        answers={200: AgentState},
        writes=True,
        free_body=True,
    ),
    Route(
        "POST",
        "/v1/sessions/{session_id}/agents/{agent_id}/pending",
        "decide_pending",
        "state",
        "Approve or reject what an agent waits for",
        _decide,
        DecidePending,
        {200: Decided},
        writes=True,
    ),
)
