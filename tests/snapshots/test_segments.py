"""Segments: sealed once whoever seals, given back exactly, and never trusted without a proof."""

from __future__ import annotations

import contextlib
import json
import random
import tracemalloc
import warnings
from collections.abc import Callable
from hashlib import sha256
from itertools import groupby
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.segments import KEY_BYTES, LIMIT, Row, by_source, measure
from tests.conftest import DATA, SAMPLES
from tests.effort import examples, is_full
from tests.explorer import Crash, ScheduleRun, explore
from tests.properties.histories import History, disorderly
from tests.support.jobs import deliver, poller, waiting
from tests.support.memory import GOLDEN, golden_item
from tests.support.segments import FEW, KEYS, OWNER, filled, noise, rich, said
from tests.support.steps import application, fresh
from turnlog.cli.transcripts import read_transcripts
from turnlog.client.model import Turnlog
from turnlog.core import positions as borders
from turnlog.core.errors import CorruptError, NewerSchemaError, NotFoundError, UnavailableError
from turnlog.core.events import MessageEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.headers import chain_hash, hashed_header
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, ItemTable, Key, Query
from turnlog.snapshots import segments as seal
from turnlog.snapshots.segment_format import VERSION, SegmentWriter, read_segment, read_stretch
from turnlog.snapshots.segments import Segment
from turnlog.testing.fixed import SequentialIds

SMALL = 32


def everything(harness: Any, keys: SessionKeys = KEYS) -> list[Segment]:
    return list(harness.app.segments.list(keys))


def stored(items: ItemTable, keys: SessionKeys = KEYS) -> list[Any]:
    return list(items.query(Query(keys.partition, "C#", "C~")).items)


def seal_all(harness: Any) -> dict[str, Any]:
    result: dict[str, Any] = harness.app.seal_session.run(OWNER, "s", {})
    return result


# ------------------------------------------------------------ what a segment is


def test_a_segment_gives_each_commit_back_exactly(harness: Any) -> None:
    session = rich(harness.log())
    poller(harness).run_once()
    segments, commits = everything(harness), []
    assert [(segment.first, segment.last >= 256 * at) for at, segment in enumerate(segments, 1)] == [
        (1, True),
        (segments[0].last + 1, True),
    ]
    items = stored(harness.app.engine.items)
    for segment in segments:
        for sealed, item in zip(harness.app.segments.commits(KEYS, segment), items[len(commits) :], strict=False):
            assert sealed.item == {name: value for name, value in item.items() if name not in ("pk", "b")}
            commits.append(sealed)
    log = harness.app.log.commits
    wanted = log.range(KEYS, 1, segments[-1].last)
    assert [sealed.commit for sealed in commits] == wanted
    in_blobs = 0
    for sealed, commit in zip(commits, wanted, strict=True):
        for event, original in zip(sealed.events, log.events(KEYS, [commit]), strict=True):
            if isinstance(event, MessageEvent) and event.body is None:
                in_blobs += 1
                assert event.payload is not None
                assert event.payload.place.startswith("blob:")
                assert log.fetch(KEYS, [event])[event.position] == original
            else:
                assert repr(event) == repr(original).replace(KEYS.partition, ""), "but for where it is stored"
    assert in_blobs > 0
    bodies = [message.body for message in session.messages() if message.position <= segments[-1].last]
    values = [message for segment in segments for message in harness.app.segments.messages(KEYS, segment)]
    assert [item.event.body for item in values if item.event.body] == [
        body for body in bodies if len(str(body)) < 60_000
    ]
    assert len(values) == len(bodies) == sum(segment.messages for segment in segments)
    assert values[-1].loop == next(session.loops()).loop or segments[-1].last < session.info().head


def test_names_and_borders_are_those_of_the_positions(harness: Any) -> None:
    filled(harness.log(), 255)
    assert seal_all(harness) == {"segments": 1, "last": 256}
    (segment,) = everything(harness)
    assert (segment.first, segment.last, segment.messages) == (1, 256, 255)
    (name,) = harness.app.engine.blobs.names("acme/ada/s/seg/")
    data = harness.app.engine.blobs.get(name)
    assert name == f"acme/ada/s/seg/000000000001-000000000256-{sha256(data).hexdigest()}"
    assert len(data) == segment.size_bytes <= 0.4 * segment.body_bytes
    harness.log().sessions.of("s").append(*(said(at) for at in range(25)))
    assert seal_all(harness) == {"segments": 0, "last": 256}, "the next is not complete"


