"""A memory engine behind a signed webhook: one address, one POST for each action. docs/memory-engines.md has the protocol.

Owners are named by their safe ids, the same at append and in jobs. Every request is signed with the time and an id of its own,
so that one that was overheard can't be sent again.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any, cast, get_args
from urllib.parse import SplitResult

from turnlog.core.errors import InvalidInputError, MemoryConfigError, ThrottledError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, JsonValue, encode_json
from turnlog.core.memory import Memory, MemoryKind, MemoryPage, Offloaded, SpokenMessage
from turnlog.core.times import milliseconds_of, rfc3339
from turnlog.engines.http_post import Posted, post, web_address
from turnlog.ports import Clock, IdSource
from turnlog.version import __version__

PROTOCOL = 1
MAX_MESSAGES = 200
MAX_PART_BYTES = 512 * 1024
"""Of the messages in one request, but for one that is longer by itself."""
MAX_FORGOTTEN = 500
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_TEXT_CHARS = 16_000
_PASSING = frozenset({408, 409, 425})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LEAST_SECRET_CHARS = 16


class WebhookMemoryEngine:
    """Implements `MemoryEngine`. ``timeout_seconds`` is for each request as a whole."""

    def __init__(self, url: str, secret: str, *, timeout_seconds: float, clock: Clock, ids: IdSource) -> None:
        self._url = _address(url)
        if len(secret) < _LEAST_SECRET_CHARS:
            message = f"TURNLOG_MEMORY_WEBHOOK_SECRET has fewer than {_LEAST_SECRET_CHARS} characters"
            raise InvalidInputError(message, code="invalid_settings")
        self._secret = secret.encode()
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._ids = ids

    @property
    def name(self) -> str:
        return "webhook"

    def remember(self, part: Offloaded) -> int:
        made = 0
        for messages in _requests(part.said()):
            first, last = messages[0].position, messages[-1].position
            content: JsonObject = {
                "session_id": part.session_id,
                "offload_id": part.id,
                "reason": part.reason,
                "ended_at": rfc3339(part.ended_ms),
                "first": part.first,
                "last": part.last,
                "messages": [_message(said) for said in messages],
            }
            key = hashlib.sha256(f"{part.id}#{first}-{last}".encode()).hexdigest()
            made += _count(self._ask("remember", part.owner, content, key=key))
        return made

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        content: JsonObject = {"question": question, "limit": limit}
        answer = self._ask("known", owner, content, timeout_seconds=min(timeout_seconds, self._timeout_seconds))
        return [memory for memory in _memories(answer) if memory.replaced_by is None][:limit]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        answer = self._ask("page", owner, {"limit": limit, "after": after})
        following = answer.get("next")
        return MemoryPage(tuple(_memories(answer)), following if isinstance(following, str) and following else None)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        found = list(dict.fromkeys(memory_ids))
        for at in range(0, len(found), MAX_FORGOTTEN):
            self._ask("forget", owner, {"memory_ids": list[JsonValue](found[at : at + MAX_FORGOTTEN])})

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        return _count(self._ask("erase", owner, {"session_id": session_id, "position": position}))

    def _ask(
        self,
        action: str,
        owner: Owner,
        content: JsonObject,
        *,
        key: str = "",
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """The answer's object; empty where there is no body."""
        named: JsonObject = {"version": PROTOCOL, "action": action, "tenant": owner.tenant_id, "user": owner.user_id}
        body = encode_json(named | content)
        request_id = self._ids.new_id()
        timestamp = str(self._clock.now_ms() // 1000)
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"turnlog/{__version__}",
            "Idempotency-Key": key or request_id,
            "Turnlog-Request-Id": request_id,
            "Turnlog-Timestamp": timestamp,
            "Turnlog-Signature": signature(
                self._secret, timestamp=timestamp, request_id=request_id, key=key or request_id, body=body
            ),
        }
        seconds = timeout_seconds if timeout_seconds is not None else self._timeout_seconds
        return _read(self._post(body, headers, seconds))

    def _post(self, body: bytes, headers: dict[str, str], timeout_seconds: float) -> Posted:
        try:
            return post(
                self._url,
                body,
                headers,
                timeout_seconds=timeout_seconds,
                clock=self._clock,
                max_bytes=MAX_ANSWER_BYTES,
            )
        except TimeoutError:
            raise UnavailableError("the memory webhook gave no answer in time", code="memory_timeout") from None
        except (OSError, http.client.HTTPException) as error:
            # Also a certificate that is not trusted: who has mended it need not change our settings.
            raise UnavailableError(f"the memory webhook gave no answer: {type(error).__name__}") from None


