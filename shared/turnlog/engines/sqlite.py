"""Connections to a SQLite file, which replaces DynamoDB and SQS: a table of items and a table of jobs.

Several processes and threads may use one file at once: WAL, ``synchronous=FULL``, writers under ``BEGIN IMMEDIATE``, a
connection per process and thread. Writes of a process that wait share a transaction."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

from turnlog.core.errors import UnavailableError
from turnlog.core.json_values import encode_ascii_json
from turnlog.engines.files import make_folder
from turnlog.log.fork_lock import fork_lock

_T = TypeVar("_T")
_log = logging.getLogger("turnlog")
BUSY_TIMEOUT_SECONDS = 10.0
_ASK_AGAIN_SECONDS = (0.0005, 0.004)
"""Range of the pause before a lock is tried again. With SQLite's own, of up to 100 ms, a busy writer would keep the lock."""
_CHECKPOINT_WAIT_MS = 50
"""Time that a checkpoint waits for readers. It holds the writers' lock meanwhile, so it waits shortly and is tried again."""
APPLICATION_ID = 0x54524E4C
"""``TRNL``."""
FORMAT = 4
_MOVING = 3
"""The format of a file whose items are on their way from the table of format 1 or 2."""
MOVED_AT_ONCE = 5_000
_HEADER_BYTES = 100
INDEX_ATTRIBUTES = ("g1pk", "g1sk", "g2pk", "g2sk")
_ITEM_COLUMNS = ("pk", "sk", "size", "attributes", "data", *INDEX_ATTRIBUTES)
"""Columns of format 1, whose files have no ``application_id``."""
_JOB_COLUMNS = ("id", "grp", "body", "visible_ms", "receives", "receipt", "dead", "sent")
_ITEMS = (
    """CREATE TABLE items (
        pk TEXT NOT NULL, sk TEXT NOT NULL, size INTEGER NOT NULL, fields BLOB NOT NULL, data BLOB NOT NULL,
        g1pk TEXT, g1sk TEXT, g2pk TEXT, g2sk TEXT, ttl INTEGER
    )""",
    "CREATE UNIQUE INDEX item_keys ON items (pk, sk)",
    "CREATE INDEX activity ON items (g1pk, g1sk, pk, sk) WHERE g1pk IS NOT NULL",
    "CREATE INDEX expiry ON items (g2pk, g2sk, pk, sk) WHERE g2pk IS NOT NULL",
    "CREATE INDEX expired ON items (ttl) WHERE ttl IS NOT NULL",
)
"""A row of a table WITHOUT ROWID that is over 1 KB takes a page of its own; three of them share a page here."""
_JOBS = (
    """CREATE TABLE jobs (
        id TEXT PRIMARY KEY, grp TEXT NOT NULL, body TEXT NOT NULL, visible_ms INTEGER NOT NULL,
        receives INTEGER NOT NULL DEFAULT 0, receipt TEXT, dead INTEGER NOT NULL DEFAULT 0, sent INTEGER NOT NULL
    )""",
    "CREATE INDEX jobs_visible ON jobs (dead, visible_ms)",
)
_SET_ASIDE = (
    "DROP INDEX activity",
    "DROP INDEX expiry",
    "DROP INDEX IF EXISTS expired",
    "ALTER TABLE items RENAME TO former_items",
)
_MOVE = (
    "INSERT INTO items SELECT pk, sk, size, fields_of(CAST(attributes AS BLOB), CAST(pk AS BLOB), CAST(sk AS BLOB),"
    " CAST(g1pk AS BLOB), CAST(g1sk AS BLOB), CAST(g2pk AS BLOB), CAST(g2sk AS BLOB)), data, g1pk, g1sk, g2pk, g2sk,"
    " ttl_of(CAST(attributes AS BLOB)) FROM former_items ORDER BY pk, sk LIMIT ?"
)
_DELETE_MOVED = "DELETE FROM former_items WHERE (pk, sk) IN (SELECT pk, sk FROM former_items ORDER BY pk, sk LIMIT ?)"
MEMORY = ":memory:"
_NO_ACCESS = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_SQL_ERRORS = (sqlite3.DatabaseError, UnicodeError)
_CLOSING = fork_lock()
"""Held while a connection is closed, perhaps by a thread that ends: a child forked meanwhile would find SQLite locked."""
_DATABASES: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()


