"""A full snapshot read as a table: each query and key has the answer of the log that the snapshot was made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Harness, sqlite_harness
from tests.support.segments import FEW, KEYS, noise
from turnlog.core import positions as borders
from turnlog.core.errors import CorruptError
from turnlog.core.events import MessageEvent
from turnlog.core.json_values import encode_json
from turnlog.engines import sqlite_tables
from turnlog.log.keys import COMMITS_FROM, COMMITS_TO, commit_sort_key
from turnlog.ports import Item, ItemTable, Key, Query
from turnlog.snapshots import full
from turnlog.snapshots.full import Archive, ArchiveItems, SnapshotStretch, kept_by, parts_of
from turnlog.snapshots.segment_format import read_stretch

SIZES = (3, 1, 5, 8, 2, 4, 1)
"""Messages of the commits: positions 2 to 25. Stretches of eight positions end inside commits and between them."""

RECORD = f"{1:013d}-x"


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)
    with sqlite_harness(tmp_path) as harness:
        session = harness.log().sessions.create("s", recall="never")
        for number, size in enumerate(SIZES):
            session.append(*({"role": "user", "content": noise(8_000 * (number == 2), seed=at)} for at in range(size)))
        yield harness


def archive_of(harness: Harness) -> Archive:
    session = harness.log().sessions.get("s")
    made = session.create_snapshot(kind="full")
    record = harness.app.log.records.get(KEYS.snapshots, made.snapshot_id)
    assert record is not None
    return harness.app.full_snapshots.archive(KEYS, record)


def pages(table: ItemTable, low: str, high: str, *, descending: bool, limit: int | None) -> list[list[Item]]:
    result, after = list[list[Item]](), None
    while True:
        page = table.query(Query(KEYS.partition, low, high, descending=descending, limit=limit, after=after))
        result.append([dict(item) for item in page.items])
        after = page.next
        if after is None:
            return [items for items in result if items]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_d6_each_query_of_commits_has_the_answer_of_the_log(
    harness: Harness, descending: bool, limit: int | None
) -> None:
    archive = ArchiveItems(archive_of(harness))
    bounds = [COMMITS_FROM, *(commit_sort_key(position) for position in range(1, 28)), COMMITS_TO]
    for low in bounds:
        for high in (bounds[0], *bounds[3::4], bounds[-1], low):
            wanted = pages(harness.app.items, low, high, descending=descending, limit=limit)
            assert pages(archive, low, high, descending=descending, limit=limit) == wanted, (low, high)
    assert archive.query(Query("another", COMMITS_FROM, COMMITS_TO)).items == ()


@pytest.mark.parametrize("page_bytes", [300, 800, 1_000, 2_000])
def test_d6_a_page_of_an_archive_ends_where_one_of_the_log_does(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    archive = ArchiveItems(archive_of(harness))
    for module in (full, sqlite_tables):
        monkeypatch.setattr(module, "MAX_PAGE_BYTES", page_bytes)
    for descending in (False, True):
        wanted = pages(harness.app.items, COMMITS_FROM, COMMITS_TO, descending=descending, limit=None)
        assert pages(archive, COMMITS_FROM, COMMITS_TO, descending=descending, limit=None) == wanted
        assert len(wanted) > 1


def test_d6_each_commit_and_payload_is_found_by_its_key(harness: Harness) -> None:
    archive, table = ArchiveItems(archive_of(harness)), harness.app.items
    stored = [item for item in table.query(Query(KEYS.partition, "", "~")).items if str(item["sk"])[:2] in ("C#", "R#")]
    keys = [Key(str(item["pk"]), str(item["sk"])) for item in stored]
    assert sum(key.sk.startswith("R#") for key in keys) == 5
    assert archive.get_many(keys) == {key: dict(item) for key, item in zip(keys, stored, strict=True)}
    absent = ["C#", "C#x", "C#000000000003", "C#000000000099", "R#000000000006~", "D#META", "X#000000000001", "R#"]
    assert archive.get_many([Key(KEYS.partition, sk) for sk in absent]) == {}
    assert archive.get_many([Key("another", keys[0].sk)]) == {}


def test_an_archive_is_never_written(harness: Harness) -> None:
    archive = ArchiveItems(archive_of(harness))
    before = pages(archive, COMMITS_FROM, COMMITS_TO, descending=False, limit=None)
    key = Key(KEYS.partition, commit_sort_key(1))
    item = {"pk": key.pk, "sk": key.sk}
    assert archive.put(item) is None
    archive.write_many([item])
    archive.delete_many([key])
    assert pages(archive, COMMITS_FROM, COMMITS_TO, descending=False, limit=None) == before


# ------------------------------------------------------------ its parts


@pytest.mark.parametrize("last", range(1, 27))
def test_a_snapshot_is_its_whole_stretches_and_a_tail_that_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """Also one that ends with a stretch, which has no tail."""
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)
    with sqlite_harness(tmp_path) as harness:
        session = harness.log().sessions.create("s")
        for number in range(2, last + 1):
            session.append({"role": "user", "content": f"{number}"})
        snapshots = harness.app.full_snapshots
        assert snapshots.unsealed(KEYS, last) == last // FEW
        parts = snapshots.make(KEYS, RECORD, last, deadline_ms=harness.clock.now_ms() + 1)
        assert parts is not None
        spans = [(first, min(first + FEW - 1, last)) for first in range(1, last + 1, FEW)]
        assert [(part.first, part.last) for part in parts] == spans
        assert [part.blob.startswith("seg/") for part in parts] == [end % FEW == 0 for _, end in spans]
        assert snapshots.unsealed(KEYS, last) == 0
        late = snapshots.make(KEYS, RECORD, last, deadline_ms=harness.clock.now_ms())
        assert late is not None, "nothing is left to seal"
        assert [(part.first, part.last) for part in late] == spans


def test_a_snapshot_without_time_for_its_stretches_is_none(harness: Harness) -> None:
    assert harness.app.full_snapshots.make(KEYS, RECORD, 25, deadline_ms=harness.clock.now_ms()) is None
    assert list(harness.app.segments.list(KEYS)) == []


def test_a_position_is_in_its_part_and_only_two_parts_stay_open(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(harness)
    commits = list(archive.commits())
    assert len(archive.parts) == 4
    for position in range(1, 26):
        first = next(iter(archive.from_position(position))).commit.header.first
        holder = [part.first for part in archive.parts if part.first <= position][-1]
        assert first == holder
        wanted = [sealed.commit.header.first for sealed in commits if sealed.commit.header.first >= holder]
        assert [sealed.commit.header.first for sealed in archive.from_position(position)] == wanted
    opened, reads = [archive.part(index) for index in (0, 1)], list[str]()
    monkeypatch.setattr(
        full, "read_stretch", lambda *of, **more: reads.append(more["name"]) or read_stretch(*of, **more)
    )
    assert archive.part(1) is opened[1] and archive.part(0) is opened[0]
    assert reads == []
    archive.part(2)
    assert archive.part(0) is opened[0]
    assert archive.part(1) is not opened[1], "it was read longest ago"
    assert len(reads) == 2


@pytest.mark.parametrize("harm", ["gap", "order", "cut", "end", "hash"])
def test_d4_parts_that_do_not_follow_one_another_are_told(harness: Harness, harm: str) -> None:
    archive = archive_of(harness)
    parts, last_hash = list(archive.parts), archive.last_hash
    if harm == "gap":
        del parts[1]
    elif harm == "order":
        parts[0], parts[1] = parts[1], parts[0]
    elif harm == "cut":
        parts[1] = SnapshotStretch(parts[1].first, parts[1].last + 1, *_rest(parts[1]))
    elif harm == "end":
        del parts[-1]
    else:
        last_hash = "00" * 16
    with pytest.raises(CorruptError):
        list(Archive(harness.app.engine.blobs, KEYS, parts, last_hash=last_hash).commits())
    assert list(Archive(harness.app.engine.blobs, KEYS, archive.parts, last_hash=archive.last_hash).commits())


def _rest(part: SnapshotStretch) -> tuple[str, int, str, bytes | None]:
    return part.sha256, part.size_bytes, part.blob, part.inline


def test_parts_are_stored_and_read_back_equal(harness: Harness) -> None:
    archive = archive_of(harness)
    assert [SnapshotStretch.decode(part.encode()) for part in archive.parts] == list(archive.parts)
    assert [part.inline is not None for part in archive.parts] == [False, False, False, True]
    (record,) = harness.app.log.records.every(KEYS.snapshots)
    assert parts_of(record) == archive.parts
    retained = kept_by([record])
    assert retained.names == {part.blob for part in archive.parts[:-1]}
    assert retained.until == archive.parts[-1].last
    for position, is_needed in ((25, True), (26, False)):
        assert retained.needs(f"payload/{position:012d}-0123456789abcdef00") is is_needed
    assert retained.needs(archive.parts[0].blob) and not retained.needs("seg/other")


def test_a_segment_that_is_sealed_again_is_the_one_that_is_stored(harness: Harness) -> None:
    """It may have been redacted since; its bytes of before are not what the session has."""
    segments = harness.app.segments
    sealed = segments.seal(KEYS, 0)
    assert segments.seal(KEYS, 0) == sealed
    harness.app.items.put({**_entry_of(harness, sealed.first), "rb": 7})
    assert segments.seal(KEYS, 0) == replace(sealed, body_bytes=7)
    with pytest.raises(CorruptError):
        segments.seal(KEYS, 9)  # it is not complete


def _entry_of(harness: Harness, first: int) -> Item:
    key = KEYS.segment(first)
    return harness.app.items.get_many([key])[key]


def test_a_segment_that_is_exchanged_for_its_own_bytes_stays_as_it_was(harness: Harness) -> None:
    """Its sizes are counted alike when it is sealed and when it is exchanged: bodies in blobs are in neither."""
    harness.log().sessions.get("s").append(
        {"role": "user", "content": noise(90_000)}, {"role": "user", "content": "so"}
    )
    harness.log().sessions.get("s").append(*({"role": "user", "content": f"{number}"} for number in range(9)))
    archive = archive_of(harness)
    before = list(harness.app.segments.list(KEYS))
    assert len(before) == 4 and sum(segment.messages for segment in before) == 35
    for segment in before:
        data = harness.app.engine.blobs.get(KEYS.segment_blob(segment.first, segment.last, segment.sha256))
        assert data is not None and segment.size_bytes == len(data)
        assert harness.app.segments.exchange(KEYS, segment, data)
    assert list(harness.app.segments.list(KEYS)) == before
    assert not harness.app.segments.exchange(KEYS, replace(before[0], sha256="00" * 32), data)
    bodies = [
        len(encode_json(event.body))
        for sealed in archive.commits()
        for event in sealed.events
        if isinstance(event, MessageEvent) and event.body is not None and sealed.commit.header.last <= before[-1].last
    ]
    assert sum(segment.body_bytes for segment in before) == sum(bodies)
