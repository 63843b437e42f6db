"""The worker of `turnlog serve`: it does the jobs of the file, also those of other processes, until the server stops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.talks import filled
from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import UnavailableError
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.server.local_server import LocalServer, ServerWorker
from turnlog.settings import Settings

PATIENCE_SECONDS = 60


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Application]:
    made = make_application(Settings(engine=f"sqlite:///{tmp_path / 'agent.db'}", identity="jwt"))
    yield made
    made.close()


@pytest.fixture
def worker(app: Application) -> Iterator[ServerWorker]:
    made = ServerWorker(app)
    yield made
    made.stop(start_seconds=0.0)


def eventually(is_so: Callable[[], object]) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def queued(app: Application, session_id: str = "s") -> Turnlog:
    """Return the log of an owner who has queued a job, without a worker of the owner's own."""
    log = Turnlog(InProcessBackend(app, Owner.of("local", "me")))
    filled(log, 5, session_id).compress(mode="async")
    return log


def with_engine(app: Application, **changes: Any) -> Application:
    """Return an application over the same engine with other functions."""
    engine: Engine = replace(app.engine, **changes)
    return Application(engine, app.settings, clock=app.clock, ids=app.ids)


@pytest.mark.network
def test_a_request_wakes_it_and_what_another_process_queues_is_done_too(app: Application, tmp_path: Path) -> None:
    server = LocalServer(app, port=0).start()
    try:
        with Turnlog.open(server.url) as log:
            job = filled(log, 5).compress(mode="async")
            eventually(lambda: log.job(job.job_id).status == "done")
        with Turnlog.open(tmp_path / "agent.db", worker=False) as other:
            job = filled(other, 5, "other").compress(mode="async")
            eventually(lambda: other.job(job.job_id).status == "done")
    finally:
        server.stop()
    assert "turnlog-worker" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.network
@pytest.mark.parametrize("options", [{"worker": False}, {"read_only": True}])
def test_without_a_worker_jobs_wait(app: Application, options: dict[str, bool]) -> None:
    log = queued(app)
    server = LocalServer(app, port=0, **options).start()
    try:
        with Turnlog.open(server.url) as client:
            assert client.sessions.get("s").info().loops == 5
    finally:
        server.stop()
    assert [job.status for job in log.jobs()] == ["queued"]


def test_an_idle_server_looks_once_a_second(app: Application) -> None:
    times, next_job_ms = list[float](), app.engine.next_job_ms
    assert next_job_ms is not None

    def look() -> int | None:
        times.append(time.monotonic())
        return next_job_ms()

    worker = ServerWorker(with_engine(app, next_job_ms=look))
    worker.start()
    try:
        eventually(lambda: len(times) >= 4)
    finally:
        worker.stop(start_seconds=0.0)
    assert times[3] - times[1] > 1.5, "the first two looks are those of the start and of the thread"


def test_it_logs_the_jobs_as_the_functions_do(
    app: Application, worker: ServerWorker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, errors = app.engine.queue, [UnavailableError("CANARY", code="away"), ValueError("CANARY")]
    assert queue is not None
    run = type(app.run_job).__call__

    def broken(self: Any, *arguments: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return run(self, *arguments, **options)

    monkeypatch.setattr(type(app.run_job), "__call__", broken)
    for number in range(3):
        queued(app, f"s{number}")
    with caplog.at_level(logging.INFO, "turnlog"):
        assert [worker.run_next() for _ in range(4)] == [False, False, True, None]
    away, broke, done = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert away[0] == "WARNING" and away[1].endswith("is not done: away")
    assert broke[0] == "ERROR" and "broke the worker: ValueError at" in broke[1]
    assert done[0] == "INFO" and "(compress) is done" in done[1]
    assert "CANARY" not in caplog.text


def test_a_queue_that_can_t_be_read_is_logged_and_read_again(
    app: Application, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, log = app.engine.queue, queued(app)
    assert queue is not None
    errors, receive = [UnavailableError("CANARY")], queue.receive

    def once_away(*, limit: int) -> Any:
        if errors:
            raise errors.pop()
        return receive(limit=limit)

    monkeypatch.setattr(queue, "receive", once_away)
    worker = ServerWorker(app)
    worker.start()
    eventually(lambda: [job.status for job in log.jobs()] == ["done"])
    worker.stop(start_seconds=0.0)
    assert "the queue can't be polled: unavailable" in caplog.text and "CANARY" not in caplog.text


def test_a_stop_waits_for_the_job_under_way_and_begins_no_other(
    app: Application, worker: ServerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = queued(app)
    queued(app, "other")
    begun, go, run = threading.Event(), threading.Event(), type(app.run_job).__call__

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        begun.set()
        assert go.wait(PATIENCE_SECONDS)
        return run(self, *arguments, **options)

    monkeypatch.setattr(type(app.run_job), "__call__", slow)
    worker.start()
    assert begun.wait(PATIENCE_SECONDS)
    stopping = threading.Thread(target=worker.stop, kwargs={"start_seconds": 0.0})
    stopping.start()
    stopping.join(0.2)
    assert stopping.is_alive()
    go.set()
    stopping.join(PATIENCE_SECONDS)
    assert not stopping.is_alive()
    assert sorted(job.status for job in log.jobs()) == ["done", "queued"]


def test_a_start_that_ctrl_c_interrupts_is_stopped_too(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it uses is closed after `stop`."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def retain(_self: Any) -> None:
        begun.set()
        go.wait(PATIENCE_SECONDS)
        ended.set()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            assert begun.wait(PATIENCE_SECONDS)
            raise KeyboardInterrupt

    interrupted = ServerWorker(with_engine(app, has_due=lambda partitions, before: True))
    monkeypatch.setattr(type(app.retain_sessions), "__call__", retain)
    with monkeypatch.context() as patched:
        patched.setattr("turnlog.client.in_process.threading.Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            interrupted.start()
    stopping = threading.Thread(target=interrupted.stop, kwargs={"start_seconds": 0.0})
    stopping.start()
    stopping.join(0.2)
    assert stopping.is_alive()
    go.set()
    stopping.join(PATIENCE_SECONDS)
    assert ended.is_set() and not stopping.is_alive()


def test_sessions_that_are_due_are_looked_for_while_no_request_comes(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[float]()

    def has_due(*_: Any) -> bool:
        looks.append(time.monotonic())
        return False

    monkeypatch.setattr("turnlog.client.in_process._RETENTION_SECONDS", 0.5)
    idle = ServerWorker(with_engine(app, has_due=has_due))
    idle.start()
    eventually(lambda: len(looks) >= 3)
    idle.stop(start_seconds=0.0)