def check_file(path: Path) -> None:
    """Raise `UnavailableError` for a file that is not Turnlog's or has a newer format. A missing or empty file passes.

    The file is not changed. SQLite reads it: were it opened here, its closing would end every POSIX lock that this process holds
    on it. Another process could then take itself for the last user of the WAL, and delete it under this one.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _foreign(path, "is not a regular file")
        if not status.st_size:
            return
        if status.st_size < _HEADER_BYTES:
            raise _foreign(path, "is not a SQLite database")
        with closing(_unchanged(path)) as connection:
            application_id, version = _stamp(connection)
    except FileNotFoundError:
        return
    except (OSError, sqlite3.OperationalError) as error:
        reason = str(getattr(error, "strerror", error)).lower()
        raise UnavailableError(f"can't read {str(path)[:200]!r}: {reason}", code="no_access") from error
    except sqlite3.DatabaseError as error:
        if _is_damaged(path):
            raise UnavailableError(f"SQLite: the header of {str(path)!r} is damaged", code="storage_damaged") from error
        raise _foreign(path, "is not a SQLite database") from error
    if application_id == APPLICATION_ID:
        _check_format(version)
    elif application_id:
        raise _foreign(path, f"is another program's SQLite database (application_id {application_id & 0xFFFFFFFF:#x})")
    else:
        _look_at_tables(path)


def _is_damaged(path: Path) -> bool:
    """Return whether a file that SQLite can't read has Turnlog's ``application_id``."""
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)[68:72] == APPLICATION_ID.to_bytes(4)


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables of a new file or migrate an older format, and set the connection's options."""
    application_id, version = _stamp(connection)
    if application_id != APPLICATION_ID or version not in (_MOVING, FORMAT):
        # In a transaction, for another process may be creating the tables just now.
        version = in_transaction(connection, partial(_begin_format, path=Path(path)))
    until_free(connection.execute, "PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA secure_delete=ON")
    if version == _MOVING:
        _move_items(connection, path)


