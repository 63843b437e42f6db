"""What may happen to a compress job on its way, on both engines: poison beside it, the deadline, twice, out of order, in two
workers at once, unknown things in its message, a crash and an outage at each of its calls (V4, V6, S1, S4)."""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.explorer import Crash, Crashed, run_schedule
from tests.support.job_faults import SAID, application, said
from tests.support.jobs import deliver, poller, waiting
from tests.support.talks import filled, turn
from tests.support.triggers import script
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.summaries import SummaryRequest
from turnlog.http.lambda_workers import DEADLINE_MS, make_worker
from turnlog.linter.rules import lint
from turnlog.log.keys import SessionKeys
from turnlog.ports import JOB_KINDS, BlobStore, Delivery, ItemTable, Query
from turnlog.server.lambda_calls import LocalContext, sqs_event
from turnlog.testing.contracts.job_queue import dead_letters

MESSAGE = {"v": 1, "job_id": "1700000000000-a", "kind": "compress", "tenant": "acme", "user": "ada", "session_id": "s"}


def held(harness: Any) -> list[str]:
    """What the queue still has, in flight or not."""
    if harness.name == "moto":
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        url = harness.clients.sqs.get_queue_url(QueueName="jobs")["QueueUrl"]
        result = harness.clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return ["?"] * sum(int(result[name]) for name in names)
    rows = harness.database.read(lambda connection: connection.execute("SELECT body FROM jobs").fetchall())
    return [body for (body,) in rows]


def check_done(log: Turnlog, session: Session, job_id: str) -> None:
    """Done, once: one summary behind what was said, and a window that any provider takes."""
    assert log.job(job_id).status == "done"
    assert [message.body for message in session.messages()] == SAID
    summary = session.summary()
    assert summary is not None
    assert (summary.position, summary.base) == (session.info().head, None)
    assert summary.position == len(SAID) + 2, "exactly one"
    window = session.context(budget=100_000)
    assert [part.kind for part in window.manifest.parts].count("summary") == 1
    assert not lint(window.messages, format="openai_chat")


# ------------------------------------------------------------ V4: poison


def test_v4_of_ten_records_one_is_poison_and_nine_succeed(harness: Any) -> None:
    """Through the queue: nine are acknowledged, one stays to become a dead letter."""
    log = harness.log()
    for at in range(9):
        said(log, f"s{at}").compress(mode="async", keep_loops=1)
        if at == 4:
            harness.app.engine.queue.send(json.dumps({**MESSAGE, "v": 2}), group="acme")
    while poller(harness).run_once():
        pass
    assert [job.status for job in log.jobs()] == ["done"] * 9
    assert all(log.sessions.get(f"s{at}").summary() for at in range(9))
    assert len(held(harness)) == 1


