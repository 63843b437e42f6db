"""Writers of one SQLite file wait for its lock as equals: none sleeps long while another comes and goes."""

from __future__ import annotations

import gc
import multiprocessing
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.forks import ends_well, forked
from turnlog.core.errors import CorruptError, UnavailableError
from turnlog.engines import sqlite
from turnlog.engines.sqlite import BUSY_TIMEOUT_SECONDS, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.ports import Absent, Key, Lost, Query

LONGEST_PAUSE_SECONDS = 0.005
"""About as long as one other commit takes."""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    database.connection()
    yield database
    database.close()


@pytest.fixture
def other(tmp_path: Path, waiting: SqliteDatabase) -> Iterator[sqlite3.Connection]:
    """A writer of another process, which has the lock."""
    connection = sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


class Time:
    """In place of the module's: no test waits. ``on_sleep`` is called with the number of the pause."""

    def __init__(self, on_sleep: Callable[[int], None] = lambda number: None) -> None:
        self.pauses = list[float]()
        self._on_sleep = on_sleep

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._on_sleep(len(self.pauses))

    def monotonic(self) -> float:
        return sum(self.pauses)


def test_a_writer_asks_again_soon_and_has_the_lock_when_it_is_free(
    waiting: SqliteDatabase, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time(lambda number: other.execute("COMMIT") and None if number == 3 else None)
    monkeypatch.setattr(sqlite, "time", time)
    waiting.write(lambda connection: connection.execute("DELETE FROM jobs"))
    assert len(time.pauses) == 3
    assert max(time.pauses) <= LONGEST_PAUSE_SECONDS


def test_a_writer_that_never_gets_the_lock_says_so_in_time(
    waiting: SqliteDatabase, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    monkeypatch.setattr(sqlite, "time", time)
    with pytest.raises(UnavailableError, match="another process holds the lock") as caught:
        waiting.write(lambda connection: pytest.fail("the other has the lock"))
    assert caught.value.retry_after_seconds == 1
    assert BUSY_TIMEOUT_SECONDS <= sum(time.pauses) <= BUSY_TIMEOUT_SECONDS + LONGEST_PAUSE_SECONDS
    other.execute("COMMIT")
    waiting.write(lambda connection: connection.execute("DELETE FROM jobs"))


def test_an_error_that_is_no_lock_is_not_waited_out(waiting: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    monkeypatch.setattr(sqlite, "time", time)
    with pytest.raises(UnavailableError, match="within a transaction"):
        waiting.write(
            lambda outer: waiting.write(lambda inner: pytest.fail("SQLite has no transactions in transactions"))
        )
    assert time.pauses == []


def test_a_reader_of_a_locked_file_asks_again_like_a_writer(
    waiting: SqliteDatabase, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that opens, recovers or closes the file has it for itself. A change meets the same error more easily."""
    time = Time(lambda number: other.execute("COMMIT") and None if number == 3 else None)
    monkeypatch.setattr(sqlite, "time", time)
    assert waiting.read(lambda connection: connection.execute("DELETE FROM jobs").rowcount) == 0
    assert len(time.pauses) == 3


def test_a_reader_that_never_gets_the_lock_says_so_in_time(
    waiting: SqliteDatabase, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    monkeypatch.setattr(sqlite, "time", time)
    with pytest.raises(UnavailableError, match="locked") as caught:
        waiting.read(lambda connection: connection.execute("DELETE FROM jobs"))
    assert caught.value.retry_after_seconds == 1
    assert BUSY_TIMEOUT_SECONDS <= sum(time.pauses) <= BUSY_TIMEOUT_SECONDS + LONGEST_PAUSE_SECONDS


def test_an_append_has_four_statements_and_sets_no_option(waiting: SqliteDatabase) -> None:
    table, statements = SqliteItemTable(waiting), list[str]()
    waiting.connection().set_trace_callback(statements.append)
    table.query(Query("p", "C#", "D#META", descending=True, limit=2))
    table.put({"pk": "p", "sk": "C#1"}, condition=Absent())
    waiting.connection().set_trace_callback(None)
    assert [text.split(" ")[0] for text in statements] == ["SELECT", "BEGIN", "INSERT", "COMMIT"]


def test_who_opens_a_new_file_while_another_does_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own waiting is not asked when a file becomes one with a WAL."""
    first = sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)
    first.execute("BEGIN EXCLUSIVE")
    time = Time(lambda number: first.execute("COMMIT") and None if number == 3 else None)
    monkeypatch.setattr(sqlite, "time", time)
    database = SqliteDatabase(tmp_path / "turnlog.db")
    assert database.connection().execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert len(time.pauses) == 3
    database.close()
    first.close()


def test_a_new_file_that_stays_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)
    first.execute("BEGIN EXCLUSIVE")
    time = Time()
    monkeypatch.setattr(sqlite, "time", time)
    database = SqliteDatabase(tmp_path / "turnlog.db")
    with pytest.raises(UnavailableError, match="locked"):
        database.write(lambda connection: None)
    assert sum(time.pauses) >= BUSY_TIMEOUT_SECONDS
    database.close()
    first.close()


def test_each_thread_has_its_connection_to_a_file_and_all_share_the_database_in_memory(tmp_path: Path) -> None:
    for path, is_shared in ((tmp_path / "turnlog.db", False), (sqlite.MEMORY, True)):
        database = SqliteDatabase(path)
        with ThreadPoolExecutor(1) as pool:
            mine, others = database.connection(), pool.submit(database.connection).result()
        assert mine is database.connection()
        assert (mine is others) == is_shared
        assert database.write(lambda connection: connection) is mine
        database.close()


def test_a_connection_has_our_options_whatever_sqlite_was_built_with(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)
    for option in ("secure_delete=OFF", "synchronous=OFF", "temp_store=FILE"):
        connection.execute(f"PRAGMA {option}")
    sqlite.prepare(connection, str(tmp_path / "turnlog.db"))
    options = ("journal_mode", "secure_delete", "synchronous", "temp_store")
    values = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in options]
    assert values == ["wal", 1, 2, 2]
    connection.close()


def test_a_thread_that_releases_its_connection_closes_it_and_may_open_another(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    first = database.connection()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(database.connection).result()
        assert database.open_connections == 2
        database.release()
        database.release()
        assert database.open_connections == 1
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            first.execute("SELECT 1")
        assert database.connection() is not first
        assert database.open_connections == 2
        pool.submit(database.release).result()
        assert database.open_connections == 1
    database.close()
    assert database.open_connections == 0


def test_a_thread_that_ends_closes_its_connection(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    with ThreadPoolExecutor(1) as pool:
        connection = pool.submit(database.connection).result()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    gc.collect(1)  # what is young: a worker of these tests holds millions of older objects
    assert database.open_connections == 0
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    database.close()


def put_job(database: SqliteDatabase, name: str) -> None:
    insert = "INSERT INTO jobs (id, grp, body, visible_ms, sent) VALUES (?, 'g', 'b', 0, 0)"
    database.write(lambda connection: connection.execute(insert, (name,)))


def jobs(database: SqliteDatabase) -> list[str]:
    return [name for (name,) in database.connection().execute("SELECT id FROM jobs ORDER BY id")]


@pytest.mark.parametrize("ends_with", ["close", "release", "nothing"])
def test_after_a_fork_parent_and_child_open_connections_of_their_own(tmp_path: Path, ends_with: str) -> None:
    """What SQLite notes in memory of a process's locks is not true in its child, so a child inherits no connection."""
    database = SqliteDatabase(tmp_path / "turnlog.db")
    mine = database.connection()

    def child() -> None:
        assert database.open_connections == 0
        if ends_with == "release":
            database.release()
        put_job(database, "child")
        assert database.connection() is not mine and database.open_connections == 1
        if ends_with == "close":
            database.close()

    process = forked(child)
    put_job(database, "parent")
    assert ends_well(process) and jobs(database) == ["child", "parent"]
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        mine.execute("SELECT 1")
    database.close()


def test_what_a_forked_child_writes_stays_when_its_parent_closes_meanwhile(tmp_path: Path) -> None:
    """The parent took itself for the last user of the file, and deleted the WAL under the child."""
    database, context = SqliteDatabase(tmp_path / "turnlog.db"), multiprocessing.get_context("fork")
    put_job(database, "before")
    is_open, is_closed = context.Event(), context.Event()

    def child() -> None:
        put_job(database, "first")
        is_open.set()
        is_closed.wait(30)
        put_job(database, "second")

    process = forked(child)
    assert is_open.wait(30)
    database.close()
    is_closed.set()
    assert ends_well(process)
    with closing(SqliteDatabase(tmp_path / "turnlog.db")) as reopened:
        assert jobs(reopened) == ["before", "first", "second"]


def test_a_fork_waits_for_a_transaction_of_another_thread_whose_lock_the_child_would_inherit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 1.0)
    database, begun, may_end = SqliteDatabase(tmp_path / "turnlog.db"), threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        begun.set()
        may_end.wait(30)

    holder = threading.Thread(target=database.write, args=(hold,))
    holder.start()
    assert begun.wait(30)
    threading.Timer(0.2, may_end.set).start()
    process = forked(lambda: put_job(database, "child"))
    holder.join()
    assert ends_well(process) and jobs(database) == ["child"]
    database.close()


def test_a_forked_child_does_not_run_the_writes_that_wait_in_its_parent(tmp_path: Path) -> None:
    database, ends = SqliteDatabase(tmp_path / "turnlog.db"), time.monotonic() + 30
    values = "SELECT 'parent ' || count(*), 'g', 'b', 0, 0 FROM jobs WHERE id LIKE 'parent %'"
    insert = f"INSERT INTO jobs (id, grp, body, visible_ms, sent) {values}"
    database.begin_fork()
    writer = threading.Thread(target=database.write, args=(lambda connection: connection.execute(insert),))
    writer.start()
    while not database._waiting:
        assert time.monotonic() < ends
        time.sleep(0.001)
    process = forked(lambda: put_job(database, "child"))
    writer.join()
    assert ends_well(process) and jobs(database) == ["child", "parent 0"], "it would add another"
    database.close()


def test_a_copy_is_a_new_file_that_only_its_user_can_read(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    put_job(database, "1")
    path = tmp_path / "copy.db"
    database.copy_to(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with closing(sqlite3.connect(path)) as copy:
        assert copy.execute("SELECT body FROM jobs").fetchall() == [("b",)]
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        database.copy_to(path)
    assert path.read_bytes() == before
    database.close()


def test_a_database_in_memory_stays_when_a_thread_releases_it() -> None:
    database = SqliteDatabase(sqlite.MEMORY)
    assert database.open_connections == 0
    put_job(database, "1")
    database.release()
    assert database.open_connections == 1
    connection = database.connection()
    assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    database.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    assert database.open_connections == 0
    with pytest.raises(UnavailableError, match="closed"):
        database.connection()


@pytest.fixture
def reader(tmp_path: Path, waiting: SqliteDatabase) -> Iterator[sqlite3.Connection]:
    """A reader of another process, which still reads what the file had before the newest write."""
    connection = sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM items").fetchone()
    waiting.write(lambda writer: writer.execute("DELETE FROM jobs"))
    yield connection
    connection.close()


def test_a_purge_waits_for_a_reader_of_erased_pages(
    waiting: SqliteDatabase, reader: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time(lambda number: reader.execute("COMMIT") and None if number == 3 else None)
    monkeypatch.setattr(sqlite, "time", time)
    sqlite.purge_file(waiting.connection())
    assert len(time.pauses) == 3
    assert max(time.pauses) <= LONGEST_PAUSE_SECONDS


def test_a_purge_copies_the_rows_into_a_file_and_not_into_memory(waiting: SqliteDatabase) -> None:
    """They may be more than fit into memory; everything else stays there."""
    connection, statements = waiting.connection(), list[str]()
    connection.set_trace_callback(statements.append)
    sqlite.purge_file(connection)
    connection.set_trace_callback(None)
    stores = [text for text in statements if "temp_store" in text or text == "VACUUM"]
    assert stores == ["PRAGMA temp_store=FILE", "VACUUM", "PRAGMA temp_store=MEMORY"]


def busy_timeout_seconds(connection: sqlite3.Connection) -> float:
    return float(connection.execute("PRAGMA busy_timeout").fetchone()[0]) / 1000


def test_a_purge_waits_shortly_for_readers_and_later_statements_do_not(
    waiting: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers' lock is held while the WAL is emptied."""
    connection, statements = waiting.connection(), list[str]()
    connection.set_trace_callback(statements.append)
    sqlite.purge_file(connection)
    emptying = statements.index("PRAGMA wal_checkpoint(TRUNCATE)")
    assert [text for text in statements[:emptying] if "busy_timeout" in text][-1] == "PRAGMA busy_timeout=50"
    assert busy_timeout_seconds(connection) == 0


def test_a_purge_without_the_lock_leaves_the_connection_as_it_was(
    waiting: SqliteDatabase, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "time", Time())
    connection = waiting.connection()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite.purge_file(connection)
    assert busy_timeout_seconds(connection) == 0
    assert connection.execute("PRAGMA temp_store").fetchone() == (2,), "in memory"


def test_a_purge_says_in_time_that_a_reader_does_not_end(
    waiting: SqliteDatabase, reader: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time(lambda number: reader.execute("COMMIT") and None if number == 20_000 else None)
    monkeypatch.setattr(sqlite, "time", time)
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(sqlite, "_CHECKPOINT_WAIT_MS", 0)
    with pytest.raises(UnavailableError) as caught:
        sqlite.purge_file(waiting.connection())
    assert (caught.value.error_code, caught.value.retry_after_seconds) == ("purge_blocked", 60)
    assert busy_timeout_seconds(waiting.connection()) == 0
    assert 0.05 <= sum(time.pauses) <= 0.05 + LONGEST_PAUSE_SECONDS


def test_a_writer_that_is_interrupted_when_it_has_the_lock_gives_it_back(
    waiting: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(execute: Callable[[str], object], statement: str) -> None:
        execute(statement)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "until_free", interrupted)
        with pytest.raises(KeyboardInterrupt):
            waiting.write(lambda connection: None)
    assert not waiting.connection().in_transaction
    waiting.write(lambda connection: connection.execute("DELETE FROM jobs"))


class CountedTransactions(SqliteDatabase):
    """A database that counts how often its connections are used: here only for transactions."""

    count = 0

    def use(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        self.count += 1
        return super().use(work)


def put_at_once(
    database: CountedTransactions, other: sqlite3.Connection, sort_keys: Sequence[str]
) -> list[Future[Lost | None]]:
    """Put an item a thread. The first waits for the lock, the others for the first; then the lock is free."""
    table, puts, ends = SqliteItemTable(database), list[Future[Lost | None]](), time.monotonic() + 30
    with ThreadPoolExecutor(len(sort_keys)) as pool:
        for number, sort_key in enumerate(sort_keys):
            puts.append(pool.submit(table.put, {"pk": "p", "sk": sort_key, "n": number}, condition=Absent()))
            while not (database.count and len(database._waiting) > number):
                assert time.monotonic() < ends
                time.sleep(0.001)
        other.execute("COMMIT")
    return puts


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[CountedTransactions]:
    database = CountedTransactions(tmp_path / "turnlog.db")
    database.connection()
    database.count = 0
    yield database
    database.close()


def test_writes_that_wait_share_a_transaction(counted: CountedTransactions, other: sqlite3.Connection) -> None:
    puts = put_at_once(counted, other, [str(number) for number in range(16)])
    assert [put.result() for put in puts] == [None] * 16
    assert counted.count == 2, "the first alone, and all that waited for it"
    keys = [Key("p", str(number)) for number in range(16)]
    assert len(SqliteItemTable(counted).get_many(keys)) == 16


def test_of_writes_of_one_key_in_one_transaction_the_first_wins(
    counted: CountedTransactions, other: sqlite3.Connection
) -> None:
    first, *others = put_at_once(counted, other, ["first", "a", "a", "a"])
    assert first.result() is None
    answers = [put.result() for put in others]
    assert answers.count(None) == 1
    (stored,) = SqliteItemTable(counted).get_many([Key("p", "a")]).values()
    assert [answer.existing for answer in answers if answer is not None] == [stored, stored]


def test_a_write_that_fails_takes_no_other_with_it(counted: CountedTransactions, other: sqlite3.Connection) -> None:
    other.execute("INSERT INTO items (pk, sk, size, fields, data) VALUES ('p', 'damaged', 1, ?, ?)", (b"?", b""))
    first, good, damaged, later = put_at_once(counted, other, ["first", "good", "damaged", "later"])
    assert (first.result(), good.result(), later.result()) == (None, None, None)
    with pytest.raises(CorruptError):
        damaged.result()
    assert len(SqliteItemTable(counted).get_many([Key("p", name) for name in ("first", "good", "later")])) == 3


@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_ctrl_c_in_the_thread_of_a_shared_transaction_fails_no_other_write(
    counted: CountedTransactions, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real, threads = sqlite.in_transaction, list[int]()

    def interrupted(connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], Any]) -> Any:
        def changed(connection: sqlite3.Connection) -> Any:
            result = change(connection)
            interrupt("within")
            return result

        threads.append(threading.get_ident())
        interrupt("before")
        result = real(connection, changed)
        interrupt("after")
        return result

    def interrupt(here: str) -> None:
        if len(threads) == 2 and here == moment:
            raise KeyboardInterrupt

    monkeypatch.setattr(sqlite, "in_transaction", interrupted)
    first, *others = put_at_once(counted, other, [str(number) for number in range(8)])
    assert first.result() is None
    errors = [put.exception() for put in others]
    assert [type(error) for error in errors if error is not None] == [KeyboardInterrupt]
    stored = SqliteItemTable(counted).get_many([Key("p", str(number)) for number in range(8)])
    assert len(stored) >= 7 and not counted._waiting
    # A write whose transaction was over is answered as one that a lost answer made its caller repeat.
    lost = [put.result() for put in others if put.exception() is None and put.result() is not None]
    assert all(item.existing in stored.values() for item in lost) and (moment == "after") == bool(lost)


def test_writes_whose_transaction_fails_fail_together(
    counted: CountedTransactions, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.5)
    table = SqliteItemTable(counted)
    with ThreadPoolExecutor(4) as pool:
        puts = [pool.submit(table.put, {"pk": "p", "sk": str(number)}) for number in range(4)]
    for put in puts:
        with pytest.raises(UnavailableError, match="locked"):
            put.result()
    other.execute("COMMIT")
    assert table.put({"pk": "p", "sk": "5"}) is None, "the next one is not held up"
    assert not table.get_many([Key("p", str(number)) for number in range(4)])


def test_connections_that_forks_have_closed_are_not_kept(tmp_path: Path) -> None:
    gc.freeze()  # what the process holds by now is not looked through at each count
    database = SqliteDatabase(tmp_path / "turnlog.db")

    def connections() -> int:
        gc.collect()
        return sum(isinstance(item, sqlite3.Connection) for item in gc.get_objects())

    database.connection()
    before = connections()
    for _ in range(5):
        database.begin_fork()
        database.end_fork(is_child=False)
        database.connection()
    assert connections() == before
    database.close()
