"""Contract of reads and batches of an `ItemTable`, and helpers that make items in a partition of each test's own."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from turnlog.ports import (
    MAX_PAGE_BYTES,
    Absent,
    AttributeValue,
    Item,
    ItemTable,
    Key,
    Lost,
    Page,
    Query,
    item_size_bytes,
)

HIGHEST = "\U0010ffff"
"""A sort key after all others."""


def new_partition() -> str:
    return f"T#Acme#U#{secrets.token_hex(6)}#S#x"


def item_at(pk: str, sk: str, **attributes: AttributeValue) -> dict[str, AttributeValue]:
    return {"pk": pk, "sk": sk, **attributes}


def indexed_item(pk: str, sk: str, owner: str, at: str, **attributes: AttributeValue) -> dict[str, AttributeValue]:
    return item_at(pk, sk, g1pk=owner, g1sk=at, **attributes)


def item_of_size(pk: str, sk: str, size_bytes: int) -> dict[str, AttributeValue]:
    item = item_at(pk, sk, body=b"")
    item["body"] = b"\xa5" * (size_bytes - item_size_bytes(item))
    return item


def items_of(page: Page) -> list[dict[str, AttributeValue]]:
    return [dict(item) for item in page.items]


def plain(items: Mapping[Key, Item]) -> dict[Key, dict[str, AttributeValue]]:
    return {key: dict(item) for key, item in items.items()}


def sort_keys(page: Page) -> list[AttributeValue]:
    return [item["sk"] for item in page.items]


def item_that_won(result: Lost | None) -> dict[str, AttributeValue]:
    assert result is not None, "the put should have lost"
    assert result.existing is not None
    return dict(result.existing)


def walk(table: ItemTable, query: Query) -> Sequence[Page]:
    """Return all pages of a query. The last may be empty, because DynamoDB can't tell at a limit whether items follow."""
    pages: list[Page] = []
    after = query.after
    while True:
        page = table.query(replace(query, after=after))
        pages.append(page)
        assert len(pages) <= 100, "the pages do not end"
        if page.next is None:
            return pages
        assert page.items, "an empty page must be the last"
        after = page.next