def test_a_commit_over_the_border_belongs_to_where_it_begins(harness: Any) -> None:
    session = filled(harness.log(), 250)
    session.append(*(said(at) for at in range(25)))
    seal_all(harness)
    (segment,) = everything(harness)
    assert (segment.first, segment.last, segment.messages) == (1, 276, 275)
    data = harness.app.engine.blobs.get(KEYS.segment_blob(segment.first, segment.last, segment.sha256))
    for first, last in ((2, 276), (1, 275), (1, 277)):
        with pytest.raises(CorruptError, match="other positions"):
            list(read_stretch(data, first, last, name="x", fault="other positions"))
    for _ in range(10):
        session.append(*(said(at) for at in range(25)))
    seal_all(harness)
    assert [item.first for item in everything(harness)] == [1, 277]
    segments = harness.app.segments
    assert segments.containing(KEYS, 276) == segments.containing(KEYS, 1) == everything(harness)[0]
    assert segments.containing(KEYS, 277) == everything(harness)[1]
    assert segments.containing(KEYS, 527) is None


# ------------------------------------------------------------ who asks


def jobs_of(log: Turnlog) -> list[Any]:
    return [job for job in log.jobs() if job.kind == "seal"]


def test_the_append_that_completes_a_stretch_asks_once_and_waits_for_nothing(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 250, policy="turns")
    assert jobs_of(log) == []
    for at in range(5):
        assert session.append(said(at), idempotency_key=f"k{at}").compression == "off"
        assert len(jobs_of(log)) == int(at == 4)
    assert session.append(said(4), idempotency_key="k4").head == 256
    session.append(said(9))
    (job,) = jobs_of(log)
    assert (job.status, job.session_id) == ("queued", "s")
    bodies = waiting(harness)
    assert {frozenset(json.loads(body)) for body in bodies} == {
        frozenset({"v", "job_id", "kind", "tenant", "user", "session_id"})
    }
    assert everything(harness) == []
    assert deliver(harness, *bodies) == set()
    assert jobs_of(log)[0].result == {"segments": 1, "last": 256}


def test_an_append_asks_for_the_state_change_that_completed_a_stretch_before_it(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 254, policy="turns")
    session.patch_agent({"iteration": 1})
    assert session.info().head == 256
    assert jobs_of(log) == []
    session.append(said(1))
    session.append(said(2))
    assert len(jobs_of(log)) == 1


