"""SQLite in place of DynamoDB and SQS: one indexed table of items, one of jobs, real transactions.

Several processes and threads may use one file at once: WAL, ``synchronous=FULL``, writers under ``BEGIN IMMEDIATE``, a
connection per process and thread.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnlog.domain.errors import TooLargeError, UnavailableError
from turnlog.ports import (
    INDEX_KEYS,
    MAX_ITEM_BYTES,
    MAX_PAGE_BYTES,
    Absent,
    AttributeValue,
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

BUSY_TIMEOUT_SECONDS = 10.0
_ASK_AGAIN_SECONDS = (0.0005, 0.004)
"""A writer that waits for the lock asks for it again after a time between these. SQLite's own waiting gets as long as 100 ms, so
that a writer which comes back at once keeps the lock from the others for seconds."""
MEMORY = ":memory:"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    pk TEXT NOT NULL, sk TEXT NOT NULL, size INTEGER NOT NULL, attributes BLOB NOT NULL, data BLOB NOT NULL,
    g1pk TEXT, g1sk TEXT, g2pk TEXT, g2sk TEXT,
    PRIMARY KEY (pk, sk)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS activity ON items (g1pk, g1sk) WHERE g1pk IS NOT NULL;
CREATE INDEX IF NOT EXISTS expiry ON items (g2pk, g2sk) WHERE g2pk IS NOT NULL;
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, grp TEXT NOT NULL, body TEXT NOT NULL, visible_ms INTEGER NOT NULL,
    receives INTEGER NOT NULL DEFAULT 0, receipt TEXT, dead INTEGER NOT NULL DEFAULT 0, sent INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_visible ON jobs (dead, visible_ms);
"""
_FORMAT = 1
_WAIT = f"PRAGMA busy_timeout={round(BUSY_TIMEOUT_SECONDS * 1000)}"
_INDEX_ATTRIBUTES = ("g1pk", "g1sk", "g2pk", "g2sk")


class _Own:
    """A thread's connection, as long as the thread is there."""

    __slots__ = ("__weakref__", "connection")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        weakref.finalize(self, _close, connection, os.getpid()).atexit = False


_INHERITED = list[sqlite3.Connection]()
"""A connection must not be used on both sides of a fork, not even to close it: a child keeps those of its parent."""


def _close(connection: sqlite3.Connection, pid: int) -> None:
    if os.getpid() == pid:
        connection.close()
    else:
        _INHERITED.append(connection)


class SqliteDatabase:
    """Connections to one file, one per process and thread; it is closed when the thread ends. Use `MEMORY` as the path for one in
    memory."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._local = threading.local()
        self._all: weakref.WeakSet[_Own] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._shared: sqlite3.Connection | None = None
        self._closed = False

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, opened at first use. A forked child opens its own."""
        if self._closed:
            raise UnavailableError("the engine is closed", code="closed")
        if self.path == MEMORY:
            with self._lock:
                if self._shared is None:
                    self._shared = self._open()
                return self._shared
        if os.getpid() != self._pid:
            self._local, self._all, self._pid = threading.local(), weakref.WeakSet(), os.getpid()
        own: _Own | None = getattr(self._local, "own", None)
        if own is None:
            own = self._local.own = _Own(self._open())
            with self._lock:
                self._all.add(own)
        return own.connection

    @property
    def open_connections(self) -> int:
        """How many this process has."""
        with self._lock:
            return len(self._all) + (self._shared is not None)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._translated(), self._exclusive():
            yield self.connection()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, committed durably at the end or rolled back."""
        with self._translated(), self._exclusive():
            connection = self.connection()
            _begin(connection)
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def release(self) -> None:
        """Closes this thread's connection; one that is asked for later is opened anew. That of a database in memory stays."""
        own: _Own | None = getattr(self._local, "own", None)
        if own is not None and os.getpid() == self._pid:
            self._local.own = None
            with self._lock:
                self._all.discard(own)
            own.connection.close()

    def close(self) -> None:
        """Closes every connection of this process."""
        with self._lock:
            self._closed = True
            for own in self._all:
                own.connection.close()
            self._all.clear()
            if self._shared is not None:
                self._shared.close()
            self._shared = None

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if self.path != MEMORY:
            yield
            return
        with self._lock:
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UnavailableError(f"SQLite: {error}", retry_after_seconds=1) from error
        except sqlite3.DatabaseError as error:
            raise UnavailableError(f"SQLite: {error}", code="storage_damaged") from error

    def _open(self) -> sqlite3.Connection:
        if self.path != MEMORY:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA temp_store=MEMORY")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _FORMAT:
            connection.close()
            raise UnavailableError(f"the database file has format {version}, newer than {_FORMAT}", code="newer_schema")
        if version < _FORMAT:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={_FORMAT}; COMMIT;")
        return connection


def _begin(connection: sqlite3.Connection) -> None:
    """Begins a writing transaction, as soon as the lock is free; `sqlite3.OperationalError` when it is not in time."""
    ends = time.monotonic() + BUSY_TIMEOUT_SECONDS
    connection.execute("PRAGMA busy_timeout=0")
    try:
        while not _has_begun(connection, is_last=time.monotonic() >= ends):
            time.sleep(random.uniform(*_ASK_AGAIN_SECONDS))
    finally:
        connection.execute(_WAIT)