def in_transaction(connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], _T]) -> _T:
    """Return what ``change`` returns, in a transaction that has the writers' lock: durable at its end, or without effect."""
    try:
        # Inside the try: Ctrl-C may come after BEGIN, and an open transaction would block every other writer.
        until_free(connection.execute, "BEGIN IMMEDIATE")
        result = change(connection)
        # Without a WAL, which some file systems can't have, a commit waits for readers.
        until_free(connection.execute, "COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def until_free(work: Callable[..., _T], argument: object) -> _T:
    """Return ``work(argument)``. While it fails because of another connection's lock, pause and call it again.

    Raises `sqlite3.OperationalError` if the lock is not free within `BUSY_TIMEOUT_SECONDS`.
    """
    ends = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            return work(argument)
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if time.monotonic() >= ends or code & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        time.sleep(random.uniform(*_ASK_AGAIN_SECONDS))


def purge_file(connection: sqlite3.Connection) -> None:
    """Rewrite the database from its rows, and empty its WAL.

    ``secure_delete`` alone leaves copies: SQLite moves rows between pages and does not clear their old place.
    """
    connection.execute("PRAGMA temp_store=FILE")  # VACUUM copies all rows, which may not fit into memory
    try:
        until_free(connection.execute, "VACUUM")
    finally:
        connection.execute("PRAGMA temp_store=MEMORY")
    ends = time.monotonic() + BUSY_TIMEOUT_SECONDS
    connection.execute(f"PRAGMA busy_timeout={_CHECKPOINT_WAIT_MS}")
    try:
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() >= ends:
                raise UnavailableError(
                    "SQLite: another reader or writer holds erased pages of the file; they go when it has ended",
                    code="purge_blocked",
                    retry_after_seconds=60,
                )
            time.sleep(random.uniform(*_ASK_AGAIN_SECONDS))
    finally:
        connection.execute("PRAGMA busy_timeout=0")


def read_ttl(attributes: Mapping[str, object]) -> int | None:
    """Return the time in epoch seconds from which an item may be removed."""
    ttl = attributes.get("ttl")
    return ttl if isinstance(ttl, int) and 0 <= ttl < 2**63 else None


def _look_at_tables(path: Path) -> None:
    """Raise for a file without an ``application_id``, unless it has no tables or the tables of format 1."""
    wal = path.with_name(path.name + "-wal")
    with closing(_unchanged(path)) as connection:
        if _tables(connection) or not wal.is_file() or not wal.stat().st_size:
            _format_of(connection, path)
            return
    # The tables, if any, are only in the WAL. SQLite can't read a WAL without creating files beside it, so a copy is read.
    with TemporaryDirectory(prefix="turnlog-") as folder:
        copy = Path(folder, "copy.db")
        shutil.copyfile(wal, copy.with_name("copy.db-wal"))
        shutil.copyfile(path, copy)
        with closing(sqlite3.connect(copy)) as connection:
            _format_of(connection, path)


def _unchanged(path: Path) -> sqlite3.Connection:
    """Open a file read-only, without locks and without creating files beside it.

    While a checkpoint lets the file grow, its header counts pages that are not there yet. SQLite takes that for damage, but for
    connections that may write the schema.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.execute("PRAGMA writable_schema=ON")
    return connection


def _begin_format(connection: sqlite3.Connection, path: Path) -> int:
    """Create the tables of a new file, or set the items of an older format aside. Return the file's format after it.

    Runs in a transaction. Another process may have done so just before. A process of an older version that has the file open
    then finds no column ``attributes``, so it reads and writes no item.
    """
    version = _format_of(connection, path)
    if version >= _MOVING:
        return version
    for statement in (*_ITEMS, *_JOBS) if version == 0 else (*_SET_ASIDE, *_ITEMS):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    version = FORMAT if version == 0 else _MOVING
    connection.execute(f"PRAGMA user_version={version}")
    return version


def _move_items(connection: sqlite3.Connection, path: str) -> None:
    """Move the items of an older format into the table of this one, in short transactions, and shrink the file.

    A process that is killed meanwhile loses nothing: the next one that opens the file goes on. Several may move at once.
    """
    connection.create_function("fields_of", 7, _fields_of, deterministic=True)
    connection.create_function("ttl_of", 1, lambda attributes: read_ttl(_parsed(attributes)), deterministic=True)
    _log.warning(
        "%s gets a new format, which older versions can't read; to go back to them, you need a backup made before", path
    )
    moved = 0
    while (count := in_transaction(connection, partial(_move_some, path=Path(path)))) is not None:
        moved += count
        _log.warning("%s: %d items have the new format", path, moved)
    with suppress(sqlite3.Error, UnavailableError):  # the file only stays as large as it was
        purge_file(connection)


def _move_some(connection: sqlite3.Connection, path: Path) -> int | None:
    """Move some items into the new table. Return their number; None if all have been moved. Runs in a transaction."""
    if _format_of(connection, path) != _MOVING:
        return None
    connection.execute(_MOVE, (MOVED_AT_ONCE,))
    count = connection.execute(_DELETE_MOVED, (MOVED_AT_ONCE,)).rowcount
    if count < MOVED_AT_ONCE:
        connection.execute("DROP TABLE former_items")
        connection.execute(f"PRAGMA user_version={FORMAT}")
    return count


def _fields_of(attributes: bytes, pk: bytes, sk: bytes, *index: bytes | None) -> bytes:
    """Return the attributes of a row of an older format without what its columns repeat. A damaged row stays as it is."""
    fields = _parsed(attributes)
    if any(fields.pop(name, None) != _text(key) for name, key in (("pk", pk), ("sk", sk))):
        return attributes
    for name, key in zip(INDEX_ATTRIBUTES, index, strict=True):
        if key is not None and fields.get(name) == _text(key):
            del fields[name]
    return encode_ascii_json(fields)


def _parsed(attributes: bytes) -> dict[str, Any]:
    """Return a row's attributes; none for a damaged row, which stays, so that its readers can name it."""
    try:
        parsed = json.loads(attributes, parse_constant=_damaged)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _damaged(name: str) -> Any:
    raise ValueError(name)


def _format_of(connection: sqlite3.Connection, path: Path) -> int:
    """Return the format of Turnlog's database, 0 for a database without tables; raise `UnavailableError` for any other."""
    application_id, version = _stamp(connection)
    if application_id == APPLICATION_ID:
        _check_format(version)
        return version
    tables = _tables(connection)
    is_utf8 = connection.execute("PRAGMA encoding").fetchone()[0] == "UTF-8"
    if application_id == 0 and version == 0 and not tables and is_utf8:
        return 0
    if application_id == 0 and version == 1:
        query = "SELECT name FROM pragma_table_info(?)"
        items, jobs = (tuple(name for (name,) in connection.execute(query, (table,))) for table in ("items", "jobs"))
        if items[: len(_ITEM_COLUMNS)] == _ITEM_COLUMNS and jobs == _JOB_COLUMNS:
            return version
    raise _foreign(path, "is another program's SQLite database")


def _stamp(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return a database's application id and format."""
    names = ("application_id", "user_version")
    application_id, version = (until_free(connection.execute, f"PRAGMA {name}").fetchone()[0] for name in names)
    return application_id, version


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _check_format(version: int) -> None:
    if version > FORMAT:
        raise UnavailableError(
            f"the database file has format {version}, newer than {FORMAT}; use a newer Turnlog", code="newer_schema"
        )


def _foreign(path: Path, reason: str) -> UnavailableError:
    return UnavailableError(f"SQLite: {str(path)!r} {reason}; name another file", code="foreign_file")


class _Own:
    """A thread's connection, or the only one of a database in memory. It is closed when nobody has it any more.

    ``lock`` is held while a thread uses the connection: closing it from another thread meanwhile would crash the process.
    """

    __slots__ = ("__weakref__", "_finalizer", "connection", "file", "lock")

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.file: tuple[int, int] | None = None
        self.lock = threading.RLock()

    def opened(self, connection: sqlite3.Connection, file: tuple[int, int] | None = None) -> sqlite3.Connection:
        """Keep a new connection and the identity of its file, and return the connection."""
        self.connection, self.file = connection, file
        self._finalizer = weakref.finalize(self, _close, connection)
        self._finalizer.atexit = False
        return connection

    def close(self) -> None:
        """Close the connection after the current statement or transaction of its thread."""
        with self.lock:
            if self.connection is not None:
                self._finalizer()
            self.connection = None


def _close(connection: sqlite3.Connection) -> None:
    with _CLOSING:
        connection.close()


class _Write(Generic[_T]):
    """A change that waits for its transaction."""

    def __init__(self, change: Callable[[sqlite3.Connection], _T]) -> None:
        self.change = change
        self.results = list[_T]()
        self.error: Exception | None = None

    @property
    def is_over(self) -> bool:
        return bool(self.results) or self.error is not None


class SqliteDatabase:
    """Connections to a database file, one for each process and thread; with the path `MEMORY`, one to a database in memory."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._closed = False
        self._local = threading.local()
        self._all: weakref.WeakSet[_Own] = weakref.WeakSet()
        self._lock, self._turn, self._fork = threading.RLock(), threading.RLock(), ExitStack()
        self._waiting = dict[_Write[Any], None]()
        self._shared = self._added() if self.path == MEMORY else None
        _DATABASES.add(self)

    def begin_fork(self) -> None:
        """Close the connections, but one in memory, and let no thread use any until `end_fork`.

        SQLite counts a process's locks on a file in memory. A child that inherits open connections takes locks for its own that it
        does not have: the parent then deletes the WAL under it, or a lock that a thread of the parent held stays taken.
        """
        for lock in (self._turn, self._lock):
            self._fork.enter_context(lock)
        for own in list(self._all):
            self._fork.enter_context(own.lock)
            if own is not self._shared:
                own.close()

    def end_fork(self, *, is_child: bool) -> None:
        """Let threads use connections again. A child forgets the writes that wait: threads of its parent run them."""
        if is_child:
            self._waiting.clear()
        self._fork.close()

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection. At first use, in a forked child too, it is opened, and a missing file created."""
        return self.read(lambda connection: connection)

    @property
    def open_connections(self) -> int:
        """The number of this process's open connections."""
        with self._lock:
            return sum(own.connection is not None for own in self._all)

    def use(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what ``work`` returns for this thread's connection, or the only one in memory; `close` waits until it ends.

        Raises SQLite's errors as `UnavailableError`. Statements do not wait for locks; those of `read` and `write` do.
        """
        try:
            own = self._shared or getattr(self._local, "own", None)
            if own is None:
                own = self._local.own = self._added()
            with own.lock:
                if self._closed:
                    raise UnavailableError("the engine is closed", code="closed")
                connection = own.connection or own.opened(self._open(), self._file())
                if own.file != self._file():
                    message = f"SQLite: {self.path!r} was deleted or replaced while it was open; open it again"
                    raise UnavailableError(message, code="no_access")
                return work(connection)
        except _SQL_ERRORS as error:
            raise self._translated(error) from error

    def read(self, look: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what ``look`` reads; call it again while another process opens, recovers or closes the file."""
        return self.use(partial(until_free, look))

    def write(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what ``change`` returns, when its transaction is durable. Writes that wait at the same time share one.

        ``change`` may run in another thread, and again if another one raises or Ctrl-C ends the transaction.
        If it raises, it has no effect.
        """
        write = _Write(change)
        try:
            self._waiting[write] = None
            with self._turn:
                if not write.is_over:
                    self._write_together([waiting for waiting in list(self._waiting) if not waiting.is_over])
        finally:
            self._waiting.pop(write, None)
        if write.error is not None:
            raise write.error
        return write.results[0]

    def _write_together(self, writes: Sequence[_Write[Any]]) -> None:
        """Run all writes in one transaction; if one raises, all others in another. An error of the transaction is that of each."""
        begun, results = list[_Write[Any]](), list[Any]()

        def change(connection: sqlite3.Connection) -> None:
            for write in writes:
                begun.append(write)
                results.append(write.change(connection))

        try:
            self.use(lambda connection: in_transaction(connection, change))
        except Exception as error:  # noqa: BLE001 - the caller of each write raises it
            # One without a result has raised, or else the transaction itself.
            for write in begun[len(results) :] or writes:
                write.error = error
            if others := [write for write in writes if write.error is None]:
                self._write_together(others)
        else:
            for write, result in zip(writes, results, strict=True):
                write.results.append(result)

    def purge(self) -> None:
        """Remove the bytes of deleted and replaced rows from the file and its WAL.

        Writers wait while the file is rewritten. Raises `UnavailableError` with the code ``purge_blocked`` if a reader keeps old
        pages in use for `BUSY_TIMEOUT_SECONDS`.
        """
        if self.path != MEMORY:
            self.use(purge_file)

    def copy_to(self, path: Path) -> None:
        """Write the database as it is now to a new file that only its user can read. Writers do not wait."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(path)) as copy:
            self.use(lambda connection: connection.backup(copy))  # in several steps it restarts after each other write

    def release(self) -> None:
        """Close this thread's connection; a later use opens a new one. The connection of a database in memory stays open."""
        own: _Own | None = getattr(self._local, "own", None)
        if own is not None:
            own.close()

    def close(self) -> None:
        """Close every connection of this process, each after the current statement or transaction of its thread.

        A later use raises `UnavailableError` with the code ``closed``.
        """
        with self._lock:
            self._closed = True
            connections = list(self._all)
        for own in connections:
            own.close()

    def _added(self) -> _Own:
        own = _Own()
        with self._lock:
            self._all.add(own)
        return own

    def _translated(self, error: sqlite3.DatabaseError | UnicodeError) -> UnavailableError:
        code = getattr(error, "sqlite_errorcode", None)
        if isinstance(error, UnicodeError) or (isinstance(error, sqlite3.OperationalError) and code is None):
            return UnavailableError("SQLite: a stored text is not UTF-8", code="storage_damaged")  # raised by Python
        if code is None or not isinstance(error, sqlite3.OperationalError):
            return UnavailableError(f"SQLite: {error}", code="storage_damaged")
        if code & 0xFF in _NO_ACCESS:
            return UnavailableError(f"SQLite: {error} {self.path!r}", code="no_access")
        is_busy = code & 0xFF == sqlite3.SQLITE_BUSY
        hint = ": another process holds the lock. This transaction stored nothing; try again" if is_busy else ""
        return UnavailableError(f"SQLite: {error}{hint}", retry_after_seconds=1)

    def _file(self) -> tuple[int, int] | None:
        """Return device and number of the file at the path; None without a file, and for a database in memory."""
        try:
            status = os.stat(self.path) if self.path != MEMORY else None  # noqa: PTH116 - at each use, and a Path takes longer
        except OSError:
            status = None
        return (status.st_dev, status.st_ino) if status is not None else None

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
            self.path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            prepare(connection, self.path)
        except BaseException:
            connection.close()
            raise
        connection.text_factory = _text
        return connection


def _with_all_databases(act: Callable[[SqliteDatabase], None]) -> Callable[[], None]:
    """Return a function that calls ``act`` with every database of the process."""

    def call() -> None:
        for database in list(_DATABASES):
            act(database)

    return call


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_with_all_databases(SqliteDatabase.begin_fork),
        after_in_parent=_with_all_databases(partial(SqliteDatabase.end_fork, is_child=False)),
        after_in_child=_with_all_databases(partial(SqliteDatabase.end_fork, is_child=True)),
    )


def _text(stored: bytes) -> str:
    """Decode a stored text. Damaged bytes are kept as surrogates, so that the reader of the row can report the row."""
    return stored.decode("utf-8", "surrogateescape")