def test_what_was_never_sent_is_sealed_by_the_next_job(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = harness.log()
    session = filled(log, 250, policy="turns")

    def down(*_arguments: Any, **_options: Any) -> None:
        raise UnavailableError("the queue is down")

    with monkeypatch.context() as patch:
        patch.setattr(harness.app.engine.queue_of("seal"), "send", down)
        assert session.append(*(said(at) for at in range(10))).head == 261
    for _ in range(11):
        session.append(*(said(at) for at in range(25)))
    assert poller(harness).run_once() == 1
    assert [item.first for item in everything(harness)] == [1, 262]


def test_deliveries_twice_late_and_out_of_order_change_nothing(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 275, policy="turns")
    (first,) = waiting(harness)
    for _ in range(12):
        session.append(*(said(at) for at in range(25)))
    bodies = [*waiting(harness), first]
    assert deliver(harness, *bodies, *bodies) == set()
    result, names = everything(harness), harness.app.engine.blobs.names("acme/")
    assert len(result) == 2
    assert [name.split("/")[3] for name in names] == ["index", "index", "seg", "seg"]
    assert deliver(harness, *reversed(bodies)) == set()
    assert (everything(harness), harness.app.engine.blobs.names("acme/")) == (result, names)
    assert {job.status for job in jobs_of(log)} == {"done"}


def test_a_job_ends_before_its_worker_and_the_next_goes_on(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", SMALL)
    filled(harness.log(), 4 * SMALL - 1, batch=SMALL // 2)
    put = harness.app.engine.blobs.put

    def slow(name: str, data: bytes) -> None:
        harness.clock.advance(seal.MAX_MS / 1000 / 2)
        put(name, data)

    monkeypatch.setattr(harness.app.engine.blobs, "put", slow)
    assert [seal_all(harness)["segments"] for _ in range(5)] == [1, 1, 1, 1, 0], "a segment is two objects"
    assert [item.first for item in everything(harness)] == [1, 34, 66, 98]


# ------------------------------------------------------------ crashes and races


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_at_every_call_then_the_same_job_again_leaves_what_one_run_leaves(
    harness: Any, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)
    calls, at, left = 0, 0, None
    while at <= calls:
        log, keys = harness.log(user=f"user-{at}"), SessionKeys(Owner.of("acme", f"user-{at}"), "s")
        session = log.sessions.create("s", policy="turns")
        session.append(*(said(n) for n in range(6)), {"role": "user", "content": noise(9_000)})
        session.append(*(said(n) for n in range(8)))
        bodies = waiting(harness)
        assert len(bodies) == 2
        started = harness.faults.calls
        if at:
            harness.faults.fail(at, when)
        with contextlib.suppress(UnavailableError):
            deliver(harness, bodies[0])
        if not at:
            calls = harness.faults.calls - started
            assert calls > 10
        assert not harness.faults.is_pending
        assert deliver(harness, *bodies) == set()
        assert {job.status for job in log.jobs()} == {"done"}
        values = [(item.first, item.last, item.messages) for item in everything(harness, keys)]
        assert len(harness.app.engine.blobs.names(keys.blob_prefix + "seg/")) == len(values) == 2
        assert len(harness.app.engine.blobs.names(keys.blob_prefix + "index/")) == 2
        left = left or values
        assert values == left
        for segment in everything(harness, keys):
            assert list(harness.app.segments.commits(keys, segment))
        at += 1


def sealing(start: int) -> Callable[[ItemTable, BlobStore], Any]:
    def operation(items: ItemTable, blobs: BlobStore) -> Any:
        app = application(items, blobs, SequentialIds(start)).backend.app  # type: ignore[attr-defined]
        return app.seal_session.run(OWNER, "s", {})

    return operation


def one_stretch(log: Turnlog) -> None:
    filled(log, FEW + 2, batch=5)


CRASHES = [Crash(0, at, after) for at in (4, 5, 6) for after in (False, True)]
"""Before and after the blob is put, its index, and its entry."""


@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_every_order_of_two_workers_makes_the_same_segment_once(
    monkeypatch: pytest.MonkeyPatch, crash: Crash | None
) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert crash is not None or not any(isinstance(result, BaseException) for result in run.results)
        app = application(items, blobs, SequentialIds(10**9)).backend.app  # type: ignore[attr-defined]
        (segment,) = app.segments.list(KEYS)
        assert (segment.first, segment.last) == (1, 11)
        assert len(blobs.names("acme/ada/s/seg/")) == 1
        sealed = [commit.item["sk"] for commit in app.segments.commits(KEYS, segment)]
        assert sealed == [item["sk"] for item in stored(items)]

    bound = 2 if crash is None else 1
    tried = explore([sealing(1000), sealing(2000)], fresh(one_stretch), check, crash=crash, max_preemptions=bound)
    assert tried >= 6


def test_every_order_of_a_worker_and_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)

    def appending(items: ItemTable, blobs: BlobStore) -> Any:
        return application(items, blobs, SequentialIds(5000)).sessions.of("s").append(said(1), said(2))

    def check(run: ScheduleRun, items: ItemTable, blobs: BlobStore) -> None:
        assert not any(isinstance(result, BaseException) for result in run.results), run.results
        assert run.results[1]["last"] in (0, 9)
        app = application(items, blobs, SequentialIds(10**9)).backend.app  # type: ignore[attr-defined]
        assert app.seal_session.run(OWNER, "s", {})["last"] == 9
        assert len(blobs.names("acme/ada/s/seg/")) == len(blobs.names("acme/ada/s/index/")) == 1

    prepare = fresh(lambda log: filled(log, FEW - 2, batch=6))
    assert explore([appending, sealing(1000)], prepare, check, max_preemptions=2) >= 5


# ------------------------------------------------------------ nothing is trusted


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", SMALL)


def one_segment(harness: Any) -> tuple[str, bytes, Segment]:
    filled(harness.log(), SMALL, policy="turns")
    seal_all(harness)
    (name,) = harness.app.engine.blobs.names("acme/ada/s/seg/")
    return name, harness.app.engine.blobs.get(name), everything(harness)[0]


@pytest.mark.parametrize("harm", ["cut", "byte", "empty", "other", "gone"])
@pytest.mark.usefixtures("small")
def test_a_blob_that_is_not_what_its_name_says_is_told(harness: Any, harm: str) -> None:
    name, data, segment = one_segment(harness)
    blobs = harness.app.engine.blobs
    harmed = {"cut": data[:-9], "byte": data[:80] + bytes([data[80] ^ 1]) + data[81:], "empty": b"", "other": b"x" * 90}
    if harm == "gone":
        blobs.erase(name)
    else:
        blobs.put(name, harmed[harm])
    with pytest.raises(CorruptError) as raised:
        next(harness.app.segments.commits(KEYS, segment))
    assert raised.value.item == name.removeprefix("acme/ada/s/")


@pytest.mark.usefixtures("small")
def test_bytes_that_no_hash_guards_are_never_half_a_history_in_silence(harness: Any) -> None:
    """Each byte of a segment flipped, and each length: an error that names it, or what was sealed."""
    _, data, _ = one_segment(harness)
    whole = list(read_segment(data, name="x"))
    result = 0
    for at in range(len(data)):
        for harmed in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            try:
                assert list(read_segment(harmed, name="x")) == whole
            except CorruptError:
                result += 1
    assert result >= 2 * len(data) - 4
    with pytest.raises(CorruptError):
        list(read_segment(data + b"x", name="x"))


@pytest.mark.usefixtures("small")
def test_a_newer_segment_and_an_unknown_codec_say_so(harness: Any) -> None:
    _, data, _ = one_segment(harness)
    with pytest.raises(NewerSchemaError, match="seg/1"):
        list(read_segment(data[:4] + bytes([VERSION + 1]) + data[5:], name="seg/1"))
    with pytest.raises(CorruptError, match="codec 9"):
        list(read_segment(data[:5] + bytes([9]) + data[6:], name="seg/1"))
    key = KEYS.segment(1)
    items = harness.app.engine.items
    items.put(dict(items.get_many([key])[key]) | {"v": 99})
    with pytest.raises(NewerSchemaError, match="G#"):
        everything(harness)


@pytest.mark.parametrize("harm", ["hole", "hole at the border", "altered", "erased", "no payload"])
@pytest.mark.usefixtures("small")
def test_what_is_not_whole_is_not_sealed(harness: Any, harm: str) -> None:
    log, items = harness.log(), harness.app.engine.items
    session = filled(log, 0, policy="turns")
    session.append({"role": "user", "content": noise(9_000)})
    for at in range(13):
        session.append(*(said(n) for n in range(at, at + 5)))
    commits, (payload,) = stored(items), items.query(Query(KEYS.partition, "R#", "R~")).items
    bodies = waiting(harness)
    victim = commits[8 if harm == "hole at the border" else 4]
    if harm == "altered":
        items.put(dict(victim) | {"t": victim["t"] + 1})
    elif harm == "erased":
        items.put({"pk": victim["pk"], "sk": victim["sk"], "h": victim["h"]})
    elif harm == "no payload":
        items.delete_many([Key(payload["pk"], payload["sk"])])
    else:
        items.delete_many([Key(victim["pk"], victim["sk"])])
    assert deliver(harness, *bodies) == set()
    assert {(job.status, job.error.code if job.error else "") for job in jobs_of(log)} == {
        ("failed", "not_found" if harm == "erased" else "corrupt")
    }
    sealed = ["C#000000000001"] if harm == "hole at the border" else []
    assert [f"C#{item.first:012d}" for item in everything(harness)] == sealed
    assert len(harness.app.engine.blobs.names("acme/ada/s/seg/")) == len(sealed)


@pytest.mark.usefixtures("small")
def test_what_follows_an_erased_commit_is_not_sealed(harness: Any) -> None:
    session, items = filled(harness.log(), SMALL, batch=16, policy="turns"), harness.app.engine.items
    seal_all(harness)
    for _ in range(2):
        session.append(*(said(at) for at in range(20)))
    last = stored(items)[2]
    items.put({"pk": last["pk"], "sk": last["sk"], "h": last["h"]})
    with pytest.raises(NotFoundError):
        seal_all(harness)
    assert len(everything(harness)) == 1


def test_a_message_without_a_card_is_fetched_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)
    items, blobs = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore()
    log = application(items, blobs, SequentialIds())
    session, app = log.sessions.create("s", policy="turns"), log.backend.app  # type: ignore[attr-defined]
    values = noise(96_000)
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": json.dumps(values[at : at + 96])}}
        for at in range(0, 96_000, 96)
    ]
    session.append({"role": "user", "content": noise(90_000)})
    session.append({"role": "assistant", "content": None, "tool_calls": calls})
    session.append(*(said(at) for at in range(6)))
    app.seal_session.run(OWNER, "s", {})
    (segment,) = app.segments.list(KEYS)
    fetched = list[str]()
    get = blobs.get
    monkeypatch.setattr(blobs, "get", lambda name: fetched.append(name.split("/")[3]) or get(name))
    result = [message.event.body for message in app.segments.messages(KEYS, segment)]
    wanted = [message.body for message in session.messages()]
    assert result == [None, *wanted[1:]]
    assert fetched == ["seg", "payload", "payload", "payload"], "the last two are the page's"


