"""`turnlog serve` against web pages in a browser of the same machine: DNS rebinding, and requests of other sites."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from turnlog.app import Application, make_application
from turnlog.core.errors import InvalidInputError
from turnlog.core.identity import Owner
from turnlog.engines import SystemClock
from turnlog.routing import ROUTES, Route
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

pytestmark = pytest.mark.network
SECRET = "pg9XSECRET"
PAGES = {
    "cross-site": ("Origin: https://evil.example", "Sec-Fetch-Site: cross-site"),
    "an old browser": ("Origin: https://evil.example",),
    "a link": ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),
    "a sandboxed frame": ("Origin: null", "Sec-Fetch-Site: cross-site"),
    "an opaque origin": ("Origin: null",),
    "another port of this machine": ("Origin: http://127.0.0.1:3000", "Sec-Fetch-Site: same-site"),
    "another name of this machine": ("Origin: http://localhost:{port}",),
    "another scheme": ("Origin: ftp://127.0.0.1:{port}",),
    "two origins": ("Origin: http://127.0.0.1:{port}", "Origin: https://evil.example"),
    "an empty origin": ("Origin:",),
    "an origin with a path": ("Origin: http://127.0.0.1:{port}/",),
    "an origin with a user": ("Origin: http://127.0.0.1:{port}@evil.example",),
    "two sites": ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"),
    "an unknown site": ("Sec-Fetch-Site: somewhere",),
}


class Service:
    """A server with one session, ``mine``; `ask` sends lines as they are."""

    def __init__(self, **options: Any) -> None:
        self.app: Application = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
        self._server = LocalServer(self.app, SystemClock(), port=0, **options).start()
        self.port = urlsplit(self._server.url).port or 0
        self.ask(
            "POST /v1/sessions", "Content-Type: application/json", body='{"session_id":"mine","title":"pg9XSECRET"}'
        )

    def ask(self, line: str, *headers: str, host: str | None = "127.0.0.1:{port}", body: str = "") -> tuple[int, str]:
        """Return status and body of the answer."""
        named = [] if host is None else [f"Host: {host}"]
        length = [f"Content-Length: {len(body)}"] if body or line.startswith("POST") else []
        lines = [f"{line} HTTP/1.1", *named, *headers, *length, "Connection: close", "", body]
        text = "\r\n".join(lines).replace("{port}", str(self.port))
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(text.encode("latin-1"))
            answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
        head, _, content = answer.partition("\r\n\r\n")
        return int(head.split(" ", 2)[1]) if head else 0, content

    def refused(self, *arguments: Any, **options: Any) -> tuple[int, str]:
        """Return status and code of a refusal that tells nothing of the session."""
        status, content = self.ask(*arguments, **options)
        assert SECRET not in content
        document = json.loads(content)
        assert document["status"] == status and document["detail"]
        return status, document["code"]

    def state(self) -> object:
        """Return what a request could have changed."""
        return [
            (session.session_id, session.title, session.head, session.status)
            for session in self.app.list_sessions(Owner.of("local", "me")).sessions
        ]

    def close(self) -> None:
        self._server.stop()
        self.app.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def request_line(route: Route) -> str:
    return f"{route.method} {re.sub('{.*?}', 'mine', route.path)}"


@pytest.mark.parametrize("headers", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize(
    "line", ["GET /v1/sessions", "POST /v1/sessions/mine/reset", "GET /docs", "DELETE /v1/sessions/mine"]
)
def test_a_page_of_another_origin_is_refused(service: Service, line: str, headers: tuple[str, ...]) -> None:
    before = service.state()
    assert service.refused(line, *headers) == (403, "cross_site")
    assert service.state() == before


@pytest.mark.parametrize(
    "line", [*map(request_line, ROUTES), "GET /docs", "GET /nowhere", "OPTIONS /v1/sessions", "OPTIONS *", "PUT /docs"]
)
def test_no_route_answers_a_page_of_another_site_or_a_rebound_name(service: Service, line: str) -> None:
    before = service.state()
    body = '{"messages": [{"role": "user", "content": "planted"}]}' if line.startswith("P") else ""
    for content in {body, ""}:
        assert service.refused(line, *PAGES["cross-site"], body=content) == (403, "cross_site")
        assert service.refused(line, *PAGES["an old browser"], body=content) == (403, "cross_site")
        page = ("Origin: http://evil.example:{port}", "Sec-Fetch-Site: same-origin")
        assert service.refused(line, *page, host="evil.example:{port}", body=content) == (403, "host_not_allowed")
    assert service.state() == before


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "localhost..",
        "127.0.0.1:{port}@evil.example",
        "evil.example, 127.0.0.1",
        "127.0.0.1, evil.example",
        "127.0.0.1 evil.example",
        "[::1].evil.example",
        "[::2]",
        "::1",
        "0.0.0.0",  # noqa: S104 - refused is what is tested
        "192.0.2.1:{port}",
        "localhost:port",
        "127.0.0.1:{port}:1",
        "",
        ":{port}",
        ".",
        None,
    ],
)
def test_a_host_that_is_not_loopback_is_refused(service: Service, host: str | None) -> None:
    assert service.refused("GET /v1/sessions", host=host) == (403, "host_not_allowed")


def test_two_hosts_are_refused(service: Service) -> None:
    for first, second in (("127.0.0.1", "evil.example"), ("evil.example", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")):
        assert service.refused("GET /v1/sessions", f"Host: {second}", host=first) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:80",
        "127.9.8.7",
        "localhost",
        "LocalHost:{port}",
        "localhost.",
        "localhost.:{port}",
        "[::1]:{port}",
        "[0:0:0:0:0:0:0:1]",
    ],
)
def test_every_name_of_loopback_is_answered(service: Service, host: str) -> None:
    status, content = service.ask("GET /v1/sessions", host=host)
    assert status == 200 and SECRET in content


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/v1/sessions",
        "http://evil.example:80/docs",
        "https://x@127.0.0.1/v1/sessions",
        "x:///v1/sessions",
    ],
)
def test_a_target_that_names_another_host_is_refused(service: Service, target: str) -> None:
    assert service.refused(f"GET {target}") == (403, "host_not_allowed")


def test_a_target_that_names_loopback_is_answered_and_one_that_is_none_is_malformed(service: Service) -> None:
    assert service.ask("GET http://localhost:{port}/v1/sessions")[0] == 200
    assert service.ask("OPTIONS *")[0] == 404
    assert service.refused("GET http://[evil/v1/sessions") == (400, "malformed")
    assert service.ask("GET //evil.example/v1/sessions")[0] == 404


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST.:{port}", "[::1]:{port}"])
def test_a_page_of_the_server_itself_and_an_address_bar_are_answered(service: Service, host: str) -> None:
    page = (f"Origin: http://{host}", "Sec-Fetch-Site: same-origin")
    assert service.ask("GET /v1/sessions", *page, host=host)[0] == 200
    assert service.ask("GET /docs", "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", host=host)[0] == 200
    assert service.ask("GET /v1/openapi.json", "Sec-Fetch-Site: same-origin", host=host)[0] == 200


def test_default_ports_are_left_out_of_origins(service: Service) -> None:
    assert service.ask("GET /v1/sessions", "Origin: http://localhost", host="localhost:80")[0] == 200
    assert service.ask("GET /v1/sessions", "Origin: https://localhost", host="localhost")[0] == 200
    assert service.refused("GET /v1/sessions", "Origin: https://localhost", host="localhost:80") == (403, "cross_site")


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.body is not None or route.free_body], ids=request_line
)
@pytest.mark.parametrize(
    "kind",
    [
        (),
        ("Content-Type:",),
        ("Content-Type: text/plain",),
        ("Content-Type: application/x-www-form-urlencoded",),
        ("Content-Type: application/json", "Content-Encoding: gzip"),
    ],
)
def test_a_body_needs_its_content_type_on_every_route(service: Service, route: Route, kind: tuple[str, ...]) -> None:
    before = service.state()
    assert service.refused(request_line(route), *kind, body='{"position": 1}') == (415, "unsupported_media_type")
    assert service.state() == before


def test_names_that_an_option_allows_are_answered() -> None:
    service = Service(allowed_hosts=("Agents.example", "10.0.0.7", "fe80::1%eth0", "[fe80::2]"))
    try:
        names = (
            "agents.example",
            "AGENTS.EXAMPLE.:{port}",
            "10.0.0.7:8787",
            "[fe80::1]",
            "[fe80::2]",
            "127.0.0.1:{port}",
        )
        for host in names:
            assert service.ask("GET /v1/sessions", host=host)[0] == 200
        assert service.ask("GET /docs", "Origin: https://agents.example", host="agents.example")[0] == 200
        assert service.refused("GET /docs", host="other.example") == (403, "host_not_allowed")
        assert service.refused("GET /docs", "Origin: https://other.example", host="agents.example") == (
            403,
            "cross_site",
        )
    finally:
        service.close()


def test_a_page_is_refused_with_a_token_too() -> None:
    service = Service(token="t")
    try:
        assert service.refused("GET /v1/sessions", "Authorization: Bearer t", *PAGES["cross-site"]) == (
            403,
            "cross_site",
        )
        assert service.refused("GET /v1/sessions") == (401, "unauthorized")
        assert service.ask("GET /v1/sessions", "Authorization: Bearer t")[0] == 200
    finally:
        service.close()


@pytest.mark.parametrize("name", ["", "*", "a b", "http://agents.example", "agents.example:80", "a/b", "[::1", "a,b"])
def test_what_is_no_host_is_not_allowed(name: str) -> None:
    app = make_application(Settings(engine="memory://"))
    try:
        with pytest.raises(InvalidInputError, match="host name or address"):
            LocalServer(app, SystemClock(), port=0, allowed_hosts=(name,))
    finally:
        app.close()
