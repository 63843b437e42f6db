"""Packed contents and items with checksums: stored forms, what is compressed, and each way to be damaged."""

from __future__ import annotations

import random
import zlib
from hashlib import sha256
from typing import Any

import pytest

from turnlog.core.errors import CorruptError
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log import packing
from turnlog.log.keys import STATE, SUMMARY, SYSTEM, WORDS, commit_sort_key
from turnlog.log.packing import (
    CheckedItems,
    checksum,
    count_content,
    counting_content,
    json_in,
    line_digest,
    pack,
    unpack,
)
from turnlog.ports import Absent, Condition, Equal, Item, Key, Lost, Query
from turnlog.testing.contracts import ItemTableContract

RAW, ZLIB = 0, 1
UNIT_BYTES = 1024
PREFIX_BYTES = 5


def noise(size: int) -> bytes:
    """Bytes that can't be compressed."""
    return random.Random(size).randbytes(size)


# ------------------------------------------------------------ contents


def test_a_packed_content_is_a_codec_a_checksum_and_the_content() -> None:
    assert pack(b"abc") == b"\x00" + zlib.crc32(b"abc").to_bytes(4, "big") + b"abc"
    assert pack(b"abc", beside=b"head")[1:5] == zlib.crc32(b"headabc").to_bytes(4, "big")
    large = b"a" * 5_000
    packed = pack(large)
    assert packed[:5] == b"\x01" + zlib.crc32(large).to_bytes(4, "big")
    assert zlib.decompress(packed[5:]) == large


@pytest.mark.parametrize("item_bytes", [0, 200])
def test_a_content_that_fits_into_one_write_unit_is_not_compressed(item_bytes: int) -> None:
    fitting = UNIT_BYTES - PREFIX_BYTES - item_bytes
    assert pack(b"a" * fitting, item_bytes=item_bytes)[0] == RAW
    assert pack(b"a" * (fitting + 1), item_bytes=item_bytes)[0] == ZLIB


def test_a_content_is_compressed_only_when_a_write_unit_is_saved() -> None:
    content = noise(2 * UNIT_BYTES - PREFIX_BYTES - 400) + b"a" * 400
    assert len(zlib.compress(content, 6)) < len(content)
    assert pack(content)[0] == RAW, "smaller, but two units with and without"
    assert pack(content, item_bytes=1)[0] == ZLIB, "three units become two"


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (b"", "cut short"),
        (b"\x00\x00\x00\x00", "cut short"),
        (b"\x02" + bytes(4), "unknown codec 2"),
        (b"\x00" + bytes(3) + b"\x01", "checksum does not match"),
        (b"\x01" + bytes(4) + b"no zlib", "compressed content is damaged"),
        (pack(b"a" * 5_000)[:-1], "cut short or too large"),
    ],
)
def test_d4_a_damaged_content_says_how_and_names_the_item(packed: bytes, message: str) -> None:
    with pytest.raises(CorruptError, match=message) as raised:
        unpack(packed, item="R#7")
    assert raised.value.details["item"] == "R#7"


def test_an_empty_content_is_whole_and_one_beside_another_header_is_not() -> None:
    assert unpack(pack(b""), item="R#7") == b""
    assert unpack(pack(b"abc", beside=b"head"), item="R#7", beside=b"head") == b"abc"
    with pytest.raises(CorruptError, match="checksum"):
        unpack(pack(b"abc", beside=b"head"), item="R#7", beside=b"tail")


