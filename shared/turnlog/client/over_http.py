"""Calls of the route table over HTTP, with nothing but the standard library.

A call is tried again when the connection fails, when no answer comes, and on 429, 502, 503 and 504. All tries of a writing
call carry one idempotency key, so a repeated one has one effect, also when only the answer was lost.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from pydantic import ValidationError

from turnlog.adapters.system import RandomIds, SystemClock
from turnlog.client.problems import error_of
from turnlog.contracts.jobs import Redriven
from turnlog.domain.errors import InvalidInputError, NotFoundError, UnavailableError
from turnlog.domain.identity import check_agent_id, check_session_id
from turnlog.domain.jsonvalue import check_json, encode_json
from turnlog.entrypoints.routes import BY_NAME, Route
from turnlog.entrypoints.routing import JSON
from turnlog.log.keys import check_record_id
from turnlog.ports import Clock, IdSource
from turnlog.version import __version__

TENANT_HEADER, USER_HEADER = "X-Turnlog-Tenant", "X-Turnlog-User"
MAX_WAIT_SECONDS = 20.0
"""The longest pause between two tries; a service that asks for a longer one gets no second try from us."""
_RETRIED = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_SECONDS = 0.1


def _check_name(value: str) -> str:
    if not value or "/" in value:
        raise NotFoundError(f"no snapshot {value[:80]!r}")
    return value


def _check_part(value: str) -> str:
    if not value or "/" in value:
        raise NotFoundError(f"nothing is called {value[:80]!r}")
    return value


_CHECKS: dict[str, Callable[[str], object]] = {
    "session_id": check_session_id,
    "agent_id": check_agent_id,
    "job_id": check_record_id,
    "snapshot": _check_name,
    "position": _check_part,
    "memory_id": _check_part,
}


class HttpBackend:
    """`Backend` over a service at ``url`` (``http://host:port`` or ``https://host/stage``). Threads may share it.

    ``tenant`` and ``user`` are sent as headers when they are given, ``token`` as the bearer token. ``timeout_seconds`` is for
    connecting and for each wait for the answer. Keeps connections open between calls, one per concurrent call at most.
    """

    def __init__(
        self,
        url: str,
        *,
        tenant: str | None = None,
        user: str | None = None,
        token: str | None = None,
        timeout_seconds: float = 30.0,
        max_tries: int = 5,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._base = _checked_url(url)
        self._prefix = self._base.path.rstrip("/")
        self.url = f"{self._base.scheme}://{self._base.netloc}{self._prefix}"
        self._headers = {"Accept": "application/json", "User-Agent": f"turnlog-python/{__version__}"}
        for name, value in ((TENANT_HEADER, tenant), (USER_HEADER, user)):
            if value is not None:
                self._headers[name] = _header_value(name, value)
        if token is not None:
            self._headers["Authorization"] = "Bearer " + _header_value("token", token)
        self._timeout_seconds = timeout_seconds
        self._max_tries = max_tries
        self._clock = clock if clock is not None else SystemClock()
        self._ids = ids if ids is not None else RandomIds()
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        key: str | None = None,
        media_type: str | None = None,
    ) -> Any:
        route = BY_NAME[operation]
        headers = dict(self._headers)
        data: bytes | None = None
        if body is not None:
            check_json(body)
            data = encode_json(body)
            headers["Content-Type"] = media_type or JSON
        if route.writes:
            headers["Idempotency-Key"] = _header_value("key", key) if key is not None else self._ids.new_id()
        answer = self._tried(_Call(route.method, self._prefix + _target(route, path or {}, query or {}), data, headers))
        return self._parsed(route, answer)

    def run_jobs(self) -> int:
        return 0

    def download(self, url: str, into: BinaryIO) -> None:
        if urlsplit(url).scheme:
            from turnlog.client.downloads import fetch

            fetch(url, into, timeout_seconds=self._timeout_seconds)
            return
        answer = self._tried(_Call("GET", self._prefix + url, None, dict(self._headers)))
        if answer.status >= 300:
            raise error_of(answer.status, answer.json(), url=self.url, retry_after_seconds=answer.retry_after_seconds)
        into.write(answer.data)

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven:
        raise InvalidInputError(
            "a service does not redrive jobs: open its engine, sqlite:///PATH or dynamodb://TABLE?bucket=B&queue=Q",
            code="needs_engine",
        )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _tried(self, call: _Call) -> _HttpAnswer:
        """The answer of the last try, or `UnavailableError` when none came."""
        pause_seconds, tries_left = _FIRST_PAUSE_SECONDS, self._max_tries
        while True:
            tries_left -= 1
            wait_seconds = pause_seconds * (0.5 + self._ids.jitter() / 2)
            try:
                answer = self._once(call)
            except (OSError, http.client.HTTPException) as error:
                if not tries_left or isinstance(error, ssl.SSLCertVerificationError):
                    message = f"can't reach {self.url}: {_reason(error)}"
                    raise UnavailableError(message, code="unreachable") from error
            else:
                if answer.status not in _RETRIED or not tries_left:
                    return answer
                wait_seconds = max(wait_seconds, float(answer.retry_after_seconds or 0))
                if wait_seconds > MAX_WAIT_SECONDS:
                    return answer
            self._clock.sleep(wait_seconds)
            pause_seconds *= 2

    def _once(self, call: _Call) -> _HttpAnswer:
        while True:
            connection, is_used = self._take()
            try:
                connection.request(call.method, call.target, body=call.data, headers=call.headers)
                response = connection.getresponse()
                answer = _HttpAnswer(response.status, response.headers, response.read())
            except BaseException as error:
                connection.close()
                if is_used and isinstance(error, ConnectionError):
                    # The service has closed a connection that lay idle: another one, which is no further try.
                    continue
                raise
            if response.will_close:
                connection.close()
            else:
                self._give_back(connection)
            return answer

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._closed:
                raise UnavailableError("the client is closed", code="closed")
            if self._pid != os.getpid():
                # A forked child must not speak on its parent's connections.
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop(), True
        host, port = self._base.hostname or "", self._base.port
        if self._base.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_seconds), False
        return http.client.HTTPConnection(host, port, timeout=self._timeout_seconds), False

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _parsed(self, route: Route, answer: _HttpAnswer) -> Any:
        document = answer.json()
        if answer.status >= 300:
            raise error_of(answer.status, document, url=self.url, retry_after_seconds=answer.retry_after_seconds)
        if not route.answers and isinstance(document, dict):
            return document
        try:
            # From Python's objects, not from the text: pydantic's own parser refuses escaped lone surrogates, which are kept.
            return route.answers[answer.status].model_validate(document)
        except (KeyError, ValidationError) as error:
            message = f"{self.url} answered {answer.status}, but not as Turnlog does"
            raise UnavailableError(message, code="not_turnlog") from error


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    target: str
    data: bytes | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _HttpAnswer:
    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def retry_after_seconds(self) -> int | None:
        text = self.headers.get("Retry-After", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            return None


def _checked_url(url: str) -> SplitResult:
    message = f"{url!r} is not the address of a service: http://HOST[:PORT] or https://HOST[:PORT][/STAGE]"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInputError(message, code="invalid_url") from error
    has_more = parts.query or parts.fragment or parts.username is not None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or has_more or not url.isascii():
        raise InvalidInputError(message, code="invalid_url")
    return parts


def _header_value(name: str, value: str) -> str:
    """The value as a header carries it: UTF-8, seen as latin-1. What HTTP would trim or refuse is `InvalidInputError`."""
    if not value or value != value.strip() or not value.isprintable():
        raise InvalidInputError(f"{name} {value[:64]!r} is empty, begins or ends with a space, or is not printable")
    return value.encode("utf-8").decode("latin-1")


def _target(route: Route, path: Mapping[str, str], query: Mapping[str, str | int | None]) -> str:
    for name, value in path.items():
        # Before it is part of a path, where "" or "a/b" would be another route.
        _CHECKS[name](value)
    target = route.path.format(**{name: quote(value, safe="") for name, value in path.items()})
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{target}?{urlencode(given)}" if given else target


def _reason(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).lower()
