"""Full snapshots: segments and a tail (D6). The second one writes what is new; read alike with and without the log (T1, T2)."""

from __future__ import annotations

import io
from base64 import b64decode
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest

from tests.privacy.expired import expire
from tests.support.restores import varied
from tests.support.segments import FEW, KEYS, filled, noise, said
from turnlog.client.model import Session
from turnlog.core import positions as borders
from turnlog.core.errors import ConflictError, CorruptError, InvalidInputError, NotFoundError, UnavailableError
from turnlog.jobs.models import Job
from turnlog.log.commit import VERIFIED
from turnlog.snapshots.full import INLINE_BYTES
from turnlog.snapshots.routes import Snapshot
from turnlog.snapshots.segment_format import read_segment


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of so few positions that a short session has several."""
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)


def blob_names(harness: Any) -> list[str]:
    return [name[len(KEYS.blob_prefix) :] for name in harness.app.engine.blobs.names(KEYS.blob_prefix)]


def read_all(session: Session, snapshot: str) -> list[Any]:
    result, after = [], 0
    while True:
        content = session.snapshot(snapshot, after=after).content
        result += content.messages
        if content.next is None:
            return result
        after = content.next


# ------------------------------------------------------------ what it is


def test_d6_a_full_snapshot_is_its_segments_and_its_tail_and_reads_alike_without_the_log(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", 64)
    session = varied(harness)
    made = session.create_snapshot("whole", kind="full", metadata={"why": "test"})
    assert (made.kind, made.status, made.position) == ("full", "ready", session.info().head)
    before, messages = session.snapshot("whole"), list(session.messages())
    assert before.model_dump(exclude={"content", "parts"}) == made.model_dump()
    spans = [(part.first, part.last) for part in before.parts]
    assert spans[0][0] == 1
    assert spans[-1][1] == made.position
    assert all(item[1] + 1 == other[0] for item, other in pairwise(spans))
    assert sum(part.size_bytes for part in before.parts) == made.size_bytes
    lines = "".join(f"{part.first}-{part.last}-{part.sha256}\n" for part in before.parts)
    assert sha256(lines.encode()).hexdigest() == made.sha256
    session.append({"role": "user", "content": "later"})
    expire(harness, KEYS)
    with pytest.raises(NotFoundError):
        session.info()
    VERIFIED.clear()
    after = session.snapshot("whole")
    assert after.model_dump(exclude={"parts"}) == before.model_dump(exclude={"parts"})
    assert read_all(session, made.snapshot_id) == messages
    assert [snapshot.snapshot_id for snapshot in session.snapshots()] == [made.snapshot_id]


def test_the_parts_can_be_downloaded_and_checked(harness: Any, few: None) -> None:
    session = filled(harness.log(), 3 * FEW + 2, batch=3)
    session.append({"role": "user", "content": noise(40_000)})
    made = session.create_snapshot(kind="full")
    commits = []
    for part in session.snapshot(made.snapshot_id).parts:
        data = b64decode(part.data) if part.data is not None else b""
        if part.url is not None and part.url.startswith("/"):
            into = io.BytesIO()
            session.backend.download(part.url, into)
            data = into.getvalue()
        elif part.url is not None:
            data = harness.app.engine.blobs.get(urlsplit(part.url).path[1:])
        assert (len(data), sha256(data).hexdigest()) == (part.size_bytes, part.sha256)
        commits += [sealed.commit.header.first for sealed in read_segment(data, name="part")]
    assert commits == [commit.header.first for commit in harness.app.log.commits.range(KEYS, 1, made.position)]


def test_a_short_tail_is_in_the_record(harness: Any) -> None:
    session = filled(harness.log(), 3)
    made = session.create_snapshot(kind="full")
    (part,) = session.snapshot(made.snapshot_id).parts
    assert part.data is not None
    assert part.size_bytes <= INLINE_BYTES
    assert blob_names(harness) == []


def test_content_that_is_too_large_for_an_answer_is_left_to_the_parts(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnlog.snapshots import read as read_snapshots

    session = filled(harness.log(), 3)
    made = session.create_snapshot(kind="full")
    monkeypatch.setattr(read_snapshots, "MAX_ANSWER_BYTES", 100)
    result = session.snapshot(made.snapshot_id)
    assert result.content is None
    assert result.parts


# ------------------------------------------------------------ the second one


def written(harness: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Names and sizes of the blobs that are stored from here on."""
    result = list[tuple[str, int]]()
    blobs = harness.app.engine.blobs
    put = type(blobs).put

    def counted(self: Any, name: str, data: Any) -> None:
        result.append((name[len(KEYS.blob_prefix) :], len(data)))
        put(self, name, data)

    monkeypatch.setattr(type(blobs), "put", counted)
    return result