def signature(secret: bytes, *, timestamp: str, request_id: str, key: str, body: bytes) -> str:
    """What a request is signed with: ``v1=`` and HMAC-SHA256 in hex."""
    signed = b"\n".join([b"v1", timestamp.encode(), request_id.encode(), key.encode(), body])
    return "v1=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


def _address(url: str) -> SplitResult:
    """Contents are sent there and come from there into prompts: nothing but TLS, except on this machine."""
    found = web_address(url)
    if found is None or (found.scheme == "http" and found.hostname not in _LOOPBACK):
        raise InvalidInputError("TURNLOG_MEMORY_WEBHOOK_URL is no https address", code="invalid_settings")
    return found


def _requests(said: Iterable[SpokenMessage]) -> Iterator[list[SpokenMessage]]:
    """The messages in requests of a bounded size; each has at least one."""
    messages, size = list[SpokenMessage](), 0
    for one in said:
        more = len(encode_json(_message(one)))
        if messages and (len(messages) == MAX_MESSAGES or size + more > MAX_PART_BYTES):
            yield messages
            messages, size = [], 0
        messages.append(one)
        size += more
    if messages:
        yield messages


def _message(said: SpokenMessage) -> JsonObject:
    # Half of a surrogate pair has an escape in JSON, and few receivers read it.
    text = said.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return {"position": said.position, "role": said.role, "text": text, "created_at": rfc3339(said.time_ms)}


def _read(posted: Posted) -> dict[str, Any]:
    """The answer, or an error by the status alone: a body may repeat what was sent."""
    status, seconds = posted.status, posted.retry_after_seconds
    if status == 429:
        raise ThrottledError("the memory webhook was throttled", retry_after_seconds=seconds)
    if status in _PASSING or status >= 500:
        raise UnavailableError(f"the memory webhook answered {status}", retry_after_seconds=seconds)
    if not 200 <= status < 300:
        raise MemoryConfigError(f"the memory webhook answered {status}", details={"memory_status": status})
    if not posted.body.strip():
        return {}
    try:
        answer = json.loads(posted.body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _unreadable()
    return answer


def _count(answer: dict[str, Any]) -> int:
    """How many memories; 0 where it does not say, or says who they are."""
    found = answer.get("memories", 0)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise _unreadable()
    return found


def _memories(answer: dict[str, Any]) -> list[Memory]:
    found = answer.get("memories")
    if not isinstance(found, list):
        raise _unreadable()
    try:
        return [_memory(one) for one in found]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _unreadable() from None


def _memory(found: dict[str, Any]) -> Memory:
    kind = found.get("kind", "other")
    return Memory(
        id=_text(found["id"]),
        text=_text(found["text"])[:MAX_TEXT_CHARS],
        created_ms=milliseconds_of(_text(found["created_at"])),
        kind=cast("MemoryKind", kind) if kind in get_args(MemoryKind) else "other",
        session_id=_text(found["session_id"]) if found.get("session_id") is not None else None,
        position=_positive(found.get("position")),
        replaced_by=_text(found["replaced_by"]) if found.get("replaced_by") is not None else None,
        score=_score(found.get("score")),
        confirmations=_positive(found.get("confirmations")) or 1,
    )


def _text(value: object) -> str:
    """A text that can be stored: half of a surrogate pair can't."""
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
