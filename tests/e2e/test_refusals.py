"""What is no request of HTTP is refused in the words of all other answers, and what was sent is not in them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from turnlog.app import make_application
from turnlog.engines import SystemClock
from turnlog.server.local_server import MAX_REQUEST_BYTES, LocalServer
from turnlog.settings import Settings

pytestmark = pytest.mark.network
CANARY = "pg7XCANARY"
REQUESTS = {
    "a length that is none": (400, "malformed", f"GET /v1/health HTTP/1.1\r\nContent-Length: {CANARY}\r\n\r\n"),
    "two lengths": (400, "malformed", "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"),
    "a header without a name": (400, "malformed", f"GET / HTTP/1.1\r\n: {CANARY}\r\n\r\n"),
    "no request line": (400, "malformed", f"{CANARY}\r\n\r\n"),
    "an encoding that is unknown": (501, "malformed", f"POST / HTTP/1.1\r\nTransfer-Encoding: {CANARY}\r\n\r\n"),
    "a transfer encoding of HTTP/1.0": (400, "malformed", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a length beside chunks": (
        400,
        "malformed",
        f"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{CANARY}",
    ),
    "two users": (
        400,
        "malformed",
        f"GET /v1/sessions HTTP/1.1\r\nX-Turnlog-User: {CANARY}\r\nx-turnlog-user: b\r\n\r\n",
    ),
    "two keys": (
        400,
        "malformed",
        f"POST /v1/sessions HTTP/1.1\r\nIdempotency-Key: a\r\nHost: x\r\nIdempotency-Key: {CANARY}\r\n\r\n",
    ),
    "headers without an end": (431, "too_large", ("GET / HTTP/1.1\r\nX: " + CANARY * 30_000)[:32_768]),
    "a body that is too large": (
        413,
        "too_large",
        f"POST /v1/lint HTTP/1.1\r\nContent-Length: {MAX_REQUEST_BYTES + 1}\r\n\r\n{CANARY}",
    ),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    server = LocalServer(app, SystemClock(), port=0).start()
    yield server.url
    server.stop()
    app.close()


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_no_request_gets_a_problem_document(url: str, name: str) -> None:
    status, code, request = REQUESTS[name]
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=30) as connection:
        connection.sendall(request.encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0].split(b" ")[1] == b"%d" % status
    assert b"content-type: application/problem+json" in head.lower()
    document = json.loads(body)
    assert (document["status"], document["code"]) == (status, code) and document["request_id"]
    assert CANARY not in answer.decode()


@pytest.mark.parametrize("begin", ["5;", "0\r\nX: "], ids=["chunk", "trailer"])
def test_the_header_of_a_chunk_that_never_ends_is_refused_early(url: str, begin: str) -> None:
    """Each piece would cost what was sent before: a connection without a token kept a core busy."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=30) as connection:
        connection.sendall(f"POST /v1/sessions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{begin}".encode())
        connection.sendall(b"a" * 32_767)  # no more, for bytes that the server leaves unread reset the connection
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and b"too long" in answer


def test_who_is_refused_early_gets_the_id_of_a_request(url: str) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(f"{url}/v1/sessions", headers={"Host": "evil.example"}))
    assert json.load(refused.value)["request_id"]
