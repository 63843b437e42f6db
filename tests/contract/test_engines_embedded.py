"""The shipped contracts on the embedded engines: SQLite and a folder, and the same in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog.adapters.embedded.files import FileBlobStore, MemoryBlobStore
from turnlog.adapters.embedded.sqlite import MEMORY, SqliteDatabase
from turnlog.adapters.embedded.sqlite_items import SqliteItemTable
from turnlog.adapters.embedded.sqlite_jobs import SqliteJobQueue
from turnlog.domain.errors import InvalidInputError, UnavailableError
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
        return SqliteItemTable(database)


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


@pytest.mark.parametrize("name", ["../out", "a/../../b", "/absolute", "a//b", "", ".hidden", "a/.b"])
def test_a_blob_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError):
        FileBlobStore(tmp_path / "blobs").put(name, b"x")
    assert not list(tmp_path.rglob("*x*"))


def test_a_closed_database_says_so(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    database.close()
    with pytest.raises(UnavailableError, match="closed"):
        database.connection()


def test_close_waits_for_what_another_thread_is_doing(database: SqliteDatabase) -> None:
    begun, go, found = threading.Event(), threading.Event(), list[object]()

    def use() -> None:
        with database.writing() as connection:
            begun.set()
            go.wait(10)
            found.append(connection.execute("DELETE FROM jobs").rowcount)
        found.append("committed")

    using, closing = threading.Thread(target=use), threading.Thread(target=database.close)
    using.start()
    assert begun.wait(10)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive() and not found
    go.set()
    using.join()
    closing.join(10)
    assert found == [0, "committed"] and not closing.is_alive()
    assert database.open_connections == 0
    with pytest.raises(UnavailableError, match="closed"), database.reading():
        pass


def test_a_file_that_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "turnlog.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(UnavailableError, match="SQLite"), SqliteDatabase(tmp_path / "turnlog.db").reading():
        pass


def test_a_database_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "turnlog.db")
    with database.writing() as connection:
        connection.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(UnavailableError, match="newer"), SqliteDatabase(tmp_path / "turnlog.db").reading():
        pass
