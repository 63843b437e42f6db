"""The library without a server: processes that open one SQLite file, and append to the same session or each to its own."""

from __future__ import annotations

import multiprocessing
import sqlite3
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

from benchmarks.load.checking import Checked, Reading, check
from benchmarks.load.clients import TENANT, message
from benchmarks.load.recording import Records, quantiles, together
from benchmarks.load.running import all_of
from turnlog import Turnlog
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import ConflictError, TurnlogError
from turnlog.core.identity import Owner
from turnlog.engines import Engine, RandomIds, SystemClock
from turnlog.engines.files import FileBlobStore
from turnlog.engines.sqlite import SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.ports import Condition, Item, ItemTable, Lost
from turnlog.settings import Settings

_T = TypeVar("_T")
PROCESSES = (1, 2, 4, 8)
_LEAD_SECONDS = 1.0
_MOST_TRIES = 100


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does."""

    file: str
    session: str
    number: int
    appends: int
    start_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Direct:
    """``lost_slots``: puts that another writer was before; ``lock`` and ``commit``: seconds at `QUANTILES` that a writing
    transaction waits to begin, and that it takes to be durable."""

    processes: int
    same_session: bool
    appends: int
    seconds: float
    lost_slots: int
    conflicts: int
    errors: int
    append: tuple[float, ...]
    lock: tuple[float, ...]
    commit: tuple[float, ...]
    checked: Checked

    @property
    def rate(self) -> float:
        """Appends a second."""
        return self.appends / self.seconds

    @property
    def ok(self) -> bool:
        return self.errors == 0 and self.checked.is_clean


def run_direct(processes: int, *, same_session: bool, appends: int) -> Direct:
    """About so many appends, shared between the processes."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "turnlog.db")
        shares = [
            Share(file, "shared" if same_session else f"s{number}", number, max(1, appends // processes))
            for number in range(processes)
        ]
        sessions = sorted({share.session for share in shares})
        with Turnlog.open(f"sqlite:///{file}", tenant=TENANT, user="me", worker=False) as log:
            for session in sessions:
                log.sessions.create(session)
        with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_warm, range(processes)))
            start_at = time.time() + _LEAD_SECONDS
            records = together(pool.map(append_share, [replace(share, start_at=start_at) for share in shares]))
        with Turnlog.open(f"sqlite:///{file}", tenant=TENANT, user="me", worker=False) as log:
            readings: list[Reading] = [{session: all_of(log, session) for session in sessions}]
    sent: dict[str, set[str]] = {session: set() for session in sessions}
    for share in shares:
        sent[share.session].update(_ids(share))
    append, lock, commit = (quantiles(records.seconds.get(kind, ())) for kind in ("append", "lock", "commit"))
    return Direct(
        processes=processes,
        same_session=same_session,
        appends=sum(share.appends for share in shares),
        seconds=records.ended - records.begun,
        lost_slots=records.counts["lost slots"],
        conflicts=records.counts["conflicts"],
        errors=sum(records.errors.values()),
        append=append,
        lock=lock,
        commit=commit,
        checked=check(records, sent, readings),
    )


def append_share(share: Share) -> Records:
    """Make the appends of one process, one after the other, all of them with a key."""
    records = Records()
    with _opened(share.file, records) as log:
        session = log.sessions.get(share.session)
        time.sleep(max(0.0, share.start_at - time.time()))
        records.seconds.clear()
        records.begun = time.monotonic()
        for at, name in enumerate(_ids(share)):
            begun = time.perf_counter()
            try:
                position = _appended(log, share.session, name, at, records)
            except TurnlogError as error:
                records.errors[f"{error.error_code}: {error}"] += 1
                continue
            records.seconds["append"].append(time.perf_counter() - begun)
            records.acknowledged[session.id].append((name, position))
        records.ended = time.monotonic()
    return records.plain()


def _appended(log: Turnlog, session_id: str, name: str, at: int, records: Records) -> int:
    for _ in range(_MOST_TRIES):
        try:
            return log.sessions.of(session_id).append(message(name, at), idempotency_key=name).first
        except ConflictError:
            records.counts["conflicts"] += 1
    raise TurnlogError(f"{_MOST_TRIES} conflicts, one after the other", code="conflicts")


def _ids(share: Share) -> list[str]:
    return [f"{share.session}/{share.number}/{at}" for at in range(share.appends)]


def _warm(_: int) -> None:
    """Load the vocabulary and the modules of an append."""
    with Turnlog.open("memory://") as log:
        log.sessions.create("warm").append(message("warm", 0))
    time.sleep(_LEAD_SECONDS / 2)


def _opened(file: str, records: Records) -> Turnlog:
    """Open an engine as `Turnlog.open` does, with its transactions timed and lost slots counted."""
    path = Path(file)
    database = TimedDatabase(path, records)
    blobs = FileBlobStore(path.with_name(path.name + ".blobs"))
    engine = Engine("sqlite", cast("ItemTable", _Counted(database, records)), blobs, None, database.close)
    return Turnlog(
        InProcessBackend(Application(engine, Settings(), clock=SystemClock(), ids=RandomIds()), Owner.of(TENANT, "me"))
    )


class TimedDatabase(SqliteDatabase):
    """Times the begin of each writing transaction, which waits for the lock, and its commit, which waits for the disk."""

    def __init__(self, path: Path, records: Records) -> None:
        super().__init__(path)
        self._records = records

    def write(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        times = [time.perf_counter()]

        def timed(connection: sqlite3.Connection) -> _T:
            self._records.seconds["lock"].append(time.perf_counter() - times[-1])
            result = change(connection)
            times.append(time.perf_counter())
            return result

        result = super().write(timed)
        self._records.seconds["commit"].append(time.perf_counter() - times[-1])
        return result


class _Counted(SqliteItemTable):
    def __init__(self, database: SqliteDatabase, records: Records) -> None:
        super().__init__(database)
        self._records = records

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        lost = super().put(item, condition=condition)
        self._records.counts["lost slots"] += lost is not None
        return lost