def test_the_second_snapshot_writes_only_what_is_new(harness: Any, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    session = filled(harness.log(), 4 * FEW + 3, batch=2)
    stored = written(harness, monkeypatch)
    first = session.create_snapshot(kind="full")
    assert [name.partition("/")[0] for name, _ in stored] == ["seg", "index"] * 4
    stored.clear()
    second = session.create_snapshot(kind="full")
    assert stored == []
    assert (second.sha256, second.size_bytes) == (first.sha256, first.size_bytes)
    session.append(*(said(at) for at in range(FEW)))
    third = session.create_snapshot(kind="full")
    assert [name.partition("/")[0] for name, _ in stored] == ["seg", "index"]
    shared = [part.sha256 for part in session.snapshot(first.snapshot_id).parts][:-1]
    assert [part.sha256 for part in session.snapshot(third.snapshot_id).parts][: len(shared)] == shared


def test_what_it_costs_does_not_grow_with_the_session(harness: Any, few: None) -> None:
    def cost(messages: int, session_id: str) -> int:
        session = filled(harness.log(), messages, session_id, batch=4)
        session.create_snapshot(kind="full")
        session.append(said(1))
        started = harness.faults.calls
        session.create_snapshot(kind="full")
        return int(harness.faults.calls - started)

    assert cost(2 * FEW + 2, "short") == cost(7 * FEW + 2, "long") <= 7


# ------------------------------------------------------------ jobs


def test_a_long_history_that_is_not_sealed_is_a_job(harness: Any, few: None) -> None:
    session = filled(harness.log(), 12 * FEW, batch=4, policy="turns")
    job = session.create_snapshot("big", kind="full", idempotency_key="k")
    assert isinstance(job, Job)
    again = session.create_snapshot("big", kind="full", idempotency_key="k")
    assert isinstance(again, Job)
    assert again.job_id == job.job_id
    harness.log().run_jobs()
    done = harness.log().job(job.job_id)
    assert done.status == "done"
    (only,) = session.snapshots(name="big")
    assert done.result == {"snapshot_id": only.snapshot_id, "position": only.position}
    repeated = session.create_snapshot("big", kind="full", idempotency_key="k")
    assert isinstance(repeated, Snapshot)
    assert repeated == only


def test_a_repeated_request_has_its_snapshot_although_the_history_has_grown(harness: Any, few: None) -> None:
    session = filled(harness.log(), 2)
    snapshot = session.create_snapshot(kind="full", idempotency_key="k")
    for number in range(10 * FEW):
        session.append(said(number))
    assert session.create_snapshot(kind="full", idempotency_key="k") == snapshot
    assert isinstance(session.create_snapshot(kind="full"), Job), "a new one of so long a history is a job"


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_repeated_deletion_erases_what_a_lost_job_has_not(harness: Any) -> None:
    session = filled(harness.log(), 5)
    snapshot = session.create_snapshot(kind="full").snapshot_id
    session.delete_snapshot(snapshot, idempotency_key="k")
    assert len(harness.app.engine.queue.receive()) == 1
    session.delete_snapshot(snapshot, idempotency_key="k")
    assert harness.log().run_jobs() == 1


def test_a_job_that_is_delivered_twice_makes_one_snapshot(harness: Any) -> None:
    session = filled(harness.log(), 5)
    job = session.create_snapshot(kind="full", mode="async")
    options = {"kind": "full", "snapshot_id": job.job_id}
    for _ in range(2):
        harness.app.create_snapshot.run(KEYS.owner, "s", options)
        session.append(said(1))
    assert len(list(session.snapshots())) == 1


def test_a_job_without_time_for_all_goes_on_at_the_next_try(harness: Any, few: None) -> None:
    session = filled(harness.log(), 6 * FEW, batch=4)
    options = {"kind": "full", "snapshot_id": "1700000000000-x"}
    with mock.patch("turnlog.snapshots.lifecycle._JOB_MS", -1), pytest.raises(UnavailableError):
        harness.app.create_snapshot.run(KEYS.owner, "s", options)
    assert list(session.snapshots()) == []
    harness.app.create_snapshot.run(KEYS.owner, "s", options)
    assert len(list(session.snapshots())) == 1


# ------------------------------------------------------------ deleting


def test_deleting_takes_the_tail_and_leaves_what_the_log_needs(harness: Any, few: None) -> None:
    session = filled(harness.log(), 3 * FEW, batch=4)
    session.append({"role": "user", "content": noise(20_000)})
    session.append({"role": "user", "content": noise(90_000)})
    kept, gone = (session.create_snapshot(kind="full") for _ in range(2))
    before = blob_names(harness)
    assert sum(name.startswith("snap/") for name in before) == 2
    assert session.delete_snapshot(gone.snapshot_id).status == "deleted"
    with pytest.raises(NotFoundError):
        session.snapshot(gone.snapshot_id)
    harness.log().run_jobs()
    assert blob_names(harness) == [name for name in before if name != f"snap/{gone.snapshot_id}"]
    assert [snapshot.snapshot_id for snapshot in session.snapshots()] == [kept.snapshot_id]
    assert len(read_all(session, kept.snapshot_id)) == 3 * FEW + 2


def test_after_expiry_segments_go_with_the_last_snapshot_that_needs_them(harness: Any, few: None) -> None:
    session = filled(harness.log(), 2 * FEW, batch=4)
    session.append({"role": "user", "content": noise(90_000)})
    first = session.create_snapshot(kind="full")
    session.append(*(said(at) for at in range(2 * FEW)))
    session.append({"role": "user", "content": noise(91_000, 8)})
    second = session.create_snapshot(kind="full")
    expire(harness, KEYS)
    session.delete_snapshot(second.snapshot_id)
    harness.app.sweep_snapshots.run(KEYS.owner, "s", {})
    VERIFIED.clear()
    names = blob_names(harness)
    assert sum(name.startswith("payload/") for name in names) == 1
    parts = session.snapshot(first.snapshot_id).parts
    assert sum(name.startswith("seg/") for name in names) == sum(part.url is not None for part in parts[:-1])
    assert len(read_all(session, first.snapshot_id)) == 2 * FEW + 1
    session.delete_snapshot(first.snapshot_id)
    harness.app.sweep_snapshots.run(KEYS.owner, "s", {})
    assert blob_names(harness) == []
    assert harness.app.sweep_snapshots.run(KEYS.owner, "s", {}) == {"blobs": 0}


def test_a_name_stands_for_an_older_snapshot_once_the_newest_is_deleted(harness: Any) -> None:
    session = filled(harness.log(), 3)
    older = session.create_snapshot("daily")
    harness.clock.advance(1)
    newer = session.create_snapshot("daily")
    with pytest.raises(ConflictError):
        session.create_snapshot("daily", if_name_absent=True)
    assert session.delete_snapshot("daily", idempotency_key="k").snapshot_id == newer.snapshot_id
    assert session.delete_snapshot("daily", idempotency_key="k").snapshot_id == newer.snapshot_id, (
        "the same request again"
    )
    assert session.snapshot("daily").snapshot_id == older.snapshot_id
    with pytest.raises(ConflictError):
        session.create_snapshot("daily", if_name_absent=True)
    session.delete_snapshot("daily")
    with pytest.raises(NotFoundError):
        session.delete_snapshot("daily")
    again = session.create_snapshot("daily", if_name_absent=True)
    assert session.snapshot("daily").snapshot_id == again.snapshot_id


def test_a_job_whose_name_another_snapshot_has_taken_fails_at_once(harness: Any) -> None:
    session = filled(harness.log(), 3)
    job = session.create_snapshot("daily", kind="full", mode="async", if_name_absent=True)
    session.create_snapshot("daily")
    assert isinstance(job, Job)
    harness.log().run_jobs()
    ended = harness.log().job(job.job_id)
    assert (ended.status, ended.error.code if ended.error is not None else None) == ("failed", "snapshot_exists")


def test_a_request_whose_snapshot_was_deleted_does_not_make_it_again(harness: Any) -> None:
    session = filled(harness.log(), 3)
    made = session.create_snapshot("a", idempotency_key="k")
    session.delete_snapshot(made.snapshot_id)
    with pytest.raises(ConflictError) as raised:
        session.create_snapshot("a", idempotency_key="k")
    assert raised.value.error_code == "snapshot_deleted"
    with pytest.raises(InvalidInputError):
        session.delete_snapshot("b", idempotency_key="k")
    assert list(session.snapshots()) == []


# ------------------------------------------------------------ policies


def test_keep_deletes_the_oldest_unnamed_of_its_kind(harness: Any) -> None:
    session = filled(harness.log(), 3)
    named = session.create_snapshot("named", kind="full")
    other = session.create_snapshot(agent_id="other")
    pinned = session.create_snapshot(kind="full", pinned=True)
    made = []
    for _ in range(4):
        harness.clock.advance(1)
        made.append(session.create_snapshot(kind="full", keep=2).snapshot_id)
    left = [snapshot.snapshot_id for snapshot in session.snapshots()]
    assert left == [made[3], made[2], pinned.snapshot_id, other.snapshot_id, named.snapshot_id]


def loops(session: Session, count: int) -> None:
    for at in range(count):
        session.append({"role": "user", "content": f"{at}?"})
        session.append({"role": "assistant", "content": f"{at}!"})


def test_a_session_makes_snapshots_by_itself_every_so_many_loops(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s", snapshots={"every_loops": 2, "keep": 2})
    mine = session.create_snapshot()
    loops(session, 9)
    values = [snapshot for snapshot in session.snapshots() if snapshot.metadata == {"automatic": True}]
    assert [item.position for item in values] == [17, 13], "at the end of the loop before, the newest two"
    assert session.snapshot(values[0].snapshot_id).content.loops == 8
    assert session.snapshot(mine.snapshot_id)
    session.update(snapshots=None)
    loops(session, 4)
    assert len(list(session.snapshots())) == 3
    session.update(snapshots={"every_loops": 1})
    loops(session, 1)
    assert session.info().head == 31
    assert next(session.snapshots()).position == 29
    with pytest.raises(InvalidInputError):
        session.update(snapshots={"every_loops": 0})


def test_old_named_snapshots_go_by_number_and_age_and_pinned_ones_stay(harness: Any) -> None:
    session = filled(harness.log(), 3)
    session.update(snapshots={"keep_named": 3, "named_days": 10})
    session.create_snapshot("pinned", pinned=True)
    unnamed = session.create_snapshot()
    for number in range(5):
        harness.clock.advance(86_400)
        session.create_snapshot(f"day-{number}", kind="full" if number % 2 else "ref")
    names = [snapshot.name for snapshot in session.snapshots()]
    assert names == ["day-4", "day-3", "day-2", None, "pinned"], "the oldest have gone, a full and a ref one"
    assert [snapshot.pinned for snapshot in session.snapshots()] == [False] * 4 + [True]
    harness.clock.advance(9 * 86_400)  # day-4 is 9 days old, day-3 10, day-2 11
    session.append(said(0))
    assert [snapshot.name for snapshot in session.snapshots()] == ["day-4", "day-3", None, "pinned"], (
        "an append of a new day"
    )
    harness.clock.advance(86_400)
    session.create_snapshot("new")
    assert [snapshot.name for snapshot in session.snapshots()] == ["new", "day-4", None, "pinned"]
    assert session.snapshot(unnamed.snapshot_id) and session.snapshot("pinned").pinned
    session.update(snapshots=None)
    harness.clock.advance(99 * 86_400)
    session.create_snapshot("later")
    assert len(list(session.snapshots())) == 5
    session.delete_snapshot("pinned")
    for policy in ({"keep_named": 0}, {"named_days": 0}, {"keep_named": 1_001}):
        with pytest.raises(InvalidInputError):
            session.update(snapshots=policy)


def test_a_clean_up_that_is_cut_off_anywhere_leaves_it_to_the_next_snapshot(harness: Any) -> None:
    session = filled(harness.log(), 2)
    for number in range(4):
        harness.clock.advance(1)
        session.create_snapshot(f"n{number}")
    session.update(snapshots={"keep_named": 2})
    for fault in range(1, 12):
        harness.faults.fail(fault, "before" if fault % 2 else "after")
        with suppress(UnavailableError):
            session.create_snapshot("cut", idempotency_key="cut")
        harness.faults.clear()
    harness.clock.advance(1)
    session.create_snapshot("last")
    assert [snapshot.name for snapshot in session.snapshots()] == ["last", "cut"]


def test_automatic_snapshots_cost_other_appends_nothing(harness: Any) -> None:
    plain, asking = (
        harness.log().sessions.create(item, snapshots=policy)
        for item, policy in (("plain", None), ("asking", {"every_loops": 3}))
    )
    costs = []
    for session in (plain, asking):
        loops(session, 4)
        started = harness.faults.calls
        session.append(said(0))
        session.append(said(1))
        costs.append(harness.faults.calls - started)
    assert costs[0] == costs[1] == 4


def test_an_append_goes_on_when_its_snapshot_cannot_be_made(harness: Any) -> None:
    session = harness.log().sessions.create("s", snapshots={"every_loops": 1})
    loops(session, 1)
    harness.faults.fail(4, "before")
    appended = session.append(said(0), idempotency_key="k")
    assert not harness.faults.is_pending
    assert list(session.snapshots()) == []
    assert session.append(said(0), idempotency_key="k") == appended
    (made,) = session.snapshots()
    assert made.position == 3


# ------------------------------------------------------------ never trusted


def test_d4_a_part_that_is_missing_or_another_is_told(harness: Any, few: None) -> None:
    session = filled(harness.log(), 2 * FEW, batch=4)
    made = session.create_snapshot("s1", kind="full")
    expire(harness, KEYS)
    blobs = harness.app.engine.blobs
    name = blobs.names(KEYS.blob_prefix + "seg/")[0]
    data = blobs.get(name)
    for other in (data[:-1], None):
        VERIFIED.clear()
        if other is None:
            blobs.erase(name)
        else:
            blobs.put(name, other)
        with pytest.raises(CorruptError) as raised:
            session.snapshot(made.snapshot_id)
        assert name.endswith(raised.value.item.rpartition("/")[2])


def test_a_pointer_goes_with_its_log(harness: Any) -> None:
    session = filled(harness.log(), 3)
    session.create_snapshot("point")
    session.create_snapshot("whole", kind="full")
    expire(harness, KEYS)
    with pytest.raises(NotFoundError):
        session.snapshot("point")
    assert session.snapshot("whole").content.message_count == 3


def test_t1_t2_parts_and_downloads_are_their_owners(harness: Any, few: None) -> None:
    session = filled(harness.log(), 2 * FEW, batch=4)
    made = session.create_snapshot("mine", kind="full")
    other = harness.log(user="eve")
    stranger = other.sessions.of("s")
    for attempt in (
        lambda: stranger.snapshot(made.snapshot_id),
        lambda: stranger.delete_snapshot(made.snapshot_id),
        lambda: stranger.delete_snapshot("mine"),
        lambda: stranger.create_snapshot(kind="full"),
    ):
        with pytest.raises(NotFoundError):
            attempt()
    url = next(part.url for part in session.snapshot("mine").parts if part.url is not None)
    if harness.name == "moto":
        assert "X-Amz-Expires=900" in url
        return
    into = io.BytesIO()
    session.backend.download(url, into)
    assert into.getvalue()
    for backend, wanted in ((other.backend, url), (session.backend, url[:-2]), (session.backend, "/v1/downloads/x")):
        with pytest.raises(NotFoundError):
            backend.download(wanted, into)
    harness.clock.advance(901)
    with pytest.raises(NotFoundError):
        session.backend.download(url, into)
