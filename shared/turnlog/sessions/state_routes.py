"""Routes that read and change the state of a session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.routing import (
    JSON_PATCH,
    MAX_POSITION,
    MERGE_TYPES,
    HttpRequest,
    Parameter,
    Response,
    Route,
    integer,
    invalid_parameter,
    moment,
    not_an_object,
    read_body,
)
from turnlog.sessions.state_models import ACTION_PATTERN, ReplaceState, StateAnswer

if TYPE_CHECKING:
    from turnlog.app import Application


def _get(app: Application, request: HttpRequest) -> Response:
    position_or_time = moment(request, _AT)
    return Response(200, app.get_state(request.owner, request.path["session_id"], at=position_or_time))


def _put(app: Application, request: HttpRequest) -> Response:
    body = read_body(request, ReplaceState)
    answer = app.put_state(request.owner, request.path["session_id"], body, key=request.idempotency_key)
    return Response(200, answer)


def _patch(app: Application, request: HttpRequest) -> Response:
    is_list = isinstance(request.body, list)
    if request.media_type == JSON_PATCH and not is_list:
        raise invalid_parameter("", "a JSON Patch is a list of operations")
    if request.media_type != JSON_PATCH and not isinstance(request.body, dict):
        raise not_an_object()
    action = request.query.get("action")
    if action is not None and not re.fullmatch(ACTION_PATTERN, action):
        raise invalid_parameter("/query/action", f"action does not match {ACTION_PATTERN}")
    answer = app.patch_state(
        request.owner,
        request.path["session_id"],
        cast("JsonObject | list[JsonValue]", request.body),
        action=action,
        if_version=integer(request, _IF_VERSION),
        key=request.idempotency_key,
    )
    return Response(200, answer)


_AT = Parameter("at", "string", "As it was at this position, or time (RFC 3339)")
_IF_VERSION = Parameter("if_version", "integer", "409 unless this is the state's version", 0, MAX_POSITION)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/sessions/{session_id}/state",
        "get_state",
        "state",
        "The state, now or at any moment",
        _get,
        answers={200: StateAnswer},
        parameters=(_AT,),
    ),
    Route(
        "PUT",
        "/v1/sessions/{session_id}/state",
        "put_state",
        "state",
        "Replace the state",
        _put,
        ReplaceState,
        {200: StateAnswer},
        writes=True,
    ),
    Route(
        "PATCH",
        "/v1/sessions/{session_id}/state",
        "patch_state",
        "state",
        "Change the state by a JSON Merge Patch or a JSON Patch",
        _patch,
        answers={200: StateAnswer},
        parameters=(Parameter("action", "string", "Action of the history entry (default state_change)"), _IF_VERSION),
        writes=True,
        free_body=True,
        media_types=(*MERGE_TYPES, JSON_PATCH),
    ),
)
