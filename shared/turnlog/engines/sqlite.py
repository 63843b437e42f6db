"""Connections to a SQLite file, which replaces DynamoDB and SQS: a table of items and a table of jobs.

Several processes and threads may use one file at once: WAL, ``synchronous=FULL``, writers under ``BEGIN IMMEDIATE``, a
connection per process and thread.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from turnlog.core.errors import UnavailableError
from turnlog.engines.files import make_folder
from turnlog.engines.sqlite_file import BUSY_TIMEOUT_SECONDS, check_file, prepare, purge_file, until_free

MEMORY = ":memory:"
_NO_ACCESS = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


class _Own:
    """A thread's connection, which is closed when the thread ends.

    ``lock`` is held while the thread uses the connection: closing it from another thread meanwhile would crash the process.
    """

    __slots__ = ("__weakref__", "connection", "lock")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lock = threading.RLock()
        weakref.finalize(self, _close, connection, os.getpid()).atexit = False


_INHERITED = list[sqlite3.Connection]()
"""The parent's connections in a forked child. A connection must not be used after a fork, not even closed, so they are kept."""


def _close(connection: sqlite3.Connection, pid: int) -> None:
    if os.getpid() == pid:
        connection.close()
    else:
        _INHERITED.append(connection)


class SqliteDatabase:
    """Connections to a database file, one for each process and thread; with the path `MEMORY`, one to a database in memory."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._local = threading.local()
        self._all: weakref.WeakSet[_Own] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._shared: sqlite3.Connection | None = None
        self._closed = False

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection, which is opened at first use. A forked child opens its own."""
        return self._in_memory() if self.path == MEMORY else self._own().connection

    @property
    def open_connections(self) -> int:
        """The number of this process's open connections."""
        with self._lock:
            return len(self._all) + (self._shared is not None)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection to read with; raise SQLite's errors as `UnavailableError`."""
        with self._translated(), self._used() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, which is committed durably at the end, or rolled back on an error."""
        with self._translated(), self._used() as connection:
            try:
                # Inside the try: Ctrl-C may come after BEGIN, and an open transaction would block every other writer.
                until_free(connection, "BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def purge(self) -> None:
        """Remove the bytes of deleted and replaced rows from the file and its WAL.

        Writers wait while the file is rewritten. Raises `UnavailableError` with the code ``purge_blocked`` if a reader keeps old
        pages in use for `BUSY_TIMEOUT_SECONDS`.
        """
        if self.path == MEMORY:
            return
        with self._translated(), self._used() as connection:
            purge_file(connection)

    def copy_to(self, path: Path) -> None:
        """Write the database as it is now to a new file that only its user can read. Writers do not wait."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with self._translated(), self._used() as connection, closing(sqlite3.connect(path)) as copy:
            connection.backup(copy)  # in one step: a backup in several restarts after each write of another process

    def release(self) -> None:
        """Close this thread's connection; a later use opens a new one. The connection of a database in memory stays open."""
        own: _Own | None = getattr(self._local, "own", None)
        if own is not None and os.getpid() == self._pid:
            self._local.own = None
            with self._lock:
                self._all.discard(own)
            own.connection.close()

    def close(self) -> None:
        """Close every connection of this process, each after the current statement or transaction of its thread.

        A later use raises `UnavailableError` with the code ``closed``.
        """
        with self._lock:
            self._closed = True
            if self._shared is not None:
                self._shared.close()
            self._shared = None
            connections = list(self._all) if os.getpid() == self._pid else []
            self._all.clear()
        for own in connections:
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
            self._lock = threading.RLock()  # a thread of the parent may have held the old one
        own: _Own | None = getattr(self._local, "own", None)
        if own is None:
            own = self._local.own = _Own(self._open())
            with self._lock:
                self._all.add(own)
        return own

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """Yield this thread's connection, or the only one of a database in memory; `close` waits until the block ends."""
        if self.path == MEMORY:
            with self._lock:
                yield self._in_memory()
            return
        own = self._own()
        with own.lock:
            if self._closed:  # since `_own` returned
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
            code = getattr(error, "sqlite_errorcode", None)  # None: raised by Python, for bytes that are not UTF-8
            if code is None:
                raise UnavailableError("SQLite: a stored text is damaged", code="storage_damaged") from error
            if code & 0xFF in _NO_ACCESS:
                raise UnavailableError(f"SQLite: {error} {self.path!r}", code="no_access") from error
            raise UnavailableError(f"SQLite: {error}", retry_after_seconds=1) from error
        except sqlite3.DatabaseError as error:
            raise UnavailableError(f"SQLite: {error}", code="storage_damaged") from error
        except UnicodeEncodeError as error:
            raise UnavailableError("SQLite: a text is not UTF-8", code="storage_damaged") from error

    def _open(self) -> sqlite3.Connection:
        if self.path != MEMORY:
            path = Path(self.path)
            try:
                make_folder(path.parent)
            except OSError as error:
                message = f"can't make the folder {str(path.parent)!r}: {(error.strerror or '').lower()}"
                raise UnavailableError(message, code="no_folder") from error
            check_file(path)
        connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            prepare(connection, self.path)
        except BaseException:
            connection.close()
            raise
        connection.text_factory = _text
        return connection


def _text(stored: bytes) -> str:
    """Decode a stored text. Damaged bytes are kept as surrogates, so that the reader of the row can report the row."""
    return stored.decode("utf-8", "surrogateescape")
