"""The shipped contracts on the embedded engines: SQLite and a folder, and the same in memory."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.effort import is_full
from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.engines import SystemClock, sqlite_tables
from turnlog.engines.files import FileBlobStore, MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable, SqliteJobQueue
from turnlog.ports import Key
from turnlog.testing.contracts import (
    Advance,
    BlobStoreContract,
    ItemTableContract,
    JobQueueContract,
    RedrivableContract,
)
from turnlog.testing.fixed import FixedClock, SequentialIds


@pytest.fixture(params=["file", "memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path / "turnlog.db" if request.param == "file" else MEMORY)
    yield database
    database.close()


class TestSqliteItemTable(ItemTableContract):
    @pytest.fixture
    def table(self, database: SqliteDatabase) -> SqliteItemTable:
        return SqliteItemTable(database, SystemClock().now_ms)


class TestFileBlobStore(BlobStoreContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> FileBlobStore:
        return FileBlobStore(tmp_path / "blobs")


class TestMemoryBlobStore(BlobStoreContract):
    @pytest.fixture
    def blobs(self) -> MemoryBlobStore:
        return MemoryBlobStore()


class TestSqliteJobQueue(JobQueueContract, RedrivableContract):
    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock()

    @pytest.fixture
    def advance(self, clock: FixedClock) -> Advance:
        return clock.advance

    @pytest.fixture
    def queue(self, database: SqliteDatabase, clock: FixedClock) -> SqliteJobQueue:
        return SqliteJobQueue(
            database,
            SequentialIds(),
            clock.now_ms,
            visibility_seconds=self.visibility_seconds,
            max_receives=self.max_receives,
        )

    def test_receive_is_fair_between_groups(self, queue: SqliteJobQueue) -> None:
        for at in range(30):
            queue.send(f"noisy {at}", group="noisy")
        queue.send("quiet", group="quiet")
        assert "quiet" in [delivery.body for delivery in queue.receive(limit=2)]

    def test_the_next_due_time_follows_every_change_of_the_queue(
        self, queue: SqliteJobQueue, database: SqliteDatabase, clock: FixedClock
    ) -> None:
        def due() -> int | None:
            times = queue.next_due_ms(), SqliteJobQueue(database, SequentialIds(), clock.now_ms).next_due_ms()
            assert times[0] == times[1]
            return times[0]

        begin = clock.now_ms()
        assert due() is None
        queue.send("later", group="a", delay_seconds=20)
        assert due() == begin + 20_000
        queue.send("now", group="a")
        assert due() == 0
        (delivery,) = queue.receive()
        assert due() == begin + self.visibility_seconds * 1000
        queue.acknowledge(delivery.receipt)
        assert due() == begin + 20_000
        for _ in range(self.max_receives + 1):
            clock.advance(20)
            queue.receive()
        assert due() is None
        assert queue.redrive(lambda body: "a") == 1
        assert due() == 0

    def test_a_job_without_delay_is_due_also_after_the_clock_was_set_back(
        self, queue: SqliteJobQueue, clock: FixedClock
    ) -> None:
        clock.advance(86_400)
        queue.send("now", group="a")
        clock.advance(-86_400)
        for _ in range(self.max_receives):
            assert [delivery.body for delivery in queue.receive()] == ["now"]
            clock.advance(self.visibility_seconds)
        clock.advance(86_400)
        assert (queue.receive(), queue.redrive(lambda body: "a")) == ([], 1)
        clock.advance(-86_400)
        assert [delivery.body for delivery in queue.receive()] == ["now"]

    def test_what_another_process_sends_is_due_within_a_second(
        self, queue: SqliteJobQueue, database: SqliteDatabase, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = 7.0
        monkeypatch.setattr(sqlite_tables, "time", SimpleNamespace(monotonic=lambda: seconds))
        assert queue.next_due_ms() is None
        SqliteJobQueue(database, SequentialIds(), clock.now_ms).send("theirs", group="a")
        seconds = 8.0
        assert queue.next_due_ms() == 0


def test_more_keys_than_a_statement_of_sqlite_may_have_are_read(database: SqliteDatabase) -> None:
    table = SqliteItemTable(database)
    table.write_many([{"pk": f"p{number % 2}", "sk": f"{number:05d}"} for number in (0, 1, 20_000, 39_999)])
    items = table.get_many([Key(f"p{number % 2}", f"{number:05d}") for number in range(40_000)] * 2)
    assert [item["sk"] for item in items.values()] == ["00000", "00001", "20000", "39999"]


@pytest.mark.parametrize("name", ["../out", "a/../../b", "/absolute", "a//b", "", ".hidden", "a/.b"])
def test_a_blob_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError):
        FileBlobStore(tmp_path / "blobs").put(name, b"x")
    assert not list(tmp_path.rglob("*x*"))


def test_folders_that_go_while_they_are_read_or_written_are_no_error(tmp_path: Path) -> None:
    """A put, a listing and an erasure of one folder at once: each is done, or told that its file has been erased."""
    blobs, result, stop = FileBlobStore(tmp_path), list[Exception](), threading.Event()

    def repeat(do: Callable[[int], object]) -> None:
        number = 0
        while not stop.is_set() and not result:
            try:
                do(number := number + 1)
            except Exception as error:
                result.append(error)

    def put(number: int) -> None:
        with suppress(UnavailableError):  # erased before it was in place
            blobs.put(f"s/{number % 7}/{number % 3}/x", b"x")

    threads = [
        threading.Thread(target=repeat, args=(do,))
        for do in (put, put, lambda _: blobs.names("s/"), lambda _: blobs.erase("s/"))
    ]
    for thread in threads:
        thread.start()
    stop.wait(5 if is_full() else 0.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert result == []
    blobs.erase("s/")
    assert blobs.names("") == []


def test_a_folder_that_can_not_be_read_is_never_taken_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An erasure would be said to be done."""
    blobs, scandir = FileBlobStore(tmp_path), os.scandir
    blobs.put("s/a/x", b"x")

    def refused(path: Any) -> Any:
        if str(path).endswith("a"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        for read in (blobs.names, blobs.erase):
            with pytest.raises(UnavailableError, match="Permission denied"):
                read("s/")
    assert blobs.names("s/") == ["s/a/x"]


@pytest.mark.parametrize("place", ["a file/turnlog.db", "a file/x/turnlog.db", "x" * 300 + "/turnlog.db", "folder"])
def test_a_place_that_can_have_no_database_is_a_typed_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnavailableError):
        SqliteDatabase(tmp_path / place).connection()


