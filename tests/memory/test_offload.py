"""A session that ends, is reset or falls silent is handed to long-term memory: once, whole, and without anybody waiting for it."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import warnings
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import DATA, Harness, moto_harness
from tests.effort import FEWEST, boundaries
from tests.explorer import Crash, ScheduleRun, explore
from tests.support.erase_orders import PREEMPTIONS, with_queue
from tests.support.erasing import message_of, worked
from tests.support.jobs import deliver, waiting
from tests.support.offloads import ANSWER, CITY, SQLITE, TEA, Recorder, copy_of, known, offloads
from tests.support.retention import retained, runs_before
from tests.support.steps import fresh
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import MemoryConfigError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.memory import Offloaded
from turnlog.jobs.worker import Later
from turnlog.memory.hand_over import MAX_WAITS
from turnlog.ports import JOB_KINDS, BlobStore, ItemTable
from turnlog.settings import Settings

__all__ = ["runs_before"]  # the schedule as if it had been run a few days ago

DOG = {"role": "user", "content": "My dog is called Rufus."}
TEXTS = ("I live in Lisbon", "I prefer green tea over coffee")


@pytest.fixture
def recorder(harness: Harness) -> Recorder:
    made = Recorder()
    harness.app.memory = made
    return made


def silent(harness: Harness) -> Session:
    """A session that has said nothing for long, and is marked."""
    session = harness.log().sessions.create("s", inactive_after_minutes=2880)
    session.append(TEA, ANSWER)
    harness.clock.advance(3 * 86_400)
    assert retained(harness).timed_out == 1
    return session


def test_ended_it_is_copied_whole_and_known(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(TEA, ANSWER, meta=[{"metadata": {"m": 1}, "author": "ada"}, {}])
    session.append(CITY, ANSWER)
    ended = session.end()
    assert list(log.memory()) == [], "nobody waits for it"
    assert log.run_jobs() == 1
    (job,) = offloads(log)
    assert (job.status, job.session_id, job.error) == ("done", "s", None)
    result = job.result or {}
    assert (result["status"], result["reason"], result["engine"]) == ("offloaded", "ended", "embedded")
    assert (result["first"], result["last"], result["messages"], result["memories"]) == (1, ended.head, 4, 2)
    assert [(item.text, item.session_id, item.position, item.replaced_by) for item in log.memory()] == [
        ("I live in Lisbon", "s", 4, None),
        ("I prefer green tea over coffee", "s", 2, None),
    ]
    lines = copy_of(harness)
    assert [(line["position"], line["loop"], line["role"], line["body"], line["in_view"]) for line in lines] == [
        (2, 1, "user", TEA, True),
        (3, 1, "assistant", ANSWER, True),
        (4, 2, "user", CITY, True),
        (5, 2, "assistant", ANSWER, True),
    ]
    assert (lines[0]["author"], lines[0]["metadata"], lines[0]["created_at"][:10]) == ("ada", {"m": 1}, "2025-11-21")
    assert result["copied"] == 4 and result["size_bytes"] > 0


@SQLITE
def test_an_engine_is_told_what_was_said_and_when(harness: Harness, recorder: Recorder) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"path": "/etc"}'}}
    session = harness.log().sessions.create("s")
    session.append(
        CITY,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found it"},
        {"role": "user", "content": "half of a", },
        {"role": "user", "content": "x" * 70_000},
        {"role": "assistant", "content": ""},
        meta=[{"created_at": "2020-01-02T03:04:05Z"}, {}, {}, {"status": "interrupted"}, {}, {}],
    )  # fmt: skip
    ended = session.end()
    harness.log().run_jobs()
    ((part, said),) = recorder.parts
    assert (part.session_id, part.owner.user_id, part.first, part.last) == ("s", "ada", 1, ended.head)
    assert (part.reason, part.ended_ms) == ("ended", harness.app.log.commits.tail(_keys()).header.time_ms)
    assert [(item.position, item.role, item.text[:30]) for item in said] == [
        (2, "user", "I live in Lisbon."),
        (3, "assistant", 'look {"path": "/etc"}'),
        (4, "tool", "found it"),
        (6, "user", "x" * 30),
    ]
    assert said[0].time_ms == 1_577_934_245_000
    assert list(part.read_messages()) == said, "it is read anew"


def _keys(session_id: str = "s") -> Any:
    from turnlog.log.keys import SessionKeys

    return SessionKeys(Owner.of("acme", "ada"), session_id)


@SQLITE
def test_a_reset_hands_over_too(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s").append(TEA, ANSWER)
    fresh_one = log.sessions.get("s").reset()
    assert fresh_one.reset().id != fresh_one.id
    log.run_jobs()
    assert {(job.session_id, (job.result or {})["reason"]) for job in offloads(log)} == {
        ("s", "reset"),
        (fresh_one.id, "reset"),
    }
    assert known(log) == ["I prefer green tea over coffee"]


def test_silent_then_reopened_then_ended_it_is_handed_over_in_two_parts(harness: Harness, recorder: Recorder) -> None:
    session, log = silent(harness), harness.log()
    log.run_jobs()
    assert recorder.told == [[2, 3]]
    session.append(CITY, ANSWER)
    ended = session.end()
    log.run_jobs()
    assert recorder.told == [[2, 3], [5, 6]]
    (first, _), (second, _) = recorder.parts
    assert (first.reason, first.last, second.reason, second.first, second.last) == (
        "inactive",
        4,
        "ended",
        5,
        ended.head,
    )
    assert first.ended_ms < second.ended_ms and first.id != second.id
    assert [line["position"] for line in copy_of(harness)] == [2, 3, 5, 6], "the copy is of all of it"
    assert {(job.result or {})["status"] for job in offloads(log)} == {"offloaded"}


@SQLITE
def test_delivered_again_and_late_it_gives_one_memory(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    log.sessions.create("s").append(TEA, ANSWER)
    log.sessions.get("s").end()
    (body,) = waiting(harness)
    for _ in range(2):
        assert deliver(harness, body) == set()
    assert recorder.told == [[2, 3]]
    (job,) = offloads(log)
    options = {"last": 4, "hash": "", "reason": "ended"}
    tail = harness.app.log.commits.tail(_keys()).header
    again = harness.app.offload_session.run(Owner.of("acme", "ada"), "s", {**options, "hash": tail.hash.hex()})
    assert again == job.result and recorder.told == [[2, 3]]


@SQLITE
def test_a_part_is_told_under_one_id_however_often(harness: Harness, recorder: Recorder) -> None:
    """The answer of the engine is lost: it is told the same part again."""
    log = harness.log()
    log.sessions.create("s").append(TEA, ANSWER)
    log.sessions.get("s").end()
    (body,) = waiting(harness)
    remember = recorder.remember

    def lost(part: Offloaded) -> int:
        remember(part)
        raise UnavailableError("the answer did not come")

    recorder.remember = lost  # type: ignore[method-assign]
    assert deliver(harness, body) == set()
    recorder.remember = remember  # type: ignore[method-assign]
    assert deliver(harness, body) == set()
    (first, _), (second, _) = recorder.parts
    assert (first.id, first.first, first.last) == (second.id, second.first, second.last)
    assert offloads(log)[0].status == "done"


@SQLITE
def test_a_fork_hands_over_what_is_its_own(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    parent = log.sessions.create("s")
    parent.append(TEA, ANSWER)
    child = parent.fork("child")
    child.append(CITY, ANSWER)
    child.end()
    parent.append(DOG, ANSWER)
    parent.end()
    log.run_jobs()
    assert {part.session_id: [item.text for item in said] for part, said in recorder.parts} == {
        "child": ["I live in Lisbon.", "Noted."],
        "s": ["I prefer green tea over coffee.", "Noted.", "My dog is called Rufus.", "Noted."],
    }
    assert [line["body"] for line in copy_of(harness, "child")] == [TEA, ANSWER, CITY, ANSWER], "its history is whole"


def test_what_was_rewound_or_redacted_is_not_handed_over(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(TEA, ANSWER)
    session.append(CITY, ANSWER)
    session.rewind(3)
    session.append(DOG, {"role": "user", "content": "canary"})
    session.redact(8)
    session.end()
    while log.run_jobs():
        pass
    assert recorder.told == [[2, 3, 7]]
    assert [(line["position"], line["in_view"], line.get("redacted", False)) for line in copy_of(harness)] == [
        (2, True, False),
        (3, True, False),
        (4, False, False),
        (5, False, False),
        (7, True, False),
        (8, True, True),
    ]
    assert "canary" not in json.dumps(copy_of(harness))


def test_a_job_that_comes_too_late_does_nothing(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    for name, ttl_days in (("erased", None), ("expired", 1)):
        session = log.sessions.create(name, ttl_days=ttl_days)
        session.append(TEA, ANSWER)
        session.end()
    bodies = waiting(harness)
    worked(harness, log.sessions.get("erased").erase())
    harness.clock.advance(2 * 86_400)
    assert deliver(harness, *bodies) == set()
    assert recorder.parts == []
    assert [(job.status, job.result) for job in offloads(log)] == [("done", {"status": "gone"})] * 2
    assert copy_of(harness, "erased") == copy_of(harness, "expired") == []


@SQLITE
def test_an_empty_session_is_not_told(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    log.sessions.create("s").end()
    log.run_jobs()
    assert recorder.parts == []
    result = offloads(log)[0].result or {}
    assert (result["status"], result["messages"], result["copied"]) == ("offloaded", 0, 0)


@SQLITE
def test_off_it_asks_for_nothing(harness: Harness) -> None:
    harness.app.settings = Settings(memory="none")
    log = harness.log()
    session = log.sessions.create("s")
    session.append(TEA, ANSWER)
    before = harness.faults.calls
    session.end()
    spent = harness.faults.calls - before
    assert (list(log.jobs()), list(log.memory()), log.memory_page().engine) == ([], [], None)
    assert not harness.app.engine.items.get_many([_keys().offload_due])
    assert spent <= 6


# ------------------------------------------------------------ outages


def test_a_queue_that_is_down_stops_nobody_and_is_asked_again_later(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(TEA, ANSWER)

    def down(*_: Any, **__: Any) -> str:
        raise UnavailableError("the queue is down")

    with monkeypatch.context() as patch:
        patch.setattr(type(harness.app.engine.queue), "send", down)
        assert session.end().status == "ended"
        assert retained(harness).offloaded == 0, "the job may be on its way"
        harness.clock.advance(16 * 60)
        assert retained(harness).failed == 1
    assert waiting(harness) == []
    harness.clock.advance(3_600)
    assert retained(harness).offloaded == 1
    log.run_jobs()
    assert known(log) == ["I prefer green tea over coffee"]
    for _ in range(2):
        harness.clock.advance(2 * 86_400)
        assert (retained(harness).offloaded, waiting(harness)) == (0, [])


@SQLITE
def test_done_it_is_looked_at_no_more(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s").append(TEA)
    log.sessions.get("s").end()
    log.run_jobs()
    assert "g2pk" not in harness.app.engine.items.get_many([_keys().offload_due])[_keys().offload_due]


@SQLITE
def test_a_silence_that_was_handed_over_is_looked_at_no_more(harness: Harness) -> None:
    silent(harness)
    harness.log().run_jobs()
    assert known(harness.log()) == ["I prefer green tea over coffee"]
    assert "g2pk" not in harness.app.engine.items.get_many([_keys().offload_due])[_keys().offload_due]


@SQLITE
def test_a_note_of_before_the_hand_over_was_switched_off_is_let_go(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.log()
    log.sessions.create("s").append(TEA)
    harness.app.ask_offload.note(_keys(), "ended")
    log.sessions.get("s").end()
    monkeypatch.setattr(harness.app.ask_offload, "_is_on", False)
    assert harness.app.ask_offload.again(_keys(), harness.app.log.commits.tail(_keys()).header) == ""
    assert "g2pk" not in harness.app.engine.items.get_many([_keys().offload_due])[_keys().offload_due]


@SQLITE
@pytest.mark.parametrize(("seconds", "is_kept"), [(59.999, True), (60, False)])
def test_a_note_waits_a_minute_for_its_commit(harness: Harness, seconds: float, is_kept: bool) -> None:
    harness.log().sessions.create("s").append(TEA)
    harness.app.ask_offload.note(_keys(), "ended")
    harness.clock.advance(seconds)
    assert harness.app.ask_offload.again(_keys(), harness.app.log.commits.tail(_keys()).header) == ""
    note = harness.app.engine.items.get_many([_keys().offload_due])[_keys().offload_due]
    assert ("g2pk" in note) is is_kept


@SQLITE
def test_an_end_that_never_came_is_let_go(harness: Harness) -> None:
    """The note was put, and the request ended: the session goes on, and nothing is handed over."""
    log = harness.log()
    session = log.sessions.create("s")
    session.append(TEA)
    harness.app.ask_offload.note(_keys(), "ended")
    harness.clock.advance(16 * 60)
    assert retained(harness).offloaded == 0
    assert (session.info().status, list(log.jobs())) == ("active", [])
    assert "g2pk" not in harness.app.engine.items.get_many([_keys().offload_due])[_keys().offload_due]
    session.end()
    log.run_jobs()
    assert known(log) == ["I prefer green tea over coffee"]


@SQLITE
def test_an_engine_that_is_down_is_asked_again_at_no_receive_of_the_queue(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    log.sessions.create("s").append(TEA)
    log.sessions.get("s").end()
    (job,) = offloads(log)
    recorder.failing = UnavailableError("down")
    for waits in range(1, 8):
        assert deliver(harness, message_of(job)) == set(), "the message is done, and another one waits"
        job = log.job(job.job_id)
        assert (job.status, job.result) == ("queued", {"status": "waiting", "reason": "unavailable", "waits": waits})
    recorder.failing = None
    assert deliver(harness, message_of(job)) == set()
    assert (log.job(job.job_id).result or {})["memories"] == 7


@SQLITE
def test_an_engine_that_is_down_for_a_day_leaves_a_dead_letter(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    log.sessions.create("s").append(TEA)
    log.sessions.get("s").end()
    (job,) = offloads(log)
    record = harness.app.log.records.get(_owner_jobs(), job.job_id)
    options = {**record.content["options"], "waits": MAX_WAITS}
    recorder.failing = UnavailableError("down")
    with pytest.raises(UnavailableError):
        harness.app.offload_session.run(Owner.of("acme", "ada"), "s", options)


@SQLITE
@pytest.mark.parametrize(
    ("waits", "asked_seconds", "delay_seconds"),
    [
        (0, None, 30),
        (1, None, 60),
        (4, None, 480),
        (5, None, 900),
        (99, None, 900),
        (0, 45, 45),
        (2, 45, 120),
        (0, 999, 900),
    ],
)
def test_each_wait_for_an_engine_that_is_down_is_longer_to_fifteen_minutes(
    harness: Harness, recorder: Recorder, waits: int, asked_seconds: int | None, delay_seconds: int
) -> None:
    session = harness.log().sessions.create("s")
    session.append(TEA)
    session.end()
    (job,) = offloads(harness.log())
    record = harness.app.log.records.get(_owner_jobs(), job.job_id)
    recorder.failing = UnavailableError("down", retry_after_seconds=asked_seconds)
    options = {**record.content["options"], "waits": waits}
    later = harness.app.offload_session.run(Owner.of("acme", "ada"), "s", options)
    assert isinstance(later, Later)
    assert (later.delay_seconds, later.options) == (delay_seconds, {**options, "waits": waits + 1})


def _owner_jobs() -> Any:
    from turnlog.log.keys import OwnerKeys

    return OwnerKeys(Owner.of("acme", "ada")).jobs


def test_wrong_settings_fail_the_job_and_it_can_be_redriven(harness: Harness, recorder: Recorder) -> None:
    log = harness.log()
    log.sessions.create("s").append(TEA)
    log.sessions.get("s").end()
    recorder.failing = MemoryConfigError("no such memory")
    log.run_jobs()
    (job,) = offloads(log)
    assert (job.status, job.error.code if job.error else "") == ("failed", "memory_misconfigured")
    harness.clock.advance(2 * 86_400)
    assert (retained(harness).failed, offloads(log)[0].status) == (0, "failed"), "it waits for an operator"
    recorder.failing = None
    assert log.redrive(job.job_id).jobs == [job.job_id]
    log.run_jobs()
    assert offloads(log)[0].status == "done"
    assert recorder.told == [[2]]


# ------------------------------------------------------------ D1, D2


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_fault_at_every_call_of_an_end_and_its_offload(harness: Harness, when: str) -> None:
    """The client does not try again: what the schedule, and the queue, find is enough."""
    wanted, tried = [0], 0
    for at in wanted:
        user = f"user-{at}"
        log = harness.log(user=user)
        session = log.sessions.create("s")
        session.append(TEA, CITY, ANSWER)
        offloads(log)
        started = harness.faults.calls
        if at:
            harness.faults.fail(at, when)
        with contextlib.suppress(UnavailableError):
            session.end()
        _work(harness, user)
        if at == 0:
            wanted += boundaries(harness.faults.calls - started, harness.name, sqlite=2)
        else:
            assert not harness.faults.is_pending, "the fault was never met"
            tried += 1
        for _ in range(2):
            harness.clock.advance(2 * 86_400)
            retained(harness)
            _work(harness, user)
        if session.info().status == "active":
            assert (known(log), copy_of(harness, user=user)) == ([], []), "it ended before its end"
            continue
        assert known(log) == list(reversed(TEXTS)) or sorted(known(log)) == sorted(TEXTS)
        assert [item.confirmations for item in log.memory()] == [1, 1]
        assert [line["position"] for line in copy_of(harness, user=user)] == [2, 3, 4]
        assert {job.status for job in offloads(log)} == {"done"}
    assert tried == len(wanted) - 1 >= FEWEST


def _work(harness: Harness, user: str) -> None:
    """What waits in the queue and, where a message was lost on the way, nothing."""
    with contextlib.suppress(UnavailableError):
        for job in offloads(harness.log(user=user)):
            if job.status == "queued":
                deliver(harness, message_of(job, user))


def ended(log: Turnlog) -> None:
    for name, said in (("s", TEA), ("t", CITY)):
        log.sessions.create(name).append(said, ANSWER)


def offloading(name: str, start: int) -> Any:
    """An end, and the job of it."""

    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        app, _ = with_queue(items, blobs, start)
        Session(InProcessBackend(app, Owner.of("acme", "ada")), name).end()
        for delivery in app.engine.queue.receive() if app.engine.queue else ():
            app.run_job(delivery.body, kinds=JOB_KINDS)

    return operation


def reader(items: ItemTable, blobs: BlobStore) -> Turnlog:
    app, _ = with_queue(items, blobs, 10**8)
    return Turnlog(InProcessBackend(app, Owner.of("acme", "ada")))


def test_d2_every_order_of_two_sessions_of_a_person_loses_no_fact() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)]
        assert sorted(known(reader(items, blobs))) == sorted(TEXTS)

    operations = [offloading("s", 1000), offloading("t", 2000)]
    assert explore(operations, fresh(ended), check, max_preemptions=PREEMPTIONS, only_conflicts=True) > 1


def test_d2_every_order_of_two_workers_with_one_job_tells_it_once() -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not [result for result in run.results if isinstance(result, BaseException)], run.results
        assert [(item.text, item.confirmations) for item in reader(items, blobs).memory()] == [(TEXTS[1], 1)]

    operations = [offloading("s", 1000), offloading("s", 2000)]
    assert explore(operations, fresh(ended), check, max_preemptions=PREEMPTIONS, only_conflicts=True) > 6


@pytest.mark.parametrize("after", [False, True])
def test_d1_a_worker_that_crashes_anywhere_leaves_the_rest_to_the_next(after: bool) -> None:
    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        offloading("s", 9000)(items, blobs)
        assert [(item.text, item.confirmations) for item in reader(items, blobs).memory()] == [(TEXTS[1], 1)]

    for at in range(1, 25, 3):
        explore([offloading("s", 1000)], fresh(ended), check, crash=Crash(0, at, after))


# ------------------------------------------------------------ V1, V2


@pytest.mark.parametrize("messages", [10, 500])
def test_v1_an_end_asks_with_three_requests_at_any_length(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    with moto_harness(monkeypatch) as moto:
        log = moto.log()
        session = log.sessions.create("s")
        for at in range(0, messages, 25):
            session.append(*({"role": "user", "content": f"{at} {n}"} for n in range(min(25, messages - at))))
        moto.clock.advance(1)
        with moto.meter.measure() as spent:
            session.end()
        # The log's end, the note, the commit, the entry in the list, the job's record and its message.
        assert dict(spent.requests) == {"Query": 1, "PutItem": 4, "SendMessage": 1}
        assert spent.write_units <= 5


def test_v2_contents_are_not_in_the_queue_nor_in_logs_nor_in_receipts(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    log = harness.log()
    session = log.sessions.create("s")
    session.append({"role": "user", "content": "I live in Canaryville."})
    session.end()
    (body,) = waiting(harness)
    deliver(harness, body)
    assert known(log) == ["I live in Canaryville"]
    assert "Canary" not in body + offloads(log)[0].model_dump_json()
    assert "Canary" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("turnlog")
    )


@SQLITE
def test_real_conversations_are_handed_over_whole(harness: Harness, real_data: ModuleType) -> None:
    log = harness.log()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loader leaves its files to the garbage collector
        wanted = list(real_data.iter_sessions(str(DATA / "dev" / "memorybank")))[:4]
        gc.collect()
    for at, entry in enumerate(wanted):
        session = log.sessions.create(f"s{at}")
        said = [{"role": m["role"], "content": m["content"]} for m in entry["messages"]]
        for start in range(0, len(said), 25):
            session.append(*said[start : start + 25])
        session.end()
        while log.run_jobs():
            pass
        assert [line["body"] for line in copy_of(harness, f"s{at}")] == said
    assert "我叫张曼婷" in known(log)
    assert all(item.session_id and item.position for item in log.memory())
