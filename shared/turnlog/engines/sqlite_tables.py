"""`ItemTable` and `JobQueue` on a SQLite database.

A row of an item has its keys and those of the indexes in columns, its other attributes as JSON, and its bytes beside it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Any

from turnlog.core.errors import CorruptError, TooLargeError, UnavailableError
from turnlog.core.json_values import encode_ascii_json
from turnlog.engines.sqlite import INDEX_ATTRIBUTES, SqliteDatabase, read_ttl
from turnlog.ports import (
    INDEX_KEYS,
    MAX_ITEM_BYTES,
    MAX_PAGE_BYTES,
    Absent,
    Condition,
    Delivery,
    Equal,
    IdSource,
    Item,
    Key,
    Less,
    Lost,
    Page,
    Query,
    item_size_bytes,
)

_COLUMNS = ("pk", "sk", "fields", "data", *INDEX_ATTRIBUTES)
_SELECT = f"SELECT {', '.join(_COLUMNS)}, size FROM items WHERE "  # noqa: S608 - fixed text
_GET = f"{_SELECT} pk = ? AND sk = ?"
_INSERT = (
    f"INSERT INTO items ({', '.join(_COLUMNS)}, size, ttl)"  # noqa: S608 - fixed text
    " VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (pk, sk) DO"
)
_NEW_VALUES = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS[2:], "size", "ttl"))
_PUT, _PUT_NEW = f"{_INSERT} UPDATE SET {_NEW_VALUES}", f"{_INSERT} NOTHING"
_EXPIRED = "SELECT rowid FROM items WHERE ttl IS NOT NULL AND ttl < ? ORDER BY ttl LIMIT ?"
_REMOVE_EXPIRED = f"DELETE FROM items WHERE rowid IN ({_EXPIRED})"  # noqa: S608 - fixed text
_KEYS_AT_ONCE = 500  # SQLite limits the variables of a statement: to 999 before 3.32, to 32,766 since.
_EXPIRED_AT_ONCE = 4
"""Expired items that are removed by the put of an item with a ``ttl``; more than one, so that a backlog shrinks."""
_IN_COLUMNS = frozenset({"pk", "sk", *INDEX_ATTRIBUTES})
_PARSE = json.JSONDecoder().raw_decode
_NEXT_JOB = (
    "SELECT rowid, id, CAST(grp AS BLOB), body, receives FROM jobs WHERE rowid = (SELECT rowid FROM jobs"
    " WHERE dead = 0 AND visible_ms <= ? ORDER BY CAST(grp AS BLOB) <= ?, CAST(grp AS BLOB), sent, id LIMIT 1)"
)
"""The oldest due job of the next group in order of their names, behind the one named; after the last comes the first.

