"""A person is erased: every session by the protocol, and what is left of the owner; nobody else's, and nothing half."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import FEWEST, boundaries
from tests.explorer import ScheduleRun, explore
from tests.log.everything import held, items_of, local_blobs, places_of, sqlite_items
from tests.support.erase_orders import PREEMPTIONS, with_queue
from tests.support.erasing import CANARY, OWNER, TOMBSTONE, message_of, noise, said, worked
from tests.support.jobs import deliver, waiting
from tests.support.steps import fresh
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import ConflictError, NotFoundError, SessionExistsError, UnavailableError
from turnlog.jobs.worker import Later
from turnlog.log.keys import OwnerKeys, item_at
from turnlog.ports import BlobStore, ItemTable
from turnlog.privacy import erase
from turnlog.privacy.erase import SECOND_PASS_SECONDS

OWNED = OwnerKeys(OWNER).partition


def marker_of(harness: Harness) -> Any:
    return harness.app.engine.items.get_many([OwnerKeys(OWNER).erasing])[OwnerKeys(OWNER).erasing]


def comes_back(harness: Harness) -> Session:
    session = harness.log().sessions.create("new")
    session.append({"role": "user", "content": "back"})
    return session


def test_nothing_of_a_person_is_left_but_the_receipt(harness: Harness) -> None:
    said(harness)
    log, other = harness.log(), harness.log(user="bob").sessions.create("theirs", title="stays")
    for number in range(3):
        log.sessions.create(f"s{number}", title=CANARY).append({"role": "user", "content": noise(60_000)})
    log.sessions.get("s1").fork("child")
    gone = log.sessions.create("gone", title=CANARY, ttl_days=1)
    gone.create_snapshot(CANARY, kind="full")
    done = worked(harness, log.erase_me(idempotency_key="k"))
    assert (done.kind, done.session_id, done.status) == ("erase_user", "", "done")
    result = done.result or {}
    assert result["status"] == "erased" and result["commits"] > 8 and result["blobs"] > 3
    assert held(CANARY, harness) == []
    left = [item for item in items_of(harness) if item["pk"].startswith(OWNED)]
    assert [item["sk"][:2] for item in left if item["pk"] == OWNED and item["sk"][:2] != "S#"] == ["ER", "J#", "J#"]
    assert {name for item in left if not item["sk"].startswith("J#") for name in item} <= TOMBSTONE | {"cs"}
    assert [job.job_id for job in log.jobs()] == [done.job_id]
    assert log.erase_me(idempotency_key="k") == done
    assert list(log.sessions.list()) == []
    assert log.sessions.create("new").info().messages == 0, "the person may come back"
    assert other.info().title == "stays"


def test_the_receipt_counts_each_job_that_is_erased_and_no_receipt(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    for number in range(3):
        session.create_snapshot(f"{number}", mode="async", idempotency_key=f"k{number}")
    log.erase_me(idempotency_key="k")
    mark = marker_of(harness)["c"]
    first = harness.app.erase_user.run(OWNER, "", {"mark": mark})
    assert isinstance(first, Later)
    before = items_of(harness)
    harness.clock.advance(SECOND_PASS_SECONDS)
    second = harness.app.erase_user.run(OWNER, "", first.options)
    gone = [item for item in before if item["sk"].startswith("J#") and item not in items_of(harness)]
    assert isinstance(second, dict) and len(gone) == 3
    assert second["items"] == first.result["items"] + 3  # type: ignore[operator]


def test_no_session_is_created_meanwhile(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s")
    job = log.erase_me()
    with pytest.raises(ConflictError) as caught:
        log.sessions.create("late")
    assert (caught.value.error_code, caught.value.retry_after_seconds) == ("erasing", 900)
    assert deliver(harness, message_of(job)) == set()
    with pytest.raises(ConflictError):
        log.sessions.create("later")
    with pytest.raises(NotFoundError):
        log.sessions.get("s")
    assert worked(harness, job).status == "done"
    assert log.sessions.create("last").info().head == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_e2_d1_interrupted_anywhere_it_resumes(harness: Harness, when: str) -> None:
    wanted, tried = [0], 0
    for at in wanted:
        user = f"user-{at}"
        log = harness.log(user=user)
        for number in range(2):
            log.sessions.create(f"s{number}", title=CANARY).append({"role": "user", "content": noise(4_000)})
        started = harness.faults.calls
        if at:
            harness.faults.fail(at, when)
        job = None
        for _ in range(2):
            with contextlib.suppress(UnavailableError):
                job = log.erase_me(idempotency_key="k")
        assert job is not None
        for _ in range(5):
            deliver(harness, message_of(job, user))
            with contextlib.suppress(UnavailableError):
                if log.job(job.job_id).status == "done":
                    break
            harness.clock.advance(SECOND_PASS_SECONDS)
        if at == 0:
            wanted += boundaries(harness.faults.calls - started, harness.name, sqlite=5, emulated=37)
        else:
            assert not harness.faults.is_pending, "the fault was never met"
            tried += 1
        assert log.job(job.job_id).status == "done"
        assert log.sessions.create("again").info().head == 1
    assert tried == len(wanted) - 1 >= FEWEST
    assert held(CANARY, harness) == []


def test_e3_an_error_is_never_reported_as_done(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    said(harness)
    blobs = harness.app.engine.blobs
    erase = blobs.erase

    def fails(_self: Any, prefix: str, **options: Any) -> int:
        raise UnavailableError("DeleteObjects kept 1 versions: AccessDenied")

    monkeypatch.setattr(type(blobs), "erase", fails)
    job = harness.log().erase_me()
    for _ in range(2):
        assert deliver(harness, message_of(job)) == {"m0"}
        result = harness.log().job(job.job_id)
        assert (result.status, result.error.code if result.error else "") == ("queued", "unavailable")
    with pytest.raises(ConflictError):
        harness.log().sessions.create("s9")
    monkeypatch.setattr(type(blobs), "erase", lambda _self, prefix, **options: erase(prefix, **options))
    assert worked(harness, job).status == "done"
    assert held(CANARY, harness) == []


def test_d2_every_order_of_erasing_a_person_and_creating_a_session() -> None:
    """A session that is created is either seen by the pass, or refused; none survives unseen."""

    def creating(items: ItemTable, blobs: BlobStore) -> Any:
        app, _ = with_queue(items, blobs, 1000)
        return Turnlog(InProcessBackend(app, OWNER)).sessions.create("new", title=CANARY)

    def erasing(items: ItemTable, blobs: BlobStore) -> Any:
        app, _ = with_queue(items, blobs, 2000)
        job = app.erase_user(OWNER)
        app.run_job.run_now(OWNER, job.job_id)
        return job

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        made = run.results[0]
        assert not isinstance(made, BaseException) or isinstance(made, ConflictError | SessionExistsError), made
        assert not isinstance(run.results[1], BaseException), run.results[1]
        app, clock = with_queue(items, blobs, 3000)
        clock.advance(SECOND_PASS_SECONDS)
        log = Turnlog(InProcessBackend(app, OWNER))
        assert not log.sessions.exists("new")
        assert list(log.sessions.list()) == []
        app.run_job.run_now(OWNER, run.results[1].job_id)
        assert app.get_job(OWNER, run.results[1].job_id).status == "done"
        assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []

    assert explore([creating, erasing], fresh(lambda log: None), check, max_preemptions=PREEMPTIONS) > 6


def test_e1_nothing_of_the_first_hundred_sessions_answers_from_the_moment_it_returns(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", title=CANARY, ttl_days=1)
    session.append({"role": "user", "content": CANARY})
    session.create_snapshot("f", kind="full")
    gone = log.sessions.create("gone", ttl_days=1)
    gone.append({"role": "user", "content": CANARY})
    gone.create_snapshot("f", kind="full")
    session.fork("fork")
    job = log.erase_me()
    for left in (session, gone, log.sessions.of("fork")):
        for answer in (
            left.info,
            lambda left=left: list(left.messages()),
            left.context,
            left.state,
            left.reset,
            lambda left=left: left.export("never.zip"),
            lambda left=left: left.append({"role": "user", "content": "more"}),
            lambda left=left: list(left.snapshots()),
            lambda left=left: left.restore_snapshot("f", as_="rewind"),
            lambda left=left: left.documents.put("k", b"x"),
        ):
            with pytest.raises(NotFoundError):
                answer()  # type: ignore[operator]
    assert (list(log.sessions.list()), list(log.search(CANARY))) == ([], [])
    assert worked(harness, job).status == "done"
    assert held(CANARY, harness) == []


@pytest.mark.parametrize("work_ms", [0, 10_000])
def test_sessions_beyond_those_answer_until_the_job_runs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, work_ms: int
) -> None:
    """However little the job does in a run."""
    monkeypatch.setattr(erase, "FENCED_SESSIONS", 5)
    monkeypatch.setattr(erase, "WORK_MS", work_ms)
    log = harness.log()
    for number in range(7):
        log.sessions.create(f"s{number}")
    job = log.erase_me()
    assert {item.session_id for item in log.sessions.list()} == {"s5", "s6"}
    left = log.sessions.get("s6")
    with pytest.raises(ConflictError) as caught:
        left.reset()
    assert caught.value.error_code == "erasing" and left.info().status == "active", "nothing was written"
    left.append({"role": "user", "content": CANARY})
    assert log.erase_me().job_id == job.job_id
    assert list(log.sessions.list()) == [], "asked again, it fences the next ones"
    assert worked(harness, job).status == "done"
    assert held(CANARY, harness) == []


def test_asked_again_it_is_the_same_job_and_what_comes_after_it_stays(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s")
    job = log.erase_me(idempotency_key="a")
    deliver(harness, message_of(job))
    assert [log.erase_me(idempotency_key="b").job_id, log.erase_me().job_id] == [job.job_id] * 2
    done = worked(harness, job)
    session = comes_back(harness)
    assert log.erase_me(idempotency_key="b") == done, "a retry that comes late asks for nothing new"
    harness.clock.advance(SECOND_PASS_SECONDS)
    deliver(harness, message_of(job))
    assert session.info().messages == 1
    later = log.erase_me(idempotency_key="c")
    assert later.job_id != job.job_id and worked(harness, later).status == "done"
    assert not log.sessions.exists("new")


def test_a_dead_letter_is_taken_up_by_the_next_request_and_its_redrive_erases_nothing_new(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s")
    job = log.erase_me()
    waiting(harness)  # the message is lost
    assert log.erase_me().job_id == job.job_id
    assert [json.loads(body)["job_id"] for body in waiting(harness)] == [job.job_id]
    assert worked(harness, job).status == "done"
    session = comes_back(harness)
    for _ in range(3):
        deliver(harness, message_of(job))
        harness.clock.advance(SECOND_PASS_SECONDS)
    assert session.info().messages == 1


def test_a_job_that_has_failed_is_succeeded_by_another_under_the_same_mark(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s", title=CANARY)
    job, records, keys = log.erase_me(), harness.app.log.records, OwnerKeys(OWNER).jobs
    queued = records.get(keys, job.job_id)
    assert queued is not None
    records.replace(keys, dataclasses.replace(queued, status="failed"), while_status="queued")
    with pytest.raises(ConflictError):
        log.sessions.create("late")
    later = log.erase_me()
    assert later.job_id != job.job_id and worked(harness, later).status == "done"
    session = comes_back(harness)
    records.replace(keys, queued, while_status="failed")
    assert worked(harness, job).status == "done"
    assert session.info().messages == 1 and held(CANARY, harness) == []


def test_a_job_of_an_earlier_version_ends_and_leaves_what_came_after(harness: Harness) -> None:
    log, items, start = harness.log(), harness.app.engine.items, harness.app.start_job
    log.sessions.create("s", title=CANARY)
    first, second = start(OWNER, "erase_user", "", {}), start(OWNER, "erase_user", "", {})
    items.put(item_at(OwnerKeys(OWNER).erasing, {"c": harness.clock.now_ms()}))
    with pytest.raises(ConflictError):
        log.sessions.create("late")
    for job in (first, second):
        assert deliver(harness, message_of(job)) == set()
    harness.clock.advance(SECOND_PASS_SECONDS)
    assert worked(harness, first).status == "done"
    session = comes_back(harness)
    assert worked(harness, second).status == "done"
    assert session.info().messages == 1 and held(CANARY, harness) == []
    last_pass = start(OWNER, "erase_user", "", {"not_before": harness.clock.now_ms()})
    assert worked(harness, last_pass).status == "done" and log.sessions.exists("new")
    unmarked = start(OWNER, "erase_user", "", {})
    assert worked(harness, unmarked).status == "done" and not log.sessions.exists("new")


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_request_that_ends_anywhere_shuts_nobody_out(harness: Harness, when: str) -> None:
    wanted = [0]
    for at in wanted:
        log = harness.log(user=f"user-{at}")
        log.sessions.create("s")
        started = harness.faults.calls
        if at:
            harness.faults.fail(at, when)
        with contextlib.suppress(UnavailableError):
            log.erase_me()
        if at == 0:
            wanted += boundaries(harness.faults.calls - started, harness.name, sqlite=1, emulated=3)
        jobs = [job.job_id for job in log.jobs() if job.kind == "erase_user"]
        if not jobs:  # nobody has an answer, and nobody asks again
            assert log.sessions.create("t").info().head == 1
            continue
        with pytest.raises(ConflictError):
            log.sessions.create("t")
        assert log.erase_me().job_id == jobs[0], "asked again, it goes on with what there is"
    assert len(wanted) > FEWEST


def test_d2_every_order_of_two_requests_leaves_what_comes_after_the_first_job(harness: Harness) -> None:
    def asking(start: int) -> Any:
        return lambda items, blobs: with_queue(items, blobs, start)[0].erase_user(OWNER)

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        app, clock = with_queue(items, blobs, 3000)
        log = Turnlog(InProcessBackend(app, OWNER))
        jobs = list(dict.fromkeys(job.job_id for job in run.results))
        for job_id in jobs + jobs[:1]:
            app.run_job.run_now(OWNER, job_id)
            clock.advance(SECOND_PASS_SECONDS)
        assert log.job(jobs[0]).status == "done" and not log.sessions.exists("s")
        log.sessions.create("new")
        for _ in range(3):
            clock.advance(SECOND_PASS_SECONDS)
            app.run_job.run_now(OWNER, jobs[-1])
        assert log.job(jobs[-1]).status == "done" and log.sessions.exists("new")

    begin = fresh(lambda log: log.sessions.create("s"))
    assert explore([asking(1000), asking(2000)], begin, check, max_preemptions=PREEMPTIONS) > 6


def test_d2_a_worker_that_stood_still_erases_nothing_that_came_after_the_job() -> None:
    """The last pass runs twice at once. Whoever ends it first, a session that is created then stays."""
    options: dict[str, Any] = {}

    def begin(log: Turnlog) -> None:
        engine = log.backend.app.engine  # type: ignore[attr-defined]
        app, _ = with_queue(engine.items, engine.blobs, 500)
        log.sessions.create("s")
        job = app.erase_user(OWNER)
        record = app.log.records.get(OwnerKeys(OWNER).jobs, job.job_id)
        first = app.erase_user.run(OWNER, "", record.content["options"])
        options.update(first.options)

    def late(items: ItemTable, blobs: BlobStore) -> Any:
        app, clock = with_queue(items, blobs, 1000)
        clock.advance(SECOND_PASS_SECONDS)
        return app.erase_user.run(OWNER, "", options)

    def on_time(items: ItemTable, blobs: BlobStore) -> Any:
        app, clock = with_queue(items, blobs, 2000)
        clock.advance(SECOND_PASS_SECONDS)
        assert isinstance(app.erase_user.run(OWNER, "", options), dict)
        return Turnlog(InProcessBackend(app, OWNER)).sessions.create("new")

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        log = Turnlog(InProcessBackend(with_queue(items, blobs, 3000)[0], OWNER))
        assert [result for result in run.results if isinstance(result, BaseException)] == []
        assert log.sessions.exists("new") and not log.sessions.exists("s")

    assert explore([late, on_time], fresh(begin), check, max_preemptions=PREEMPTIONS) > 6
