"""Jobs: a record, a message with ids only, and a worker that may get it twice, late, or broken (S1, S4, V2, V4, V6)."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.support.jobs import deliver, poller, waiting
from tests.support.talks import filled, turn
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, MalformedError, NotFoundError, TurnlogError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.times import rfc3339
from turnlog.http.lambda_workers import make_worker
from turnlog.log.keys import OwnerKeys
from turnlog.ports import JOB_KINDS
from turnlog.server.lambda_calls import Poller
from turnlog.settings import Settings
from turnlog.summaries import rounds
from turnlog.testing.contracts.job_queue import dead_letters
from turnlog.testing.fixed import SequentialIds


def test_a_poller_whose_start_was_ended_by_ctrl_c_is_stopped_too(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it uses is closed after `stop`."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def chore() -> None:
        begun.set()
        go.wait(10)
        ended.set()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            assert begun.wait(10)
            raise KeyboardInterrupt

    queue = harness.app.engine.queue
    polling = Poller(queue, make_worker(JOB_KINDS, harness.app), clock=harness.clock, chore=chore)
    with monkeypatch.context() as patched:
        patched.setattr("turnlog.server.lambda_calls.threading.Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            polling.start()
    stopping = threading.Thread(target=polling.stop)
    stopping.start()
    stopping.join(0.2)
    assert stopping.is_alive()
    go.set()
    stopping.join(10)
    assert ended.is_set() and not stopping.is_alive()


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_poller_rests_while_its_queue_is_empty(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, rests = threading.Event(), list[float | None]()

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            rests.append(timeout)
            self.set()
            return True

    with monkeypatch.context() as patched:
        patched.setattr("turnlog.server.lambda_calls.threading.Event", Stopping)
        polling = Poller(harness.app.engine.queue, lambda *_: {}, clock=harness.clock, chore=begun.set)
    polling.start()
    assert begun.wait(10)
    polling.stop()
    assert len(rests) == 1 and rests[0]


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_chore_runs_at_the_start_and_then_every_minute(harness: Any) -> None:
    start, times = harness.clock.now_ms(), list[int]()
    queue, worker = harness.app.engine.queue, make_worker(JOB_KINDS, harness.app)
    polling = Poller(queue, worker, clock=harness.clock, chore=lambda: times.append(harness.clock.now_ms()))
    for seconds in (0, 59.999, 0.001, 60):
        harness.clock.advance(seconds)
        polling.run_chore()
    assert times == [start, start + 60_000, start + 120_000]


def test_a_job_goes_through_the_queue(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 6)
    job = session.compress(mode="async", keep_loops=1)
    assert (job.kind, job.status, job.session_id, job.attempts) == ("compress", "queued", "s", 0)
    assert log.job(job.job_id) == job
    assert session.summary() is None
    assert poller(harness).run_once() == 1
    done = log.job(job.job_id)
    assert (done.status, done.attempts, done.error) == ("done", 1, None)
    summary = session.summary()
    assert done.result == {"status": "published", "reason": None, "position": summary.position, "last": summary.last}
    assert poller(harness).run_once() == 0, "acknowledged"


def test_a_snapshot_job(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 2)
    job = session.create_snapshot("night", mode="async", metadata={"a": 1})
    poller(harness).run_once()
    done = log.job(job.job_id)
    assert done.status == "done"
    result = session.snapshot("night")
    assert done.result == {"snapshot_id": result.snapshot_id, "position": result.position}


def test_v2_a_message_has_ids_only(harness: Any) -> None:
    log = harness.log(tenant="acme inc.", user="ada@example.com")
    session = filled(log, 3, "s", title="canary-title")
    job = session.compress(mode="async")
    (body,) = waiting(harness)
    assert "ada@" not in body
    assert "canary" not in body
    message = json.loads(body)
    assert set(message) == {"v", "job_id", "kind", "tenant", "user", "session_id"}
    assert message["job_id"] == job.job_id


def test_s1_delivered_twice_late_and_after_another_summary(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 6)
    session.compress(mode="async", keep_loops=1)
    (body,) = waiting(harness)
    assert deliver(harness, body) == set()
    head = session.info().head
    assert deliver(harness, body, body) == set()
    assert session.info().head == head, "the same message again changes nothing"
    for number in range(7, 10):
        session.append(*turn(number))
    assert deliver(harness, body) == set()
    assert session.info().head == head + 12


def test_the_same_key_is_the_same_job(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 4)
    first = session.compress(mode="async", idempotency_key="k")
    assert session.compress(mode="async", idempotency_key="k") == first
    assert [job.job_id for job in log.jobs()] == [first.job_id]
    messages = waiting(harness)
    assert len(messages) == 2, "sent again, for the first try may have ended before it was sent"
    assert deliver(harness, *messages) == set()
    assert session.compress(mode="async", idempotency_key="k").status == "done" and not waiting(harness)
    assert session.create_snapshot(mode="async", idempotency_key="other").job_id != first.job_id


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_jobs_are_listed_newest_first_page_by_page_and_by_their_status(harness: Any) -> None:
    log = harness.log()
    session, jobs = filled(log, 4), list[str]()
    for number in range(101):
        jobs.append(session.compress(mode="async", idempotency_key=str(number)).job_id)
        harness.clock.advance(0.001)
    assert harness.app.run_job.run_now(Owner.of("acme", "ada"), jobs[50]).status == "done"
    assert [job.job_id for job in log.jobs()] == jobs[::-1]
    assert [job.job_id for job in log.jobs(status="done")] == [jobs[50]]
    assert [job.job_id for job in log.jobs(status="queued")] == [job for job in jobs[::-1] if job != jobs[50]]
    assert list(log.jobs(status="failed")) == []


POISON = [
    "",
    "no json",
    "[]",
    "{}",
    '{"v": 2, "job_id": "1-a", "kind": "compress", "tenant": "t", "user": "u", "session_id": "s"}',
    '{"v": 1, "job_id": "1-a", "kind": "bake", "tenant": "t", "user": "u", "session_id": "s"}',
    '{"v": 1, "job_id": "1-a", "kind": "compress", "tenant": "t#U", "user": "u", "session_id": "s"}',
    '{"v": 1, "job_id": "1-a", "kind": "compress", "tenant": "", "user": "u", "session_id": "s"}',
    '{"v": 1, "job_id": "1", "job_id": "2", "kind": "compress", "tenant": "t", "user": "u", "session_id": "s"}',
    "[" * 10_000,
]


def test_v4_one_poison_message_never_stops_its_neighbours(harness: Any) -> None:
    log = harness.log()
    bodies = list[str]()
    for at in range(9):
        filled(log, 5, f"s{at}").compress(mode="async", keep_loops=1)
    queue = harness.app.engine.queue
    while got := queue.receive():
        bodies += [delivery.body for delivery in got]
    assert len(bodies) == 9
    for poison in POISON:
        assert deliver(harness, poison) == {"m0"}, poison[:80]
    assert deliver(harness, *bodies[:4], "poison", *bodies[4:]) == {"m4"}
    assert {job.status for job in log.jobs()} == {"done"}


def test_a_worker_takes_its_own_kind_only(harness: Any) -> None:
    log = harness.log()
    filled(log, 1).create_snapshot(mode="async")
    (body,) = waiting(harness)
    assert deliver(harness, body, kinds=["compress"]) == {"m0"}
    assert next(log.jobs()).status == "queued"
    assert deliver(harness, body, kinds=["snapshot"]) == set()
    assert next(log.jobs()).status == "done"


def test_a_message_of_another_session_than_its_job_is_poison(harness: Any) -> None:
    log = harness.log()
    filled(log, 4).compress(mode="async")
    filled(log, 4, "other")
    (body,) = waiting(harness)
    assert deliver(harness, body.replace('"s"', '"other"')) == {"m0"}


def test_v6_no_job_is_begun_near_the_deadline(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 5)
    session.compress(mode="async", keep_loops=1)
    (body,) = waiting(harness)
    head = session.info().head
    assert deliver(harness, body, body, milliseconds=10_000) == {"m0", "m1"}
    assert session.info().head == head
    assert deliver(harness, body) == set()


def test_what_can_never_work_is_settled_in_the_record(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 4)
    job = session.compress(mode="async", keep_loops=0)
    (body,) = waiting(harness)
    items = harness.app.engine.items
    from turnlog.log.keys import SessionKeys

    keys = SessionKeys(log.backend.owner, "s")
    commit = dict(items.get_many([keys.commit(6)])[keys.commit(6)])
    items.put(commit | {"b": commit["b"][:-3]})
    assert deliver(harness, body) == set()
    failed = log.job(job.job_id)
    assert (failed.status, failed.attempts, failed.error.code) == ("failed", 1, "corrupt")
    assert "C#000000000006" in failed.error.detail


@pytest.mark.parametrize(
    "error",
    [UnavailableError("the table is down"), ConflictError("others won every slot", retry_after_seconds=1)],
    ids=["outage", "conflict"],
)
def test_s4_what_may_work_later_is_tried_again(
    harness: Any, monkeypatch: pytest.MonkeyPatch, error: TurnlogError
) -> None:
    def fails(*_: Any) -> str:
        raise error

    log = harness.log()
    session = filled(log, 5)
    job = session.compress(mode="async", keep_loops=1)
    (body,) = waiting(harness)
    monkeypatch.setattr(rounds, "read_loops", fails)
    assert deliver(harness, body) == {"m0"}
    assert deliver(harness, body) == {"m0"}
    result = log.job(job.job_id)
    assert (result.status, result.attempts, result.error.code) == ("queued", 2, error.error_code)
    session.append({"role": "user", "content": "goes on"})
    session.context()
    monkeypatch.undo()
    assert deliver(harness, body) == set()
    result = log.job(job.job_id)
    assert (result.status, result.attempts, result.error) == ("done", 3, None)


def test_poison_becomes_a_dead_letter(harness: Any) -> None:
    if harness.name == "moto":
        pytest.skip("moto's clock is not ours: tests/e2e/test_serve_moto.py shows it")
    queue = harness.app.engine.queue
    queue.send("poison", group="acme")
    worker = poller(harness)
    for _ in range(5):
        assert worker.run_once() == 1
        harness.clock.advance(361)
    assert worker.run_once() == 0
    assert dead_letters(queue) == ["poison"]


def test_jobs_are_listed_newest_first_with_a_filter(harness: Any) -> None:
    log = harness.log()
    session, made = filled(log, 2), list[str]()
    for at in range(7):
        made.append(session.create_snapshot(f"n{at}", mode="async").job_id)
        harness.clock.advance(1)
    assert [job.job_id for job in log.jobs()] == made[::-1]
    first = log.backend.call("list_jobs", query={"limit": 3})
    rest = log.backend.call("list_jobs", query={"cursor": first.next_cursor})
    assert [job.job_id for job in [*first.jobs, *rest.jobs]] == made[::-1]
    poller(harness).run_once()
    assert {job.status for job in log.jobs(status="done")} == {"done"}
    assert list(log.jobs(status="failed")) == []


def test_t1_t2_another_owner_sees_no_job(harness: Any) -> None:
    log, other = harness.log(), harness.log(user="eve")
    session = filled(log, 2)
    job = session.create_snapshot(mode="async")
    session.create_snapshot(mode="async")
    with pytest.raises(NotFoundError):
        other.job(job.job_id)
    assert list(other.jobs()) == []
    cursor = log.backend.call("list_jobs", query={"limit": 1}).next_cursor
    with pytest.raises(MalformedError):
        other.backend.call("list_jobs", query={"cursor": cursor})


@pytest.mark.parametrize("job_id", ["", "x", "1", "../S#s", "1700000000000-", "1700000000000-a#b", "9" * 200])
def test_an_id_that_is_none(log: Any, job_id: str) -> None:
    with pytest.raises(NotFoundError):
        log.backend.call("get_job", path={"job_id": job_id})


def test_a_job_for_no_session_is_refused_before_it_is_one(log: Any) -> None:
    with pytest.raises(NotFoundError):
        log.sessions.of("nobody").compress(mode="async")
    assert list(log.jobs()) == []


def test_v2_contents_are_not_logged(harness: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log = harness.log()
    session = filled(log, 5)
    session.append({"role": "user", "content": "canary-7731"})
    session.compress(mode="async", keep_loops=0)
    poller(harness).run_once()
    deliver(harness, '{"canary-7732": 1}')
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("turnlog"))
    assert "is done" in ours
    assert "canary" not in ours


def without_queue(harness: Any) -> Application:
    engine = replace(harness.app.engine, queue=None)
    return Application(engine, Settings(), clock=harness.clock, ids=SequentialIds(5_000))


def test_an_engine_without_a_queue_says_so(harness: Any) -> None:
    log = Turnlog(InProcessBackend(without_queue(harness), Owner.of("acme", "bob")))
    session = filled(log, 4)
    with pytest.raises(UnavailableError) as raised:
        session.compress(mode="async")
    assert raised.value.error_code == "no_queue"
    assert session.compress().status == "published"


def test_a_job_whose_rest_has_no_queue_stays_queued_and_says_so(harness: Any) -> None:
    job = filled(harness.log(), 4).erase()
    (body,) = waiting(harness)
    with pytest.raises(UnavailableError) as raised:
        without_queue(harness).run_job(body, kinds=JOB_KINDS)
    assert raised.value.error_code == "no_queue"
    assert harness.log().job(job.job_id).status == "queued"


def test_a_job_is_kept_for_thirty_days_from_its_last_change(harness: Any) -> None:
    job = filled(harness.log(), 4).compress(mode="async")
    key = OwnerKeys(Owner.of("acme", "ada")).jobs.record(job.job_id)
    for status in ("queued", "done"):
        result = harness.log().job(job.job_id)
        assert (result.status, result.updated_at) == (status, rfc3339(harness.clock.now_ms()))
        item = harness.app.engine.items.get_many([key])[key]
        assert item["ttl"] == harness.clock.now_ms() // 1000 + 30 * 86_400
        harness.clock.advance(3_600)
        poller(harness).run_once()


def test_each_job_of_this_machine_is_received_alone_and_has_time_enough(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a model of summaries a worker asks for more time before it begins a job."""
    for number in range(3):
        filled(harness.log(), 4, f"s{number}").compress(mode="async")
    monkeypatch.setattr(type(harness.app), "longest_summary_ms", 600_000 * 5 // 4)
    polling = poller(harness)
    assert [polling.run_once() for _ in range(4)] == [1, 1, 1, 0]
    assert all(job.status == "done" for job in harness.log().jobs())
    assert not dead_letters(harness.app.engine.queue)
