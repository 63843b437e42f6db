"""Requests at once in one process: none waits for another's, and none gets another's answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import sqlite_harness
from tests.http.events import event
from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.client.over_http import HttpBackend
from turnlog.engines import SystemClock
from turnlog.http.lambda_api import make_handler
from turnlog.ports import Item, ItemTable, Key, Page, Query
from turnlog.routing import ROUTES
from turnlog.server.lambda_calls import LocalContext
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

SECONDS = 30
"""After which a test gives up; nothing that works takes a part of it."""
Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


class SlowTable:
    """An `ItemTable` whose queries of one session take until they are let go."""

    def __init__(self, inner: ItemTable, session_id: str) -> None:
        self._inner = inner
        self._session_id = session_id
        self.asked, self.go = threading.Event(), threading.Event()

    def query(self, query: Query) -> Page:
        if query.pk.endswith(f"#{self._session_id}"):
            self.asked.set()
            assert self.go.wait(SECONDS)
        return self._inner.query(query)

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        return self._inner.get_many(keys, consistent=consistent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _asked(handler: Handler, session_id: str) -> tuple[int, dict[str, Any]]:
    made = event("GET", f"/v1/sessions/{session_id}")
    made["requestContext"]["requestId"] = f"request of {session_id}"
    answer = handler(made, LocalContext(30_000))
    return answer["statusCode"], json.loads(answer["body"])


def test_a_request_that_takes_long_keeps_no_other_waiting(tmp_path: Path) -> None:
    """One that asks a model takes seconds: `turnlog serve` and who else has the handler in threads goes on meanwhile."""
    with sqlite_harness(tmp_path) as harness, ThreadPoolExecutor(2) as threads:
        table = SlowTable(harness.app.engine.items, "slow")
        engine = replace(harness.app.engine, items=table)  # type: ignore[arg-type]
        app = Application(engine, Settings(), clock=harness.clock, ids=harness.app.ids)
        handler = make_handler(ROUTES, app)
        created = handler(event("POST", "/v1/sessions", body={"session_id": "quick"}), LocalContext(30_000))
        assert created["statusCode"] == 201
        slow = threads.submit(_asked, handler, "slow")
        try:
            assert table.asked.wait(SECONDS)
            status, answer = threads.submit(_asked, handler, "quick").result(SECONDS)
            assert (status, answer["session_id"]) == (200, "quick")
            status, answer = threads.submit(_asked, handler, "nobody").result(SECONDS)
            assert (status, answer["request_id"]) == (404, "request of nobody")
        finally:
            table.go.set()
        status, answer = slow.result(SECONDS)
        assert (status, answer["request_id"]) == (404, "request of slow")


def test_requests_of_threads_at_once_get_their_own_answers() -> None:
    handler = make_handler(ROUTES, make_application(Settings(engine="memory://")))
    names = [f"s{number}" for number in range(8)]
    for name in names:
        handler(event("POST", "/v1/sessions", body={"session_id": name}), LocalContext(30_000))
    begin = threading.Barrier(len(names))

    def ask(name: str) -> list[str]:
        begin.wait(SECONDS)
        return [_asked(handler, name)[1]["session_id"] for _ in range(10)]

    with ThreadPoolExecutor(len(names)) as threads:
        assert list(threads.map(ask, names)) == [[name] * 10 for name in names]


@pytest.mark.network
def test_clients_that_keep_their_connections_keep_no_other_out() -> None:
    """An agent of many workers has a connection for each: more than the 100 that waitress takes by itself."""
    app = make_application(Settings(engine="memory://"))
    server = LocalServer(app, SystemClock(), port=0).start()
    place = urlsplit(server.url)
    try:
        with ExitStack() as others:
            for _ in range(120):
                others.enter_context(socket.create_connection((str(place.hostname), int(place.port or 0)), SECONDS))
            with Turnlog(HttpBackend(server.url, max_tries=1, timeout_seconds=SECONDS)) as log:
                assert log.health().engine == "memory"
    finally:
        server.stop()
        app.close()
