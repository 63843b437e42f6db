"""The OpenAPI 3.1 document and the JSON Schemas, made from the route table and the pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from turnlog import __version__
from turnlog.core.identity import CORRELATION_PATTERN, MAX_SESSION_ID, SESSION_ID_PATTERN
from turnlog.core.json_values import JsonObject, JsonValue, without_none
from turnlog.core.limits import MAX_POSITION
from turnlog.core.models import SNAPSHOT_NAME_PATTERN
from turnlog.routing import CORRELATION_HEADER, JSON_PATCH, ROUTES, Parameter, Route
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import AppendMessages
from turnlog.windows.policy import Policy

_REF = "#/components/schemas/{model}"
_CORRELATION_ID: JsonObject = {
    "description": "The caller's X-Correlation-Id, else the request's id: what the logs of the call and of its jobs have",
    "schema": {"type": "string", "pattern": CORRELATION_PATTERN},
}
_ERRORS = {
    400: "Malformed: not JSON, duplicate keys, NaN, deeper than 32 levels, a bad cursor",
    401: "Not authenticated",
    403: "Not allowed",
    404: "No such session, or it is another owner's",
    409: "Conflict: head_mismatch, version_mismatch, session_exists, loop_unfinished, run_active, conflict",
    413: "Too large",
    415: "Not JSON",
    422: "Invalid: fields, ids, idempotency_mismatch, budget_too_small, patch_failed",
    429: "Throttled; see Retry-After",
    500: "Failed, such as corrupt; internal: see the log",
    503: "Unavailable; see Retry-After",
}
_FREE_OBJECT: JsonObject = {"type": "object", "additionalProperties": True}


def _members(types: Mapping[str, str], **more: JsonValue) -> JsonObject:
    """Return the part of a schema that says which members an object must have, and which ``more`` it may have."""
    plain: JsonObject = {name: {"type": kind} for name, kind in types.items()}
    return {"required": list(types), "properties": {**plain, **more}}


_STORED: JsonObject = {
    "type": "object",
    "description": "Where an answer is that is too large to be sent: JSON at `url`, which needs no credentials, until `expires_at`",
    **_members({"url": "string", "expires_at": "string", "status": "integer", "size_bytes": "integer"}),
}
_FAULT: JsonObject = {"type": "object", **_members(dict.fromkeys(("code", "pointer", "message"), "string"))}
_OF_PROBLEM = dict.fromkeys(("type", "title", "status", "code", "detail", "request_id"), "string") | {
    "status": "integer"
}
_PROBLEM: JsonObject = {
    "type": "object",
    "description": "RFC 9457; `code` is what to switch on",
    **_members(_OF_PROBLEM, errors={"type": "array", "items": _FAULT}),
}


def openapi_document(samples: Mapping[str, str] | None = None) -> JsonObject:
    """Return the OpenAPI document of the API; it is the same on every run. ``samples`` has a Python example by route name."""
    bodies = {route.body for route in ROUTES if route.body is not None}
    answers = {model for route in ROUTES for model in route.answers.values()}
    ordered = sorted(bodies, key=lambda model: model.__name__), sorted(answers, key=lambda model: model.__name__)
    _, definitions = models_json_schema(
        [(model, "validation") for model in ordered[0]] + [(model, "serialization") for model in ordered[1]],
        ref_template=_REF,
    )
    paths: dict[str, Any] = {}
    for route in ROUTES:
        operation = _operation(route)
        if samples is not None and route.name in samples:
            operation["x-codeSamples"] = [{"lang": "Python", "source": samples[route.name]}]
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnlog",
            "version": __version__,
            "summary": "The session state of an LLM agent",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**definitions["$defs"], "Problem": _PROBLEM, "StoredAnswer": _STORED},
            "headers": {"CorrelationId": _CORRELATION_ID},
        },
    }


def json_schemas() -> dict[str, JsonObject]:
    """Return the JSON Schemas by name, as `turnlog schema NAME` prints and docs/reference/schemas holds them."""
    from turnlog.core.agent_state import STATE_SCHEMA

    return {
        "message": AppendMessages.model_json_schema(),
        "policy": Policy.model_json_schema(),
        "state": STATE_SCHEMA,
        "window": WindowAnswer.model_json_schema(mode="serialization"),
    }


def _operation(route: Route) -> JsonObject:
    in_path = [_path_parameter(name) for name in route.path_names]
    parameters = in_path + [_query_parameter(parameter) for parameter in route.parameters]
    if route.writes:
        parameters.append(_IDEMPOTENCY_KEY)
    operation: JsonObject = {"operationId": route.name, "summary": route.summary, "tags": [route.resource]}
    if parameters:
        operation["parameters"] = list(parameters)
    if route.body is not None:
        operation["requestBody"] = {"required": not route.optional_body, "content": _content(route.body.__name__)}
    elif route.free_body:
        content: JsonObject = {
            name: {"schema": {"type": "array"} if name == JSON_PATCH else _FREE_OBJECT} for name in route.media_types
        }
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(route)
    return operation


def _responses(route: Route) -> JsonObject:
    responses: dict[str, JsonObject] = {
        str(status): {"description": route.summary, "content": _content(model.__name__)}
        for status, model in sorted(route.answers.items())
    }
    if route.is_file:
        file: JsonObject = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        responses["200"] = {"description": route.summary, "content": file}
    elif not responses:
        responses["200"] = {"description": route.summary, "content": {"application/json": {"schema": _FREE_OBJECT}}}
    if route.answers:
        stored = _content("StoredAnswer")
        responses["303"] = {"description": "The answer is too large to be sent; see Location", "content": stored}
    problem = _content("Problem", "application/problem+json")
    for status, description in _ERRORS.items():
        responses[str(status)] = {"description": description, "content": problem}
    headers: JsonObject = {CORRELATION_HEADER: {"$ref": "#/components/headers/CorrelationId"}}
    return {status: {**response, "headers": headers} for status, response in responses.items()}


def _content(model: str, media_type: str = "application/json") -> JsonObject:
    return {media_type: {"schema": {"$ref": _REF.format(model=model)}}}


_IDEMPOTENCY_KEY: JsonObject = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and body have one effect and one answer",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


_PATH_SCHEMAS: Mapping[str, JsonObject] = {
    "agent_id": {"type": "string", "pattern": "^(?!h_)[A-Za-z0-9_-]{1,64}$"},
    "position": {"type": "integer", "minimum": 1, "maximum": MAX_POSITION},
    "session_id": {"type": "string", "pattern": f"^{SESSION_ID_PATTERN}$", "maxLength": MAX_SESSION_ID},
    "snapshot": {"type": "string", "pattern": SNAPSHOT_NAME_PATTERN, "maxLength": 128},
    "token": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
}
"""Schemas of the names in paths; any other is a text."""


def _path_parameter(name: str) -> JsonObject:
    schema = _PATH_SCHEMAS.get(name, {"type": "string", "minLength": 1})
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(parameter: Parameter) -> JsonObject:
    schema: JsonObject = {"type": "integer" if parameter.kind == "integer" else "string"}
    low, high = ("minimum", "maximum") if parameter.kind == "integer" else ("minLength", "maxLength")
    schema |= without_none({low: parameter.minimum, high: parameter.maximum, "default": parameter.default})
    schema |= without_none({"pattern": parameter.pattern or None, "enum": list(parameter.values) or None})
    required: JsonObject = {"required": True} if parameter.required else {}
    return {"name": parameter.name, "in": "query", "description": parameter.description, **required, "schema": schema}
