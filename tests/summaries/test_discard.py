"""A summary that is discarded: none is in force from then on, a job makes one of the history, and the log keeps what it said."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.explorer import ScheduleRun, explore
from tests.support.jobs import deliver, poller, waiting
from tests.support.scripted import ScriptedSummariser, summarise_with
from tests.support.steps import LONG, appending, fresh
from tests.support.talks import AMPLE, filled, texts, turn
from tests.support.with_queue import with_queue
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.client.model import Session
from turnlog.core.errors import IdempotencyMismatchError, UnavailableError
from turnlog.core.events import DiscardEvent
from turnlog.core.identity import Owner
from turnlog.engines import SystemClock
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings as AppSettings
from turnlog.summaries import compress
from turnlog.summaries import rounds as loops_to_cover
from turnlog.testing.fixed import SequentialIds

KEYS = SessionKeys(Owner.of("acme", "ada"), "s")


def summarised(harness: Any) -> Session:
    session = filled(harness.log(), 6)
    session.compress(keep_loops=1)
    session.append(*turn(7))
    session.compress(keep_loops=1)
    return session


def test_none_is_in_force_until_the_job_has_made_one_of_the_history(harness: Any) -> None:
    session = summarised(harness)
    old, head = session.summary(), session.info().head
    before = session.context(budget=AMPLE)
    job = session.discard_summary()
    assert (job.kind, job.status, job.session_id) == ("compress", "queued", "s")
    assert session.summary() is None
    assert (session.info().head, session.info().summary_to) == (head + 1, None)
    window = session.context(budget=AMPLE)
    assert "summary" not in {part.kind for part in window.manifest.parts}
    assert "Question 1" in texts(window), "the history is read again"
    assert (window.prefix.broke_at, window.prefix.reason) == ("tools", "summary"), "the recall tools go too"
    assert poller(harness).run_once() == 1
    made = session.summary()
    assert (made.base, made.first, made.last_loop) == (None, old.first, 4)
    assert made.position == head + 2
    again = session.context(at=head, budget=AMPLE)
    assert again.messages == before.messages, "an earlier moment has the summary of then"
    assert again.manifest.build.summary == old.position
    assert session.context(build=before.manifest.build).messages == before.messages
    assert len(list(session.messages())) == 28


def test_s6_every_position_has_the_summary_that_was_in_force_there(harness: Any) -> None:
    session = summarised(harness)
    session.discard_summary()
    poller(harness).run_once()
    log = harness.app.log
    events = log.commits.events(KEYS, log.commits.range(KEYS, 1, log.commits.tail(KEYS).header.last))
    in_force: int | None = None
    for event in events:
        if type(event).__name__ == "SummaryEvent":
            in_force = event.position
        if isinstance(event, DiscardEvent):
            assert event.summary == in_force
            in_force = None
        build = session.context(at=event.position, budget=AMPLE).manifest.build
        assert build.summary == in_force


def test_a_request_with_a_key_has_one_effect(harness: Any) -> None:
    session = summarised(harness)
    first = session.discard_summary(idempotency_key="k")
    head = session.info().head
    assert session.discard_summary(idempotency_key="k") == first
    poller(harness).run_once()
    made = session.summary()
    assert session.discard_summary(idempotency_key="k").job_id == first.job_id
    assert (session.summary(), session.info().head) == (made, head + 1)
    with pytest.raises(IdempotencyMismatchError):
        session.compress(idempotency_key="k")
    assert session.discard_summary(idempotency_key="other").job_id != first.job_id
    assert session.summary() is None


def test_without_one_in_force_nothing_is_written_and_one_is_made(harness: Any) -> None:
    session = filled(harness.log(), 6)
    head = session.info().head
    assert session.discard_summary().status == "queued"
    assert session.info().head == head
    poller(harness).run_once()
    assert session.summary().last_loop == 3


def test_appends_leave_the_asking_to_it(harness: Any) -> None:
    policy = {
        "steps": [{"step": "summary"}, {"step": "loops", "max": 3}],
        "compress": {"any": [{"loops_over": 3}]},
    }
    session = filled(harness.log(), 6, policy=policy)
    poller(harness).run_once()
    session.discard_summary()
    assert [session.append(message).compression for message in turn(7)] == ["none"] * 4
    assert poller(harness).run_once() == 1


def test_a_summary_that_was_on_its_way_is_made_of_the_history(harness: Any) -> None:
    """It was read while the old one was in force, and is published when that is not."""
    session = summarised(harness)
    session.append(*turn(8))

    def meanwhile(_request: Any) -> str:
        if session.summary() is not None:
            session.discard_summary()
        return "All of it was about orders."

    summariser = ScriptedSummariser(then=meanwhile)
    summarise_with(harness.app, summariser)
    made = session.compress(keep_loops=1).summary
    assert [(request.previous == "", request.loops[0].number) for request in summariser.requests] == [
        (False, 6),
        (True, 1),
    ]
    assert (made.base, made.first_loop, made.last_loop) == (None, 1, 6)


@pytest.mark.parametrize("more", [0, 1])
def test_a_request_that_another_one_overtakes_answers_as_if_it_came_after_it(
    harness: Any, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """Its one round is over, and a model may take so long that there is no time for a second one."""
    session = filled(harness.log(), 6)

    def overtaken(_request: Any) -> str:
        summarise_with(harness.app, ScriptedSummariser(then="All of it was about orders."))
        assert session.compress(keep_loops=1 + more).status == "published"
        return "It comes too late."

    monkeypatch.setattr(compress, "WORK_SECONDS", 0)
    summarise_with(harness.app, ScriptedSummariser([overtaken]))
    answer = session.compress(keep_loops=1)
    assert session.summary().text == "All of it was about orders."
    if more:
        assert (answer.kind, answer.status) == ("compress", "queued"), "there is work left"
    else:
        assert (answer.status, answer.reason, answer.summary) == ("unchanged", "nothing_to_cover", session.summary())


def test_a_long_history_is_covered_by_jobs_of_bounded_rounds(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = filled(harness.log(), 21)
    session.compress()
    monkeypatch.setattr(loops_to_cover, "ROUND_LOOPS", 2)
    monkeypatch.setattr(compress, "JOB_ROUNDS", 3)
    job = session.discard_summary()
    covered, chain = list[int](), [job.job_id]
    while True:
        (body,) = waiting(harness)
        assert deliver(harness, body, body) == set(), "delivered twice, there is one next job"
        covered.append(session.summary().last_loop)
        result = harness.log().job(chain[-1]).result
        if "next_job" not in result:
            break
        chain.append(result["next_job"])
    assert covered == [6, 12, 18]
    assert len(list(harness.log().jobs())) == len(chain) == 3
    assert session.summary().messages == 18 * 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_at_every_call_then_the_same_call_again_has_one_effect(harness: Any, when: str) -> None:
    calls, at = None, 0
    while calls is None or at <= calls:
        log = harness.log(user=f"user-{at}")
        session = log.sessions.create("base")
        session.append(*LONG)
        assert session.compress(keep_loops=1).status == "published"
        started = harness.faults.calls
        if at:
            harness.faults.fail(at, when)
            with contextlib.suppress(UnavailableError):
                session.discard_summary(idempotency_key="k")
            assert not harness.faults.is_pending
        job = session.discard_summary(idempotency_key="k")
        calls = calls if calls is not None else harness.faults.calls - started
        assert session.discard_summary(idempotency_key="k") == job
        assert session.info().head == 13, "one summary, one discard"
        assert [job.job_id for job in log.jobs()] == [job.job_id]
        assert session.summary() is None
        at += 1


# ---------------------------------------------------------------- every order


def covered(log: Turnlog) -> None:
    log.sessions.create("s").append(*LONG)
    log.sessions.of("s").compress(keep_loops=2)


def discarding(items: ItemTable, blobs: BlobStore) -> Any:
    return with_queue(items, blobs, SequentialIds(1000)).sessions.of("s").discard_summary()


def compressing(items: ItemTable, blobs: BlobStore) -> Any:
    return with_queue(items, blobs, SequentialIds(2000)).sessions.of("s").compress(keep_loops=1)


def test_every_order_of_a_discard_and_a_summary_leaves_none_or_one_of_the_history() -> None:
    seen = set[str]()

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)], run.results
        session = with_queue(items, blobs, SequentialIds(10**9)).sessions.of("s")
        summary = session.summary()
        seen.add("none" if summary is None else "one")
        if summary is not None:
            assert (summary.base, summary.first_loop, summary.last_loop) == (None, 1, 3)
        assert session.info().head == 14, "a summary before, a discard, and a summary"
        assert len(list(session.messages())) == 10

    assert explore([discarding, compressing], fresh(covered), check, max_preemptions=1) >= 6
    assert seen == {"none", "one"}


def test_every_order_of_a_discard_and_an_append_keeps_both() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)], run.results
        session = with_queue(items, blobs, SequentialIds(10**9)).sessions.of("s")
        assert (session.summary(), session.info().head) == (None, 14)
        assert [message.body["content"] for message in session.messages()][-1] == "new"

    assert explore([discarding, appending(3000, "new")], fresh(covered), check) >= 6


# ---------------------------------------------------------------- elsewhere


@pytest.mark.network
def test_over_http_too() -> None:
    app = make_application(AppSettings(engine="memory://", identity="jwt"))
    server = LocalServer(app, SystemClock(), port=0).start()
    try:
        with Turnlog.open(server.url) as log:
            session = filled(log, 6)
            session.compress(keep_loops=1)
            job = session.discard_summary(idempotency_key="k")
            assert log.job(job.job_id).kind == "compress"
            assert session.discard_summary(idempotency_key="k").job_id == job.job_id
    finally:
        server.stop()
        app.close()


def test_an_engine_without_a_queue_discards_nothing(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = summarised(harness)
    monkeypatch.setattr(harness.app.start_job, "_queue_of", lambda _kind: None)
    with pytest.raises(UnavailableError) as raised:
        session.discard_summary()
    assert raised.value.error_code == "no_queue"
    assert session.summary() is not None


def test_a_summary_and_its_end_show_in_the_list_and_hide_no_later_append_from_it(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 6)
    for change in (lambda: session.compress(keep_loops=1), session.discard_summary):
        harness.clock.advance(301)
        assert next(log.sessions.list()) == session.info()  # settled: exact until the next touch
        harness.clock.advance(301)
        change()
        assert next(log.sessions.list()) == session.info()
        session.append({"role": "user", "content": "hi"})
        harness.clock.advance(301)
        assert next(log.sessions.list()) == session.info()
