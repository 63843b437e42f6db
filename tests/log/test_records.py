"""Records beside the log, on a table of their own: ids by request, status and content as conditions, names, what is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.errors import CorruptError, IdempotencyMismatchError, NewerSchemaError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import SessionKeys
from turnlog.log.packing import json_in, pack
from turnlog.log.records import DELETED, DELETED_TTL_SECONDS, Record, Records
from turnlog.log.request_keys import RequestKey
from turnlog.log.tombstones import cache_tombstone
from turnlog.ports import Item, Key
from turnlog.testing.fixed import FixedClock, SequentialIds

SESSION = SessionKeys(Owner.of("acme", "ada"), "s1")
KEYS = SESSION.snapshots
REQUEST, OTHER = RequestKey(b"k" * 16, b"p" * 16), RequestKey(b"o" * 16, b"p" * 16)
SAME_KEY = RequestKey(REQUEST.key_hash, b"q" * 16)


class Room:
    def __init__(self) -> None:
        self.clock, self.items = FixedClock(), SqliteItemTable(SqliteDatabase(MEMORY))
        self.records = Records(self.items, self.clock, SequentialIds())

    @property
    def now_seconds(self) -> int:
        return self.clock.now_ms() // 1000

    def item(self, key: Key) -> Item | None:
        return self.items.get_many([key]).get(key)

    def make(self, number: int, *, status: str = "ready", name: str = "") -> Record:
        """Return a record, which is not stored yet. A greater number is newer."""
        content = {"number": number} | ({"name": name} if name else {})
        return Record(f"{number:013d}-x", number, status, content)

    def stored(self, number: int, *, status: str = "ready", name: str = "") -> Record:
        record = self.make(number, status=status, name=name)
        assert self.records.create(KEYS, record) is record
        if name:
            self.records.point_name(KEYS, name, record)
        return record


@pytest.fixture
def room() -> Room:
    return Room()


# ------------------------------------------------------------ requests


def test_without_a_key_each_request_has_an_id_that_begins_with_its_time(room: Room) -> None:
    first, second = room.records.claim(KEYS, None), room.records.claim(KEYS, None)
    assert first != second
    assert first == f"{room.clock.now_ms():013d}-s00000000001"
    assert room.records.claimed(KEYS, None) is room.records.earlier_choice(KEYS, None) is None
    assert room.records.choose(KEYS, "given", None) == "given"


def test_a3_a_key_has_one_id_and_no_other_payload(room: Room) -> None:
    first = room.records.claim(KEYS, REQUEST)
    room.clock.advance(1)
    assert room.records.claim(KEYS, REQUEST) == first
    assert room.records.claim(KEYS, OTHER) not in (first, room.records.claim(KEYS, None))
    for call in (room.records.claim, room.records.claimed, room.records.earlier_choice):
        with pytest.raises(IdempotencyMismatchError):
            call(KEYS, SAME_KEY)
    with pytest.raises(IdempotencyMismatchError):
        room.records.choose(KEYS, "given", SAME_KEY)


@pytest.mark.parametrize("ttl_seconds", [None, 0, 60])
def test_a_claim_and_a_record_go_after_their_time(room: Room, ttl_seconds: int | None) -> None:
    record = room.make(1)
    room.records.claim(KEYS, REQUEST, ttl_seconds=ttl_seconds)
    room.records.create(KEYS, record, ttl_seconds=ttl_seconds)
    for key in (KEYS.request(REQUEST.key_hash), KEYS.record(record.id)):
        item = room.item(key)
        assert item is not None
        assert item.get("ttl") == (room.now_seconds + ttl_seconds if ttl_seconds is not None else None)


def test_a3_the_record_of_a_key_is_found_when_it_was_stored(room: Room) -> None:
    assert room.records.claimed(KEYS, REQUEST) is None
    record_id = room.records.claim(KEYS, REQUEST)
    assert room.records.claimed(KEYS, REQUEST) is None, "it was claimed, and is not stored yet"
    record = room.records.create(KEYS, Record(record_id, 5, "ready", {}))
    assert room.records.claimed(KEYS, REQUEST) == record


def test_a3_a_request_keeps_its_first_choice(room: Room) -> None:
    assert room.records.earlier_choice(KEYS, REQUEST) is None
    assert room.records.choose(KEYS, "first", REQUEST) == "first"
    assert room.records.choose(KEYS, "second", REQUEST) == "first"
    assert room.records.earlier_choice(KEYS, REQUEST) == "first"
    item = room.item(KEYS.request(REQUEST.key_hash))
    assert item is not None
    assert item["ttl"] == room.now_seconds + 2 * 86_400


def test_records_of_an_erased_session_are_not_there_and_those_of_an_expired_one_are(room: Room) -> None:
    room.records.check_there(SESSION)
    for meta, is_there in (
        ({"pk": SESSION.meta.pk, "sk": SESSION.meta.sk, "pos": 1}, True),
        (cache_tombstone(SESSION.meta, now_ms=1), False),
        (cache_tombstone(SESSION.meta, now_ms=1, expired=True), True),
    ):
        room.items.put(meta)
        if is_there:
            room.records.check_there(SESSION)
        else:
            with pytest.raises(NotFoundError):
                room.records.check_there(SESSION)


# ------------------------------------------------------------ records


def test_a_record_is_stored_in_these_attributes(room: Room) -> None:
    record = room.stored(7)
    key = KEYS.record(record.id)
    assert room.item(key) == {
        "pk": key.pk,
        "sk": key.sk,
        "v": 1,
        "c": 7,
        "st": "ready",
        "b": pack(b'{"number":7}'),
    }
    assert room.records.get(KEYS, record.id) == room.records.get_any(KEYS, record.id) == record
    assert room.records.get(KEYS, room.make(8).id) is room.records.get_any(KEYS, room.make(8).id) is None


def test_a_record_is_made_once(room: Room) -> None:
    first = room.stored(7)
    again = Record(first.id, 8, "failed", {"other": True})
    assert room.records.create(KEYS, again) == first == room.records.get(KEYS, first.id)


def test_a_record_is_replaced_while_it_has_the_status(room: Room) -> None:
    first = room.stored(7, status="queued")
    done = Record(first.id, 7, "done", {"result": 1})
    assert not room.records.replace(KEYS, done, while_status="done")
    assert room.records.get(KEYS, first.id) == first
    assert room.records.replace(KEYS, done, while_status="queued", ttl_seconds=60)
    assert room.records.get(KEYS, first.id) == done
    item = room.item(KEYS.record(first.id))
    assert item is not None and item["ttl"] == room.now_seconds + 60
    assert not room.records.replace(KEYS, room.make(8), while_status="queued")
    assert room.records.get(KEYS, room.make(8).id) is None, "there is none to replace"


def test_a_record_is_exchanged_while_it_has_the_content(room: Room) -> None:
    first = room.stored(7)
    second = Record(first.id, 7, "ready", {"number": 8})
    assert room.records.exchange(KEYS, first, second)
    assert not room.records.exchange(KEYS, first, Record(first.id, 7, "ready", {"number": 9}))
    assert room.records.get(KEYS, first.id) == second
    item = room.item(KEYS.record(first.id))
    assert item is not None and "ttl" not in item


def test_a_deleted_record_is_seen_by_who_asks_for_any(room: Room) -> None:
    first, second = room.stored(1), room.stored(2)
    room.records.delete(KEYS, first)
    room.records.delete(KEYS, second, left={"blobs": ["b"]})
    gone = [Record(first.id, 1, DELETED, {}), Record(second.id, 2, DELETED, {"blobs": ["b"]})]
    assert [room.records.get_any(KEYS, record.id) for record in (first, second)] == gone
    assert [room.records.get(KEYS, record.id) for record in (first, second)] == [None, None]
    items = [room.item(KEYS.record(record.id)) for record in (first, second)]
    assert [item and item.get("ttl") for item in items] == [room.now_seconds + DELETED_TTL_SECONDS, None]
    assert room.records.create(KEYS, first) == gone[0], "a repeated request does not make it again"


def test_records_are_listed_newest_first_page_by_page_without_deleted_ones(room: Room) -> None:
    records = [room.stored(number) for number in range(1, 6)]
    room.records.delete(KEYS, records[3])
    first, after = room.records.page(KEYS, limit=2)
    assert first == [records[4]] and after is not None
    second, after = room.records.page(KEYS, limit=2, after=after)
    assert second == [records[2], records[1]] and after is not None
    third, after = room.records.page(KEYS, limit=2, after=after)
    assert (third, after) == ([records[0]], None)


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_every_record_is_read_however_many_there_are(room: Room, count: int) -> None:
    records = [room.stored(number) for number in range(1, count + 1)]
    for record in records[::10]:
        room.records.delete(KEYS, record, left={"left": record.id})
    room.records.take_name(KEYS, "a name is no record", room.make(1))
    room.records.claim(KEYS, REQUEST)
    kept = [record for index, record in enumerate(records) if index % 10]
    assert list(room.records.every(KEYS)) == kept[::-1]
    gone = [record.id for record in room.records.every(KEYS, deleted=True)]
    assert gone == [record.id for record in records[::10]][::-1]


# ------------------------------------------------------------ names


def test_a_name_is_taken_once(room: Room) -> None:
    first, second = room.make(1), room.make(2)
    assert room.records.take_name(KEYS, "n", first)
    assert room.records.take_name(KEYS, "n", first), "by the same record, whose request is repeated"
    room.records.create(KEYS, first)
    room.clock.advance(3_600)
    assert not room.records.take_name(KEYS, "n", second)
    assert room.records.take_name(KEYS, "m", second)
    item = room.item(KEYS.name("n"))
    assert item is not None and (item["id"], item["c"]) == (first.id, 1)


@pytest.mark.parametrize(("after_ms", "is_free"), [(0, False), (59_999, False), (60_000, True)])
def test_a_name_whose_record_was_never_stored_is_free_after_a_minute(room: Room, after_ms: int, is_free: bool) -> None:
    first = Record(f"{1:013d}-x", room.clock.now_ms(), "ready", {})
    assert room.records.take_name(KEYS, "n", first)
    room.clock.advance(after_ms / 1000)
    second = Record(f"{2:013d}-x", room.clock.now_ms(), "ready", {})
    assert room.records.take_name(KEYS, "n", second) is is_free
    item = room.item(KEYS.name("n"))
    assert item is not None and item["id"] == (second.id if is_free else first.id)


def test_the_name_of_a_deleted_record_is_free_unless_an_older_one_has_it(room: Room) -> None:
    older, newer, newest = room.stored(1, name="n"), room.stored(2, name="n"), room.make(3, name="n")
    room.records.delete(KEYS, newer)
    assert not room.records.take_name(KEYS, "n", newest)
    room.records.delete(KEYS, older)
    assert room.records.take_name(KEYS, "n", newest)


def test_of_two_that_take_a_free_name_at_once_one_has_it(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, first, second = room.stored(1, name="n"), room.make(2, name="n"), room.make(3, name="n")
    room.records.delete(KEYS, gone)
    get_any = room.records.get_any

    def slow(keys: Any, record_id: str) -> Record | None:
        monkeypatch.setattr(room.records, "get_any", get_any)
        assert room.records.take_name(KEYS, "n", first)
        return get_any(keys, record_id)

    monkeypatch.setattr(room.records, "get_any", slow)
    assert not room.records.take_name(KEYS, "n", second)


def test_a_name_points_to_the_newest_record_that_is_left(room: Room) -> None:
    assert room.records.named(KEYS, "n") is None
    older, newer = room.stored(1, name="n"), room.stored(5, name="n")
    other = room.stored(6, name="m")
    room.records.point_name(KEYS, "n", older)
    room.records.point_name(KEYS, "n", Record(other.id, 5, "ready", {}))
    assert room.records.named(KEYS, "n") == newer, "an older one and one of the same time change nothing"
    room.records.delete(KEYS, newer)
    assert room.records.named(KEYS, "n") == older
    room.records.delete(KEYS, older)
    assert room.records.named(KEYS, "n") is None
    assert room.records.named(KEYS, "m") == other


def test_a_name_whose_record_is_not_stored_yet_names_none(room: Room) -> None:
    room.stored(1, name="n")
    room.records.point_name(KEYS, "n", room.make(2, name="n"))
    assert room.records.named(KEYS, "n") is None


# ------------------------------------------------------------ damage


@pytest.mark.parametrize("changes", [{"c": "7"}, {"c": None}, {"st": 1}, {"st": None}, {"b": "text"}, {"b": None}])
def test_d4_a_damaged_record_is_told_by_its_name(room: Room, changes: dict[str, Any]) -> None:
    key = KEYS.record(room.stored(7).id)
    item = {**(room.item(key) or {}), **changes}
    room.items.put({name: value for name, value in item.items() if value is not None})
    with pytest.raises(CorruptError) as raised:
        room.records.get(KEYS, room.make(7).id)
    assert raised.value.details["item"] == key.sk


@pytest.mark.parametrize(("version", "is_newer"), [(1, False), (2, True)])
def test_d5_a_record_of_a_newer_version_is_told_as_such(room: Room, version: int, is_newer: bool) -> None:
    record = room.stored(7)
    item = room.item(KEYS.record(record.id)) or {}
    room.items.put({**item, "v": version})
    if is_newer:
        with pytest.raises(NewerSchemaError):
            room.records.get(KEYS, record.id)
    else:
        assert room.records.get(KEYS, record.id) == record


@pytest.mark.parametrize("stamp", ["text", b"", b"z" * 32], ids=repr)
def test_d4_a_damaged_claim_is_told_by_its_name(room: Room, stamp: Any) -> None:
    key = KEYS.request(REQUEST.key_hash)
    room.items.put({"pk": key.pk, "sk": key.sk, "id": "1-x", "ik": stamp})
    for call in (room.records.claim, room.records.claimed, room.records.earlier_choice):
        with pytest.raises(CorruptError) as raised:
            call(KEYS, REQUEST)
        assert raised.value.details["item"] == key.sk


def test_d4_a_name_without_an_id_is_told_by_its_name(room: Room) -> None:
    key = KEYS.name("n")
    room.items.put({"pk": key.pk, "sk": key.sk, "c": 1, "id": 5})
    with pytest.raises(CorruptError) as raised:
        room.records.named(KEYS, "n")
    assert raised.value.details["item"] == key.sk


def test_the_content_of_a_record_is_packed_json(room: Room) -> None:
    item = room.item(KEYS.record(room.stored(7, name="n").id))
    assert item is not None and isinstance(item["b"], bytes)
    assert json_in(item) == {"number": 7, "name": "n"}
