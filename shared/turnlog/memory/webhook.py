"""Memory engine behind a signed webhook: one address, one POST for each action. docs/how-to/memory-engines.md has the protocol.

Owners are named by their safe ids. Every request is signed together with its time and an id, so that an intercepted request
can't be replayed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Collection
from typing import Any, cast, get_args
from urllib.parse import SplitResult

from turnlog.core.errors import InvalidInputError, MemoryConfigError, UnavailableError
from turnlog.core.identity import Owner, is_session_id
from turnlog.core.json_values import JsonObject, JsonValue, encode_json, sendable_text
from turnlog.core.limits import batches
from turnlog.core.memory import Memory, MemoryKind, MemoryPage, Offloaded, SpokenMessage
from turnlog.core.times import milliseconds_of, rfc3339
from turnlog.engines.http_post import HEADERS, Posted, Receiver, web_address
from turnlog.ports import Clock, IdSource
from turnlog.settings import Settings

PROTOCOL = 1
MAX_MESSAGES = 200
MAX_PART_BYTES = 512 * 1024
"""Bytes of messages per request; a single longer message is sent alone."""
MAX_FORGOTTEN = 500
MAX_TEXT_CHARS = 16_000
_RECEIVER = Receiver("the memory webhook", MemoryConfigError, "memory_status", "memory_timeout")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LEAST_SECRET_CHARS = 16


class WebhookMemoryEngine:
    """Implements `MemoryEngine`. ``timeout_seconds`` holds for each request as a whole."""

    name = "webhook"

    def __init__(self, url: str, secret: str, *, timeout_seconds: float, clock: Clock, ids: IdSource) -> None:
        self._url = _address(url)
        if len(secret) < _LEAST_SECRET_CHARS:
            message = f"TURNLOG_MEMORY_WEBHOOK_SECRET has fewer than {_LEAST_SECRET_CHARS} characters"
            raise InvalidInputError(message, code="invalid_settings")
        self._secret = secret.encode()
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._ids = ids

    @classmethod
    def from_settings(cls, settings: Settings, *, clock: Clock, ids: IdSource) -> WebhookMemoryEngine:
        """Return the engine that the settings describe."""
        secret, seconds = settings.memory_webhook_secret.get_secret_value(), settings.memory_timeout_seconds
        return cls(settings.memory_webhook_url, secret, timeout_seconds=seconds, clock=clock, ids=ids)

    def remember(self, part: Offloaded) -> int:
        """Send the messages of a part in requests of a bounded size; return the number of memories."""
        count = 0
        rows = map(_message, part.read_messages())
        for messages in batches(
            rows, lambda row: len(encode_json(row)), max_size=MAX_PART_BYTES, max_count=MAX_MESSAGES
        ):
            first, last = messages[0]["position"], messages[-1]["position"]
            content: JsonObject = {
                "session_id": part.session_id,
                "offload_id": part.id,
                "reason": part.reason,
                "ended_at": rfc3339(part.ended_ms),
                "first": part.first,
                "last": part.last,
                "messages": list[JsonValue](messages),
            }
            key = hashlib.sha256(f"{part.id}#{first}-{last}".encode()).hexdigest()
            count += count_in(self._ask("remember", part.owner, content, key=key))
        return count

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """Return memories for a question, best first, without replaced ones."""
        content: JsonObject = {"question": question, "limit": limit}
        answer = self._ask("known", owner, content, timeout_seconds=min(timeout_seconds, self._timeout_seconds))
        return [memory for memory in memories_in(answer) if memory.replaced_by is None][:limit]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """Return a page of memories. ``after`` is the ``next`` of the page before."""
        answer = self._ask("page", owner, {"limit": limit, "after": after})
        following = answer.get("next")
        return MemoryPage(tuple(memories_in(answer)), following if isinstance(following, str) and following else None)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        """Ask the receiver to delete memories."""
        distinct_ids = list(dict.fromkeys(memory_ids))
        for start in range(0, len(distinct_ids), MAX_FORGOTTEN):
            self._ask("forget", owner, {"memory_ids": list[JsonValue](distinct_ids[start : start + MAX_FORGOTTEN])})

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        """Ask the receiver to delete the memories of an owner, a session or a message; return their number."""
        return count_in(self._ask("erase", owner, {"session_id": session_id, "position": position}))

    def _ask(
        self, action: str, owner: Owner, content: JsonObject, *, key: str = "", timeout_seconds: float | None = None
    ) -> dict[str, Any]:
        """Post an action and return the answer's object; empty for an answer without a body."""
        base: JsonObject = {"version": PROTOCOL, "action": action, "tenant": owner.tenant_id, "user": owner.user_id}
        body = encode_json(base | content)
        request_id = self._ids.new_id()
        timestamp = str(self._clock.now_ms() // 1000)
        headers = {
            **HEADERS,
            "Idempotency-Key": key or request_id,
            "Turnlog-Request-Id": request_id,
            "Turnlog-Timestamp": timestamp,
            "Turnlog-Signature": signature(
                self._secret, timestamp=timestamp, request_id=request_id, key=key or request_id, body=body
            ),
        }
        seconds = timeout_seconds if timeout_seconds is not None else self._timeout_seconds
        return read_answer(_RECEIVER.post(self._url, body, headers, timeout_seconds=seconds))


def signature(secret: bytes, *, timestamp: str, request_id: str, key: str, body: bytes) -> str:
    """Return the signature of a request: ``v1=`` and HMAC-SHA256 in hex."""
    signed = b"\n".join([b"v1", timestamp.encode(), request_id.encode(), key.encode(), body])
    return "v1=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


def _address(url: str) -> SplitResult:
    """Return the parsed address. Contents travel both ways, so only TLS is accepted, except on this machine."""
    address = web_address(url)
    if address is None or (address.scheme == "http" and address.hostname not in _LOOPBACK):
        raise InvalidInputError("TURNLOG_MEMORY_WEBHOOK_URL is no https address", code="invalid_settings")
    return address


def _message(message: SpokenMessage) -> JsonObject:
    text = sendable_text(message.text)
    return {"position": message.position, "role": message.role, "text": text, "created_at": rfc3339(message.time_ms)}


def read_answer(posted: Posted) -> dict[str, Any]:
    """Return the answer's object. Errors name the status only, as a body may repeat what was sent."""
    if not 200 <= posted.status < 300:
        raise _RECEIVER.refused(posted)
    if not posted.body.strip():
        return {}
    try:
        answer = json.loads(posted.body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _unreadable()
    return answer


def count_in(answer: dict[str, Any]) -> int:
    """Return the answer's number of memories; 0 when it has none."""
    count = answer.get("memories", 0)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise _unreadable()
    return count


def memories_in(answer: dict[str, Any]) -> list[Memory]:
    """Return the memories of an answer. Raises `UnavailableError` when it has no list of them."""
    entries = answer.get("memories")
    if not isinstance(entries, list):
        raise _unreadable()
    try:
        return [_memory(entry) for entry in entries]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _unreadable() from None


def _memory(entry: dict[str, Any]) -> Memory:
    kind = entry.get("kind", "other")
    return Memory(
        id=_text(entry["id"]),
        text=_text(entry["text"])[:MAX_TEXT_CHARS],
        created_ms=milliseconds_of(_text(entry["created_at"])),
        kind=cast("MemoryKind", kind) if kind in get_args(MemoryKind) else "other",
        session_id=entry["session_id"] if is_session_id(entry.get("session_id")) else None,
        position=_positive(entry.get("position")),
        replaced_by=_text(entry["replaced_by"]) if entry.get("replaced_by") is not None else None,
        score=_score(entry.get("score")),
        confirmations=_positive(entry.get("confirmations")) or 1,
    )


def _text(value: object) -> str:
    """Return a text that can be stored. Raises `ValueError` for an empty one and for lone surrogates."""
    if not isinstance(value, str) or not value:
        raise ValueError
    value.encode()
    return value


def _positive(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _score(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _unreadable() -> UnavailableError:
    return UnavailableError("the answer of the memory webhook is none of its protocol", code="memory_unreadable")
