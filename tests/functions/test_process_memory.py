"""A process serves any number of sessions in bounded memory: what it holds does not grow with what it has served.

Objects that Python has allocated are counted, so nothing is timed and the count is the same on every machine.
"""

from __future__ import annotations

import gc
import logging
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.effort import is_full
from tests.http.events import event
from turnlog.engines.sqlite import SqliteDatabase
from turnlog.http.lambda_api import make_handler
from turnlog.log.commit import VERIFIED
from turnlog.routing import ROUTES
from turnlog.server.lambda_calls import LocalContext
from turnlog.sessions.session_history import WarmSessions

FEW, MANY = (2_400, 6_000) if is_full() else (2_400, 3_600)
"""Requests before the first count, and before the second. The caches are full by the first."""
CACHE_BYTES = 64 * 1024
OBJECTS_PER_REQUEST = 0.5


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Full after a few sessions. The handlers are made as those of Lambda are, of the environment."""
    monkeypatch.setenv("TURNLOG_ENGINE", "memory://")
    VERIFIED.clear()
    monkeypatch.setattr(VERIFIED, "_max_bytes", CACHE_BYTES)
    monkeypatch.setattr(WarmSessions.__init__, "__defaults__", (CACHE_BYTES,))
    monkeypatch.setattr("turnlog.search.corpus.INDEX_BYTES", CACHE_BYTES)
    yield
    VERIFIED.clear()


class Served:
    """Requests over ever new sessions. ``keep`` is what a leak would do with each."""

    def __init__(self, keep: Callable[[dict[str, Any]], None] = lambda answer: None) -> None:
        gc.freeze()  # what the process holds by now is not looked through at each count
        self._handler = make_handler(ROUTES)
        self._keep = keep
        self._sessions = 0
        self.requests = 0

    def until(self, requests: int) -> int:
        """The objects that the process holds after so many requests."""
        while self.requests < requests:
            self._sessions += 1
            self._session(f"s{self._sessions}")
        gc.collect()
        return sys.getallocatedblocks()

    def _session(self, name: str) -> None:
        path = f"/v1/sessions/{name}"
        self._call(201, "POST", "/v1/sessions", {"session_id": name, "title": f"about {name}"})
        for at, role in enumerate(("user", "assistant")):
            messages = [{"role": role, "content": f"message {at} of {name}"}]
            key = {"idempotency-key": f"{name}-{at}"}
            self._call(201, "POST", f"{path}/messages", {"messages": messages}, key)
            self._call(409, "POST", f"{path}/messages", {"messages": messages, "if_head": 0})
        self._call(200, "POST", f"{path}/context", {"budget": 8_000})
        self._call(200, "GET", f"{path}/messages")
        self._call(200, "GET", f"{path}/search", query={"q": name})
        self._call(200, "GET", "/v1/sessions")
        self._call(201, "POST", f"{path}/snapshots", {})
        self._call(404, "GET", f"{path}-that-is-not-there")
        self._call(202, "DELETE", path)

    def _call(
        self,
        status: int,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
    ) -> None:
        answer = self._handler(event(method, path, body=body, headers=headers, query=query), LocalContext(30_000))
        assert answer["statusCode"] == status, answer["body"]
        self._keep(answer)
        self.requests += 1


@pytest.mark.usefixtures("small_cache")
def test_v3_a_handler_holds_no_more_after_many_sessions_than_after_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("turnlog"), "propagate", False)  # pytest keeps each record
    served = Served()
    few = served.until(FEW)
    many = served.until(MANY)
    assert many - few < OBJECTS_PER_REQUEST * (MANY - FEW)
    assert 0 < VERIFIED.size_bytes <= CACHE_BYTES


@pytest.mark.full
@pytest.mark.usefixtures("small_cache")
def test_one_object_kept_of_each_request_would_be_seen() -> None:
    kept = list[object]()
    served = Served(lambda answer: kept.append(object()))
    few = served.until(100)
    many = served.until(500)
    assert many - few > OBJECTS_PER_REQUEST * (500 - 100)


def test_threads_that_have_ended_leave_no_connection_open(tmp_path: Path) -> None:
    """A thread for each request is a common way to serve."""
    database, used = SqliteDatabase(tmp_path / "turnlog.db"), list[sqlite3.Connection]()

    def use(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM jobs")
        used.append(connection)

    for _ in range(20):
        thread = threading.Thread(target=database.write, args=(use,))
        thread.start()
        thread.join()
    database.write(use)
    gc.collect(1)  # what is young: a worker of these tests holds millions of older objects
    assert database.open_connections == 1
    for connection in used[:-1]:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    assert used[-1].execute("SELECT 1").fetchone() == (1,)
    database.close()
    assert database.open_connections == 0
