"""The contract suite of `ItemTable`; here single writes: values, conditions, races and the size limit. Reads: `items`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from turnlog.core.errors import TooLargeError
from turnlog.ports import (
    MAX_ITEM_BYTES,
    Absent,
    AttributeValue,
    Condition,
    Equal,
    ItemTable,
    Key,
    Less,
    Lost,
    Query,
    item_size_bytes,
)
from turnlog.testing.contracts.items import (
    HIGHEST,
    ItemReadsContract,
    item_at,
    item_of_size,
    item_that_won,
    items_of,
    new_partition,
    plain,
)

_RACERS = 16
_YEAR_2100 = 4_102_444_800


class ItemWritesContract:
    """Tests of single writes, a part of `ItemTableContract`."""

    # Values

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param("", id="empty string"),
            pytest.param("Grüße, 世界 🌍 e\u0301 \u200d \ufeff", id="unicode"),
            pytest.param("a\x00b\x00", id="nul"),
            pytest.param("\r\n\t\x01\x7f\u2028", id="control"),
            pytest.param("12", id="digits"),
            pytest.param(b"", id="empty bytes"),
            pytest.param(bytes(range(256)), id="all bytes"),
            pytest.param(b"text", id="bytes of a text"),
            pytest.param(0, id="zero"),
            pytest.param(1_000_000_000_000, id="trailing zeros"),
            pytest.param(2**53 + 1, id="over a double"),
            pytest.param(2**63 - 1, id="greatest"),
            pytest.param(-(2**63), id="least"),
        ],
    )
    def test_a_value_comes_back_equal_and_of_its_type(self, table: ItemTable, value: AttributeValue) -> None:
        key = Key(new_partition(), "C#1")
        assert table.put({"pk": key.pk, "sk": key.sk, "value": value, "ns": 1}) is None
        read = table.get_many([key])[key]
        (queried,) = table.query(Query(key.pk, "C", "D")).items
        assert dict(read) == dict(queried) == {"pk": key.pk, "sk": key.sk, "value": value, "ns": 1}
        assert type(read["value"]) is type(queried["value"]) is type(value)

    def test_an_item_of_keys_only(self, table: ItemTable) -> None:
        key = Key(new_partition(), "D#META")
        table.put({"pk": key.pk, "sk": key.sk})
        assert plain(table.get_many([key])) == {key: {"pk": key.pk, "sk": key.sk}}

    def test_attribute_names_of_any_kind(self, table: ItemTable, pk: str) -> None:
        """Attribute names include words that DynamoDB reserves in expressions."""
        item: dict[str, AttributeValue] = {"pk": pk, "sk": "1", "name": "n", "order": 1, "ttl": _YEAR_2100, "ü": "u"}
        table.put(item)
        assert table.put(item, condition=Equal("order", 1)) is None
        assert table.put(item, condition=Less("ttl", _YEAR_2100 + 1)) is None
        assert items_of(table.query(Query(pk, "0", "2"))) == [item]

    # Single items

    def test_what_is_written_is_read_at_once(self, table: ItemTable, pk: str) -> None:
        key = Key(pk, "S")
        for number in range(20):
            table.put({"pk": pk, "sk": "S", "n": number})
            assert table.get_many([key])[key]["n"] == number
            assert table.query(Query(pk, "S", "S")).items[0]["n"] == number

    def test_a_put_replaces_the_item_whole(self, table: ItemTable, pk: str) -> None:
        table.put({"pk": pk, "sk": "1", "old": "x", "both": 1})
        table.put({"pk": pk, "sk": "1", "new": "y", "both": b"2"})
        assert items_of(table.query(Query(pk, "0", "2"))) == [{"pk": pk, "sk": "1", "new": "y", "both": b"2"}]

    def test_an_item_stays_until_its_ttl_has_passed(self, table: ItemTable, pk: str) -> None:
        """An expired item may disappear at any later time, or never."""
        kept = [item_at(pk, f"C#{number}", ttl=_YEAR_2100 + number) for number in range(3)]
        table.write_many(kept)
        table.put(item_at(pk, "C#3"))
        for number in range(3):
            over = item_at(pk, f"over {number}", ttl=1)
            table.put(over)
            table.put(item_at(pk, "other", ttl=_YEAR_2100))
            assert table.get_many([Key(pk, f"over {number}")]) in ({}, {Key(pk, f"over {number}"): over})
        assert items_of(table.query(Query(pk, "C#", "C~"))) == [*kept, item_at(pk, "C#3")]

    def test_partitions_do_not_mix(self, table: ItemTable, pk: str) -> None:
        for partition in (pk, pk + "#", pk[:-1], pk.lower()):
            table.put({"pk": partition, "sk": "1", "of": partition})
        assert items_of(table.query(Query(pk, "", HIGHEST))) == [{"pk": pk, "sk": "1", "of": pk}]

    # Conditions

    def test_absent_wins_once_and_the_loser_gets_the_item_in_its_way(self, table: ItemTable, pk: str) -> None:
        first = item_at(pk, "C#1", n=b"\x00\x01", text="ä", pos=7)
        assert table.put(first, condition=Absent()) is None
        lost = table.put(item_at(pk, "C#1", n=b"other"), condition=Absent())
        assert item_that_won(lost) == first
        assert items_of(table.query(Query(pk, "C", "D"))) == [first]

    def test_absent_is_about_the_key_only(self, table: ItemTable, pk: str) -> None:
        table.put(item_at(pk, "C#1"))
        table.put(item_at(pk + "x", "C#2"))
        assert table.put(item_at(pk, "C#2"), condition=Absent()) is None

    @pytest.mark.parametrize("value", ["text", "", 0, -5, 2**63 - 1, b"", b"\x00\xff"], ids=repr)
    def test_equal(self, table: ItemTable, value: AttributeValue, pk: str) -> None:
        before = item_at(pk, "P", mark=value, old=1)
        after = item_at(pk, "P", mark="moved on")
        table.put(before)
        assert table.put(after, condition=Equal("mark", value)) is None
        assert item_that_won(table.put(before, condition=Equal("mark", value))) == after
        assert items_of(table.query(Query(pk, "P", "P"))) == [after]

    @pytest.mark.parametrize(
        ("stored", "asked"),
        [("1", 1), (1, "1"), (b"1", "1"), ("1", b"1"), ("a", "A"), (10, 1), (b"a", b"ab")],
        ids=repr,
    )
    def test_equal_means_the_same_type_and_value(
        self, table: ItemTable, stored: AttributeValue, asked: AttributeValue
    ) -> None:
        pk = new_partition()
        before = item_at(pk, "P", mark=stored)
        table.put(before)
        assert item_that_won(table.put(item_at(pk, "P"), condition=Equal("mark", asked))) == before

    def test_equal_loses_to_a_missing_item_and_to_a_missing_attribute(self, table: ItemTable, pk: str) -> None:
        assert table.put(item_at(pk, "P", mark=""), condition=Equal("mark", "")) == Lost(existing=None)
        assert table.query(Query(pk, "P", "P")).items == ()
        table.put(item_at(pk, "P"))
        assert item_that_won(table.put(item_at(pk, "P", mark=""), condition=Equal("mark", ""))) == item_at(pk, "P")

    def test_less_compares_numbers(self, table: ItemTable, pk: str) -> None:
        """9 < 10 holds for numbers but not for texts."""
        table.put(item_at(pk, "S", pos=9))
        assert table.put(item_at(pk, "S", pos=10), condition=Less("pos", 10)) is None
        assert table.put(item_at(pk, "S", pos=100), condition=Less("pos", 100, or_absent=False)) is None
        stands = item_at(pk, "S", pos=100)
        for behind in (9, 99, 100, -101):
            assert item_that_won(table.put(item_at(pk, "S", pos=behind), condition=Less("pos", behind))) == stands

    def test_less_of_negative_and_large_numbers(self, table: ItemTable, pk: str) -> None:
        for pos in (-(2**63), -10, -9, 0, 2**53, 2**53 + 1, 2**63 - 1):
            item = item_at(pk, "S", pos=pos)
            assert table.put(item, condition=Less("pos", pos)) is None
            assert item_that_won(table.put(item, condition=Less("pos", pos))) == item

    def test_less_and_a_missing_item(self, table: ItemTable, pk: str) -> None:
        assert table.put(item_at(pk, "S", pos=1), condition=Less("pos", 1, or_absent=False)) == Lost(existing=None)
        assert table.query(Query(pk, "S", "S")).items == ()
        assert table.put(item_at(pk, "S", pos=1), condition=Less("pos", 1)) is None

    @pytest.mark.parametrize("or_absent", [True, False])
    def test_less_loses_to_an_item_without_the_attribute(self, table: ItemTable, or_absent: bool, pk: str) -> None:
        """``or_absent`` concerns the item, not the attribute."""
        table.put(item_at(pk, "S"))
        lost = table.put(item_at(pk, "S", pos=1), condition=Less("pos", 1, or_absent=or_absent))
        assert item_that_won(lost) == item_at(pk, "S")

    @pytest.mark.parametrize("stored", ["0", b"0"], ids=repr)
    def test_less_loses_to_a_text_and_to_bytes(self, table: ItemTable, stored: AttributeValue) -> None:
        pk = new_partition()
        table.put(item_at(pk, "S", pos=stored))
        lost = table.put(item_at(pk, "S", pos=1), condition=Less("pos", 1))
        assert item_that_won(lost) == item_at(pk, "S", pos=stored)

    def test_one_of_many_racing_absent_puts_wins(self, table: ItemTable) -> None:
        for _ in range(3):
            pk = new_partition()
            results = _race(table, pk, "C#000000000001", Absent())
            winners = [number for number, lost in enumerate(results) if lost is None]
            assert len(winners) == 1
            expected = item_at(pk, "C#000000000001", pos=winners[0] + 1)
            assert [item_that_won(lost) for lost in results if lost is not None] == [expected] * (_RACERS - 1)
            assert items_of(table.query(Query(pk, "C", "D"))) == [expected]

    @pytest.mark.parametrize("condition", [Equal("pos", 0), Less("pos", 1)], ids=["equal", "less"])
    def test_one_of_many_racing_swaps_wins(self, table: ItemTable, condition: Condition, pk: str) -> None:
        table.put(item_at(pk, "S", pos=0))
        results = _race(table, pk, "S", condition)
        winners = [number for number, lost in enumerate(results) if lost is None]
        assert len(winners) == 1
        assert items_of(table.query(Query(pk, "S", "S"))) == [item_at(pk, "S", pos=winners[0] + 1)]

    # Size

    def test_the_largest_item_passes(self, table: ItemTable, pk: str) -> None:
        items = [item_of_size(pk, f"C#{number}", MAX_ITEM_BYTES) for number in range(3)]
        assert table.put(items[0]) is None
        assert table.put(items[1], condition=Absent()) is None
        table.write_many(items[2:])
        keys = [Key(pk, f"C#{number}") for number in range(3)]
        assert [table.get_many([key])[key]["body"] == items[0]["body"] for key in keys] == [True] * 3

    def test_a_byte_more_is_refused_and_nothing_is_written(self, table: ItemTable, pk: str) -> None:
        small, large = item_at(pk, "C#0"), item_of_size(pk, "C#1", MAX_ITEM_BYTES + 1)
        assert item_size_bytes(large) == 409_601
        with pytest.raises(TooLargeError):
            table.put(large)
        with pytest.raises(TooLargeError):
            table.put(large, condition=Absent())
        with pytest.raises(TooLargeError):
            table.write_many([small, large])
        assert table.query(Query(pk, "", HIGHEST)).items == ()

    def test_size_counts_names_texts_in_utf8_and_numbers(self, table: ItemTable, pk: str) -> None:
        item = dict(item_of_size(pk, "C#1", MAX_ITEM_BYTES - 4 - 11))
        assert table.put({**item, "ää": 2**63 - 1}) is None
        with pytest.raises(TooLargeError):
            table.put({**item, "ääa": 2**63 - 1})


def _race(table: ItemTable, pk: str, sk: str, condition: Condition) -> list[Lost | None]:
    """Put an item from 16 threads at once, each with its number (from 1) as ``pos``, and return their results."""
    start = threading.Barrier(_RACERS)

    def put(number: int) -> Lost | None:
        start.wait()
        return table.put(item_at(pk, sk, pos=number + 1), condition=condition)

    with ThreadPoolExecutor(_RACERS) as pool:
        return list(pool.map(put, range(_RACERS)))


class ItemTableContract(ItemWritesContract, ItemReadsContract):
    """Tests of an `ItemTable`. Fixture: ``table``. Every test uses a partition of its own."""
