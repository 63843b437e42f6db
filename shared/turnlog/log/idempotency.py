"""Idempotency keys: requests with the same key and payload have one effect; the same key with another payload is refused."""

from __future__ import annotations

from pydantic import BaseModel

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.json_values import JsonObject, canonical_json
from turnlog.log.headers import short_hash
from turnlog.log.request_keys import RequestKey

MAX_KEY_CHARS = 255


def request_key(key: str | None, operation: str, body: BaseModel) -> RequestKey | None:
    """Return the hashed key and payload of a request, or None without a key.

    ``if_head`` is not part of the payload, because a retry may name a newer head.
    """
    if key is None:
        return None
    return raw_request_key(key, operation, body.model_dump(exclude={"if_head"}))


def raw_request_key(key: str | None, operation: str, payload: JsonObject) -> RequestKey | None:
    """Return the hashed key and payload of a request whose payload is plain JSON, or None without a key.

    Raises `InvalidInputError` for a key that is empty or too long.
    """
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"an idempotency key has 1 to {MAX_KEY_CHARS} characters, not {len(key)}"
        raise InvalidInputError(message, problems=[Problem("invalid_key", "/headers/Idempotency-Key", message)])
    return RequestKey(short_hash(key), short_hash(operation + canonical_json(payload).decode("ascii")))