Names are bytes here: a damaged one that is no text stops no other job.
"""


class SqliteItemTable:
    """`ItemTable` on SQLite. With ``now_ms``, items whose ``ttl`` has passed are removed by later puts of items with a ``ttl``."""

    def __init__(self, database: SqliteDatabase, now_ms: Callable[[], int] | None = None) -> None:
        self._database = database
        self._now_ms = now_ms

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        groups = dict[tuple[str, int], dict[str, Key]]()
        for number, key in enumerate(dict.fromkeys(keys)):
            groups.setdefault((key.pk, number // _KEYS_AT_ONCE), {})[key.sk] = key

        def look(connection: sqlite3.Connection) -> dict[Key, Item]:
            items = dict[Key, Item]()
            for (pk, _), by_sk in groups.items():
                statement = f"{_SELECT} pk = ? AND sk IN ({','.join('?' * len(by_sk))})"
                for row in connection.execute(statement, (pk, *by_sk)):
                    if row[1] not in by_sk:
                        raise CorruptError("the index leads to another row", item=_name(row[1]))
                    items[by_sk[row[1]]] = _decode(*row)
            return items

        return self._database.read(look)

    def query(self, query: Query) -> Page:
        pk, sk = INDEX_KEYS[query.index] if query.index else ("pk", "sk")
        order, after = ("DESC", "<") if query.descending else ("ASC", ">")
        values, rest = [query.pk, query.low, query.high], ""
        if query.after is not None:
            # Items of an index may share its sort key; they are ordered by the table's own key.
            values += [query.after[sk], query.after["pk"], query.after["sk"]]
            rest = f" AND ({sk}, pk, sk) {after} (?, ?, ?)"
        place = f"{pk} = ? AND {sk} >= ? AND {sk} <= ?{rest} ORDER BY {sk} {order}, pk {order}, sk {order}"
        key_names = ("pk", "sk") if query.index is None else ("pk", "sk", pk, sk)

        def look(connection: sqlite3.Connection) -> Page:
            items, size = list[Item](), 0
            with closing(connection.execute(_SELECT + place, values)) as rows:
                for row in rows:
                    row_size = row[-1]
                    if not isinstance(row_size, int):
                        raise CorruptError("the size of a row is damaged", item=_name(row[1]))
                    if items and (size + row_size > MAX_PAGE_BYTES or len(items) == query.limit):
                        return Page(tuple(items), {name: str(items[-1][name]) for name in key_names})
                    items.append(_decode(*row))
                    size += row_size
            return Page(tuple(items), None)

        return self._database.read(look)

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        row = _row(item)

        def change(connection: sqlite3.Connection) -> Lost | None:
            if condition is not None and not isinstance(condition, Absent):
                existing = _existing(connection, item)
                if not _holds(condition, existing):
                    return Lost(existing)
            statement = _PUT_NEW if isinstance(condition, Absent) else _PUT
            if not connection.execute(statement, row).rowcount:
                return Lost(_existing(connection, item))
            self._remove_expired(connection, [row])
            return None

        return self._database.write(change)

    def write_many(self, items: Sequence[Item]) -> None:
        rows = [_row(item) for item in items]

        def change(connection: sqlite3.Connection) -> None:
            connection.executemany(_PUT, rows)
            self._remove_expired(connection, rows)

        self._database.write(change)

    def delete_many(self, keys: Sequence[Key]) -> None:
        statement, rows = "DELETE FROM items WHERE pk = ? AND sk = ?", [(key.pk, key.sk) for key in keys]
        self._database.write(lambda connection: connection.executemany(statement, rows))

    def has_due(self, partitions: Sequence[str], before: str) -> bool:
        """Return whether any of these partitions of the expiry index has an item before a sort key. One statement."""
        marks = ",".join("?" * len(partitions))
        statement = f"SELECT 1 FROM items WHERE g2pk IN ({marks}) AND g2sk < ? LIMIT 1"  # noqa: S608 - fixed text
        values = (*partitions, before)
        return self._database.read(lambda connection: connection.execute(statement, values).fetchone()) is not None

    def purge(self) -> None:
        """Implement `Purgeable`: remove the bytes of deleted rows from the file."""
        self._database.purge()

    def partitions(self) -> Iterator[str]:
        """Implement `Inspectable`: yield the partition keys in order."""
        partition, statement = "", "SELECT pk FROM items WHERE pk > ? ORDER BY pk LIMIT 1"

        def look(connection: sqlite3.Connection) -> list[tuple[str]]:
            return connection.execute(statement, (partition,)).fetchall()

        while rows := self._database.read(look):
            ((partition,),) = rows
            yield partition

    def damages(self) -> list[str]:
        """Implement `Inspectable` by SQLite's own check."""
        try:
            rows = self._database.read(lambda connection: connection.execute("PRAGMA integrity_check").fetchall())
        except UnavailableError as error:
            if error.error_code != "storage_damaged":
                raise
            return [error.detail]
        return [f"SQLite: {text}" for (text,) in rows if text != "ok"]

    def _remove_expired(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Remove some expired items in the transaction that puts ``rows``, if any of these expires."""
        expiring = sum(row[-1] is not None for row in rows)
        if expiring and self._now_ms is not None:
            connection.execute(_REMOVE_EXPIRED, (self._now_ms() // 1000, expiring * _EXPIRED_AT_ONCE))


def _row(item: Item) -> tuple[Any, ...]:
    size = item_size_bytes(item)
    if size > MAX_ITEM_BYTES:
        raise TooLargeError(f"an item of {size} bytes is over the limit of {MAX_ITEM_BYTES}")
    data, fields = bytearray(), dict[str, str | int | list[int]]()
    index = [value if isinstance(value := item.get(name), str) else None for name in INDEX_ATTRIBUTES]
    for name, value in item.items():
        if isinstance(value, bytes):
            fields[name] = [len(data), len(value)]
            data += value
        elif name not in _IN_COLUMNS or not isinstance(value, str):
            fields[name] = value
    return (item["pk"], item["sk"], encode_ascii_json(fields), bytes(data), *index, size, read_ttl(item))


def _decode(pk: str, sk: str, fields: object, data: object, *index: str | int | None) -> Item:
    """Return the item of a row; raise `CorruptError` if the row is damaged. The size, last of the row, is not read."""
    try:
        if not isinstance(fields, bytes) or not isinstance(data, bytes):
            raise TypeError
        text = fields.decode()
        item, end = _PARSE(text)
        if end < len(text) or "pk" in item or "sk" in item:
            raise ValueError
        for name, value in item.items():
            if type(value) is list:  # bytes: an offset into the row's data and a size
                start, size = value
                if not 0 <= start <= start + size <= len(data):
                    raise ValueError
                item[name] = data[start : start + size]
            elif type(value) is not str and type(value) is not int:
                raise TypeError
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CorruptError("the row of an item is damaged", item=_name(sk)) from error
    item["pk"], item["sk"] = pk, sk
    if index.count(None) < len(INDEX_ATTRIBUTES):
        keys = zip(INDEX_ATTRIBUTES, index, strict=False)
        item = {name: key for name, key in keys if key is not None} | item
    decoded: Item = item
    return decoded


def _name(sk: object) -> str:
    """Return a row's sort key for an error text; damaged characters are replaced."""
    return str(sk).encode("utf-8", "replace").decode()


def _existing(connection: sqlite3.Connection, item: Item) -> Item | None:
    row = connection.execute(_GET, (item["pk"], item["sk"])).fetchone()
    return _decode(*row) if row is not None else None


def _holds(condition: Equal | Less, existing: Item | None) -> bool:
    if existing is None:
        return isinstance(condition, Less) and condition.or_absent
    value = existing.get(condition.attribute)
    if isinstance(condition, Equal):
        return value is not None and value == condition.value
    return isinstance(value, int) and value < condition.value


class SqliteJobQueue:
    """Implements `JobQueue`, with at-least-once delivery.

    Deliveries alternate between the groups of waiting jobs, also from one `receive` to the next, so that no group delays the
    others. A job without delay is due even if the clock is set back. One that fails ``max_receives`` times is a dead letter.
    """

    def __init__(
        self,
        database: SqliteDatabase,
        ids: IdSource,
        now_ms: Callable[[], int],
        *,
        visibility_seconds: int = 360,
        max_receives: int = 5,
    ) -> None:
        self._database = database
        self._ids = ids
        self._now_ms = now_ms
        self._visibility_ms = visibility_seconds * 1000
        self._max_receives = max_receives
        self._served = b""
        """The group of the job that was delivered last."""
        self._changes = count()
        self._change = next(self._changes)
        self._due: tuple[tuple[int, int], int | None] | None = None
        """What `next_due_ms` found, and at which change and second."""

    def send(self, body: str, *, group: str, delay_seconds: int = 0) -> str:
        job_id, now = self._ids.new_id(), self._now_ms()
        row = (job_id, group, body, delay_seconds and now + delay_seconds * 1000, now)
        statement = "INSERT INTO jobs (id, grp, body, visible_ms, sent) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        self._database.write(lambda connection: connection.execute(statement, row))
        self._change = next(self._changes)
        return job_id

    def receive(self, *, limit: int = 10) -> Sequence[Delivery]:
        now, self._change = self._now_ms(), next(self._changes)
        # A worker polls several times a second, so an empty queue must not take the lock for writing.
        due = "SELECT 1 FROM jobs WHERE dead = 0 AND visible_ms <= ? LIMIT 1"
        if self._database.read(lambda connection: connection.execute(due, (now,)).fetchone()) is None:
            return []

        def change(connection: sqlite3.Connection) -> list[Delivery]:
            connection.execute(
                "UPDATE jobs SET dead = 1 WHERE dead = 0 AND visible_ms <= ? AND receives >= ?",
                (now, self._max_receives),
            )
            deliveries = list[Delivery]()
            while len(deliveries) < max(1, min(limit, 10)):
                job = connection.execute(_NEXT_JOB, (now, self._served)).fetchone()
                if job is None:
                    break
                row, job_id, self._served, body, receives = job
                receipt = self._ids.new_id()
                connection.execute(
                    "UPDATE jobs SET visible_ms = ?, receives = receives + 1, receipt = ? WHERE rowid = ?",
                    (now + self._visibility_ms, receipt, row),
                )
                deliveries.append(Delivery(job_id, body, receipt, receives + 1))
            return deliveries

        return self._database.write(change)

    def next_due_ms(self) -> int | None:
        """Return when the next job is due: the time in milliseconds, or None without a job. Past or 0 for a job that waits.

        What other processes queue is seen within a second.
        """
        moment, due = (self._change, int(time.monotonic())), self._due
        if due is None or due[0] != moment:
            first = "SELECT min(visible_ms) FROM jobs WHERE dead = 0"
            (first_ms,) = self._database.read(lambda connection: connection.execute(first).fetchone())
            due = self._due = moment, first_ms
        return due[1]

    def acknowledge(self, receipt: str) -> None:
        statement = "DELETE FROM jobs WHERE receipt = ?"
        self._database.write(lambda connection: connection.execute(statement, (receipt,)))
        self._change = next(self._changes)

    def redrive(self, group_of: Callable[[str], str | None]) -> int:
        """Implement `Redrivable`, in one transaction. A job keeps its group."""
        now = self._now_ms()

        def change(connection: sqlite3.Connection) -> int:
            rows = connection.execute(
                "SELECT rowid, body FROM jobs WHERE dead = 1 OR (visible_ms <= ? AND receives >= ?)",
                (now, self._max_receives),
            ).fetchall()
            wanted = [(row,) for row, body in rows if group_of(body) is not None]
            connection.executemany("UPDATE jobs SET dead = 0, receives = 0, visible_ms = 0 WHERE rowid = ?", wanted)
            return len(wanted)

        count = self._database.write(change)
        self._change = next(self._changes)
        return count