def test_v4_a_record_that_breaks_the_worker_comes_again_and_stops_no_other(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, run = harness.log(), harness.app.run_job
    sessions = [said(log, f"s{at}") for at in range(2)]
    jobs = [session.compress(mode="async", keep_loops=1) for session in sessions]
    first, second = sorted(waiting(harness), key=lambda body: str(json.loads(body)["session_id"]))

    def broken(body: str, **options: Any) -> Any:
        return 1 // 0 if body == first else run(body, **options)

    with monkeypatch.context() as patch:
        patch.setattr(harness.app, "run_job", broken)
        assert deliver(harness, first, second) == {"m0"}
    assert [log.job(job.job_id).status for job in jobs] == ["queued", "done"]
    assert deliver(harness, first, second) == set()
    check_done(log, sessions[0], jobs[0].job_id)


def test_v4_an_unexpected_error_is_noted_in_the_record_of_a_job_that_comes_again(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.log()
    session = said(log, "s")
    job_id = session.compress(mode="async", keep_loops=1).job_id
    (body,) = waiting(harness)
    with monkeypatch.context() as patch:
        patch.setattr("turnlog.summaries.compress.CompressSessions.run", lambda *_: 1 // 0)
        assert deliver(harness, body) == {"m0"}
    job = log.job(job_id)
    assert (job.status, job.attempts, job.error.code) == ("queued", 1, "internal")
    assert deliver(harness, body) == set()
    check_done(log, session, job_id)


# ------------------------------------------------------------ V6: the deadline


class Running:
    """A Lambda context whose time runs out. ``calls`` has the engine's count at each look."""

    def __init__(self, harness: Any, *left_ms: int) -> None:
        self._harness, self._left_ms = harness, list(left_ms)
        self.calls: list[int] = []

    def get_remaining_time_in_millis(self) -> int:
        self.calls.append(self._harness.faults.calls)
        return self._left_ms.pop(0)


def test_v6_no_write_near_the_deadline_and_the_rest_is_given_back(harness: Any) -> None:
    log = harness.log()
    sessions = [said(log, f"s{at}") for at in range(5)]
    for session in sessions:
        session.compress(mode="async", keep_loops=1)
    bodies = sorted(waiting(harness), key=lambda body: str(json.loads(body)["session_id"]))
    context = Running(harness, 60_000, DEADLINE_MS, DEADLINE_MS - 1, 900, 1)
    deliveries = [Delivery(f"m{at}", body, f"r{at}", 1) for at, body in enumerate(bodies)]
    answer = make_worker(JOB_KINDS, harness.app)(sqs_event(deliveries, now_ms=0), context)
    assert {batchitemfailure["itemIdentifier"] for batchitemfailure in answer["batchItemFailures"]} == {
        "m2",
        "m3",
        "m4",
    }
    assert context.calls[0] < context.calls[1] < context.calls[2]
    assert {*context.calls[2:], harness.faults.calls} == {context.calls[2]}, "not one request after the deadline"
    assert [session.summary() is not None for session in sessions] == [True, True, False, False, False]
    assert deliver(harness, *bodies) == set()
    assert {job.status for job in log.jobs()} == {"done"}


# ------------------------------------------------------------ twice, out of order, at once


def test_s1_a_job_twice_in_one_batch_is_done_once(harness: Any) -> None:
    log = harness.log()
    session = said(log)
    job = session.compress(mode="async", keep_loops=1)
    (body,) = waiting(harness)
    assert deliver(harness, body, body, body) == set()
    check_done(log, session, job.job_id)
    assert log.job(job.job_id).attempts == 1


def test_s1_jobs_out_of_order(harness: Any) -> None:
    """The younger job comes first and covers more: the older one finds nothing to do."""
    log = harness.log()
    session = filled(log, 4)
    older = session.compress(mode="async", keep_loops=1)
    for number in range(5, 9):
        session.append(*turn(number))
    younger = session.compress(mode="async", keep_loops=1)
    by_job = {json.loads(body)["job_id"]: body for body in waiting(harness)}
    assert deliver(harness, by_job[younger.job_id]) == set()
    summary = session.summary()
    assert summary.last_loop == 6
    assert deliver(harness, by_job[older.job_id]) == set()
    assert session.summary() == summary
    results = [log.job(job.job_id).result for job in (younger, older)]
    assert [(result["status"], result["reason"]) for result in results] == [
        ("published", None),
        ("unchanged", "nothing_to_cover"),
    ]


def test_s1_one_job_in_two_workers_at_once_publishes_one_summary(harness: Any) -> None:
    """Both have read the session and hold a summary of it before either publishes."""
    log = harness.log()
    session = said(log)
    job = session.compress(mode="async", keep_loops=1)
    (body,) = waiting(harness)
    both = threading.Barrier(2, timeout=60)

    def met(_request: SummaryRequest) -> str:
        both.wait()
        return "They said something, again and again."

    summariser = script(harness, met, met)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: deliver(harness, body), range(2)))
    assert answers == [set(), set()]
    assert summariser.is_done, "both had made one"
    check_done(log, session, job.job_id)
    assert log.job(job.job_id).attempts == 1, "the one that came second has changed nothing"


def test_a_summary_that_was_made_in_between_is_continued(harness: Any) -> None:
    """S1: while the worker's model writes, another summary comes into force: its own is thrown away."""
    log = harness.log()
    session = filled(log, 8)
    job = session.compress(mode="async", keep_loops=1)
    (body,) = waiting(harness)
    other = Turnlog(log.backend)

    def overtaken(_request: SummaryRequest) -> str:
        summariser.outcomes.insert(0, "The first four.")
        other.sessions.get("s").compress(keep_loops=4)
        return "All of them, too late."

    summariser = script(harness, overtaken, "The rest.")
    assert deliver(harness, body) == set()
    summary = session.summary()
    assert (summary.text, summary.last_loop) == ("The rest.", 6)
    assert summary.base is not None
    assert log.job(job.job_id).result["position"] == summary.position


# ------------------------------------------------------------ what a message may name


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        json.dumps({**MESSAGE, "v": 2}),
        json.dumps({**MESSAGE, "v": "1"}),
        json.dumps({**MESSAGE, "kind": "bake"}),
        json.dumps({**MESSAGE, "more": 1}),
        json.dumps({name: value for name, value in MESSAGE.items() if name != "user"}),
    ],
)
def test_what_is_malformed_of_an_unknown_version_or_kind_costs_no_request(harness: Any, body: str) -> None:
    before = harness.faults.calls
    assert deliver(harness, body) == {"m0"}
    assert harness.faults.calls == before