def _has_begun(connection: sqlite3.Connection, *, is_last: bool) -> bool:
    """Whether the lock was free. The last try raises."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if is_last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


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
                    found[key] = _decode(row[0], row[1])
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
            f"SELECT size, attributes, data FROM items WHERE {' AND '.join(where)} "  # noqa: S608 - fixed names
            f"ORDER BY {sk} {order}, pk {order}, sk {order}"
        )
        items, size = list[Item](), 0
        with self._database.reading() as connection:
            cursor = connection.execute(statement, values)
            try:
                for row_size, attributes, data in cursor:
                    if items and (size + row_size > MAX_PAGE_BYTES or len(items) == query.limit):
                        last = items[-1]
                        names = ("pk", "sk") if query.index is None else ("pk", "sk", pk, sk)
                        return Page(tuple(items), {name: str(last[name]) for name in names})
                    items.append(_decode(attributes, data))
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


_PUT = (
    "INSERT OR REPLACE INTO items (pk, sk, size, attributes, data, g1pk, g1sk, g2pk, g2sk) VALUES (?,?,?,?,?,?,?,?,?)"
)


class SqliteJobQueue:
    """`JobQueue` on SQLite: at-least-once, fair between groups, dead letters after ``max_receives``."""

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

    def send(self, body: str, *, group: str, delay_seconds: int = 0) -> str:
        job_id, now = self._ids.new_id(), self._now_ms()
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO jobs (id, grp, body, visible_ms, sent) VALUES (?, ?, ?, ?, ?)",
                (job_id, group, body, now + delay_seconds * 1000, now),
            )
        return job_id

    def receive(self, *, limit: int = 10) -> Sequence[Delivery]:
        now, deliveries = self._now_ms(), list[Delivery]()
        with self._database.reading() as connection:
            # A poller asks several times a second: an empty queue takes no lock for writing.
            if (
                connection.execute("SELECT 1 FROM jobs WHERE dead = 0 AND visible_ms <= ? LIMIT 1", (now,)).fetchone()
                is None
            ):
                return deliveries
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE jobs SET dead = 1, receipt = NULL WHERE dead = 0 AND visible_ms <= ? AND receives >= ?",
                (now, self._max_receives),
            )
            rows = connection.execute(
                "SELECT id, body, receives FROM (SELECT id, body, receives, sent,"
                " ROW_NUMBER() OVER (PARTITION BY grp ORDER BY sent, id) AS turn"
                " FROM jobs WHERE dead = 0 AND visible_ms <= ?) ORDER BY turn, sent LIMIT ?",
                (now, max(1, min(limit, 10))),
            ).fetchall()
            for job_id, body, receives in rows:
                receipt = self._ids.new_id()
                connection.execute(
                    "UPDATE jobs SET visible_ms = ?, receives = receives + 1, receipt = ? WHERE id = ?",
                    (now + self._visibility_ms, receipt, job_id),
                )
                deliveries.append(Delivery(job_id, body, receipt, receives + 1))
        return deliveries

    def acknowledge(self, receipt: str) -> None:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM jobs WHERE receipt = ?", (receipt,))

    def postpone(self, receipt: str, *, seconds: int) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE jobs SET visible_ms = ? WHERE receipt = ?", (self._now_ms() + seconds * 1000, receipt)
            )

    def dead_letters(self, *, limit: int = 10) -> Sequence[Delivery]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id, body, receives FROM jobs WHERE dead = 1 OR (visible_ms <= ? AND receives >= ?)"
                " ORDER BY sent, id LIMIT ?",
                (self._now_ms(), self._max_receives, limit),
            ).fetchall()
        return [Delivery(job_id, body, "", receives) for job_id, body, receives in rows]

    def redrive(self, group_of: Callable[[str], str | None]) -> int:
        """Implements `Redrivable`, in one transaction."""
        now = self._now_ms()
        with self._database.writing() as connection:
            rows = connection.execute(
                "SELECT id, body FROM jobs WHERE dead = 1 OR (visible_ms <= ? AND receives >= ?)",
                (now, self._max_receives),
            ).fetchall()
            wanted = [(now, group, job_id) for job_id, body in rows if (group := group_of(body)) is not None]
            connection.executemany(
                "UPDATE jobs SET dead = 0, receives = 0, receipt = NULL, visible_ms = ?, grp = ? WHERE id = ?", wanted
            )
        return len(wanted)


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


def _decode(attributes: bytes, data: bytes) -> Item:
    found: dict[str, AttributeValue] = json.loads(attributes)
    for name, value in found.items():
        if isinstance(value, list):
            found[name] = data[value[0] : value[0] + value[1]]
    return found


def _existing(connection: sqlite3.Connection, item: Item) -> Item | None:
    row = connection.execute(
        "SELECT attributes, data FROM items WHERE pk = ? AND sk = ?", (item["pk"], item["sk"])
    ).fetchone()
    return _decode(row[0], row[1]) if row is not None else None


def _holds(condition: Condition, existing: Item | None) -> bool:
    if isinstance(condition, Absent):
        return existing is None
    if existing is None:
        return isinstance(condition, Less) and condition.or_absent
    found = existing.get(condition.attribute)
    if isinstance(condition, Equal):
        return found is not None and found == condition.value
    return isinstance(found, int) and found < condition.value