def test_a_closed_database_says_so(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    database.close()
    with pytest.raises(UnavailableError, match="closed"):
        database.connection()


def test_close_waits_for_what_another_thread_is_doing(database: SqliteDatabase) -> None:
    begun, go, result = threading.Event(), threading.Event(), list[object]()

    def delete(connection: sqlite3.Connection) -> None:
        begun.set()
        go.wait(10)
        result.append(connection.execute("DELETE FROM jobs").rowcount)

    def use() -> None:
        database.write(delete)
        result.append("committed")

    using, closing = threading.Thread(target=use), threading.Thread(target=database.close)
    using.start()
    assert begun.wait(10)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive() and not result
    go.set()
    using.join()
    closing.join(10)
    assert result == [0, "committed"] and not closing.is_alive()
    assert database.open_connections == 0
    with pytest.raises(UnavailableError, match="closed"):
        database.connection()


def test_a_file_that_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "turnlog.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(UnavailableError, match="SQLite"):
        SqliteDatabase(tmp_path / "turnlog.db").connection()


def test_a_database_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    database.write(lambda connection: connection.execute("PRAGMA user_version=99"))
    database.close()
    with pytest.raises(UnavailableError, match="newer"):
        SqliteDatabase(tmp_path / "turnlog.db").connection()


def test_a_blob_is_durable_when_it_is_written_and_gone_when_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file and its name: a name is part of its folder, which is synced too."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("names of open files are read from /proc")
    synced, sync = list[Path](), os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    blobs, folder = FileBlobStore(tmp_path / "blobs"), tmp_path / "blobs" / "acme" / "ada"
    for name in ("acme/ada/a", "acme/ada/b", "acme/ada/c"):
        blobs.put(name, b"x")
    monkeypatch.setattr(os, "fsync", noted)
    blobs.put("acme/ada/a", b"y")
    assert [path.parent for path in synced] == [folder, folder.parent]
    assert synced[-1] == folder, "after the name is there"
    synced.clear()
    blobs.erase("acme/ada/b")
    assert synced == [folder]
    assert list(blobs.names("")) == ["acme/ada/a", "acme/ada/c"]
