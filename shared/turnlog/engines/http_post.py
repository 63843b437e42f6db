"""A POST request with a time-out for the whole exchange, with the standard library only.

No redirect is followed and no proxy is used: keys and contents go to the given address and nowhere else. A server that sends a byte
now and then can't extend the time-out.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import seconds_left
from turnlog.ports import Clock

_CHUNK_BYTES = 16 * 1024
_CONNECT_SECONDS = 5.0
_MAX_RETRY_AFTER_SECONDS = 3_600


@lazy_dataclass(frozen=True, slots=True)
class Posted:
    """A server's answer. ``retry_after_seconds`` is its Retry-After header in seconds; a date there is ignored."""

    status: int
    body: bytes
    retry_after_seconds: int | None


def web_address(url: str) -> SplitResult | None:
    """Return the parts of an http or https address with a host and without user, query and fragment; None for any other text."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    is_plain = not (parts.query or parts.fragment or parts.username)
    return parts if parts.scheme in ("http", "https") and has_host and is_plain else None


def post(
    url: SplitResult,
    content: bytes,
    headers: Mapping[str, str],
    *,
    timeout_seconds: float,
    clock: Clock,
    max_bytes: int,
) -> Posted:
    """Send a POST request and return the answer.

    Raises:
        TimeoutError: No answer within ``timeout_seconds`` or before the deadline of the current call.
        OSError: No connection, or no answer.
        http.client.HTTPException: No readable answer, or one longer than ``max_bytes``.
    """
    timeout_seconds = min(timeout_seconds, seconds_left())
    if timeout_seconds <= 0:
        raise TimeoutError
    ends_ms = clock.now_ms() + round(timeout_seconds * 1000)
    connection = _connection(url, timeout_seconds)

    def allow() -> None:
        left = (ends_ms - clock.now_ms()) / 1000
        if left <= 0:
            raise TimeoutError
        connection.sock.settimeout(left)

    try:
        connection.connect()
        connection.putrequest("POST", url.path or "/", skip_accept_encoding=True)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            connection.putheader(name, value)
        allow()
        connection.endheaders()
        for start in range(0, len(content), _CHUNK_BYTES):
            allow()
            connection.send(content[start : start + _CHUNK_BYTES])
        return _answer(connection, allow, max_bytes)
    finally:
        connection.close()


def _answer(connection: http.client.HTTPConnection, allow: Callable[[], None], max_bytes: int) -> Posted:
    response = http.client.HTTPResponse(TimedSocket(connection.sock, allow), method="POST")  # type: ignore[arg-type]
    with response:
        response.begin()
        body = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > max_bytes:
                raise http.client.HTTPException("the answer is too long")
        return Posted(response.status, bytes(body), _seconds(response.getheader("Retry-After")))


class TimedSocket:
    """A socket for `HTTPResponse`. Before every read it calls ``allow``, which sets the socket's time-out to the time left."""

    def __init__(self, sock: socket.socket, allow: Callable[[], None]) -> None:
        self._sock = sock
        self._allow = allow

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self._sock, self._allow))


class _TimedReads(io.RawIOBase):
    def __init__(self, sock: socket.socket, allow: Callable[[], None]) -> None:
        # A separate file on the socket: the connection may close the socket when it has read the head.
        self._raw = sock.makefile("rb", buffering=0)
        self._allow = allow

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._allow()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _connection(url: SplitResult, timeout_seconds: float) -> http.client.HTTPConnection:
    host, port, seconds = str(url.hostname), url.port, min(_CONNECT_SECONDS, timeout_seconds)
    if url.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=seconds)
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())


def _seconds(retry_after: str | None) -> int | None:
    if retry_after is None or not retry_after.isascii() or not retry_after.isdigit():
        return None
    return min(int(retry_after[:6]), _MAX_RETRY_AFTER_SECONDS)
