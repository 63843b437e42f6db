"""What was erased or redacted is in no file of the embedded engine, with the process open and others reading and writing."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from turnlog import Turnlog
from turnlog.client import in_process
from turnlog.client.model import Session
from turnlog.core.errors import UnavailableError
from turnlog.engines import SystemClock, sqlite
from turnlog.engines.files import FileBlobStore
from turnlog.engines.sqlite import SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable, SqliteJobQueue
from turnlog.ports import Key
from turnlog.privacy.erase import SECOND_PASS_SECONDS
from turnlog.privacy.fence_and_delete import Purging
from turnlog.testing.fixed import FixedClock, SequentialIds

CANARY = "canaryxk7q2z"
PAGE_SIZES = [512, 1024, 4096, 8192, 65536]
SOME_SIZES = [4096, *(pytest.param(size, marks=pytest.mark.full) for size in (512, 65536))]


def places_of(folder: Path, canary: str = CANARY) -> dict[str, int]:
    """How often the canary is in each file of a folder, and in the files' names."""
    values = {str(path.relative_to(folder)): path.read_bytes().count(canary.encode()) for path in files_of(folder)}
    return {name: count for name, count in values.items() if count or canary in name}


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def noise(canary: str, size: int, *, seed: int = 0) -> str:
    """Text that no compression makes small enough to be elsewhere than it is meant to be, and that has the canary in the open."""
    generator = random.Random(f"{canary} {seed}")
    return "".join(f"{canary} {generator.randbytes(40).hex()} " for _ in range(-(-size // 95)))


def new_file(path: Path, page_size: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size={page_size}; CREATE TABLE a (b); DROP TABLE a; VACUUM;")


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Milliseconds that the clock is ahead."""
    shift, now_ms = [0], SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + shift[0])
    return shift


@pytest.fixture(autouse=True)
def nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are in the files as they were said, not compressed: else no search in the files' bytes would find them."""
    from turnlog.log import packing

    monkeypatch.setattr(packing, "_units", lambda size: 1)


@contextmanager
def read_by_others(path: Path) -> Iterator[None]:
    """Other connections read and write the file all the while."""
    stop = threading.Event()

    def use(number: int) -> None:
        with Turnlog.open(f"sqlite:///{path}", user="eve", worker=False) as log:
            session = log.sessions.get_or_create(f"other-{number}")
            while not stop.is_set():
                session.append({"role": "user", "content": "hello"})
                list(session.messages())
                stop.wait(0.02)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def said(log: Turnlog, canary: str = CANARY, session_id: str = "s") -> Session:
    """A session with the canary in everything that it has, between two others that stay."""
    neighbour = log.sessions.get_or_create("r")
    session = log.sessions.create(
        session_id, title=canary, system=noise(canary, 70_000), state={"a": canary}, metadata={"m": canary}
    )
    for number in range(60):
        session.append(
            {"role": "user", "content": f"{canary} {number}"},
            {"role": "assistant", "content": noise(canary, number * 30, seed=number)},
        )
        neighbour.append({"role": "user", "content": "x" * number * 20})
        if number % 5 == 0:
            session.patch_state({"a": f"{canary} {number}", "b": noise(canary, number * 40)})
            session.update(title=f"{canary} {number}")
    session.append({"role": "user", "content": noise(canary, 6_000)})  # an item beside the commits
    session.append({"role": "user", "content": noise(canary, 60_000)})  # a blob
    session.documents.put("note", noise(canary, 2_000).encode())
    session.documents.put("note", noise(canary, 300_000).encode())
    session.create_snapshot(canary, metadata={"m": canary})
    session.compress(keep_loops=2)
    for at in range(8):
        session.append(*({"role": "user", "content": f"{canary} {at} {n}"} for n in range(25)))
    return session


def drained(log: Turnlog, shift: list[int]) -> None:
    """All jobs, with their second passes."""
    for _ in range(2):
        while log.run_jobs():
            pass
        shift[0] += SECOND_PASS_SECONDS * 1000
    while log.run_jobs():
        pass


@pytest.mark.parametrize("page_size", SOME_SIZES)
def test_no_byte_of_an_erased_session_is_in_the_files(tmp_path: Path, page_size: int, shift: list[int]) -> None:
    path = tmp_path / "a.db"
    new_file(path, page_size)
    with Turnlog.open(f"sqlite:///{path}", worker=False) as log:
        session = said(log)
        while log.run_jobs():
            pass
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        before = places_of(tmp_path)
        assert {name.split("/")[0] for name in before} == {"a.db", "a.db-wal", "a.db.blobs"}
        with read_by_others(path):
            job = session.erase()
            while log.run_jobs():
                pass
            assert places_of(tmp_path) == {}, "after the first pass"
            drained(log, shift)
            assert (log.job(job.job_id).result or {})["status"] == "erased"
            assert places_of(tmp_path) == {}, "after the second pass"
        assert len(list(log.sessions.get("r").messages())) == 60
    assert places_of(tmp_path) == {}


@pytest.mark.parametrize("page_size", SOME_SIZES)
def test_no_byte_of_redacted_messages_is_in_the_files(tmp_path: Path, page_size: int, shift: list[int]) -> None:
    """Of one in its commit, one beside it and one in a blob; in summaries, segments and a full snapshot."""
    path = tmp_path / "a.db"
    new_file(path, page_size)
    with Turnlog.open(f"sqlite:///{path}", worker=False) as log:
        session = said(log, "harmless")
        secrets = [{"role": "user", "content": noise(CANARY, size)} for size in (40, 1_500, 6_000, 60_000)]
        first = session.append(*secrets, {"role": "assistant", "content": "so"}).first
        for number in range(8):
            session.append(*({"role": "user", "content": f"{number} {n}"} for n in range(25)))
        session.append({"role": "user", "content": "more"}, {"role": "assistant", "content": "yes"})
        session.create_snapshot("full", kind="full")
        while log.run_jobs():
            pass
        session.compress(keep_loops=2)
        assert places_of(tmp_path)
        with read_by_others(path):
            jobs = [session.redact(first + number) for number in range(4)]
            drained(log, shift)
            assert {(log.job(job.job_id).result or {})["status"] for job in jobs} == {"redacted"}
            assert places_of(tmp_path) == {}
        assert len(list(session.messages())) == 60 * 2 + 2 + 200 + 5 + 200 + 2


def test_no_byte_of_an_erased_person_is_in_the_files(
    tmp_path: Path, shift: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    monkeypatch.setenv("TURNLOG_MEMORY", "facts")
    with Turnlog.open(f"sqlite:///{path}", worker=False) as log:
        for number in range(2):
            session = said(log, session_id=f"s{number}")
            session.append(
                {"role": "user", "content": f"I live in {CANARY}. I prefer {CANARY}."},
                {"role": "assistant", "content": "ok"},
            )
            session.end()
        while log.run_jobs():
            pass
        assert any(CANARY in memory.text for memory in log.memory())
        with read_by_others(path):
            log.erase_me()
            drained(log, shift)
        assert places_of(tmp_path) == {}


def test_no_byte_of_expired_sessions_is_in_the_files_and_they_share_a_purge(
    tmp_path: Path, shift: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    purge, purges, path = SqliteDatabase.purge, list[int](), tmp_path / "a.db"
    monkeypatch.setattr(SqliteDatabase, "purge", lambda self: (purges.append(1), purge(self)))
    monkeypatch.setattr(in_process, "_RETENTION_SECONDS", 0.0)
    with Turnlog.open(f"sqlite:///{path}", worker=False) as log:
        log.sessions.create("r")
        for number in range(5):
            said(log, session_id=f"s{number}").update(ttl_days=1)
        while log.run_jobs():
            pass
        shift[0] += 86_400_000 + 1_000
        with read_by_others(path):
            drained(log, shift)
        assert [job.status for job in log.jobs() if job.kind == "erase"] == ["done"] * 5
        assert places_of(tmp_path) == {}
        assert len(purges) == 1


def test_bytes_of_a_file_that_had_no_secure_delete_go_with_the_first_erasure(tmp_path: Path, shift: list[int]) -> None:
    """SQLite has left them in free pages and between rows: python.org's builds have secure_delete=0."""
    path = tmp_path / "a.db"
    with Turnlog.open(f"sqlite:///{path}", worker=False) as log:
        log.sessions.create("s").append({"role": "user", "content": "x"})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete=OFF")
        connection.execute("CREATE TABLE t (a)")
        connection.executemany(
            "INSERT INTO t VALUES (?)", [(noise(CANARY, 500, seed=number),) for number in range(500)]
        )
        connection.execute("DELETE FROM t WHERE rowid % 3")
        connection.execute("DROP TABLE t")
    assert places_of(tmp_path)
    with Turnlog.open(f"sqlite:///{path}", worker=False) as log:
        log.sessions.get("s").erase()
        drained(log, shift)
        assert places_of(tmp_path) == {}


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_rows_that_were_moved_leave_no_copy(tmp_path: Path, page_size: int) -> None:
    """`secure_delete` alone leaves some: SQLite moves rows between pages and does not clear where they were."""
    path, generator = tmp_path / "a.db", random.Random(page_size)
    new_file(path, page_size)
    with closing(SqliteDatabase(path)) as database:
        table, keys = SqliteItemTable(database), list[Key]()
        for _ in range(400):
            key = Key(f"p{generator.randrange(4)}", f"C#{generator.randrange(10**6):06d}")
            keys.append(key)
            text = CANARY * generator.randrange(1, 300 if generator.random() < 0.1 else 30)
            extra = {"g1pk": "a", "g1sk": CANARY + key.sk} if generator.random() < 0.3 else {}
            table.put({"pk": key.pk, "sk": key.sk, "text": text, "b": text.encode(), **extra})
        table.write_many([{"pk": key.pk, "sk": key.sk} for key in keys[::2]])
        table.delete_many(keys[1::2])
        queue = SqliteJobQueue(database, SequentialIds(), SystemClock().now_ms)
        for number in range(30):
            queue.send(f"{CANARY} {number}" * number, group=CANARY)
        while deliveries := queue.receive():
            for delivery in deliveries:
                queue.acknowledge(delivery.receipt)
        table.purge()
        assert places_of(tmp_path) == {}
        table.put({"pk": "p", "sk": "later"})
        assert places_of(tmp_path) == {}


def test_deleted_rows_are_overwritten_at_once(tmp_path: Path) -> None:
    """Before any erasure, on every connection: of what is deleted for other reasons."""
    with closing(SqliteDatabase(tmp_path / "a.db")) as database:
        assert database.connection().execute("PRAGMA secure_delete").fetchone() == (1,)


def test_a_reader_that_stays_is_waited_for_and_then_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.2)
    path = tmp_path / "a.db"
    with closing(SqliteDatabase(path)) as database, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        table = SqliteItemTable(database)
        table.put({"pk": "p", "sk": "s", "b": CANARY.encode()})
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items").fetchone()
        table.delete_many([Key("p", "s")])
        with pytest.raises(UnavailableError, match="reader") as caught:
            table.purge()
        assert caught.value.error_code == "purge_blocked"
        table.put({"pk": "p", "sk": "t"})  # writers go on
        reader.execute("COMMIT")
        table.purge()
        assert places_of(tmp_path) == {}


def test_many_erasures_share_few_purges(tmp_path: Path, shift: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each purge writes the whole file anew, and other writers wait for it."""
    purge, purges = SqliteDatabase.purge, list[int]()

    def slowly(self: SqliteDatabase) -> None:
        purge(self)
        purges.append(1)
        shift[0] += 2_000

    monkeypatch.setattr(SqliteDatabase, "purge", slowly)
    with Turnlog.open(f"sqlite:///{tmp_path}/a.db", worker=False) as log:
        sessions = [log.sessions.create(f"s{number}", title=CANARY) for number in range(30)]
        for session in sessions:
            session.append({"role": "user", "content": CANARY})
        jobs = [session.erase() for session in sessions[:1]]
        drained(log, shift)
        assert len(purges) == 1, "of one erasure"
        jobs += [session.erase() for session in sessions[1:]]
        drained(log, shift)
        assert {(log.job(job.job_id).result or {})["status"] for job in jobs} == {"erased"}
        assert len(purges) <= 3
    assert places_of(tmp_path) == {}


@pytest.mark.parametrize("by_another_process", [False, True])
def test_an_erasure_that_follows_another_is_purged_after_a_pause(
    tmp_path: Path, shift: list[int], monkeypatch: pytest.MonkeyPatch, by_another_process: bool
) -> None:
    purge, purges, url = SqliteDatabase.purge, list[int](), f"sqlite:///{tmp_path}/a.db"

    def slowly(self: SqliteDatabase) -> None:
        purge(self)
        purges.append(1)
        shift[0] += 2_000

    monkeypatch.setattr(SqliteDatabase, "purge", slowly)
    with Turnlog.open(url, worker=False) as log, Turnlog.open(url, worker=False) as other:
        sessions = [log.sessions.create(f"s{number}") for number in range(3)]
        for session in sessions:
            session.append({"role": "user", "content": CANARY})
        jobs = [sessions[0].erase(), sessions[1].redact(2), sessions[2].erase()]
        log.run_jobs()
        assert len(purges) == 1 and places_of(tmp_path) != {}
        shift[0] += 20_000
        (other if by_another_process else log).run_jobs()
        assert len(purges) == 2 and places_of(tmp_path) == {}
        assert {log.job(job.job_id).status for job in jobs} == {"queued"}
        drained(log, shift)
        assert {log.job(job.job_id).status for job in jobs} == {"done"}


def test_a_redaction_whose_second_pass_finds_nothing_purges_once(
    tmp_path: Path, shift: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    purge, purges = SqliteDatabase.purge, list[int]()

    def counted(self: SqliteDatabase) -> None:
        purge(self)
        purges.append(1)

    monkeypatch.setattr(SqliteDatabase, "purge", counted)
    with Turnlog.open(f"sqlite:///{tmp_path}/a.db", worker=False) as log:
        session = log.sessions.create("s")
        session.append({"role": "user", "content": CANARY})
        job = session.redact(next(iter(session.messages())).position)
        drained(log, shift)
        assert (log.job(job.job_id).result or {})["status"] == "redacted"
        assert len(purges) == 1
    assert places_of(tmp_path) == {}


def test_a_purge_before_the_end_of_an_erasure_is_not_enough(tmp_path: Path) -> None:
    clock, purges = FixedClock(), list[str]()

    class Store(FileBlobStore):
        def purge(self) -> None:
            purges.append("")

    with closing(SqliteDatabase(tmp_path / "a.db")) as database:
        purging = Purging(SqliteItemTable(database), Store(tmp_path / "blobs"), clock)
        mark = purging.mark()
        assert purging.after_first_pass(mark, 900) == 900
        assert len(purges) == 1
        purging.after_last_pass(mark)
        assert len(purges) == 1  # begun after the mark
        later = f"{mark.partition('-')[0]}-1"
        purging.after_last_pass(later)
        assert len(purges) == 2  # the only one had begun before it
        purging.after_last_pass("")
        purging.after_last_pass("another process-0")
        assert len(purges) == 4


def test_first_passes_purge_after_a_pause_of_nine_times_the_last_purge(tmp_path: Path) -> None:
    clock, purges = FixedClock(), list[str]()

    class Store(FileBlobStore):
        def purge(self) -> None:
            purges.append("")
            clock.advance(2)

    with closing(SqliteDatabase(tmp_path / "a.db")) as database:
        purging = Purging(SqliteItemTable(database), Store(tmp_path / "blobs"), clock)
        cases = ((0, 1, 900), (0, 1, 18), (17.999, 1, 1), (0.001, 2, 900), (-3_582, 2, 900), (-0.001, 3, 900))
        for seconds, count, delay in cases:
            clock.advance(seconds)
            mark = purging.mark()
            assert purging.after_first_pass(mark, 900) == delay
            assert len(purges) == count, (seconds, "a clock that went back by an hour counts as none")
        purging.after_last_pass(mark)
        assert len(purges) == 3, "the last one had begun after its mark"


def test_an_erasure_that_can_t_purge_is_not_said_to_be_done(
    tmp_path: Path, shift: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0.2)
    path = tmp_path / "a.db"
    with (
        Turnlog.open(f"sqlite:///{path}", worker=False) as log,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        session = log.sessions.create("s")
        session.append({"role": "user", "content": CANARY})
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items").fetchone()
        job = session.erase()
        log.run_jobs()
        state = log.job(job.job_id)
        assert state.status == "queued" and state.result is None
        assert state.error is not None and state.error.code == "purge_blocked"
        reader.execute("COMMIT")
        shift[0] += 3600_000
        drained(log, shift)
        assert (log.job(job.job_id).result or {})["status"] == "erased"
        assert places_of(tmp_path) == {}


def test_unfinished_files_of_blobs_go_when_nobody_writes_them(tmp_path: Path) -> None:
    blobs = FileBlobStore(tmp_path)
    blobs.put("t/u/s/seg/a", b"stays")
    left, live = tmp_path / "t/u/s/seg/.b.0011223344556677", tmp_path / "t/u/s/seg/.c.0011223344556677"
    for path in (left, live):
        path.write_text(CANARY)
    os.utime(left, (1_000_000_000, 1_000_000_000))
    blobs.purge()
    assert sorted(path.name for path in files_of(tmp_path)) == [".c.0011223344556677", "a"]