def test_a_job_of_an_unknown_session_is_settled_and_leaves_nothing(harness: Any) -> None:
    log, owner = harness.log(), Owner.of("acme", "ada")
    options = {"keep_loops": 2, "max_tokens": 1000}
    job = harness.app.start_job(owner, "compress", "ghost", options, None)
    assert poller(harness).run_once() == 1
    failed = log.job(job.job_id)
    assert (failed.status, failed.error.code) == ("failed", "not_found")
    assert held(harness) == []
    assert harness.app.engine.items.query(Query(SessionKeys(owner, "ghost").partition, "", "~")).items == ()


def test_a_message_whose_job_is_no_more_is_acknowledged(harness: Any) -> None:
    """Its record has expired: whoever asked does not look for it any more."""
    said(harness.log())
    assert deliver(harness, json.dumps(MESSAGE)) == set()
    assert harness.log().sessions.get("s").summary() is None


# ------------------------------------------------------------ a crash, an outage at every call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_every_call_of_a_job_then_delivered_again_it_is_done_once(harness: Any, after: bool) -> None:
    """The process ends before or after the effect of each request; the queue gives the job to another one."""
    boundaries, tried, at = 1, 0, 0
    while at <= boundaries:
        log = harness.log(user=f"user-{at}")
        session = said(log)
        job = session.compress(mode="async", keep_loops=1)
        (body,) = waiting(harness)

        def work(items: ItemTable, blobs: BlobStore, body: str = body) -> Any:
            app = application(harness, items, blobs)
            return make_worker(JOB_KINDS, app)(sqs_event([Delivery("m", body, "r", 1)], now_ms=0), LocalContext(60_000))

        engine = harness.app.engine
        crash = Crash(0, at, after) if at else None
        run, _ = run_schedule([work], engine.items, engine.blobs, [], crash=crash)
        if at:
            assert isinstance(run.results[0], Crashed), "it was met"
            tried += 1
        else:
            assert run.results == [{"batchItemFailures": []}]
            boundaries = run.requests[0]
        assert deliver(harness, body) == set()
        check_done(log, session, job.job_id)
        at += 1
    assert tried == boundaries > 5


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outage_at_every_call_from_the_queue_to_its_acknowledgement(harness: Any, when: str) -> None:
    """Through the poller: what failed stays in the queue, and is done when it comes again."""
    boundaries, tried, at = 1, 0, 0
    while at <= boundaries:
        log = harness.log(user=f"user-{at}")
        session = said(log)
        job = session.compress(mode="async", keep_loops=1)
        if harness.name == "sqlite":
            (body,) = (item for item in held(harness) if job.job_id in item)
        else:
            fields = {**MESSAGE, "job_id": job.job_id, "user": f"user-{at}"}
            body = json.dumps(fields)
        before = harness.faults.calls
        if at:
            harness.faults.fail(at, when)
        with contextlib.suppress(UnavailableError):
            poller(harness).run_once()
        if at:
            assert not harness.faults.is_pending
            tried += 1
        else:
            boundaries = harness.faults.calls - before
        assert deliver(harness, body) == set(), "as it comes again"
        check_done(log, session, job.job_id)
        drain(harness)
        at += 1
    assert tried == boundaries > 7
    assert dead_letters(harness.app.engine.queue) == []


def drain(harness: Any) -> None:
    """Until the next delivery time of whatever was not acknowledged; moto's clock is not ours, so there it is taken."""
    harness.clock.advance(361)
    if harness.name == "moto":
        for delivery in harness.app.engine.queue.receive():
            harness.app.engine.queue.acknowledge(delivery.receipt)
        return
    while poller(harness).run_once():
        pass
    assert held(harness) == []
