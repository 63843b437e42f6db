"""A SQLite file in place of DynamoDB and SQS: one indexed table of items, one of jobs, real transactions.

Several processes and threads may use one file at once: WAL, ``synchronous=FULL``, writers under ``BEGIN IMMEDIATE``, a
connection per process and thread.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnlog.domain.errors import UnavailableError

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


class _Own:
    """A thread's connection, as long as the thread is there. ``lock`` is held while the thread uses it: to close a connection that
    another thread is using ends the process."""

    __slots__ = ("__weakref__", "connection", "lock")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lock = threading.RLock()
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
        return self._in_memory() if self.path == MEMORY else self._own().connection

    @property
    def open_connections(self) -> int:
        """How many this process has."""
        with self._lock:
            return len(self._all) + (self._shared is not None)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._translated(), self._used() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, committed durably at the end or rolled back."""
        with self._translated(), self._used() as connection:
            try:
                # In here: Ctrl-C may come when it has begun, and one that is left open would keep every other writer out.
                _until_free(connection, "BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def release(self) -> None:
        """Closes this thread's connection; one that is asked for later is opened anew. That of a database in memory stays."""
        own: _Own | None = getattr(self._local, "own", None)
        if own is not None and os.getpid() == self._pid:
            self._local.own = None
            with self._lock:
                self._all.discard(own)
            own.connection.close()

    def close(self) -> None:
        """Closes every connection of this process, each after what its thread is doing with it. What is asked for later is
        `UnavailableError` with the code ``closed``."""
        with self._lock:
            self._closed = True
            if self._shared is not None:
                self._shared.close()
            self._shared = None
            every = list(self._all) if os.getpid() == self._pid else []
            self._all.clear()
        for own in every:
            with own.lock:
                own.connection.close()

    def _in_memory(self) -> sqlite3.Connection:
        with self._lock:
            self._refuse_closed()
            if self._shared is None:
                self._shared = self._open()
            return self._shared

    def _own(self) -> _Own:
        self._refuse_closed()
        if os.getpid() != self._pid:
            self._local, self._all, self._pid = threading.local(), weakref.WeakSet(), os.getpid()
            self._lock = threading.RLock()  # a thread that is not there any more may have had it
        own: _Own | None = getattr(self._local, "own", None)
        if own is None:
            own = self._local.own = _Own(self._open())
            with self._lock:
                self._all.add(own)
        return own

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """The thread's connection, or for a database in memory the only one; it is not closed before the end."""
        if self.path == MEMORY:
            with self._lock:
                yield self._in_memory()
            return
        own = self._own()
        with own.lock:
            if self._closed:  # just now
                own.connection.close()
            self._refuse_closed()
            yield own.connection

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UnavailableError("the engine is closed", code="closed")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UnavailableError(f"SQLite: {error}", retry_after_seconds=1) from error
        except sqlite3.DatabaseError as error:
            raise UnavailableError(f"SQLite: {error}", code="storage_damaged") from error
        except UnicodeEncodeError as error:
            raise UnavailableError("SQLite: a text is not UTF-8", code="storage_damaged") from error

    def _open(self) -> sqlite3.Connection:
        if self.path != MEMORY:
            folder = Path(self.path).parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                message = f"can't make the folder {str(folder)!r}: {(error.strerror or '').lower()}"
                raise UnavailableError(message, code="no_folder") from error
        connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            # Of several that open a new file at once SQLite tells all but one that it is locked, and waits for none of them.
            _until_free(connection, "PRAGMA journal_mode=WAL")
        except BaseException:
            connection.close()
            raise
        connection.text_factory = _text
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA temp_store=MEMORY")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _FORMAT:
            connection.close()
            raise UnavailableError(f"the database file has format {version}, newer than {_FORMAT}", code="newer_schema")
        if version < _FORMAT:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={_FORMAT}; COMMIT;")
        return connection


def _text(stored: bytes) -> str:
    """Decode a text of the file; damaged bytes stay, for the reader of the row to find."""
    return stored.decode("utf-8", "surrogateescape")


def _until_free(connection: sqlite3.Connection, statement: str) -> None:
    """Executes what takes the lock, as soon as that is free; `sqlite3.OperationalError` when it is not in time."""
    ends = time.monotonic() + BUSY_TIMEOUT_SECONDS
    connection.execute("PRAGMA busy_timeout=0")
    try:
        while not _is_done(connection, statement, is_last=time.monotonic() >= ends):
            time.sleep(random.uniform(*_ASK_AGAIN_SECONDS))
    finally:
        connection.execute(_WAIT)


def _is_done(connection: sqlite3.Connection, statement: str, *, is_last: bool) -> bool:
    """Whether the lock was free. The last try raises."""
    try:
        connection.execute(statement)
    except sqlite3.OperationalError as error:
        if is_last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True
