"""The reference of the API: an example for each call that runs and makes that call; a page that needs nothing else."""

from __future__ import annotations

import contextlib
import http.client
import io
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.core.errors import NotFoundError
from turnlog.engines import SystemClock
from turnlog.http.api import ApiAnswer, ApiRequest
from turnlog.routing import ROUTES, Route, RouteTable
from turnlog.server.api_page import SERVICE, samples
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

pytestmark = pytest.mark.network
PATIENCE_SECONDS = 60
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": "A17"}'}}


class Service:
    """A service on the embedded engine; ``called`` are the routes that were called, as API Gateway writes them."""

    def __init__(self) -> None:
        self.app = make_application(Settings(identity="jwt"))
        server = LocalServer(self.app, SystemClock(), port=0)
        answer_of, routes = server._answer_of, RouteTable(ROUTES)
        self.called = set[str]()

        def recorded(request: ApiRequest, *arguments: Any, **options: Any) -> ApiAnswer:
            answer = answer_of(request, *arguments, **options)
            found = routes.find(request.method, request.path)
            if answer.status < 400 and found is not None:
                self.called.add(f"{found[0].method} {found[0].path}")
            return answer

        server._answer_of = recorded  # type: ignore[method-assign, assignment]
        self._server = server.start()
        self.url = server.url

    def close(self) -> None:
        self._server.stop()
        self.app.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def prepared(log: Turnlog, name: str) -> None:
    """What the examples find: the session support-42, and for memories something that is known."""
    session = log.sessions.create("support-42")
    session.append({"role": "user", "content": "Where is my order A17?"})
    session.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
    session.append({"role": "tool", "tool_call_id": "c1", "content": '{"due": "2026-03-12"}'})
    session.append({"role": "assistant", "content": "It is due on 12 March."})
    for at in range(4):
        text = f"Order A{at} " + "goes to another address. " * 40
        session.append({"role": "user", "content": text}, {"role": "assistant", "content": "It is noted."})
    if "memor" in name:
        trip = log.sessions.create("trip-7")
        trip.append({"role": "user", "content": "I live in Lisbon. I prefer an aisle seat."})
        trip.append({"role": "assistant", "content": "Noted."})
        trip.end()
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not list(log.memory()):
            assert time.monotonic() < ends_at
            time.sleep(0.02)


def test_every_call_has_an_example_and_there_is_no_other() -> None:
    assert sorted(samples()) == sorted(route.name for route in ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_an_example_runs_and_makes_its_call(
    service: Service, route: Route, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each for a person of its own."""
    with Turnlog.open(service.url, user=route.name) as log:
        prepared(log, route.name)
    monkeypatch.chdir(tmp_path)
    text = samples()[route.name]
    assert SERVICE in text
    text = text.replace(f'open("{SERVICE}")', f'open("{service.url}", user="{route.name}")')
    service.called.clear()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text.replace(SERVICE, service.url), route.name, "exec"), {})  # noqa: S102 - ours
    assert f"{route.method} {route.path}" in service.called
    assert said.getvalue().strip()


# ------------------------------------------------------------ the page


class Page(HTMLParser):
    """Ids, links and addresses of a page, and the text of each section."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loaded = list[str](), list[str](), list[str]()
        self.sections, self._open = dict[str, str](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [one for one in [given.get("id")] if one]
        self.links += [one for one in [given.get("href")] if tag == "a" and one]
        self.loaded += [one for name in ("src", "srcset", "data", "action") if (one := given.get(name))]
        self.loaded += [str(given.get("href"))] if tag == "link" else []
        if tag == "section":
            self._open = str(given["id"])
            self.sections[self._open] = ""

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == "section" else self._open

    def handle_data(self, data: str) -> None:
        if self._open:
            self.sections[self._open] += data


def served(service: Service, method: str = "GET", path: str = "/docs") -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read().decode()


def test_the_page_tells_of_every_call_its_fields_answers_and_example(service: Service) -> None:
    answer, text = served(service)
    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    page = Page(text)
    assert set(page.ids) >= {route.name for route in ROUTES} and len(page.ids) == len(set(page.ids))
    for route in ROUTES:
        told = page.sections[route.name]
        assert route.path in told and route.summary in told and samples()[route.name] in told
        for parameter in route.parameters:
            assert parameter.name in told and parameter.description.replace("`", "") in told
        for model in [*([route.body] if route.body is not None else []), *route.answers.values()]:
            assert model.__name__ in told
            fields = page.sections[f"schema-{model.__name__}"]
            assert [name for name, one in model.model_fields.items() if (one.alias or name) not in fields] == []
        for status in (*route.answers, 400, 401, 404, 409, 422, 429, 503):
            assert str(status) in told


def test_the_page_needs_nothing_from_elsewhere_and_its_links_lead_somewhere(service: Service) -> None:
    page = Page(served(service)[1])
    assert page.loaded == []
    inner = [one for one in page.links if one.startswith("#")]
    assert set(page.links) - set(inner) == {"/v1/openapi.json"}
    assert {one[1:] for one in inner} <= set(page.ids)
    assert served(service, path="/v1/openapi.json")[0].status == 200
    assert "default-src 'none'" in str(served(service)[0].getheader("Content-Security-Policy"))


def test_the_page_asks_for_no_token_and_is_no_route(service: Service) -> None:
    guarded = LocalServer(service.app, SystemClock(), port=0, token="t").start()
    try:
        connection = http.client.HTTPConnection(guarded.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            statuses = []
            for path in ("/docs", "/v1/sessions"):
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)
    finally:
        guarded.stop()
    assert statuses == [200, 401]
    assert served(service, "HEAD")[1] == "" and served(service, "POST")[0].status == 404


@pytest.mark.parametrize("memory_id", ["", "a/b"])
def test_what_would_be_another_route_is_no_memory_s_id(service: Service, memory_id: str) -> None:
    service.called.clear()
    with Turnlog.open(service.url, user="nobody") as log, pytest.raises(NotFoundError):
        log.forget(memory_id)
    assert not service.called


def raw(service: Service, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_the_root_says_what_this_is_and_links_the_reference(service: Service) -> None:
    status, headers, page = raw(service, "GET", "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"Turnlog" in page and b'href="/docs"' in page
    assert raw(service, "HEAD", "/")[2] == b""
    status, headers, _ = raw(service, "GET", "/docs/")
    assert (status, headers["Location"]) == (308, "/docs")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/sessions", {"GET", "HEAD", "POST"}),
        ("PUT", "/v1/sessions/s/messages", {"GET", "HEAD", "POST"}),
        ("GET", "/v1/sessions/s/context", {"POST"}),
    ],
)
def test_another_method_of_a_known_path_is_405_with_those_allowed(
    service: Service, method: str, path: str, allowed: set[str]
) -> None:
    status, headers, body = raw(service, method, path)
    assert (status, set(headers["Allow"].split(", "))) == (405, allowed)
    assert b"method_not_allowed" in body
    assert raw(service, method, path + "/no/such/path")[0] == 404
