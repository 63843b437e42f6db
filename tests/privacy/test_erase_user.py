"""A person is erased: every session by the protocol, and what is left of the owner; nobody else's, and nothing half."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import FEWEST, boundaries
from tests.explorer import ScheduleRun, explore
from tests.log.everything import held, items_of, local_blobs, places_of, sqlite_items
from tests.support.erase_orders import PREEMPTIONS, with_queue
from tests.support.erasing import CANARY, OWNER, TOMBSTONE, message_of, noise, said, worked
from tests.support.jobs import deliver
from tests.support.steps import fresh
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, NotFoundError, SessionExistsError, UnavailableError
from turnlog.jobs.worker import Later
from turnlog.log.keys import OwnerKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.privacy.erase import SECOND_PASS_SECONDS

OWNED = OwnerKeys(OWNER).partition


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
    assert [item["sk"][:2] for item in left if item["pk"] == OWNED and item["sk"][:2] != "S#"] == ["J#", "J#"]
    assert {name for item in left if not item["sk"].startswith("J#") for name in item} <= TOMBSTONE
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
    first = harness.app.erase_user.run(OWNER, "", {})
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
        app.erase_user(OWNER)
        return app.erase_user.run(OWNER, "", {})

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        made = run.results[0]
        assert not isinstance(made, BaseException) or isinstance(made, ConflictError | SessionExistsError), made
        assert not isinstance(run.results[1], BaseException), run.results[1]
        app, clock = with_queue(items, blobs, 3000)
        clock.advance(SECOND_PASS_SECONDS)
        log = Turnlog(InProcessBackend(app, OWNER))
        assert not log.sessions.exists("new")
        assert list(log.sessions.list()) == []
        app.erase_user.run(OWNER, "", run.results[1].options)
        assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []

    assert explore([creating, erasing], fresh(lambda log: None), check, max_preemptions=PREEMPTIONS) > 6