class ItemReadsContract:
    """Tests of reads and batches, a part of `ItemTableContract`."""

    index_lag_seconds: float = 0.0
    """Seconds that an index may lag behind writes. A real DynamoDB table needs a few."""

    @pytest.fixture
    def pk(self) -> str:
        """Return the partition of a test."""
        return new_partition()

    # Queries

    @pytest.mark.parametrize("descending", [False, True])
    def test_order_is_bytewise(self, table: ItemTable, descending: bool, pk: str) -> None:
        keys = ["9", "10", "99", "100", "C#000000000009", "C#000000000010", "C#000000000099", "C#000000000100"]
        keys += ["A", "a", "B", "b", "_", "-", "~", "a ", "a\x00", "aa", "é", "e\u0301", "z", "世", "🌍", "\uffff"]
        table.write_many([item_at(pk, sk) for sk in keys])
        page = table.query(Query(pk, "", HIGHEST, descending=descending))
        assert [item["sk"] for item in page.items] == sorted(keys, key=str.encode, reverse=descending)

    def test_both_ends_are_included(self, table: ItemTable, pk: str) -> None:
        table.write_many([item_at(pk, f"C#{number:03}") for number in range(1, 8)])
        assert sort_keys(table.query(Query(pk, "C#003", "C#005"))) == ["C#003", "C#004", "C#005"]
        assert sort_keys(table.query(Query(pk, "C#005", "C#005"))) == ["C#005"]
        assert sort_keys(table.query(Query(pk, "C#", "C#002~"))) == ["C#001", "C#002"]
        assert sort_keys(table.query(Query(pk, "C#0031", "C#005", descending=True))) == ["C#005", "C#004"]

    def test_a_range_may_begin_at_the_empty_text(self, table: ItemTable, pk: str) -> None:
        table.write_many([item_at(pk, "\x00"), item_at(pk, "a")])
        assert sort_keys(table.query(Query(pk, "", "a"))) == ["\x00", "a"]
        assert table.query(Query(pk, "", "")) == Page((), None)

    def test_nothing_found(self, table: ItemTable, pk: str) -> None:
        assert table.query(Query(pk, "", HIGHEST)) == Page((), None)
        table.put(item_at(pk, "C#5"))
        assert table.query(Query(pk, "C#6", "C#9")) == Page((), None)
        assert table.query(Query(pk, "C#9", "C#1")) == Page((), None), "a range the wrong way round is empty"

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("limit", [1, 9, 10, 11, 29, 30, 31])
    def test_limit_and_continuation(self, table: ItemTable, limit: int, descending: bool, pk: str) -> None:
        keys = [f"C#{number:012}" for number in range(91, 121)]
        table.write_many([item_at(pk, sk) for sk in (*keys, "B", "E")])
        pages = walk(table, Query(pk, "C#", "C~", limit=limit, descending=descending))
        assert all(len(page.items) <= limit for page in pages)
        assert all(len(page.items) == limit for page in pages if page.next and page is not pages[-1])
        sort_keys_read = [sk for page in pages for sk in sort_keys(page)]
        assert sort_keys_read == sorted(keys, reverse=descending)

    def test_a_continuation_is_plain_text(self, table: ItemTable, pk: str) -> None:
        """A continuation survives JSON, because cursors carry it between processes and days."""
        table.write_many([item_at(pk, sk) for sk in "abc"])
        first = table.query(Query(pk, "a", "z", limit=1))
        assert first.next is not None
        after: Mapping[str, str] = json.loads(json.dumps(dict(first.next)))
        assert sort_keys(table.query(Query(pk, "a", "z", after=after))) == ["b", "c"]

    def test_a_continuation_outlives_its_item(self, table: ItemTable, pk: str) -> None:
        table.write_many([item_at(pk, sk) for sk in "abde"])
        after = table.query(Query(pk, "a", "z", limit=2)).next
        table.delete_many([Key(pk, "b")])
        table.put(item_at(pk, "c"))
        assert sort_keys(table.query(Query(pk, "a", "z", after=after))) == ["c", "d", "e"]

    @pytest.mark.parametrize("descending", [False, True])
    def test_a_page_ends_at_one_megabyte_and_continues(self, table: ItemTable, descending: bool, pk: str) -> None:
        sizes = [300_000, 300_000, 300_000, 409_600, 409_600, 100, 300_000]
        for number, size in enumerate(sizes):
            table.put(item_of_size(pk, f"C#{number}", size))
        pages = walk(table, Query(pk, "C", "D", descending=descending))
        assert len(pages) > 1
        for page in pages:
            assert sum(map(item_size_bytes, page.items)) <= MAX_PAGE_BYTES
        items = [(item["sk"], item_size_bytes(item)) for page in pages for item in page.items]
        expected = [(f"C#{number}", size) for number, size in enumerate(sizes)]
        assert items == (expected[::-1] if descending else expected)

    # Batches

    def test_get_many_of_any_number_with_repeats_and_absents(self, table: ItemTable, pk: str) -> None:
        items = {Key(pk, f"R#{number}"): item_at(pk, f"R#{number}", n=number) for number in range(225)}
        table.write_many(list(items.values()))
        absent = [Key(pk, f"absent {number}") for number in range(20)] + [Key(pk + "x", "R#1")]
        keys = [*list(items)[:5], *absent, *items, *list(items)[220:]]
        assert len(set(keys)) == 246
        assert plain(table.get_many(keys)) == items

    def test_get_many_of_few(self, table: ItemTable, pk: str) -> None:
        table.write_many([item_at(pk, "a"), item_at(pk + "x", "a", n=1)])
        assert table.get_many([]) == {}
        assert table.get_many([Key(pk, "b")]) == {}
        assert plain(table.get_many([Key(pk, "a"), Key(pk, "a")])) == {Key(pk, "a"): item_at(pk, "a")}
        both = plain(table.get_many([Key(pk + "x", "a"), Key(pk, "a")]))
        assert both == {Key(pk, "a"): item_at(pk, "a"), Key(pk + "x", "a"): item_at(pk + "x", "a", n=1)}

    def test_get_many_without_consistency_finds_settled_items(self, table: ItemTable, pk: str) -> None:
        table.write_many([item_at(pk, "a"), item_at(pk, "b")])
        first, both = [Key(pk, "a")], [Key(pk, "a"), Key(pk, "b")]
        self._settle(lambda: list(table.get_many(first, consistent=False)) == first)
        self._settle(lambda: set(table.get_many(both, consistent=False)) == set(both))

    @pytest.mark.parametrize("count", [24, 25, 26, 60])
    def test_write_many_and_delete_many_of_any_number(self, table: ItemTable, count: int, pk: str) -> None:
        kept = item_at(pk, "kept")
        table.put(kept)
        items = [item_at(pk, f"R#{number:03}", n=number) for number in range(count)]
        table.write_many(items)
        assert items_of(table.query(Query(pk, "R", "S"))) == items
        table.delete_many([Key(pk, f"R#{number:03}") for number in range(-3, count + 3)])
        assert items_of(table.query(Query(pk, "", HIGHEST))) == [kept]

    def test_write_many_replaces_whole_and_the_last_of_a_key_stands(self, table: ItemTable, pk: str) -> None:
        table.put(item_at(pk, "a", old=1))
        table.write_many([item_at(pk, "a", n=1), item_at(pk, "b", n=1), item_at(pk, "a", n=2)])
        assert items_of(table.query(Query(pk, "a", "b"))) == [item_at(pk, "a", n=2), item_at(pk, "b", n=1)]

    def test_empty_batches_and_repeated_deletes(self, table: ItemTable, pk: str) -> None:
        table.write_many([])
        table.delete_many([])
        table.write_many([item_at(pk, "a")])
        table.delete_many([Key(pk, "a"), Key(pk, "never"), Key(pk, "a")])
        table.delete_many([Key(pk, "a")])
        assert table.get_many([Key(pk, "a")]) == {}
        assert table.put(item_at(pk, "a"), condition=Absent()) is None

    # Indexes

    def test_the_activity_index_is_in_order_of_its_sort_key(self, table: ItemTable) -> None:
        pk, owner = new_partition(), new_partition()
        order = ["0100", "0009", "0010", "0099", "0101"]
        items = [indexed_item(pk, f"S#{number}", owner, at, title="t") for number, at in enumerate(order)]
        table.write_many(
            [*items, item_at(pk, "S#no index", title="t"), indexed_item(pk, "S#other", owner + "x", "0050")]
        )
        newest_first = sorted(items, key=lambda item: str(item["g1sk"]), reverse=True)
        everything = Query(owner, "", HIGHEST, index="activity", descending=True)
        self._settle(lambda: items_of(table.query(everything)) == newest_first)
        between = Query(owner, "0010", "0100", index="activity")
        self._settle(lambda: [item["g1sk"] for item in table.query(between).items] == ["0010", "0099", "0100"])

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("limit", [1, 7, 12, 13])
    def test_pages_of_an_index_are_complete_when_sort_keys_are_equal(
        self, table: ItemTable, limit: int, descending: bool
    ) -> None:
        pk, owner = new_partition(), new_partition()
        items = [indexed_item(pk, f"S#{number}", owner, f"{number // 4:04}") for number in range(12)]
        table.write_many(items)
        self._settle(lambda: len(table.query(Query(owner, "", HIGHEST, index="activity")).items) == 12)
        pages = walk(table, Query(owner, "", HIGHEST, index="activity", limit=limit, descending=descending))
        assert all(len(page.items) <= limit for page in pages)
        items_read = [item for page in pages for item in items_of(page)]
        assert sorted(str(item["sk"]) for item in items_read) == sorted(str(item["sk"]) for item in items)
        index_keys = [str(item["g1sk"]) for item in items_read]
        assert index_keys == sorted(index_keys, reverse=descending)

    def test_a_rewritten_item_moves_in_its_index(self, table: ItemTable) -> None:
        pk, owner = new_partition(), new_partition()
        table.write_many([indexed_item(pk, "S#1", owner, "0001"), indexed_item(pk, "S#2", owner, "0002")])
        everything = Query(owner, "", HIGHEST, index="activity")
        self._settle(lambda: sort_keys(table.query(everything)) == ["S#1", "S#2"])
        table.put(indexed_item(pk, "S#1", owner, "0003", title="new"))
        expected = [indexed_item(pk, "S#2", owner, "0002"), indexed_item(pk, "S#1", owner, "0003", title="new")]
        self._settle(lambda: items_of(table.query(everything)) == expected)
        table.put(indexed_item(pk, "S#1", owner + "x", "0003"))
        self._settle(lambda: sort_keys(table.query(everything)) == ["S#2"])

    def test_an_item_leaves_its_index_when_deleted_or_without_the_keys(self, table: ItemTable) -> None:
        pk, owner = new_partition(), new_partition()
        table.write_many([indexed_item(pk, f"S#{number}", owner, "0001") for number in range(4)])
        everything = Query(owner, "", HIGHEST, index="activity")
        self._settle(lambda: len(table.query(everything).items) == 4)
        table.delete_many([Key(pk, "S#0")])
        table.put(item_at(pk, "S#1", title="no longer listed"))
        table.put(item_at(pk, "S#2", g1pk=owner))
        self._settle(lambda: sort_keys(table.query(everything)) == ["S#3"])
        assert len(table.query(Query(pk, "S", "T")).items) == 3

    def test_the_expiry_index_is_sparse_and_apart_from_the_other(self, table: ItemTable) -> None:
        pk, owner, day = new_partition(), new_partition(), new_partition()
        both = dict(indexed_item(pk, "S#both", owner, "0001")) | {"g2pk": day, "g2sk": "0002"}
        expiring = item_at(pk, "S#expiry", g2pk=day, g2sk="0001")
        table.write_many([both, expiring, indexed_item(pk, "S#activity", owner, "0002")])
        expiry = Query(day, "", HIGHEST, index="expiry")
        activity = Query(owner, "", HIGHEST, index="activity")
        self._settle(lambda: sort_keys(table.query(expiry)) == ["S#expiry", "S#both"])
        self._settle(lambda: sort_keys(table.query(activity)) == ["S#both", "S#activity"])
        first = table.query(Query(day, "", HIGHEST, index="expiry", limit=1))
        assert sort_keys(first) == ["S#expiry"]
        assert sort_keys(table.query(Query(day, "", HIGHEST, index="expiry", after=first.next))) == ["S#both"]

    def _settle(self, check: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.index_lag_seconds
        while not (settled := check()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert settled
