"""A POST request with a time-out for the whole exchange, with the standard library only.

No redirect is followed and no proxy is used: keys and contents go to the given address and nowhere else. A server that sends a byte
now and then can't extend the time-out.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from turnlog import __version__
from turnlog.core.errors import ThrottledError, TurnlogError, UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import seconds_left

_CHUNK_BYTES = 16 * 1024
_CONNECT_SECONDS = 5.0
_MAX_RETRY_AFTER_SECONDS = 3_600
_PASSING = frozenset({408, 409, 425})
MAX_REPLY_BYTES = 4 * 1024 * 1024
HEADERS = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": f"turnlog/{__version__}"}
"""Headers of a request whose content is JSON, as is its answer."""


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
    is_plain = not (parts.query or parts.fragment or parts.username is not None)
    return parts if parts.scheme in ("http", "https") and has_host and is_plain else None


def post(
    url: SplitResult, content: bytes, headers: Mapping[str, str], *, timeout_seconds: float, max_bytes: int
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
    ends = time.monotonic() + timeout_seconds
    connection = open_connection(url, timeout_seconds=min(_CONNECT_SECONDS, timeout_seconds))

    def left_seconds() -> float:
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    try:
        with send(connection, "POST", url.path or "/", headers, content, left_seconds) as response:
            body = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > max_bytes:
                    raise http.client.HTTPException("the answer is too long")
            return Posted(response.status, bytes(body), _seconds(response.getheader("Retry-After")))
    finally:
        connection.close()


@lazy_dataclass(frozen=True, slots=True)
class Receiver:
    """The receiver of POST requests, and its errors. ``name`` is for their texts, which repeat nothing of a body.

    ``misconfigured`` is the error for a status that a retry can't fix, which its details have as ``status_field``. ``timed_out`` is
    the error code if no answer comes in time.
    """

    name: str
    misconfigured: type[TurnlogError]
    status_field: str
    timed_out: str

    def post(self, url: SplitResult, content: bytes, headers: Mapping[str, str], *, timeout_seconds: float) -> Posted:
        """Send a POST request and return the answer. Raises `UnavailableError` when there is none."""
        try:
            return post(url, content, headers, timeout_seconds=timeout_seconds, max_bytes=MAX_REPLY_BYTES)
        except TimeoutError:
            raise UnavailableError(f"{self.name} gave no answer in time", code=self.timed_out) from None
        except (OSError, http.client.HTTPException) as error:
            # An untrusted certificate too is an outage: once it is repaired, no setting needs to change.
            raise UnavailableError(f"{self.name} gave no answer: {type(error).__name__}") from None

    def refused(self, posted: Posted) -> TurnlogError:
        """Return the error for an answer's status."""
        status, seconds = posted.status, posted.retry_after_seconds
        if status == 429:
            return ThrottledError(f"{self.name} was throttled", retry_after_seconds=seconds)
        if status in _PASSING or status >= 500:
            return UnavailableError(f"{self.name} answered {status}", retry_after_seconds=seconds)
        return self.misconfigured(f"{self.name} answered {status}", details={self.status_field: status})


def open_connection(
    url: SplitResult, *, timeout_seconds: float | None = None, context: ssl.SSLContext | None = None
) -> http.client.HTTPConnection:
    """Return a connection to an address, which connects at its first request."""
    host, port = str(url.hostname), url.port
    if url.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    return http.client.HTTPSConnection(
        host, port, timeout=timeout_seconds, context=context or ssl.create_default_context()
    )


def send(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    content: bytes | None,
    left_seconds: Callable[[], float],
) -> http.client.HTTPResponse:
    """Send a request and return the answer, whose body is to be read. Values of headers are sent as UTF-8.

    Each write and each read may take ``left_seconds()``, which raises `TimeoutError` when the time is over.
    """
    if connection.sock is None:
        connection.connect()
    sock = connection.sock  # the connection forgets it when the answer is the last one

    def allow() -> None:
        sock.settimeout(left_seconds())

    def response(sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        timed: Any = SimpleNamespace(makefile=lambda _mode: io.BufferedReader(_TimedReads(sock, allow)))
        return http.client.HTTPResponse(timed, **options)

    connection.response_class = response  # type: ignore[assignment]
    connection.putrequest(method, target)
    for name, value in headers.items():
        connection.putheader(name, value.encode("utf-8"))
    if content is not None:
        connection.putheader("Content-Length", str(len(content)))
    allow()
    connection.endheaders()
    for start in range(0, len(content or b""), _CHUNK_BYTES):
        allow()
        connection.send((content or b"")[start : start + _CHUNK_BYTES])
    return connection.getresponse()


class _TimedReads(io.RawIOBase):
    """Reads from a socket. Before every read it calls ``allow``, which sets the socket's time-out to the time left."""

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


def _seconds(retry_after: str | None) -> int | None:
    if retry_after is None or not retry_after.isascii() or not retry_after.isdigit():
        return None
    return min(int(retry_after[:6]), _MAX_RETRY_AFTER_SECONDS)
