"""The content that the local server works on at once: shared, exceeded by one request at a time, and given back."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.core.errors import UnavailableError
from turnlog.http.api import Api, ApiAnswer, ApiRequest
from turnlog.log.packing import pack, unpack
from turnlog.log.payloads import in_parallel
from turnlog.routing import ROUTES
from turnlog.server import local_server as server_module
from turnlog.server.admission import ContentBudget
from turnlog.server.local_server import HttpServer
from turnlog.settings import Settings

PATIENCE_SECONDS = 60


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start ``work``; its result or error is in the list when the thread has ended."""
    results = list[object]()

    def run() -> None:
        try:
            results.append(work())
        except UnavailableError as error:
            results.append(error.error_code)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_one_request_goes_beyond_the_budget_and_the_next_is_told_to_come_again() -> None:
    budget = ContentBudget(100, waiting=0, wait_seconds=0)
    with budget.request() as small, budget.request() as large, budget.request() as other:
        small(60)
        large(1_000)
        large(1_000_000)
        large(1)
        small(40)
        with pytest.raises(UnavailableError) as caught:
            other(1)
        assert (caught.value.error_code, caught.value.retry_after_seconds) == ("busy", 1)
        with pytest.raises(UnavailableError):
            small(1)
    with budget.request() as whole:
        whole(100)
        whole(1)


def test_who_waits_goes_on_when_there_is_room() -> None:
    budget = ContentBudget(100, waiting=1, wait_seconds=PATIENCE_SECONDS)

    def ask(size: int) -> int:
        with budget.request() as take:
            take(size)
        return size

    with budget.request() as large:
        with budget.request() as small:
            large(101)
            small(70)
            thread, results = in_thread(lambda: ask(50))
            while budget.waiting_left:
                assert thread.is_alive()
            assert in_thread(lambda: ask(50))[0].join(PATIENCE_SECONDS) is None, "one waits, no second may"
            assert results == []
        thread.join(PATIENCE_SECONDS)
        assert results == [50], "room within the budget"
    assert budget.free_bytes == 100 and budget.waiting_left == 1


def test_who_waits_too_long_is_told_to_come_again() -> None:
    budget = ContentBudget(100, waiting=1, wait_seconds=0.01)
    with budget.request() as large, budget.request() as other:
        large(101)
        other(100)
        with pytest.raises(UnavailableError, match="try again"):
            other(1)


def test_all_is_given_back_after_an_error() -> None:
    budget = ContentBudget(100, waiting=0, wait_seconds=0)
    for size in (50, 101):
        with pytest.raises(RuntimeError), budget.request() as take:
            take(size)
            raise RuntimeError
        with budget.request() as take:
            take(50)
            take(101)
    assert budget.free_bytes == 100


def test_what_is_unpacked_counts_in_every_thread_of_the_request_and_nowhere_else() -> None:
    budget = ContentBudget(1_000_000, waiting=0, wait_seconds=0)
    packed = pack(b"x" * 10_000)
    assert len(packed) < 100
    with budget.request():
        unpack(packed, item="a")
        in_parallel(lambda item: unpack(packed, item=item), ["b", "c", "d"], threads=2)
        assert budget.free_bytes == 1_000_000 - 40_000
    unpack(packed, item="e")
    assert budget.free_bytes == 1_000_000


def test_what_is_read_again_from_memory_counts_again() -> None:
    budget = ContentBudget(1_000_000, waiting=0, wait_seconds=0)
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        session.append({"role": "user", "content": "x" * 10_000})
        for _ in range(2):
            with budget.request():
                assert len(list(session.messages())) == 1
                assert budget.free_bytes < 1_000_000 - 10_000


@pytest.mark.network
def test_large_bodies_are_served_one_beyond_the_budget_and_small_requests_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "_WAIT_SECONDS", 0.05)
    app = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    api, entered, goes_on = Api(ROUTES, lambda: app), threading.Semaphore(0), threading.Event()

    def slow(request: ApiRequest, *arguments: Any, **options: Any) -> ApiAnswer:
        if len(request.body) > 1_000_000:
            entered.release()
            assert goes_on.wait(PATIENCE_SECONDS)
        return api.answer(request, *arguments, **options)

    server = HttpServer(slow, port=0)
    port = urlsplit(server.start().url).port

    def ask(method: str, path: str, body: str | None = None) -> tuple[int, str | None, Any]:
        with closing(http.client.HTTPConnection("127.0.0.1", port or 0, timeout=PATIENCE_SECONDS)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Retry-After"), json.loads(answer.read())

    large = json.dumps("x" * 3_000_000)
    try:
        begun = [in_thread(lambda: ask("POST", "/v1/lint", large)) for _ in range(2)]
        for _ in begun:
            assert entered.acquire(timeout=PATIENCE_SECONDS)
        for _ in range(3):
            status, retry_after, problem = ask("POST", "/v1/lint", large)
            assert (status, retry_after, problem["code"]) == (503, "1", "busy")
        assert ask("POST", "/v1/sessions", '{"session_id": "s"}')[0] == 201
        assert ask("GET", "/v1/sessions/s")[0] == 200
        goes_on.set()
        for thread, results in begun:
            thread.join(PATIENCE_SECONDS)
            assert isinstance(results[0], tuple) and results[0][0] == 422
        assert ask("POST", "/v1/lint", large)[0] == 422
    finally:
        goes_on.set()
        server.stop()
        app.close()
