"""E1, E3, E5 of long-term memory: what came from an erased session, person or message is in no engine and in no copy."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.conftest import Harness
from tests.effort import is_full
from tests.explorer import Crash, ScheduleRun, explore
from tests.log.everything import blobs_of, held, items_of, local_blobs, places_of, sqlite_items
from tests.support.erase_orders import erasing, holds_nothing, is_gone, with_queue
from tests.support.erasing import KEYS, OWNER, TOMBSTONE, message_of, worked
from tests.support.jobs import deliver, waiting
from tests.support.offloads import ANSWER, CITY, SQLITE, TEA, Recorder, copy_of, known, offloads
from tests.support.retention import retained, runs_before
from tests.support.steps import fresh
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import NotFoundError, TurnlogError, UnavailableError
from turnlog.log.keys import OwnerKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.privacy.erase import SECOND_PASS_SECONDS

__all__ = ["runs_before"]
CANARY = "Canaryville"
HOME = {"role": "user", "content": f"I live in {CANARY}."}


def everywhere(harness: Harness) -> list[str]:
    """What holds the canary: items and blobs, packed copies included, and what waits in the queue."""
    copies = [name for name, data in blobs_of(harness).items() if _unpacked(data)]
    return [*held(CANARY, harness), *copies, *(body for body in waiting(harness) if CANARY in body)]


def _unpacked(data: bytes) -> bool:
    at = data.find(b"\x1f\x8b\x08")  # on a file system the bytes may stand behind a head
    return at >= 0 and CANARY.encode() in gzip.decompress(data[at:])


def handed_over(harness: Harness, session_id: str = "s", *said: Any) -> Session:
    """A session that has ended, is copied and known."""
    log = harness.log()
    session = log.sessions.create(session_id)
    session.append(*(said or (HOME,)), ANSWER)
    session.end()
    while log.run_jobs():
        pass
    return session


def test_e1_a_session_is_erased_from_memory_and_its_copies(harness: Harness) -> None:
    session = handed_over(harness)
    handed_over(harness, "t", TEA)
    assert len(everywhere(harness)) >= 3
    job = session.erase()
    assert known(harness.log()) == ["I prefer green tea over coffee"], "from the moment it returns"
    begun = harness.log().sessions.create("new", bootstrap=True)
    assert [CANARY in json.dumps(message.body) for message in begun.messages()] == [False], (
        "nor does a session begin with it"
    )
    done = worked(harness, job)
    assert (done.status, (done.result or {})["memories"]) == ("done", 1)
    assert everywhere(harness) == []
    assert {name for item in items_of(harness) if item["pk"] == KEYS.partition for name in item} <= TOMBSTONE
    assert known(harness.log()) == ["I prefer green tea over coffee"]
    assert copy_of(harness, "t")


@SQLITE
def test_e1_what_another_session_says_too_stays_known(harness: Harness) -> None:
    first, second = handed_over(harness), handed_over(harness, "t")
    (result,) = harness.log().memory()
    assert result.confirmations == 2
    worked(harness, first.erase())
    (result,) = harness.log().memory()
    assert (result.session_id, result.confirmations) == ("t", 1)
    worked(harness, second.erase())
    assert everywhere(harness) == []


def test_e1_a_person_is_erased_from_memory_and_copies(harness: Harness) -> None:
    log = harness.log()
    handed_over(harness)
    expired = log.sessions.create("expired", ttl_days=1)
    expired.append(HOME)
    expired.end()
    log.run_jobs()
    harness.clock.advance(2 * 86_400)
    job = log.erase_me()
    assert known(log) == []
    done = worked(harness, job)
    assert (done.status, (done.result or {})["memories"]) == ("done", 2)
    assert everywhere(harness) == []
    partition = OwnerKeys(OWNER).partition
    assert not [item for item in items_of(harness) if item["pk"] == partition and item["sk"].startswith("M#")]


@SQLITE
def test_e1_a_person_whose_memory_was_switched_off_since(harness: Harness) -> None:
    handed_over(harness)
    del harness.app.memory
    harness.app.memory = None
    assert worked(harness, harness.log().erase_me()).status == "done"
    assert everywhere(harness) == []


@SQLITE
def test_e3_an_engine_that_fails_keeps_the_erasing_open(harness: Harness) -> None:
    class Failing(Recorder):
        def erase(self, *_: Any, **__: Any) -> int:
            raise UnavailableError("the engine is down")

    recorder = Failing()
    log = harness.log()
    session = log.sessions.create("s")
    harness.app.memory = recorder
    for ask in (session.erase, log.erase_me):
        recorder.__class__, job = Failing, ask()
        for _ in range(3):
            assert deliver(harness, message_of(job)) == {"m0"}
            result = log.job(job.job_id)
            assert (result.status, result.error.code if result.error else "") == ("queued", "unavailable")
            harness.clock.advance(SECOND_PASS_SECONDS)
        recorder.__class__ = Recorder  # type: ignore[assignment]
        assert worked(harness, job).status == "done"


def test_e5_a_redacted_message_is_in_no_memory_and_no_copy(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(TEA, HOME, ANSWER)
    child = session.fork("child")
    child.append(CITY)
    for value in (session, child):
        value.end()
    while log.run_jobs():
        pass
    assert len(everywhere(harness)) >= 4
    job = session.redact(3)
    assert sorted(known(log)) == ["I live in Lisbon", "I prefer green tea over coffee"]
    done = worked(harness, job)
    assert (done.status, (done.result or {})["memories"]) == ("done", 1)
    assert everywhere(harness) == []
    assert sorted(known(log)) == ["I live in Lisbon", "I prefer green tea over coffee"]
    for name, count in (("s", 3), ("child", 4)):
        lines = copy_of(harness, name)
        assert [line.get("redacted", False) for line in lines] == [False, True, False, False][:count]
    for job in offloads(log):
        assert deliver(harness, message_of(job)) == set()
    assert everywhere(harness) == []


@SQLITE
def test_expired_it_is_still_known_and_the_copy_is_gone(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", ttl_days=1)
    session.append(HOME, ANSWER)
    session.end()
    log.run_jobs()
    harness.clock.advance(2 * 86_400)
    assert retained(harness).expired == 1
    (job,) = [job for job in log.jobs() if job.kind == "erase"]
    assert worked(harness, job).status == "done"
    with pytest.raises(NotFoundError):
        session.info()
    assert (known(log), copy_of(harness)) == ([f"I live in {CANARY}"], [])
    assert [place for place in everywhere(harness) if not place.startswith("M#")] == []
    log.forget(next(iter(log.memory())).memory_id)
    assert everywhere(harness) == []


# ------------------------------------------------------------ orders


def canaries(log: Turnlog) -> None:
    log.sessions.create("s").append(HOME, ANSWER)
    log.sessions.get("s").end()


def working(items: ItemTable, blobs: BlobStore) -> Any:
    """The job of the end."""
    app, _ = with_queue(items, blobs, 1000)
    try:
        header = app.log.commits.tail(KEYS).header
    except NotFoundError:
        return None
    return app.offload_session.run(OWNER, "s", {"last": header.last, "hash": header.hash.hex(), "reason": "ended"})


def _erased(items: ItemTable, blobs: BlobStore) -> None:
    app, _ = with_queue(items, blobs, 10**7)
    app.erase_session.run(OWNER, "s", {"first": app.erasure.identity(KEYS)})


def nothing_is_left(items: ItemTable, blobs: BlobStore) -> None:
    result = [item for item in sqlite_items(items) if not str(item["sk"]).startswith("J#")]
    assert places_of(CANARY, result, local_blobs(blobs)) == []
    assert not [name for name in local_blobs(blobs) if "/offload/" in name]
    holds_nothing(items, blobs)


@pytest.mark.parametrize("after", [None, True, pytest.param(False, marks=pytest.mark.full)])
def test_d2_every_order_of_an_offload_and_an_erasure_leaves_nothing(after: bool | None) -> None:
    """With and without a worker that crashes: the second pass takes what it left behind, and nothing of it is answered before."""

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not isinstance(run.results[0], Exception) or isinstance(run.results[0], TurnlogError), run.results
        assert not isinstance(run.results[1], BaseException), run.results
        is_gone(items, blobs)
        app, _ = with_queue(items, blobs, 10**8)
        assert known(Turnlog(InProcessBackend(app, OWNER))) == []
        _erased(items, blobs)
        nothing_is_left(items, blobs)

    operations = [working, erasing(passes=1)]
    for at in (None,) if after is None else range(2, 16) if is_full() else (9,):
        crash = Crash(0, at, after) if at is not None and after is not None else None
        tried = explore(operations, fresh(canaries), check, crash=crash, max_preemptions=1, only_conflicts=True)
        assert tried > 1


def test_d2_every_order_of_an_offload_and_a_redaction_leaves_nothing_of_the_message() -> None:
    def redacting(items: ItemTable, blobs: BlobStore) -> None:
        app, _ = with_queue(items, blobs, 5000)
        app.redact_message.run(OWNER, "s", {"first": app.erasure.identity(KEYS), "position": 2, "told": True})

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)], run.results
        app, _ = with_queue(items, blobs, 10**8)
        app.redact_message.run(OWNER, "s", {"first": app.erasure.identity(KEYS), "position": 2, "told": True})
        assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []
        assert not [name for name, data in local_blobs(blobs).items() if _unpacked(data)]

    operations = [working, redacting]
    assert explore(operations, fresh(canaries), check, max_preemptions=1, only_conflicts=True) > 1


@SQLITE
def test_the_note_of_an_erased_session_asks_for_nothing(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(HOME)
    session.end()
    waiting(harness)
    item = harness.app.engine.items.get_many([KEYS.offload_due])[KEYS.offload_due]
    worked(harness, session.erase())
    harness.app.engine.items.put(item)  # as the index may tell of it for a moment yet
    harness.clock.advance(3_600)
    assert retained(harness).offloaded == 0
    assert "g2pk" not in harness.app.engine.items.get_many([KEYS.offload_due])[KEYS.offload_due]
