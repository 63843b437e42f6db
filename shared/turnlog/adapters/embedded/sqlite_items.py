"""The table of items on SQLite: an item's bytes beside its other attributes, the keys of the indexes in columns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from turnlog.adapters.embedded.sqlite import SqliteDatabase
from turnlog.domain.errors import CorruptError, TooLargeError
from turnlog.ports import (
    INDEX_KEYS,
    MAX_ITEM_BYTES,
    MAX_PAGE_BYTES,
    Absent,
    AttributeValue,
    Condition,
    Equal,
    Item,
    Key,
    Less,
    Lost,
    Page,
    Query,
    item_size_bytes,
)

_INDEX_ATTRIBUTES = ("g1pk", "g1sk", "g2pk", "g2sk")
_PUT = (
    "INSERT OR REPLACE INTO items (pk, sk, size, attributes, data, g1pk, g1sk, g2pk, g2sk) VALUES (?,?,?,?,?,?,?,?,?)"
)


class SqliteItemTable:
    """`ItemTable` on SQLite."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        found = dict[Key, Item]()
        with self._database.reading() as connection:
            for key in dict.fromkeys(keys):
                row = connection.execute(
                    "SELECT attributes, data FROM items WHERE pk = ? AND sk = ?", (key.pk, key.sk)
                ).fetchone()
                if row is not None:
                    found[key] = _decode(row[0], row[1], pk=key.pk, sk=key.sk)
        return found

    def query(self, query: Query) -> Page:
        pk, sk = INDEX_KEYS[query.index] if query.index else ("pk", "sk")
        order = "DESC" if query.descending else "ASC"
        where, values = [f"{pk} = ?", f"{sk} >= ?", f"{sk} <= ?"], [query.pk, query.low, query.high]
        if query.after is not None:
            # Items of an index may share its sort key; the table's own key decides between them.
            where.append(f"({sk}, pk, sk) {'<' if query.descending else '>'} (?, ?, ?)")
            values += [query.after[sk], query.after["pk"], query.after["sk"]]
        statement = (
            f"SELECT pk, sk, size, attributes, data FROM items WHERE {' AND '.join(where)} "  # noqa: S608 - fixed names
            f"ORDER BY {sk} {order}, pk {order}, sk {order}"
        )
        items, size = list[Item](), 0
        with self._database.reading() as connection:
            cursor = connection.execute(statement, values)
            try:
                for row_pk, row_sk, row_size, attributes, data in cursor:
                    if not isinstance(row_size, int):
                        raise CorruptError("the size of a row is damaged", item=_name(row_sk))
                    if items and (size + row_size > MAX_PAGE_BYTES or len(items) == query.limit):
                        last = items[-1]
                        names = ("pk", "sk") if query.index is None else ("pk", "sk", pk, sk)
                        return Page(tuple(items), {name: str(last[name]) for name in names})
                    items.append(_decode(attributes, data, pk=row_pk, sk=row_sk))
                    size += row_size
            finally:
                cursor.close()
        return Page(tuple(items), None)

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        row = _row(item)
        with self._database.writing() as connection:
            if condition is not None:
                existing = _existing(connection, item)
                if not _holds(condition, existing):
                    return Lost(existing)
            connection.execute(_PUT, row)
        return None

    def write_many(self, items: Sequence[Item]) -> None:
        rows = [_row(item) for item in items]
        with self._database.writing() as connection:
            connection.executemany(_PUT, rows)

    def delete_many(self, keys: Sequence[Key]) -> None:
        with self._database.writing() as connection:
            connection.executemany("DELETE FROM items WHERE pk = ? AND sk = ?", [(key.pk, key.sk) for key in keys])


def _row(item: Item) -> tuple[Any, ...]:
    size = item_size_bytes(item)
    if size > MAX_ITEM_BYTES:
        raise TooLargeError(f"an item of {size} bytes is over the limit of {MAX_ITEM_BYTES}")
    data, attributes = bytearray(), dict[str, str | int | list[int]]()
    for name, value in item.items():
        if isinstance(value, bytes):
            attributes[name] = [len(data), len(value)]
            data += value
        else:
            attributes[name] = value
    encoded = json.dumps(attributes, separators=(",", ":")).encode("ascii")
    return (item["pk"], item["sk"], size, encoded, bytes(data), *(item.get(name) for name in _INDEX_ATTRIBUTES))


def _decode(attributes: object, data: object, *, pk: str, sk: str) -> Item:
    """Return the item of a row that was found by this key, or raise the `CorruptError` that names it."""
    try:
        if not isinstance(attributes, bytes) or not isinstance(data, bytes):
            raise TypeError
        found = {name: _value(value, data) for name, value in json.loads(attributes).items()}
        if (found["pk"], found["sk"]) != (pk, sk):
            raise ValueError
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CorruptError("the row of an item is damaged", item=_name(sk)) from error
    return found


def _value(value: object, data: bytes) -> AttributeValue:
    """Return an attribute; bytes are stored as their place in the row's data and their size."""
    if isinstance(value, list):
        start, size = value
        if not 0 <= start <= start + size <= len(data):
            raise ValueError
        return data[start : start + size]
    if isinstance(value, str) or type(value) is int:
        return value
    raise TypeError


def _name(sk: object) -> str:
    """Return a row's sort key as errors may say it."""
    return str(sk).encode("utf-8", "replace").decode()


def _existing(connection: sqlite3.Connection, item: Item) -> Item | None:
    row = connection.execute(
        "SELECT attributes, data FROM items WHERE pk = ? AND sk = ?", (item["pk"], item["sk"])
    ).fetchone()
    return _decode(row[0], row[1], pk=str(item["pk"]), sk=str(item["sk"])) if row is not None else None


def _holds(condition: Condition, existing: Item | None) -> bool:
    if isinstance(condition, Absent):
        return existing is None
    if existing is None:
        return isinstance(condition, Less) and condition.or_absent
    found = existing.get(condition.attribute)
    if isinstance(condition, Equal):
        return found is not None and found == condition.value
    return isinstance(found, int) and found < condition.value