@pytest.mark.usefixtures("small")
def test_a_lost_entry_is_made_again_and_nothing_twice(harness: Any) -> None:
    filled(harness.log(), 3 * SMALL, batch=16, policy="turns")
    seal_all(harness)
    result, names = everything(harness), harness.app.engine.blobs.names("acme/")
    harness.app.engine.items.delete_many([KEYS.segment(item.first) for item in result[1:]])
    assert harness.app.segments.containing(KEYS, result[1].first) is None
    seal_all(harness)
    assert (everything(harness), harness.app.engine.blobs.names("acme/")) == (result, names)


@pytest.mark.usefixtures("small")
def test_t1_another_owner_finds_no_segment(harness: Any) -> None:
    one_segment(harness)
    other = SessionKeys(Owner.of("acme", "eve"), "s")
    assert everything(harness, other) == []
    assert harness.app.segments.containing(other, 1) is None


# ------------------------------------------------------------ what it costs


def test_a_seal_s_requests_are_flat_in_session_length_and_an_append_s_are_as_before(harness: Any) -> None:
    log, spent = harness.log(), list[tuple[int, int]]()
    session = filled(log, 254, policy="turns")
    for _ in range(3):
        started = harness.faults.calls
        session.append(said(1))
        assert harness.faults.calls - started == 4, "the job's record and its message"
        started = harness.faults.calls
        assert deliver(harness, *waiting(harness)) == set()
        worker = harness.faults.calls - started - 1  # the receive
        started = harness.faults.calls
        session.append(said(2))
        assert harness.faults.calls - started == 2
        started = harness.faults.calls
        assert harness.app.segments.containing(KEYS, 200) is not None
        assert len(everything(harness)) == len(spent) + 1
        spent.append((worker, harness.faults.calls - started))
        for at in range(0, 254, 25):
            session.append(*(said(n) for n in range(at, min(at + 25, 254))))
    assert spent == [(8, 2), (9, 2), (9, 2)]


