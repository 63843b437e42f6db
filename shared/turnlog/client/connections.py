"""HTTP connections to one service: reused between calls, each exchange with a time limit. Standard library only."""

from __future__ import annotations

import functools
import http.client
import json
import os
import ssl
import threading
import weakref
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult

from turnlog.core.errors import UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.engines.http_post import open_connection, send
from turnlog.ports import Clock

_BODIES = frozenset({"POST", "PUT", "PATCH"})


@lazy_dataclass(frozen=True, slots=True)
class HttpCall:
    """A request. Values of headers are text, sent as UTF-8."""

    method: str
    target: str
    data: bytes | None
    headers: Mapping[str, str]


@lazy_dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def retry_after_seconds(self) -> int | None:
        """Seconds of the ``Retry-After`` header; None without one, or when it is a date."""
        text = self.headers.get("Retry-After", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    def json(self) -> Any:
        """Return the body as JSON, or None when it is not JSON."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            return None


class Connections:
    """Connections to one host, at most one per concurrent exchange. Threads may share it; a forked child opens its own.

    ``timeout_seconds`` limits connecting and each wait. Redirects are not followed and proxies are not used.
    """

    def __init__(self, base: SplitResult, *, timeout_seconds: float, clock: Clock) -> None:
        self._base = base
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._idle: list[http.client.HTTPConnection] = []
        self._context: ssl.SSLContext | None = None
        self._closed = False
        self.forget()
        _ALL.add(self)

    def exchange(self, call: HttpCall, ends_ms: int | None) -> HttpAnswer:
        """Send a request and return the answer, before the time ``ends_ms``.

        Raises `OSError` (`TimeoutError` when the time is over) or `HTTPException` when there is no answer.
        """
        content = call.data or (b"" if call.method in _BODIES else None)
        left_seconds = functools.partial(self.left_seconds, ends_ms)
        while True:
            connection, is_used = self._take()
            try:
                connection.timeout = left_seconds()
                if connection.sock is None:
                    _connect(connection)
                with send(connection, call.method, call.target, call.headers, content, left_seconds) as response:
                    answer = HttpAnswer(response.status, response.headers, response.read())
            except BaseException as error:
                connection.close()
                if is_used and isinstance(error, ConnectionError):
                    # The service closed an idle connection. A new one is opened; this does not count as a try.
                    continue
                raise
            if response.will_close:
                connection.close()
            else:
                self._give_back(connection)
            return answer

    def close(self) -> None:
        """Close idle connections, and each other connection when its exchange ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def forget(self) -> None:
        """Drop all connections, in a forked child: it must not use its parent's connections, nor a lock that a thread of its
        parent holds.
        """
        self._lock = threading.Lock()
        self._idle = []

    def left_seconds(self, ends_ms: int | None) -> float:
        """Return how long a wait may take before the time ``ends_ms``. Raises `TimeoutError` when the time is over."""
        if ends_ms is None:
            return self._timeout_seconds
        left = (ends_ms - self._clock.now_ms()) / 1000
        if left <= 0:
            raise TimeoutError
        return min(left, self._timeout_seconds)

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return an idle connection, or a new one, and whether it was used before."""
        with self._lock:
            if self._closed:
                raise UnavailableError("the client is closed", code="closed")
            if self._idle:
                return self._idle.pop(), True
            if self._base.scheme == "https" and self._context is None:
                self._context = ssl.create_default_context()
        return open_connection(self._base, context=self._context), False

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def _connect(connection: http.client.HTTPConnection) -> None:
    """Connect. Raises `ssl.SSLError` when the host answers and the TLS handshake fails, also by a time-out."""
    try:
        connection.connect()
    except OSError as error:
        if connection.sock is None or isinstance(error, ssl.SSLCertVerificationError):
            raise
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the TLS handshake failed: does the port speak https?") from error


_ALL: weakref.WeakSet[Connections] = weakref.WeakSet()


def _forget_all() -> None:
    for connections in _ALL:
        connections.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
