"""E4 and retention: what has expired answers to nobody, at once and exactly; a schedule erases it, and marks who is silent."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Literal

import pytest

from tests.conftest import Harness
from tests.explorer import ScheduleRun, explore
from tests.log.everything import blobs_of, held, local_blobs, places_of, sqlite_items
from tests.support.erase_orders import is_gone, with_queue
from tests.support.erasing import CANARY, KEYS, OWNER, TOMBSTONE, message_of, noise, of_session, worked
from tests.support.jobs import deliver
from tests.support.retention import retained
from tests.support.session_routes import BODIES, QUERIES, SESSION_ROUTES
from tests.support.steps import fresh
from turnlog.app import make_application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session
from turnlog.core import identity as tenancy
from turnlog.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SessionExistsError,
    TurnlogError,
    UnavailableError,
)
from turnlog.core.identity import Owner
from turnlog.core.times import DAY_MS
from turnlog.http.lambda_workers import make_retention
from turnlog.jobs.models import Job
from turnlog.log.commits import Tail
from turnlog.log.keys import REQUESTS, SessionKeys
from turnlog.log.tombstones import EXPIRY_SHARDS, due_bucket, due_index, due_shards
from turnlog.ports import BlobStore, Item, ItemTable, Key, Query
from turnlog.privacy import erase, retention
from turnlog.privacy.erase import start_due
from turnlog.privacy.retention import RetentionCounts
from turnlog.routing import BY_NAME, HttpRequest, call
from turnlog.server.lambda_calls import LocalContext
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock

DAY = DAY_MS // 1000


HI = {"role": "user", "content": CANARY}


def erasures(harness: Harness) -> list[Job]:
    return [job for job in harness.log().jobs() if job.kind == "erase"]


def test_e4_expired_is_invisible_at_once_everywhere(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", ttl_days=2, state={"a": 1})
    session.append(HI, run={"iteration": 1})
    session.create_snapshot("named")
    kept = log.sessions.create("kept", ttl_days=3)
    result = session.info()
    assert (result.ttl_days, result.expires_at) == (2, "2025-11-23T00:00:00.001Z")
    harness.clock.advance(2 * DAY)
    assert session.info() == result, "one millisecond is left"
    assert {item.session_id for item in log.sessions.list()} == {"s", "kept"}
    harness.clock.advance(0.001)
    for route in [
        session_route for session_route in SESSION_ROUTES if session_route.name != "import_session"
    ]:  # that begins one of the caller's own
        path = {"session_id": "s", "agent_id": "main", "snapshot": "named", "position": "2"}
        queries = [
            QUERIES.get(route.name, {}),
            *([{"before": "3"}] if route.name in ("read_history", "read_messages") else []),
        ]
        for query in queries:
            with pytest.raises(NotFoundError):
                call(harness.app, route, HttpRequest(OWNER, path, query, BODIES.get(route.name)))
    for at in (2, "2025-11-21T00:00:00.5Z"):
        with pytest.raises(NotFoundError):
            session.context(at=at)
        with pytest.raises(NotFoundError):
            session.state(at=at)
    assert [item.session_id for item in log.sessions.list()] == ["kept"]
    for if_exists in ("error", "return"):
        with pytest.raises(SessionExistsError):
            log.sessions.create("s", if_exists=if_exists)
    assert kept.info().session_id == "kept"


def test_expiry_slides_with_activity_and_is_changed_by_a_patch(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", ttl_days=2)
    for _ in range(4):
        harness.clock.advance(1.5 * DAY)
        session.append(HI)
    assert session.info().expires_at == "2025-11-29T00:00:00.000Z"
    assert session.update(ttl_days=10).expires_at == "2025-12-07T00:00:00.001Z"
    assert (session.update(ttl_days=None).expires_at, session.info().ttl_days) == (None, None)
    harness.clock.advance(1000 * DAY)
    assert session.info().status == "active"
    with pytest.raises(InvalidInputError):
        session.update(ttl_days=0)
    ended = log.sessions.create("ended", ttl_days=1)
    ended.end()
    fresh_one = log.sessions.create("old", ttl_days=7, inactive_after_minutes=4320).reset()
    assert (fresh_one.info().ttl_days, fresh_one.info().inactive_after_minutes) == (7, 3 * 1440)
    harness.clock.advance(DAY + 1)
    with pytest.raises(NotFoundError):
        ended.info()


def test_expiry_is_exact_without_any_cache(harness: Harness) -> None:
    session = harness.log().sessions.create("s", ttl_days=1)
    session.append(HI)
    harness.app.engine.items.delete_many([KEYS.meta, KEYS.system, KEYS.directory])
    assert session.info().messages == 1
    harness.clock.advance(DAY + 1)
    with pytest.raises(NotFoundError):
        session.info()


def test_the_schedule_erases_what_has_expired_and_frees_its_id_a_day_later(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", title=CANARY, ttl_days=1)
    session.append(HI, {"role": "user", "content": noise(60_000)}, idempotency_key="k")
    session.append(HI, idempotency_key="another")
    other = log.sessions.create("other", ttl_days=30)
    assert retained(harness) == RetentionCounts()
    harness.clock.advance(DAY + 1)
    assert retained(harness) == RetentionCounts(expired=1)
    assert retained(harness) == RetentionCounts(expired=1), "the same job: it is not done yet"
    (job,) = erasures(harness)
    assert worked(harness, job).status == "done"
    assert held(CANARY, harness) == []
    assert {name for item in of_session(harness) for name in item} <= TOMBSTONE
    assert not any(str(item["sk"]).startswith(REQUESTS) for item in of_session(harness))
    assert retained(harness) == RetentionCounts()
    with pytest.raises(SessionExistsError):
        log.sessions.create("s")
    harness.clock.advance(DAY)
    assert retained(harness) == RetentionCounts(released=1)
    for erasure in erasures(harness):
        assert worked(harness, erasure).status == "done"
    assert of_session(harness) == []
    assert log.sessions.create("s", title="another").info().title == "another"
    assert log.sessions.get("s").append({"role": "user", "content": "of this life"}, idempotency_key="k").head == 2
    assert {item.session_id for item in log.sessions.list()} == {"s", "other"}
    assert retained(harness) == RetentionCounts()
    assert other.info().expires_at


@pytest.mark.usefixtures("by_bucket")
def test_the_id_of_an_expired_session_is_taken_and_each_refusal_says_until_when(harness: Harness) -> None:
    log, export = harness.log(), io.BytesIO()
    log.sessions.create("s", ttl_days=1).append(HI)
    log.sessions.of("s").export(export)
    harness.clock.advance(DAY + 1)
    asks: list[Callable[[], object]] = [
        lambda: log.sessions.create("s"),
        lambda: log.sessions.get_or_create("s"),
        lambda: log.sessions.import_(io.BytesIO(export.getvalue())),
    ]
    for ask in asks:
        with pytest.raises(
            SessionExistsError, match=r"has expired or was erased, until a day after .* full snapshots too"
        ):
            ask()
    retained(harness)
    for job in erasures(harness):
        assert worked(harness, job).status == "done"
    with pytest.raises(SessionExistsError, match="has expired or was erased, until a day after"):
        log.sessions.get_or_create("s")
    with pytest.raises(ConflictError, match="expired or was erased: take another"):
        log.sessions.import_(io.BytesIO(export.getvalue()))


def test_an_entry_that_lags_is_judged_by_the_log(harness: Harness) -> None:
    """The list and its index are touched every five minutes: what they say of the time is a minute old, or a lost touch old."""
    session = harness.log().sessions.create("s", ttl_days=2)
    before = harness.app.engine.items.get_many([KEYS.directory])[KEYS.directory]
    harness.clock.advance(1.9 * DAY)
    session.append(HI)
    harness.app.engine.items.put(before)
    harness.clock.advance(0.2 * DAY)
    assert retained(harness) == RetentionCounts(moved=1)
    assert retained(harness) == RetentionCounts()
    assert session.info().messages == 1
    harness.clock.advance(1.9 * DAY)
    assert retained(harness) == RetentionCounts(expired=1)


def test_full_snapshots_stay_until_their_own_expiry(harness: Harness) -> None:
    session = harness.log().sessions.create("s", title="t", ttl_days=1)
    session.append({"role": "user", "content": noise(60_000)})
    session.create_snapshot("pointer", metadata={"m": CANARY})
    items, blobs, records = harness.app.engine.items, harness.app.engine.blobs, harness.app.log.records
    snapshot_id = session.create_snapshot("whole", kind="full").snapshot_id
    record = records.get(KEYS.snapshots, snapshot_id)
    whole = session.snapshot("whole").content
    session.append({"role": "user", "content": noise(60_000, 9)})
    harness.clock.advance(DAY + 1)
    assert retained(harness) == RetentionCounts(expired=1)
    for job in erasures(harness):
        assert worked(harness, job).status == "done"
    names = [name.removeprefix(KEYS.blob_prefix) for name in blobs.names(KEYS.blob_prefix)]
    assert [name.partition("-")[0] for name in names] == ["payload/000000000002"]
    assert records.named(KEYS.snapshots, "whole") == record
    assert [snapshot.name for snapshot in session.snapshots()] == ["whole"]
    assert session.snapshot("whole").content == whole
    with pytest.raises(NotFoundError):
        session.snapshot("pointer")
    harness.clock.advance(DAY + 1)
    assert retained(harness).released == 1
    for job in erasures(harness):
        assert worked(harness, job).status == "done"
    assert records.named(KEYS.snapshots, "whole") == record, "while it is there, the id stays taken"
    with pytest.raises(SessionExistsError):
        harness.log().sessions.create("s")
    items.delete_many([KEYS.snapshots.record(record.id), KEYS.snapshots.name("whole")])
    blobs.erase(KEYS.blob_prefix)
    harness.clock.advance(DAY + 1)
    retained(harness)
    for job in erasures(harness):
        assert worked(harness, job).status == "done"
    assert harness.log().sessions.create("s").info().messages == 0


def test_a_release_without_time_leaves_the_rest_to_the_next(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    session, blobs = harness.log().sessions.create("s", ttl_days=1), harness.app.engine.blobs
    session.append({"role": "user", "content": noise(60_000)})
    record = session.create_snapshot("whole", kind="full").snapshot_id
    harness.clock.advance(DAY + 1)
    retained(harness)
    assert [worked(harness, job).status for job in erasures(harness)] == ["done"]
    harness.app.engine.items.delete_many([KEYS.snapshots.record(record)])
    for work_ms in (-1, erase.WORK_MS):
        assert blobs.names(KEYS.blob_prefix)
        monkeypatch.setattr(erase, "WORK_MS", work_ms)
        harness.clock.advance(DAY + 1)
        retained(harness)
        for job in erasures(harness):
            worked(harness, job)
    assert not blobs.names(KEYS.blob_prefix)
    assert harness.log().sessions.create("s").info().messages == 0


@pytest.mark.parametrize("stage", ["expired", "fenced", "erased", "bare"])
@pytest.mark.parametrize("fault", [0, *range(1, 9)])
def test_an_expired_session_is_erased_with_the_full_snapshots_it_has_left(
    harness: Harness, stage: str, fault: int
) -> None:
    session = harness.log().sessions.create("s", title=CANARY, ttl_days=1)
    session.append({"role": "user", "content": noise(60_000)})
    session.create_snapshot(CANARY, kind="full")
    harness.clock.advance(DAY + 1)
    if stage != "expired":
        retained(harness)
        for job in erasures(harness):
            deliver(harness, message_of(job))
            if stage != "fenced":
                assert worked(harness, job).status == "done"
    if stage == "bare":
        harness.clock.advance(DAY + 1)
        assert retained(harness).released == 1
        for job in erasures(harness):
            assert worked(harness, job).status == "done"
    if fault:
        harness.faults.fail(fault, "after")
    job = None
    while job is None:
        with suppress(UnavailableError):
            job = session.erase(idempotency_key="k")
    for read in (
        lambda: list(session.snapshots()),
        lambda: session.restore_snapshot(CANARY, session_id="r"),
        session.erase,
    ):
        with pytest.raises(NotFoundError):
            read()
    assert session.erase(idempotency_key="k").job_id == job.job_id
    for other in erasures(harness):
        assert worked(harness, other).status == "done"
    assert held(CANARY, harness) == []


def test_an_erasure_that_is_done_leaves_a_later_session_of_the_id(harness: Harness) -> None:
    log = harness.log()
    job = log.sessions.create("s").erase(idempotency_key="k")
    worked(harness, job)
    harness.clock.advance(DAY + 1)
    retained(harness)
    for release in erasures(harness):
        worked(harness, release)
    later = log.sessions.create("s", ttl_days=1)
    later.append(HI)
    later.create_snapshot("whole", kind="full")
    harness.clock.advance(DAY + 1)
    assert later.erase(idempotency_key="k").job_id == job.job_id
    assert later.restore_snapshot("whole", session_id="r").messages == 1


def test_an_expired_session_without_full_snapshots_has_nothing_to_erase(harness: Harness) -> None:
    session = harness.log().sessions.create("s", ttl_days=1)
    session.create_snapshot("pointer")
    session.create_snapshot("whole", kind="full")
    session.delete_snapshot("whole")
    harness.clock.advance(DAY + 1)
    with pytest.raises(NotFoundError):
        session.erase()
    assert [job for job in harness.log().jobs() if job.kind == "erase"] == []


def test_a_silent_session_is_inactive_until_the_next_append(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", inactive_after_minutes=2880, ttl_days=9)
    busy, waiting = (
        log.sessions.create("busy", inactive_after_minutes=2880),
        log.sessions.create("w", inactive_after_minutes=2880),
    )
    session.append(HI)
    waiting.append(HI, run={"pending_action": {"tool": "x"}})
    result = session.info()
    harness.clock.advance(1.5 * DAY)
    busy.append(HI)
    assert retained(harness) == RetentionCounts()
    harness.clock.advance(0.6 * DAY)
    assert retained(harness).timed_out == 1, "one that waits for a decision is not silent"
    assert retained(harness).timed_out == 0
    outcome = session.info()
    assert (outcome.status, outcome.head, outcome.updated_at) == ("inactive", result.head + 1, result.updated_at)
    assert outcome.expires_at == result.expires_at, "nobody has said anything"
    assert next(session.history()).action == "time_out"
    assert [item.session_id for item in log.sessions.list(status="inactive")] == ["s"]
    assert {item.session_id for item in log.sessions.list(status="active")} == {"busy", "w"}
    assert [message.body for message in session.messages()] == [HI]
    session.append({"role": "assistant", "content": "Hello."})
    assert session.info().status == "active"
    assert "s" in [item.session_id for item in log.sessions.list(status="active")]
    harness.clock.advance(2.1 * DAY)
    assert retained(harness).timed_out == 2
    assert session.end().status == "ended"
    with pytest.raises(InvalidInputError):
        session.record("time_out")


def test_one_failure_stops_no_other(harness: Harness) -> None:
    log = harness.log()
    for at in range(3):
        log.sessions.create(f"s{at}", ttl_days=1)
    items, keys = harness.app.engine.items, SessionKeys(OWNER, "s1").commit(1)
    harness.clock.advance(DAY + 1)
    items.put({**items.get_many([keys])[keys], "t": "no time"})
    assert retained(harness) == RetentionCounts(expired=2, failed=1)
    with pytest.raises(UnavailableError, match="retention of 1 sessions failed"):
        make_retention(harness.app)({}, LocalContext(60_000))


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("left_ms", "work_ms"), [(900_000, 840_000), (120_000, 60_000), (119_999, 59_999), (9, 4)])
def test_a_function_works_for_its_part_until_a_minute_before_its_end_or_for_half_its_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, left_ms: int, work_ms: int
) -> None:
    asked = list[Any]()

    retain_sessions = harness.app.retain_sessions

    def retain(*part: int, work_ms: int) -> RetentionCounts:
        asked.append((part, work_ms))
        return retain_sessions(*part, work_ms=work_ms)

    monkeypatch.setattr(harness.app, "retain_sessions", retain)
    for event in ({}, {"worker": 2, "workers": 4}):
        answer = make_retention(harness.app)(event, LocalContext(left_ms))
        assert (answer["moved"], answer["failed"]) == (0, 0)
    assert asked == [((0, 1), work_ms), ((2, 4), work_ms)]


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_many_are_dealt_with_at_once_each_for_its_tenant_and_each_counted(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as a client has connections: one after the other, a run would not get through the day's."""
    logs = [harness.log(tenant=f"tenant{at % 3}") for at in range(24)]
    for at, log in enumerate(logs):
        log.sessions.create(f"s{at}", ttl_days=1).append(HI)
    harness.log().sessions.create("silent", inactive_after_minutes=1440).append(HI)
    harness.clock.advance(2 * DAY)
    together, turns, served = threading.Barrier(10, timeout=30), count(), dict[str, tuple[str | None, str]]()
    read_tail = harness.app.log.commits.tail

    def tail(keys: SessionKeys) -> Tail:
        if next(turns) < 10:
            together.wait()
        served[keys.session_id] = (tenancy.served_tenant(), keys.owner.tenant_id)
        return read_tail(keys)

    monkeypatch.setattr(harness.app.log.commits, "tail", tail)
    assert retained(harness) == RetentionCounts(expired=24, timed_out=1)
    assert len(served) == 25 and all(text == meant for text, meant in served.values())
    for at, log in enumerate(logs):
        jobs = [job.session_id for job in log.jobs() if job.kind == "erase"]
        assert f"s{at}" in jobs


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_it_looks_back_as_far_as_it_was_not_run(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s", ttl_days=1)
    harness.clock.advance(200 * DAY)
    before = harness.faults.calls
    assert retained(harness) == RetentionCounts(expired=1)
    assert harness.faults.calls - before > 150
    for job in erasures(harness):
        worked(harness, job)
    harness.clock.advance(DAY)
    retained(harness)
    for job in erasures(harness):
        worked(harness, job)
    retained(harness)
    before = harness.faults.calls
    assert retained(harness) == RetentionCounts()
    assert harness.faults.calls - before < EXPIRY_SHARDS + 10, "only the days since"


def expiry_entries(items: ItemTable, now_ms: int) -> list[str]:
    """The partitions of the entries on the index, those of the days to come too."""
    today = now_ms // DAY_MS
    buckets = [*due_shards(), *(due_bucket(day) for day in range(today, today + 5))]
    pages = [items.query(Query(bucket, "", "~", index="expiry")) for bucket in buckets]
    return [str(item["g2pk"]) for page in pages for item in page.items]


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_workers_share_what_is_due_and_each_session_is_one_s(harness: Harness) -> None:
    for number in range(60):
        harness.log(tenant=f"tenant{number % 3}").sessions.create(f"s{number}", ttl_days=1)
    assert len(set(expiry_entries(harness.app.engine.items, harness.clock.now_ms()))) > EXPIRY_SHARDS // 2
    harness.clock.advance(2 * DAY)
    for workers in (1, 3, 4, EXPIRY_SHARDS):
        done = [harness.app.retain_sessions(worker, workers) for worker in range(workers)]
        assert sum(item.expired for item in done) == 60
        assert workers == 1 or max(item.expired for item in done) < 50
    for worker, workers in ((1, 1), (-1, 4), (0, 0), (0, EXPIRY_SHARDS + 1)):
        with pytest.raises(InvalidInputError):
            harness.app.retain_sessions(worker, workers)


def without_checksum(item: Item) -> Item:
    """Return an item as a version before checksums stored it."""
    return {name: value for name, value in item.items() if name != "cs"}


def test_an_entry_without_a_shard_is_found_by_the_first_worker_and_moves_with_its_session(harness: Harness) -> None:
    log = harness.log()
    for name in ("old", "active"):
        log.sessions.create(name, ttl_days=1)
        entry = harness.app.engine.items.get_many([Key(KEYS.directory.pk, f"S#{name}")])
        (item,) = entry.values()
        harness.app.engine.items.put(
            {**without_checksum(item), "g2pk": due_bucket(harness.clock.now_ms() // DAY_MS + 1)}
        )
    assert sorted(
        {bucket.count("#") for bucket in expiry_entries(harness.app.engine.items, harness.clock.now_ms())}
    ) == [1]
    harness.clock.advance(0.9 * DAY)
    log.sessions.get("active").append(HI)
    harness.clock.advance(0.2 * DAY)
    assert [harness.app.retain_sessions(worker, 4).expired for worker in range(4)] == [1, 0, 0, 0]
    harness.clock.advance(DAY)
    assert sum(harness.app.retain_sessions(worker, 4).expired for worker in range(4)) == 2


def test_a_damaged_entry_of_the_index_stops_no_other(harness: Harness) -> None:
    for name in ("damaged", "whole"):
        harness.log().sessions.create(name, ttl_days=1)
    items = harness.app.engine.items
    (entry,) = items.get_many([Key(KEYS.directory.pk, "S#damaged")]).values()
    items.put({**entry, "g1sk": "0"})
    harness.clock.advance(2 * DAY)
    done = [harness.app.retain_sessions(worker, 4) for worker in range(4)]
    assert (sum(run.expired for run in done), sum(run.failed for run in done)) == (2, 0)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_what_is_overdue_longest_comes_first_whatever_its_shard(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(30)]
    for name in names:
        harness.log().sessions.create(name, ttl_days=1)
        harness.clock.advance(1)
    harness.clock.advance(2 * DAY)
    order = list[str]()

    def start(*arguments: Any) -> None:
        order.append(arguments[2].session_id)
        start_due(*arguments)

    monkeypatch.setattr(retention, "_BATCH", 1)
    monkeypatch.setattr(retention, "start_due", start)
    assert retained(harness) == RetentionCounts(expired=30)
    assert order == names


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_run_begins_nothing_after_its_time(harness: Harness) -> None:
    harness.log().sessions.create("s", ttl_days=1)
    harness.clock.advance(2 * DAY)
    assert harness.app.retain_sessions(work_ms=0) == RetentionCounts()
    assert retained(harness) == RetentionCounts(expired=1)


@pytest.mark.parametrize("memory", ["none", "facts"])
def test_an_end_is_on_the_index_only_when_something_is_due(memory: Literal["none", "facts"]) -> None:
    clock = FixedClock()
    app = make_application(Settings(engine="memory://", memory=memory), clock=clock)
    session = Session(InProcessBackend(app, OWNER), "s")
    call(app, BY_NAME["create_session"], HttpRequest(OWNER, body={"session_id": "s"}))
    session.append(HI)
    session.end()
    notes = expiry_entries(app.engine.items, clock.now_ms())
    assert len(notes) == (memory == "facts"), "without ttl it is the note for long-term memory alone"
    app.close()


def test_sessions_are_spread_over_all_shards() -> None:
    result = Counter(
        str(due_index(SessionKeys(Owner.of("acme", f"user{number % 7}"), f"chat-{number}"), 0)["g2pk"])
        for number in range(16_000)
    )
    assert set(result) == set(due_shards())
    assert min(result.values()) > 800 and max(result.values()) < 1_200


def test_d2_every_order_of_an_append_and_the_schedule() -> None:
    """An append that was in time keeps the session; one that comes behind the fence finds none."""

    def application(items: ItemTable, blobs: BlobStore, start: int, days: float) -> Any:
        app, clock = with_queue(items, blobs, start)
        clock.advance(days * DAY)
        return app

    def appending(items: ItemTable, blobs: BlobStore) -> Any:
        return Session(InProcessBackend(application(items, blobs, 1000, 0.9), OWNER), "s").append(HI)

    def sweeping(items: ItemTable, blobs: BlobStore) -> Any:
        return application(items, blobs, 2000, 1.1).erasure.fence(KEYS, if_expired=True)

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        appended, fenced = run.results
        session = Session(InProcessBackend(application(items, blobs, 3000, 1.1), OWNER), "s")
        if fenced:
            assert isinstance(appended, NotFoundError)
            is_gone(items, blobs)
            application(items, blobs, 4000, 1.1).erasure.erase(KEYS)
            assert places_of(CANARY, sqlite_items(items), local_blobs(blobs)) == []
        else:
            assert not isinstance(appended, TurnlogError)
            assert [message.body for message in session.messages()] == [HI]

    assert explore([appending, sweeping], fresh(lambda log: log.sessions.create("s", ttl_days=1)), check) > 3


def test_it_is_done_by_jobs_that_are_delivered_twice(harness: Harness) -> None:
    session = harness.log().sessions.create("s", title=CANARY, ttl_days=1)
    session.append(HI)
    harness.clock.advance(DAY + 1)
    retained(harness)
    (job,) = erasures(harness)
    assert deliver(harness, message_of(job), message_of(job)) == set()
    assert worked(harness, job).status == "done"
    assert held(CANARY, harness) == []
    assert not blobs_of(harness)