def test_capacity_of_a_seal_is_flat_in_session_length(harness: Any) -> None:
    if harness.meter is None:
        pytest.skip("capacity is metered on moto")
    session = filled(harness.log(), 254, policy="turns")
    result = list[tuple[dict[str, int], float, float]]()
    for _ in range(4):
        session.append(said(1))
        bodies = waiting(harness)
        with harness.meter.measure() as spent:
            assert deliver(harness, *bodies) == set()
        result.append((dict(spent.requests), spent.read_units, spent.write_units))
        session.append(said(2))
        for at in range(0, 254, 25):
            session.append(*(said(n) for n in range(at, min(at + 25, 254))))
    requests = {"GetItem": 1, "Query": 4, "PutObject": 2, "PutItem": 2}
    assert [item[0] for item in result] == [requests | {"Query": 3}, requests, requests, requests]
    assert {item[2] for item in result} == {2}, "the segment's entry and the job's record"
    reads = [item[1] for item in result[1:]]
    assert max(reads) - min(reads) <= 1
    assert max(reads) <= 8


def test_a_segment_is_read_with_a_commit_in_memory_at_a_time() -> None:
    writer, chained, size = SegmentWriter(bytes(16)), bytes(16), 400_000
    for at in range(1, 26):
        item = {"sk": f"C#{at:012d}", "l": at, "v": 1, "k": "s", "t": at, "n": b"n" * 8, "ct": "0 0", "ol": "0 0 "}
        lines = [encode_json({"k": "s", "x": random.Random(at).randbytes(size // 2).hex()})]
        chained = chain_hash(chained, hashed_header(item["sk"], item), [sha256(line).digest() for line in lines])
        writer.add(item | {"h": chained}, lines, {})
    packed = writer.finish()
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_segment(packed, name="x")) == 25
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 7_000_000 < 25 * size, "of which bzip2 takes 4"


NUMBERS = st.integers(-9, 2**40)
TOTALS = st.builds(lambda *numbers: " ".join(map(str, numbers)), NUMBERS, NUMBERS)
HEADERS = st.fixed_dictionaries(
    {
        "v": st.just(1),
        "k": st.sampled_from("cmsy"),
        "t": NUMBERS,
        "n": st.binary(max_size=8),
        "ct": TOTALS,
        "ol": st.builds(lambda number, start, flags: f"{number} {start} {flags}", NUMBERS, NUMBERS, st.text("uaf")),
    },
    optional={
        "lt": st.builds(lambda item, other: f"{item} {other}", TOTALS, TOTALS),
        "ik": st.sampled_from([b"i" * 32, b"j" * 32]),
        "w": st.sampled_from([b"w" * 10, b"v" * 20]),
        "pr": st.sampled_from(["user", "=", "-"]),
        "ls": NUMBERS,
        "later": NUMBERS | st.text(max_size=4) | st.binary(max_size=4),
    },
)
LINES = st.lists(
    st.fixed_dictionaries(
        {"k": st.sampled_from("ms"), "t": NUMBERS}, optional={"o": st.integers(0, 3), "x": st.text()}
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(150), deadline=None, derandomize=not is_full())
@given(st.lists(st.tuples(HEADERS, LINES), min_size=1, max_size=6), st.binary(min_size=16, max_size=16))
def test_any_header_comes_back_also_one_that_can_t_be_foretold(
    drawn: list[tuple[dict[str, Any], list[Any]]], before: bytes
) -> None:
    writer, items, first, chained = SegmentWriter(before), [], 1, before
    for header, parsed in drawn:
        item = {"sk": f"C#{first:012d}", "l": first + len(parsed) - 1, **header}
        lines = [encode_json(line) for line in parsed]
        chained = chain_hash(chained, hashed_header(item["sk"], item), [sha256(line).digest() for line in lines])
        items.append(item | {"h": chained})
        writer.add({"pk": "p", **items[-1]}, lines, {})
        first += len(parsed)
    result = list(read_segment(writer.finish(), name="x"))
    assert [sealed.item for sealed in result] == items
    assert [[json.loads(line) for line in sealed.lines] for sealed in result] == [parsed for _, parsed in drawn]


def test_d5_the_golden_segment_is_sealed_and_read_the_same_in_every_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the golden history; its bytes give it its name, so they must never change."""
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)
    items, blobs, keys = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), SessionKeys(OWNER, "golden")
    golden = json.loads((GOLDEN / "schema-1.json").read_text())
    items.write_many([golden_item(item) for item in golden["items"]])
    for name, data in golden["blobs"].items():
        blobs.put(name, bytes.fromhex(data))
    app = application(items, blobs, SequentialIds()).backend.app  # type: ignore[attr-defined]
    segment = app.segments.seal(keys, 0)
    stored_bytes = (GOLDEN / "segment-1.bin").read_bytes()
    assert blobs.get(keys.segment_blob(segment.first, segment.last, segment.sha256)) == stored_bytes
    values = [sealed.item for sealed in read_segment(stored_bytes, name="golden")]
    assert (
        values
        == [{name: value for name, value in item.items() if name not in ("pk", "b")} for item in stored(items, keys)][
            : len(values)
        ]
    )
    assert len(values) > 4


# ------------------------------------------------------------ histories


@settings(max_examples=examples(60), deadline=None, derandomize=not is_full(), suppress_health_check=list(HealthCheck))
@given(
    history=disorderly(max_size=70),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=8),
    positions=st.integers(8, 16),
    keyed=st.booleans(),
)
def test_any_history_comes_back_from_its_segments(
    history: History, sizes: list[int], positions: int, keyed: bool
) -> None:
    items, blobs = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore()
    log = application(items, blobs, SequentialIds())
    session = log.sessions.create("s")
    for number, (format, same) in enumerate(groupby(history, key=lambda item: item.format)):
        given = list(same)
        while given:
            size = sizes[(number + len(given)) % len(sizes)]
            batch, given = given[:size], given[size:]
            meta = [{"pin": item.pin, "status": "interrupted" if item.interrupted else "complete"} for item in batch]
            key = f"k{number}-{len(given)}" if keyed else None
            session.append(*(item.body for item in batch), meta=meta, format=format, idempotency_key=key, lenient=True)
    with mock.patch.object(borders, "SEGMENT_POSITIONS", positions):
        app = log.backend.app  # type: ignore[attr-defined]
        last = app.seal_session.run(OWNER, "s", {})["last"]
    sealeds = [sealed for segment in app.segments.list(KEYS) for sealed in app.segments.commits(KEYS, segment)]
    assert (last >= positions) == (len(history) + 1 >= positions)
    wanted = [item for item in stored(items) if item["l"] <= last]
    assert [sealed.item for sealed in sealeds] == [
        {name: value for name, value in item.items() if name not in ("pk", "b")} for item in wanted
    ]
    bodies = [event.body for sealed in sealeds for event in sealed.events if isinstance(event, MessageEvent)]
    said_bodies = [message.body for message in session.messages() if message.position <= last]
    assert [body for body in bodies if body is not None] == [
        body for body, value in zip(said_bodies, bodies, strict=True) if value is not None
    ]


# ------------------------------------------------------------ what it saves


def within(row: Row, keyed: Row) -> None:
    assert row.largest <= LIMIT
    assert row.packed == pytest.approx(keyed.packed - KEY_BYTES * keyed.commits, rel=0.05)


def test_the_samples_take_at_most_40_percent() -> None:
    ((_, messages),) = by_source(read_transcripts([SAMPLES]), whole=True)
    assert len(messages) > 256
    plain = measure("all", messages, keyed=False)
    assert plain.segments == 1
    within(plain, measure("all", messages, keyed=True))


SHORT = ["crosswoz", "locomo", "memorybank"]
"""The sources with the shortest messages, which leave least to save."""


@pytest.mark.parametrize("source", [*SHORT, pytest.param("", marks=pytest.mark.full)])
def test_real_conversations_take_at_most_40_percent(real_data: Any, source: str) -> None:
    result = dict[str, list[Any]]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loader leaves its files to the garbage collector
        for session in real_data.iter_sessions(str(DATA / "dev" / source)):
            result.setdefault(session["source"], []).extend(session["messages"])
    sealed = 0
    for name, messages in result.items():
        given = messages[:256] if source else messages
        row = measure(name, given, keyed=False)
        if row.segments:
            sealed += row.segments
            within(row, measure(name, given, keyed=True))
    assert sealed >= 1


def test_a_segment_holds_the_end_of_a_session_and_what_came_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)
    items, blobs = SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore()
    log = application(items, blobs, SequentialIds())
    session, app = log.sessions.create("s"), log.backend.app  # type: ignore[attr-defined]
    session.append(*(said(at) for at in range(3)))
    session.end(idempotency_key="end")
    for at in range(FEW):
        session.record("noted", metadata={"at": at})
    assert app.seal_session.run(OWNER, "s", {})["last"] >= FEW
    sealed = [commit.item for segment in app.segments.list(KEYS) for commit in app.segments.commits(KEYS, segment)]
    assert [item["k"] for item in sealed][:4] == ["c", "m", "e", "h"]
    assert sealed == [
        {name: value for name, value in item.items() if name not in ("pk", "b")}
        for item in stored(items)[: len(sealed)]
    ]
