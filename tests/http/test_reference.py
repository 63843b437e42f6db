"""The reference of the API: an example for each call that runs and makes that call."""

from __future__ import annotations

import contextlib
import http.client
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.core.errors import NotFoundError
from turnlog.engines import SystemClock
from turnlog.http.api import Api, ApiAnswer, ApiRequest
from turnlog.http.lambda_workers import make_worker
from turnlog.ports import JOB_KINDS
from turnlog.routing import ROUTES, Route, RouteTable
from turnlog.server.lambda_calls import Poller
from turnlog.server.local_server import HttpServer
from turnlog.server.pages import SERVICE, samples
from turnlog.settings import Settings

pytestmark = pytest.mark.network
PATIENCE_SECONDS = 60
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": "A17"}'}}


class Service:
    """A service on the embedded engine; ``called`` are the routes that were called, as API Gateway writes them."""

    def __init__(self) -> None:
        self.app = make_application(Settings(identity="jwt"))
        api, routes = Api(ROUTES, lambda: self.app), RouteTable(ROUTES)
        self.called = set[str]()

        def recorded(request: ApiRequest, *arguments: Any, **options: Any) -> ApiAnswer:
            answer = api.answer(request, *arguments, **options)
            result = routes.find(request.method, request.path)
            if answer.status < 400 and result is not None:
                self.called.add(result[0].key)
            return answer

        assert self.app.engine.queue is not None
        poller = Poller(self.app.engine.queue, make_worker(JOB_KINDS, self.app), clock=SystemClock())
        self._server = HttpServer(recorded, poller=poller, port=0).start()
        self.url = self._server.url

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
    assert route.key in service.called
    assert said.getvalue().strip()


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
    assert headers["X-Correlation-Id"]
    assert b"method_not_allowed" in body
    assert raw(service, method, path + "/no/such/path")[0] == 404
