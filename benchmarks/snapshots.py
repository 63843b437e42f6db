"""Full snapshots, their restore, exports and imports: requests, bytes and peak memory of a long session.

    python -m benchmarks.snapshots [--messages N]

On SQLite and a folder. Memory is what Python holds at most (tracemalloc); another run without it gives the times.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from benchmarks.scenarios import chat_message
from tests.faulty_engines import Faults, FaultyBlobStore, FaultyItemTable
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import FileBlobStore
from turnlog.engines.sqlite import SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable, SqliteJobQueue
from turnlog.log.commit import VERIFIED
from turnlog.log.keys import SessionKeys
from turnlog.ports import Key, Query
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

OWNER = Owner.of("acme", "ada")
NEW_MESSAGES = 100


@dataclass(frozen=True, slots=True)
class Row:
    """``requests`` and ``writes`` are of the engine: of its table and its blob store."""

    name: str
    requests: int
    writes: int
    blob_bytes: int
    seconds: float
    peak_bytes: int


class Measured:
    """An application whose requests are counted, and what is written to its blob store."""

    def __init__(self, folder: Path) -> None:
        clock, self.faults = FixedClock(), Faults()
        self._database = SqliteDatabase(folder / "turnlog.db")
        queue = SqliteJobQueue(
            self._database, SequentialIds(10**6), clock.now_ms, visibility_seconds=360, max_receives=5
        )
        self.blob_bytes = 0
        self.blobs = FaultyBlobStore(_Counted(FileBlobStore(folder / "blobs"), self), self.faults)
        items = FaultyItemTable(SqliteItemTable(self._database), self.faults)
        engine = Engine("sqlite", items, self.blobs, queue, self._database.close)
        self.app = Application(engine, Settings(token_counter="estimate"), clock=clock, ids=SequentialIds())

    def log(self) -> Turnlog:
        return Turnlog(InProcessBackend(self.app, OWNER))

    def row(self, name: str, do: Callable[[], object], *, traced: bool) -> Row:
        gc.collect()
        calls, before, blob_bytes = self.faults.calls, dict(self.faults.by_name), self.blob_bytes
        if traced:
            tracemalloc.start()
        begun = time.perf_counter()
        do()
        seconds = time.perf_counter() - begun
        peak = tracemalloc.get_traced_memory()[1] if traced else 0
        tracemalloc.stop()
        writes = sum(
            self.faults.by_name[value] - before.get(value, 0)
            for value in ("put", "write_many", "blob_put", "delete_many")
        )
        return Row(name, self.faults.calls - calls, writes, self.blob_bytes - blob_bytes, seconds, peak)


class _Counted(FileBlobStore):
    def __init__(self, inner: FileBlobStore, measured: Measured) -> None:
        super().__init__(inner._folder)
        self._measured = measured

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        super().put(name, data)
        self._measured.blob_bytes += self._path(name).stat().st_size


def measure(messages: int, *, traced: bool) -> list[Row]:
    """Measure a session of messages of about 600 bytes, 25 an append, none sealed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(_Folder(Path(folder))) as made:
        log, measured = made.measured.log(), made.measured
        session = log.sessions.create("s", policy="turns")
        for at in range(0, messages, 25):
            session.append(*(chat_message(n) for n in range(at, min(at + 25, messages))))
        rows = [measured.row("first full snapshot, all to be sealed", lambda: _snapshot(session, log), traced=traced)]
        for at in range(0, NEW_MESSAGES, 25):
            session.append(*(chat_message(n) for n in range(at, at + 25)))
        rows.append(
            measured.row(f"second, {NEW_MESSAGES} messages later", lambda: _snapshot(session, log), traced=traced)
        )
        rows.append(measured.row("third, nothing new", lambda: _snapshot(session, log), traced=traced))
        target = made.folder / "s.zip"
        rows.append(measured.row("export", lambda: session.export(target), traced=traced))
        rows.append(measured.row("import", lambda: log.sessions.import_(target, session_id="imported"), traced=traced))
        newest = next(session.snapshots()).snapshot_id
        _expire(measured)
        VERIFIED.clear()
        rows.append(measured.row("read, log gone", lambda: session.snapshot(newest), traced=traced))
        rows.append(measured.row("restore, log gone", lambda: _restore(session, log, newest), traced=traced))
        assert log.sessions.get("again").info().messages == messages + NEW_MESSAGES
        assert log.sessions.get("imported").info().messages == messages + NEW_MESSAGES
        return rows


class _Folder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.measured = Measured(folder)

    def close(self) -> None:
        self.measured.app.close()


def _snapshot(session: Session, log: Turnlog) -> None:
    session.create_snapshot(kind="full")
    log.run_jobs()


def _restore(session: Session, log: Turnlog, snapshot: str) -> None:
    session.restore_snapshot(snapshot, session_id="again")
    log.run_jobs()


def _expire(measured: Measured) -> None:
    """Remove the log's items, as an expiry does."""
    keys, items = SessionKeys(OWNER, "s"), measured.app.engine.items
    while result := items.query(Query(keys.partition, "C#", "G~")).items:
        items.delete_many([Key(str(item["pk"]), str(item["sk"])) for item in result])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshots", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000, metavar="N")
    options = parser.parse_args(arguments)
    plain, traced = (measure(options.messages, traced=value) for value in (False, True))
    print(f"{options.messages:,} messages of about 600 bytes\n")
    print("| | requests | of them writes | blob bytes written | s | peak memory, MB |\n|---|---:|---:|---:|---:|---:|")
    for item, other in zip(plain, traced, strict=True):
        numbers = f"{item.requests:,} | {item.writes:,} | {item.blob_bytes:,} | {item.seconds:.1f}"
        print(f"| {item.name} | {numbers} | {other.peak_bytes / 1e6:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
