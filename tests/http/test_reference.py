"""The reference of the API: an example for each call that runs and makes that call, and a page that needs nothing from elsewhere."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.adapters.system import SystemClock
from turnlog.bootstrap import make_application
from turnlog.entrypoints.routes import ROUTES, Route
from turnlog.local.reference.samples import SERVICE, samples
from turnlog.local.server import LocalServer
from turnlog.settings import Settings

pytestmark = pytest.mark.network
PATIENCE_SECONDS = 60
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": "A17"}'}}


class Service:
    """A service on the embedded engine; ``called`` are the routes that were called, as API Gateway writes them."""

    def __init__(self) -> None:
        self._app = make_application(Settings(identity="jwt"))
        server = LocalServer(self._app, SystemClock(), port=0)
        handler = server._handler
        self.called = set[str]()

        def recorded(event: dict[str, Any], context: Any) -> dict[str, Any]:
            answer = handler(event, context)
            if answer["statusCode"] < 400:
                self.called.add(event["routeKey"])
            return answer

        server._handler = recorded
        self._server = server.start()
        self.url = server.url

    def close(self) -> None:
        self._server.stop()
        self._app.close()


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
    session.append({"role": "user", "content": "Thanks"}, {"role": "assistant", "content": "You are welcome."})
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
        exec(compile(text.replace(SERVICE, service.url), route.name, "exec"), {})
    assert f"{route.method} {route.path}" in service.called
    assert said.getvalue().strip()
