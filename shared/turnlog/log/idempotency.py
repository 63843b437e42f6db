"""Idempotency keys: the same key and payload have one effect and one answer; the same key with another payload is refused."""

from __future__ import annotations

from pydantic import BaseModel

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.json_values import JsonObject, canonical_json
from turnlog.log.headers import short_hash
from turnlog.log.request_keys import RequestKey

MAX_KEY_CHARS = 255


def request_key(key: str | None, operation: str, body: BaseModel) -> RequestKey | None:
    """The key of a request, or None without one. ``if_head`` is no part of the payload: a retry may know a newer head."""
    if key is None:
        return None
    return raw_request_key(key, operation, body.model_dump(exclude={"if_head"}))


def raw_request_key(key: str | None, operation: str, payload: JsonObject) -> RequestKey | None:
    """As `request_key`, for a payload that is no model."""
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"an idempotency key has 1 to {MAX_KEY_CHARS} characters, not {len(key)}"
        raise InvalidInputError(message, problems=[Problem("invalid_key", "/headers/Idempotency-Key", message)])
    return RequestKey(short_hash(key), short_hash(operation + canonical_json(payload).decode("ascii")))