@pytest.mark.parametrize(("size", "is_read"), [(10_000, True), (10_001, False)])
def test_no_content_is_inflated_beyond_the_limit(size: int, is_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_UNPACKED_BYTES", 10_000)
    packed = pack(b"a" * size)
    if is_read:
        assert len(unpack(packed, item="R#7")) == size
        return
    with pytest.raises(CorruptError, match="too large"):
        unpack(packed, item="R#7")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_d4_a_content_that_is_no_json_names_the_item(content: bytes) -> None:
    with pytest.raises(CorruptError, match="the content is damaged") as raised:
        json_in({"sk": "R#7", "b": pack(content)})
    assert raised.value.details["item"] == "R#7"


def test_contents_are_counted_inflated_and_only_within_the_block() -> None:
    sizes = list[int]()
    with counting_content(sizes.append):
        unpack(pack(b"a" * 5_000), item="R#7")
        unpack(pack(b"abc"), item="R#7")
        count_content(b"from a cache")
    unpack(pack(b"abc"), item="R#7")
    assert sizes == [5_000, 3, 12]


def test_a_redacted_line_has_the_digest_of_the_line_that_it_replaces() -> None:
    digest = sha256(b"said").hexdigest()
    assert line_digest(b"said") == sha256(b"said").digest()
    assert line_digest(f'{{"rx":"{digest}"}}'.encode()) == sha256(b"said").digest()
    assert line_digest(f'{{"rx":"{digest}","k":"m"}}'.encode()) == sha256(b"said").digest()
    forged = b'{"rx":"not hexadecimal"}'
    assert line_digest(forged) == sha256(forged).digest()


# ------------------------------------------------------------ items


@pytest.fixture
def inner() -> SqliteItemTable:
    return SqliteItemTable(SqliteDatabase(MEMORY))


def stored(inner: SqliteItemTable, sk: str) -> dict[str, Any]:
    key = Key("p", sk)
    return dict(inner.get_many([key])[key])


def test_an_item_has_four_bytes_of_checksum_that_readers_do_not_see(inner: SqliteItemTable) -> None:
    items, item = CheckedItems(inner), {"pk": "p", "sk": "K#a", "n": 1, "b": b"\x00\x01", "a": b""}
    items.put(item)
    items.write_many([{**item, "sk": "K#b"}])
    expected = zlib.crc32(b'{"n":1,"pk":"p","sk":"K#a"}')
    expected = zlib.crc32(b"\x00\x01", zlib.crc32(b"b:2:", zlib.crc32(b"a:0:", expected)))
    assert stored(inner, "K#a")["cs"] == expected.to_bytes(4, "big")
    assert items.get_many([Key("p", "K#a")]) == {Key("p", "K#a"): item}
    assert items.query(Query("p", "K#", "K~")).items == (item, {**item, "sk": "K#b"})


@pytest.mark.parametrize(
    "changes", [{"n": 2}, {"b": b"\x01\x00"}, {"b": b"", "a": b"\x00\x01"}, {"more": 1}, {"cs": bytes(4)}]
)
def test_d4_any_changed_attribute_is_told_with_the_name_of_the_item(
    inner: SqliteItemTable, changes: dict[str, Any]
) -> None:
    items = CheckedItems(inner)
    items.put({"pk": "p", "sk": "K#a", "n": 1, "b": b"\x00\x01", "a": b""})
    inner.put(stored(inner, "K#a") | changes)
    for read in (
        lambda: items.get_many([Key("p", "K#a")]),
        lambda: items.query(Query("p", "K#", "K~")),
        lambda: items.put({"pk": "p", "sk": "K#a"}, condition=Absent()),
    ):
        with pytest.raises(CorruptError) as raised:
            read()
        assert raised.value.details["item"] == "K#a"


@pytest.mark.parametrize("sk", [STATE, SUMMARY, SYSTEM, WORDS])
def test_a_damaged_cache_counts_as_missing_and_is_written_anew(inner: SqliteItemTable, sk: str) -> None:
    items = CheckedItems(inner)
    items.put({"pk": "p", "sk": sk, "pos": 3})
    inner.put(stored(inner, sk) | {"pos": 4})
    assert items.get_many([Key("p", sk)]) == {}
    assert items.query(Query("p", sk, sk)).items == ()
    assert items.put({"pk": "p", "sk": sk, "pos": 5}, condition=Absent()) is None
    assert items.get_many([Key("p", sk)])[Key("p", sk)]["pos"] == 5


def test_a_damaged_cache_that_another_process_mends_first_is_shown_to_the_loser() -> None:
    mended = {"pk": "p", "sk": STATE, "pos": 6}

    class Raced(SqliteItemTable):
        """A table in which another process mends the cache after a write that lost."""

        def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
            lost = super().put(item, condition=condition)
            if isinstance(condition, Absent):
                CheckedItems(inner).put(mended)
            return lost

    database = SqliteDatabase(MEMORY)
    inner, raced = SqliteItemTable(database), Raced(database)
    CheckedItems(inner).put({**mended, "pos": 3})
    inner.put(stored(inner, STATE) | {"pos": 4})
    assert CheckedItems(raced).put({**mended, "pos": 5}, condition=Absent()) == Lost(mended)
    assert CheckedItems(inner).get_many([Key("p", STATE)]) == {Key("p", STATE): mended}


def test_a_whole_cache_is_not_overwritten_and_is_shown_to_the_loser(inner: SqliteItemTable) -> None:
    items, cache = CheckedItems(inner), {"pk": "p", "sk": STATE, "pos": 3}
    items.put(cache)
    assert items.put({**cache, "pos": 5}, condition=Absent()) == Lost(cache)
    assert items.put({**cache, "pos": 5}, condition=Equal("pos", 2)) == Lost(cache)
    assert items.get_many([Key("p", STATE)]) == {Key("p", STATE): cache}


def test_an_item_without_a_checksum_and_one_of_a_newer_version_are_read(inner: SqliteItemTable) -> None:
    """Items of before have no checksum; a newer version may compute it otherwise, and its reader refuses it by version."""
    items = CheckedItems(inner)
    inner.put({"pk": "p", "sk": "K#a", "n": 1})
    inner.put({"pk": "p", "sk": "K#b", "v": SCHEMA_VERSION + 1, "cs": bytes(4)})
    inner.put({"pk": "p", "sk": "K#c", "v": SCHEMA_VERSION, "cs": bytes(4)})
    assert items.get_many([Key("p", "K#a"), Key("p", "K#b")]) == {
        Key("p", "K#a"): {"pk": "p", "sk": "K#a", "n": 1},
        Key("p", "K#b"): {"pk": "p", "sk": "K#b", "v": SCHEMA_VERSION + 1},
    }
    with pytest.raises(CorruptError):
        items.get_many([Key("p", "K#c")])


@pytest.mark.parametrize("sk", [commit_sort_key(7), "R#7"])
def test_commits_and_payloads_get_no_checksum_beside_their_chain(inner: SqliteItemTable, sk: str) -> None:
    CheckedItems(inner).put({"pk": "p", "sk": sk, "b": b"x"})
    assert stored(inner, sk) == {"pk": "p", "sk": sk, "b": b"x"}


def test_the_checksum_does_not_depend_on_the_order_of_attributes_nor_on_itself() -> None:
    item = {"pk": "p", "sk": "K#a", "b": b"1", "a": b"2"}
    assert checksum(dict(reversed(item.items()))) == checksum(item) == checksum({**item, "cs": b"1234"})


class TestCheckedItems(ItemTableContract):
    """A table with checksums is a table."""

    @pytest.fixture
    def table(self, inner: SqliteItemTable) -> CheckedItems:
        return CheckedItems(inner)
