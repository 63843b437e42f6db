"""Restoring snapshots, with and without the log of their session: an equal fold (D6), seen whole or not at all (D1)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.explorer import ScheduleRun, explore
from tests.privacy.expired import expire
from tests.support.restores import fold, info, items_of, step_of, unseen, varied
from tests.support.segments import FEW, KEYS, OWNER, filled, noise, said
from tests.support.steps import application, fresh
from turnlog.client.model import Session, Turnlog
from turnlog.core import positions as borders
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError, SessionExistsError, UnavailableError
from turnlog.jobs.models import Job
from turnlog.log.commit import VERIFIED
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable
from turnlog.snapshots import restore
from turnlog.testing.fixed import SequentialIds


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)


@pytest.mark.parametrize("target", ["again", "s"])
def test_d6_after_expiry_a_restored_session_is_the_fold_at_the_snapshot(
    harness: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", 64)
    session = varied(harness)
    made = session.create_snapshot("whole", kind="full")
    before, result = fold(session, made.position), info(session)
    stored = items_of(harness, KEYS, made.position)
    session.append(said(0))
    expire(harness, KEYS, tombstones=False)
    VERIFIED.clear()
    restored = session.restore_snapshot("whole", as_="rewind" if target == "s" else "fork", session_id=target)
    assert (restored.session_id, restored.head) == (target, made.position + 1)
    again = harness.log().sessions.get(target)
    assert items_of(harness, SessionKeys(OWNER, target), made.position) == stored
    assert fold(again, made.position) == before
    assert info(again) == result
    newest = next(again.history())
    assert (newest.action, newest.metadata["snapshot_id"]) == ("restore", made.snapshot_id)
    assert [item.session_id for item in harness.log().sessions.list()] == [target]
    assert again.append(said(1)).head == made.position + 2
    if target != "s":
        assert session.restore_snapshot("whole", session_id=target).head == made.position + 2, "it is there already"


def test_d6_e4_an_expired_session_is_gone_and_its_full_snapshot_is_there(harness: Any) -> None:
    """By its own time, before and after the eraser has been there."""
    log = harness.log()
    session = log.sessions.create("s", ttl_days=1, state={"a": 1})
    session.append(said(0), {"role": "user", "content": noise(9_000)}, {"role": "user", "content": noise(90_000)})
    session.create_snapshot("whole", kind="full")
    session.create_snapshot("point")
    before, data = session.snapshot("whole").content, io.BytesIO()
    if harness.name == "sqlite":
        session.export(data)
    harness.clock.advance(2 * 86_400)
    for target in ("not-erased-yet", "erased"):
        with pytest.raises(NotFoundError):
            session.info()
        assert [snapshot.name for snapshot in session.snapshots()] == ["whole"]
        assert session.snapshot("whole").content == before
        with pytest.raises(NotFoundError):
            session.snapshot("point")
        with pytest.raises(NotFoundError):
            session.restore_snapshot("point", session_id="other")
        restored = session.restore_snapshot("whole", session_id=target)
        assert restored.messages == 3
        value = log.sessions.get(target)
        assert [message.body for message in value.messages()] == [message.body for message in before.messages]
        assert value.state().state == {"a": 1}
        value.append(said(1))
        harness.app.retain_sessions()
        assert [job.kind for job in log.jobs()] == ["erase"]
        log.run_jobs()
        VERIFIED.clear()
    with pytest.raises(ConflictError) as raised:
        session.restore_snapshot("whole", as_="rewind")
    assert raised.value.error_code == "session_expiring"
    if harness.name == "sqlite":
        other = harness.log(user="eve")
        assert other.sessions.import_(data)[0].status == "imported"
        assert other.sessions.get("s").info().messages == 3, "what has come back is there"
        assert next(other.sessions.get("s").history()).metadata["imported"] is True
    session.delete_snapshot("whole")
    log.run_jobs()
    assert not harness.app.engine.blobs.names(KEYS.blob_prefix)


@pytest.mark.parametrize("kind", ["ref", "full"])
def test_d6_of_a_live_session_another_one_begins_with_the_snapshot_by_a_pointer(harness: Any, kind: Any) -> None:
    session = filled(harness.log(), 30, state={"a": 1})
    made = session.create_snapshot("point", kind=kind)
    before = fold(session, made.position)
    session.append(said(0), run={"iteration": 2})
    restored = session.restore_snapshot("point", session_id="other", idempotency_key="k")
    assert session.restore_snapshot("point", session_id="other", idempotency_key="k") == restored
    assert items_of(harness, SessionKeys(OWNER, "other"), 10**6)[1:] == [], "one commit of its own"
    other = harness.log().sessions.get("other")
    assert [message.body for message in other.messages()] == [message.body for message in before["messages"]]
    assert other.state().state == {"a": 1}
    assert other.context(budget=120_000).messages == before["windows"][0][0]
    other.append(said(9))
    assert session.info().messages == 31


@pytest.mark.parametrize("kind", ["ref", "full"])
def test_d6_a_live_session_goes_back_to_its_snapshot(harness: Any, kind: Any) -> None:
    session = filled(harness.log(), 6, state={"a": 1}, title="Then")
    made = session.create_snapshot("point", kind=kind)
    before = session.snapshot("point").content
    session.append(said(7), run={"iteration": 2})
    session.update(title="Now")
    restored = session.restore_snapshot("point", as_="rewind", idempotency_key="k")
    assert (restored.title, restored.messages) == ("Then", 6)
    assert session.restore_snapshot("point", as_="rewind", idempotency_key="k") == restored
    newest = next(session.history())
    assert newest.action == "restore"
    assert newest.metadata["snapshot_id"] == made.snapshot_id
    after = session.create_snapshot("after", kind=kind)
    content = session.snapshot("after").content
    assert content == before, "what was taken out of view is not in it"
    assert after.position > made.position
    if kind == "full":
        expire(harness, KEYS)
        assert session.snapshot("after").content == before


def test_d6_a_fork_has_a_full_snapshot_of_its_own_that_needs_no_parent(harness: Any, few: None) -> None:
    session = filled(harness.log(), 2 * FEW, batch=3, system=noise(9_000))
    session.append({"role": "user", "content": noise(90_000)}, *(said(n) for n in range(4)))
    child = session.fork("child", at=2 * FEW + 3)
    child.append(*(said(n) for n in range(FEW)))
    grandchild = child.fork("grandchild")
    grandchild.append(said(5), {"role": "user", "content": noise(80_000)})
    made = grandchild.create_snapshot("whole", kind="full")
    before = grandchild.snapshot("whole").content
    data = io.BytesIO()
    if harness.name == "sqlite":
        grandchild.export(data)
    for name in ("s", "child", "grandchild"):
        expire(harness, SessionKeys(OWNER, name), tombstones=False)
    VERIFIED.clear()
    assert grandchild.snapshot("whole").content == before
    grandchild.restore_snapshot("whole", session_id="again")
    again = harness.log().sessions.get("again")
    assert [message.body for message in again.messages()][-1] == {"role": "user", "content": noise(80_000)}
    assert again.context(at=made.position, budget=10**6).messages
    assert again.snapshot
    if harness.name == "sqlite":
        harness.log(user="eve").sessions.import_(data)
        copy = harness.log(user="eve").sessions.get("grandchild")
        assert list(copy.messages()) == [message for message in again.messages() if message.position <= made.position]


def test_a_made_id_is_the_same_for_the_same_key(harness: Any) -> None:
    session = filled(harness.log(), 5)
    session.create_snapshot("whole", kind="full")
    expire(harness, KEYS)
    first = session.restore_snapshot("whole", idempotency_key="k")
    assert session.restore_snapshot("whole", idempotency_key="k").session_id == first.session_id
    assert session.restore_snapshot("whole").session_id != first.session_id


def test_it_never_writes_over_a_session(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 5)
    session.create_snapshot("whole", kind="full")
    filled(log, 2, "taken")
    with pytest.raises(SessionExistsError):
        session.restore_snapshot("whole", session_id="s")
    expire(harness, KEYS)
    before = items_of(harness, SessionKeys(OWNER, "taken"), 99)
    with pytest.raises(SessionExistsError):
        session.restore_snapshot("whole", session_id="taken")
    assert items_of(harness, SessionKeys(OWNER, "taken"), 99) == before
    with pytest.raises(ConflictError) as raised:
        session.restore_snapshot("whole", as_="rewind")
    assert raised.value.error_code == "session_erased"
    with pytest.raises(InvalidInputError):
        session.restore_snapshot("whole", as_="rewind", session_id="taken")


def test_a_session_made_of_one_snapshot_is_not_that_of_another(harness: Any) -> None:
    session = filled(harness.log(), 5)
    for name in ("first", "second"):
        session.create_snapshot(name, kind="full")
    expire(harness, KEYS)
    restored = session.restore_snapshot("first", session_id="other")
    assert session.restore_snapshot("first", session_id="other") == restored
    with pytest.raises(SessionExistsError):
        session.restore_snapshot("second", session_id="other")


def test_a_pointer_cannot_be_restored_without_its_log(harness: Any) -> None:
    session = filled(harness.log(), 5)
    session.create_snapshot("point")
    session.create_snapshot("whole", kind="full")
    expire(harness, KEYS)
    with pytest.raises(NotFoundError):
        session.restore_snapshot("point", session_id="other")
    assert list(harness.log().sessions.list()) == []


def test_a_long_history_is_restored_by_a_job(harness: Any, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "MAX_POSITIONS", 20)
    session = filled(harness.log(), 3 * FEW, batch=4)
    session.create_snapshot("whole", kind="full")
    expire(harness, KEYS)
    job = session.restore_snapshot("whole", session_id="other", idempotency_key="k")
    assert isinstance(job, Job)
    assert session.restore_snapshot("whole", session_id="other", idempotency_key="k").job_id == job.job_id
    harness.log().run_jobs()
    done = harness.log().job(job.job_id)
    assert (done.status, done.result) == ("done", {"session_id": "other", "position": 3 * FEW + 2})
    assert len(list(harness.log().sessions.get("other").messages())) == 3 * FEW


def test_t1_another_owner_restores_nothing(harness: Any) -> None:
    session = filled(harness.log(), 5)
    made = session.create_snapshot("whole", kind="full")
    stranger = harness.log(user="eve").sessions.of("s")
    for name in ("whole", made.snapshot_id):
        with pytest.raises(NotFoundError):
            stranger.restore_snapshot(name, session_id="mine")
    assert list(harness.log(user="eve").sessions.list()) == []


def test_while_a_person_is_erased_nothing_is_restored(harness: Any) -> None:
    session = filled(harness.log(), 3)
    session.create_snapshot("whole", kind="full")
    harness.app.engine.items.put({"pk": KEYS.directory.pk, "sk": "ERASING", "c": 1})
    with pytest.raises(ConflictError) as raised:
        session.restore_snapshot("whole", session_id="other")
    assert raised.value.error_code == "erasing"
    assert items_of(harness, SessionKeys(OWNER, "other"), 99) == []


# ------------------------------------------------------------ D1


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_fault_at_every_call_of_making_and_deleting(harness: Any, few: None, when: str) -> None:
    """Each try makes a snapshot of what was said since the one before, and deletes another."""
    log = harness.log()
    session = log.sessions.create("s")
    steps: dict[str, Callable[[int], Any]] = {
        "create": lambda at: session.create_snapshot(f"new{at}", kind="full", idempotency_key=f"create{at}"),
        "delete": lambda at: session.delete_snapshot(f"new{at}", idempotency_key=f"delete{at}"),
    }
    for step, perform in steps.items():
        calls, at, done = 0, 0, list[int]()
        while at <= calls:
            if step == "create":
                session.append(*(said(n) for n in range(FEW)), {"role": "user", "content": noise(9_000, at)})
            started = harness.faults.calls
            if at:
                harness.faults.fail(at, when)
                with contextlib.suppress(UnavailableError):
                    perform(at)
                assert not harness.faults.is_pending, "the fault was never met: there are fewer calls than before"
            answer = perform(at)
            if not at:
                calls = harness.faults.calls - started
            assert perform(at) == answer
            names = [snapshot.name for snapshot in session.snapshots()]
            assert names.count(f"new{at}") == (1 if step == "create" else 0)
            done.append(at)
            at += step_of(harness)
        if step == "create":
            made = [session.snapshot(f"new{item}") for item in done]
            assert [item.content.message_count for item in made] == [
                (FEW + 1) * (number + 1) for number in range(len(done))
            ]
            assert calls > 8
        else:
            # Those of the other step that no fault was tried on.
            assert len(names) == max(0, len(made) - len(done))
    log.run_jobs()
    names = [name[len(KEYS.blob_prefix) :] for name in harness.app.engine.blobs.names(KEYS.blob_prefix)]
    left = [snapshot.snapshot_id for snapshot in session.snapshots()]
    tails = [name.partition("/")[2] for name in names if name.startswith("snap/")]
    assert set(tails) <= set(left), "of a deleted snapshot nothing is left"


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_fault_at_every_call_of_a_restore(harness: Any, few: None, when: str) -> None:
    log = harness.log()
    session = log.sessions.create("s", system=noise(5_000), state={"a": 1})
    large = [{"role": "user", "content": noise(size)} for size in (9_000, 80_000)]
    session.append(*(said(n) for n in range(FEW)), *large)
    made = session.create_snapshot("whole", kind="full")
    before = fold(session, made.position)
    expire(harness, KEYS)
    calls, at = 0, 0
    while at <= calls:
        VERIFIED.clear()
        target, started = f"other{at}", harness.faults.calls
        if at:
            harness.faults.fail(at, when)
            with contextlib.suppress(UnavailableError):
                session.restore_snapshot("whole", session_id=target)
            assert not harness.faults.is_pending, "the fault was never met: there are fewer calls than before"
            assert target in [item.session_id for item in log.sessions.list()] or unseen(
                log, target, before["messages"]
            )
        answer = session.restore_snapshot("whole", session_id=target)
        if not at:
            calls = harness.faults.calls - started
        assert session.restore_snapshot("whole", session_id=target) == answer
        value = log.sessions.get(target)
        assert fold(value, made.position) == before if not at else value.info().messages == FEW + 2
        at += step_of(harness)
    assert at > 15
    assert len(list(log.sessions.list())) == len(range(0, at, step_of(harness)))


# ------------------------------------------------------------ D2


def on(start: int, do: Callable[[Session], Any], session_id: str = "s") -> Callable[[ItemTable, BlobStore], Any]:
    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        return do(application(items, blobs, SequentialIds(start)).sessions.of(session_id))

    return operation


def prepared(log: Turnlog) -> None:
    session = filled(log, FEW, batch=4)
    session.create_snapshot("whole", kind="full")


def tiny(log: Turnlog) -> None:
    filled(log, 1).create_snapshot("whole", kind="full")
    expire(SimpleNamespace(app=log.backend.app), KEYS)  # type: ignore[attr-defined]


OTHERS: dict[str, Callable[[Session], Any]] = {
    "append": lambda session: session.append(said(50)),
    "end": lambda session: session.end(),
    "state": lambda session: session.put_state({"a": 1}),
    "snapshot": lambda session: session.create_snapshot("third", kind="full"),
    "delete": lambda session: session.delete_snapshot("whole"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_d2_every_order_of_a_full_snapshot_and_another_operation(few: None, other: str) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, Exception)], run.results
        session = application(items, blobs, SequentialIds(10**9)).sessions.of("s")
        messages = list(session.messages())
        for made in session.snapshots():
            content = session.snapshot(made.snapshot_id).content
            assert content.messages == [message for message in messages if message.position <= made.position]

    operations = [on(1000, lambda session: session.create_snapshot("new", kind="full")), on(2000, OTHERS[other])]
    tried = explore(operations, fresh(prepared), check, max_preemptions=2)
    assert tried > 3 or other in ("snapshot", "delete"), "what is independent of a full snapshot has one order"


def restoring(session: Session) -> Any:
    return session.restore_snapshot("whole", session_id="other")


def test_d2_every_order_of_a_restore_and_a_creation_makes_one_whole_session(few: None) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        log = application(items, blobs, SequentialIds(10**9))
        for result in run.results:
            assert not isinstance(result, Exception) or isinstance(result, ConflictError), result
        other = log.sessions.get("other")
        created = not isinstance(run.results[1], Exception)
        assert len(list(other.messages())) == (0 if created else 1)
        assert [item.session_id for item in log.sessions.list()].count("other") == 1

    creating = on(2000, lambda session: Turnlog(session.backend).sessions.create("other"))
    assert explore([on(1000, restoring), creating], fresh(tiny), check, max_preemptions=1) > 3


@pytest.mark.parametrize("preemptions", [0, pytest.param(1, marks=pytest.mark.full)])
def test_d2_every_order_of_two_restores_makes_one_whole_session(few: None, preemptions: int) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not all(isinstance(result, Exception) for result in run.results)
        other = application(items, blobs, SequentialIds(10**9)).sessions.get("other")
        assert len(list(other.messages())) == 1
        assert next(other.history()).action == "restore"
        assert other.info().head == 3

    tried = explore([on(1000, restoring), on(2000, restoring)], fresh(tiny), check, max_preemptions=preemptions)
    assert tried >= 2
