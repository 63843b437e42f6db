"""A POST over real HTTP: which addresses are taken, what is sent, how much is read, and how long is waited."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator

import pytest

from tests.summaries.server import ModelServer, Reply
from turnlog.engines.http_post import Posted, post, web_address

pytestmark = pytest.mark.network

BODY = b'{"messages": [{"content": "a"}, {"content": "b"}]}'


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer([Reply(raw=b"0123456789")])
    yield server
    server.close()


def posted(
    server: ModelServer, *, path: str = "", content: bytes = BODY, max_bytes: int = 1_000, seconds: float = 5
) -> Posted:
    url = web_address(server.url + path)
    assert url is not None
    headers = {"X-Own": "value"}
    return post(url, content, headers, timeout_seconds=seconds, max_bytes=max_bytes)


@pytest.mark.parametrize(
    "url",
    ["http://host", "https://host", "https://host/", "http://host:1/v1", "https://host:65535/v1", "http://[::1]:80/v1"],
)
def test_an_address_has_a_host_and_may_have_a_port_and_a_path(url: str) -> None:
    parts = web_address(url)
    assert parts is not None
    assert parts.geturl() == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "//host/v1",
        "ftp://host",
        "file:///etc/passwd",
        "http://",
        "http://:80",
        "http://host:0",
        "http://host:65536",
        "http://host:port",
        "http://[::1",
        "http://ada@host",
        "http://ada:secret@host",
        "http://host?key=1",
        "http://host/v1#part",
    ],
)
def test_no_other_text_is_an_address(url: str) -> None:
    assert web_address(url) is None


@pytest.mark.parametrize(("path", "asked"), [("", "/"), ("/", "/"), ("/v1/chat", "/v1/chat")])
def test_the_path_headers_and_length_are_sent(server: ModelServer, path: str, asked: str) -> None:
    answer = posted(server, path=path)
    assert answer == Posted(200, b"0123456789", None)
    (request,) = server.asked
    assert request.path == asked
    assert request.headers["X-Own"] == "value"
    assert request.headers["Content-Length"] == str(len(BODY))
    assert request.headers["Accept-Encoding"] == "identity", "a compressed answer could not be read"


@pytest.mark.parametrize("size", [16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 100_000])
def test_a_content_of_any_size_comes_whole(server: ModelServer, size: int) -> None:
    text = "x" * (size - 2)
    posted(server, content=f'"{text}"'.encode())
    assert server.asked[0].body == text


@pytest.mark.parametrize(("max_bytes", "is_read"), [(10, True), (9, False)])
def test_an_answer_is_read_up_to_its_limit(server: ModelServer, max_bytes: int, is_read: bool) -> None:
    if is_read:
        assert posted(server, max_bytes=max_bytes).body == b"0123456789"
        return
    with pytest.raises(http.client.HTTPException, match="too long"):
        posted(server, max_bytes=max_bytes)


@pytest.mark.parametrize("size", [16 * 1024, 16 * 1024 + 1, 300_000])
def test_an_answer_of_several_reads_comes_whole(server: ModelServer, size: int) -> None:
    server.plan = [Reply(raw=bytes(index % 251 for index in range(size)))]
    assert posted(server, max_bytes=size).body == server.plan[0].raw


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("3600", 3_600),
        ("3601", 3_600),
        ("9" * 400, 3_600),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
def test_retry_after_is_taken_in_seconds_up_to_an_hour(server: ModelServer, header: str, seconds: int | None) -> None:
    server.plan = [Reply(status=503, raw=b"", headers={"Retry-After": header})]
    assert posted(server) == Posted(503, b"", seconds)


def test_a_redirect_is_an_answer_and_not_followed(server: ModelServer) -> None:
    server.plan = [Reply(status=307, raw=b"", headers={"Location": f"{server.url}/elsewhere"})]
    assert posted(server).status == 307
    assert len(server.asked) == 1


@pytest.mark.parametrize("seconds", [0, -1])
def test_without_time_nothing_is_sent(server: ModelServer, seconds: float) -> None:
    with pytest.raises(TimeoutError):
        posted(server, seconds=seconds)
    assert not server.asked


@pytest.mark.parametrize("reply", [Reply(raw=b"late", wait_seconds=60), Reply(raw=b"0" * 20_000, trickle=True)])
def test_the_time_out_is_of_the_whole_exchange(
    server: ModelServer, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the machine's clock is set back."""
    server.plan, now = [reply], time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        posted(server, seconds=0.3)
    assert time.monotonic() - started < 30, "not the 60 s of the answer"


@pytest.mark.parametrize(("timeout_seconds", "seconds"), [(0.3, 0.3), (5, 5), (20, 5)])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_is_waited_for_five_seconds_at_most(
    scheme: str, timeout_seconds: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[http.client.HTTPConnection]()

    def connect(connection: http.client.HTTPConnection) -> None:
        tried.append(connection)
        raise ConnectionRefusedError

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    monkeypatch.setattr(http.client.HTTPSConnection, "connect", connect)
    url = web_address(f"{scheme}://localhost:81/v1")
    assert url is not None
    with pytest.raises(ConnectionRefusedError):
        post(url, BODY, {}, timeout_seconds=timeout_seconds, max_bytes=10)
    (connection,) = tried
    assert (connection.timeout, connection.host, connection.port) == (seconds, "localhost", 81)
    assert isinstance(connection, http.client.HTTPSConnection) is (scheme == "https")
