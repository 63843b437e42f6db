"""Whose file the embedded engine takes, which it refuses as it is, and how it brings an older file to its own format."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.effort import is_full
from turnlog import Turnlog
from turnlog.core.errors import CorruptError, InvalidInputError, UnavailableError
from turnlog.engines import sqlite
from turnlog.engines.files import make_folder
from turnlog.engines.sqlite import APPLICATION_ID, FORMAT, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.ports import Absent, Item, Key, Query
from turnlog.testing.fixed import FixedClock

FORMAT_1 = """
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
PRAGMA user_version=1;
"""
"""What Turnlog made before its files had an ``application_id``."""


def made(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def format_1(path: Path) -> None:
    made(path, "PRAGMA journal_mode=WAL;" + FORMAT_1)
    rows = [("p", "plain", b'{"pk":"p","sk":"plain"}'), ("p", "late", b'{"pk":"p","sk":"late","ttl":4102444800}')]
    rows += [("p", "over", b'{"pk":"p","sk":"over","ttl":1000}'), ("p", "damaged", b'{"ttl":12')]
    rows += [("p", "a list", b'[{"ttl":12}]'), ("p", "deep", b'{"ttl":' + b"[" * 100_000)]
    with closing(sqlite3.connect(path)) as connection:
        for row in rows:
            connection.execute("INSERT INTO items (pk, sk, size, attributes, data) VALUES (?, ?, 9, ?, x'')", row)
        connection.commit()


def in_wal_only(path: Path, script: str) -> None:
    """A database whose tables are in its WAL: the process that made it was killed."""
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode=WAL');"
        "c.executescript(sys.argv[2]); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path), script], check=True)
    assert Path(f"{path}-wal").stat().st_size > 0


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stamp(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        return application_id, connection.execute("PRAGMA user_version").fetchone()[0]


def opened(path: Path) -> None:
    with closing(SqliteDatabase(path)) as database:
        database.connection().execute("SELECT count(*) FROM items").fetchone()


def mine(version: int = 0, application_id: int = 0, table: str = "mine (a)") -> str:
    return f"CREATE TABLE {table}; PRAGMA user_version={version}; PRAGMA application_id={application_id};"


FOREIGN: dict[str, Callable[[Path], None]] = {
    "user_version 0": lambda path: made(path, mine()),
    "user_version 1": lambda path: made(path, mine(1)),
    "user_version 7": lambda path: made(path, mine(7)),
    "an application_id": lambda path: made(path, mine(1, 0x12345678)),
    "a negative application_id": lambda path: made(path, mine(1, -5)),
    "an application_id and no tables": lambda path: made(path, "PRAGMA application_id=5; VACUUM;"),
    "a table named items": lambda path: made(path, mine(1, table="items (id INTEGER PRIMARY KEY, name)")),
    "tables named items and jobs": lambda path: made(path, mine(1, table="items (a)") + "CREATE TABLE jobs (b);"),
    "our tables, no version": lambda path: made(path, FORMAT_1 + "PRAGMA user_version=0;"),
    "no tables, a version": lambda path: made(path, "PRAGMA user_version=7;"),
    "no tables, UTF-16": lambda path: made(path, "PRAGMA encoding='UTF-16'; CREATE TABLE a (b); DROP TABLE a;"),
    "a WAL": lambda path: made(path, "PRAGMA journal_mode=WAL;" + mine()),
    "tables in the WAL only": lambda path: in_wal_only(path, mine()),
    "text": lambda path: path.write_text("hello, this is not a database\n" * 100) and None,
    "a short file": lambda path: path.write_bytes(b"x") and None,
    "zeros": lambda path: path.write_bytes(bytes(8192)) and None,
    "an encrypted database": lambda path: path.write_bytes(os.urandom(8192)) and None,
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a ü?#%20.db"
    FOREIGN[kind](path)
    names, before = sorted(tmp_path.iterdir()), {} if path.is_fifo() else contents(tmp_path)
    with pytest.raises(UnavailableError, match=r"a ü\?#%20.db.*name another file") as caught:
        opened(path)
    assert caught.value.error_code == "foreign_file"
    assert sorted(tmp_path.iterdir()) == names
    assert path.is_fifo() or contents(tmp_path) == before


def test_a_process_that_ends_takes_no_file_from_one_that_goes_on(tmp_path: Path) -> None:
    """The last user of a file deletes its WAL, so a process with a connection must be seen to have one, whoever else opens one."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    script = "import sys; from turnlog import Turnlog; print(len(list(Turnlog.open(sys.argv[1]).sessions.of('s').messages())))"

    def read_elsewhere() -> int:
        return int(subprocess.run([sys.executable, "-c", script, url], check=True, capture_output=True).stdout)

    with Turnlog.open(url, worker=False) as log:
        session = log.sessions.create("s")
        session.append({"role": "user", "content": "first"})
        beside = threading.Thread(target=lambda: list(session.messages()))
        beside.start()
        beside.join()
        wal = (tmp_path / "a.db-wal").stat().st_ino
        with Turnlog.open(url, worker=False) as again:
            again.sessions.of("s").append({"role": "user", "content": "second"})
            assert read_elsewhere() == 2
            assert (tmp_path / "a.db-wal").stat().st_ino == wal
        session.append({"role": "user", "content": "third"})
        assert read_elsewhere() == 3


COMES_AND_GOES = """
import random, sys, threading
from turnlog import Turnlog
url, name, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(name)
acknowledged = dict()

def append(text):
    acknowledged[session.append({"role": "user", "content": text}).first] = text

for time in range(times):
    log = Turnlog.open(url, worker=random.random() < 0.5)
    session = log.sessions.get_or_create(name)
    for number in range(random.randint(1, 6)):
        thread = threading.Thread(target=append, args=[f"{name} {time} {number}"])
        run = thread.run if random.random() < 0.7 else lambda: (thread.start(), thread.join())
        run()
    if random.random() < 0.8:
        log.close()
stored = {one.position: one.body["content"] for one in Turnlog.open(url).sessions.of(name).messages()}
assert stored == acknowledged, sorted(stored.items() ^ acknowledged.items())
"""


def test_processes_that_open_and_close_a_file_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    command = [sys.executable, "-c", COMES_AND_GOES, f"sqlite:///{file}"]
    times = "40" if is_full() else "6"
    processes = [
        subprocess.Popen([*command, name, times], stderr=subprocess.PIPE, text=True)
        for name in ("s1", "s2", "s3", "s4")
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_grows_in_another_process_is_not_taken_for_damaged(tmp_path: Path) -> None:
    """A checkpoint writes the header, with the new number of pages, before it writes the new pages."""
    file = tmp_path / "a.db"
    with Turnlog.open(f"sqlite:///{file}", worker=False) as log:
        log.sessions.create("s")
    pages = file.stat().st_size // 4096
    with file.open("r+b") as header:
        header.seek(28)
        assert header.read(4) == pages.to_bytes(4)
        header.seek(28)
        header.write((pages + 9).to_bytes(4))
    sqlite.check_file(file)


def test_a_file_that_another_program_is_writing_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    made(path, "PRAGMA journal_mode=WAL;" + mine())
    with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        theirs.execute("BEGIN IMMEDIATE")
        theirs.execute("INSERT INTO mine VALUES (1)")
        before = contents(tmp_path)
        with pytest.raises(UnavailableError, match="another program"):
            opened(path)
        assert contents(tmp_path) == before
        theirs.execute("COMMIT")
    with closing(sqlite3.connect(path)) as theirs:
        assert theirs.execute("SELECT * FROM mine").fetchall() == [(1,)]


@pytest.mark.parametrize("size", [0, None], ids=["empty", "header"])
def test_an_empty_database_is_taken(tmp_path: Path, size: int | None) -> None:
    path = tmp_path / "new.db"
    if size is None:
        made(path, "CREATE TABLE a (b); DROP TABLE a;")
    else:
        path.touch()
    opened(path)
    assert stamp(path) == (APPLICATION_ID, FORMAT)


def test_tables_that_another_process_makes_meanwhile_are_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    class Overtaken(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN"):
                opened(path)
            return super().execute(sql, *arguments)

    with closing(sqlite3.connect(path, isolation_level=None, factory=Overtaken)) as connection:
        sqlite.prepare(connection, str(path))
    assert stamp(path) == (APPLICATION_ID, FORMAT)


def test_a_file_of_a_newer_format_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "turnlog.db"
    opened(path)
    made(path, f"PRAGMA user_version={FORMAT + 1}")
    before = contents(tmp_path)
    with pytest.raises(UnavailableError, match=f"format {FORMAT + 1}, newer than {FORMAT}") as caught:
        opened(path)
    assert caught.value.error_code == "newer_schema"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, pytest.raises(UnavailableError):
        sqlite.prepare(connection, str(path))  # another process has changed the format since it was checked
    assert contents(tmp_path) == before


def test_a_header_that_is_damaged_is_told_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "turnlog.db"
    opened(path)
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(UnavailableError, match="damaged") as caught:
        opened(path)
    assert caught.value.error_code == "storage_damaged"


@pytest.fixture
def shared_path() -> Iterator[Path]:
    """A folder that other users can enter, as they can't enter ``tmp_path``."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.name != "posix", reason="users and modes as on POSIX")
@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o755), (0o400, 0o755), (0o000, 0o755), (0o644, 0o555)])
def test_a_file_that_can_t_be_written_is_a_typed_error(shared_path: Path, file_mode: int, folder_mode: int) -> None:
    folder = shared_path / "data"
    path = folder / "turnlog.db"
    opened(path)
    path.chmod(file_mode)
    folder.chmod(folder_mode)
    before = contents(folder)

    def attempt() -> None:
        if os.geteuid() == 0:  # for whom modes are no obstacle
            os.chdir(folder)
            os.setgid(65534)
            os.setuid(65534)
        else:
            os.chdir(folder)
        try:
            opened(Path("turnlog.db"))
        except UnavailableError as error:
            os._exit(0 if error.error_code == "no_access" else 2)
        os._exit(1)

    child = multiprocessing.get_context("fork").Process(target=attempt)
    child.start()
    child.join()
    folder.chmod(0o755)
    path.chmod(0o644)
    assert child.exitcode == 0
    assert contents(folder) == before


# ------------------------------------------------------------ where the file is

LARGE = {"role": "user", "content": "".join(f"line {number}, " for number in range(60_000))}
"""A message whose text is a blob, also when it is compressed."""


def test_a_process_that_changes_its_folder_keeps_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Turnlog.open("agent.db") as log, ThreadPoolExecutor(1) as other_thread:
        session = log.sessions.create("s")
        monkeypatch.chdir("elsewhere")
        other_thread.submit(session.append, LARGE).result()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with Turnlog.open(tmp_path / "agent.db") as log:
        assert [message.body for message in log.sessions.get("s").messages()] == [LARGE]


def test_a_path_may_be_bytes_but_not_blank(tmp_path: Path) -> None:
    path: Any = os.fsencode(tmp_path / "agent.db")
    Turnlog.open(path).close()
    assert (tmp_path / "agent.db").is_file()
    for text in ("  ", "127.0.0.1:8931", "localhost:8931", "api.example.com:443/dev"):
        with pytest.raises(InvalidInputError, match="neither a path nor a URL"):
            Turnlog.open(text)


def test_a_folder_that_was_deleted_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(UnavailableError) as caught:
        Turnlog.open("agent.db")
    assert caught.value.error_code == "no_folder"


@pytest.mark.parametrize("is_earlier", [False, True])
def test_a_file_is_the_same_by_its_name_and_by_a_symbolic_link(tmp_path: Path, is_earlier: bool) -> None:
    (tmp_path / "disk").mkdir()
    path, link = tmp_path / "disk" / "agent.db", tmp_path / "link.db"
    link.symlink_to(path)
    with Turnlog.open(link) as log:
        log.sessions.create("s").append(LARGE)
    if is_earlier:  # earlier versions kept the blobs beside the link
        (tmp_path / "disk" / "agent.db.blobs").rename(tmp_path / "link.db.blobs")
    with Turnlog.open(link if is_earlier else path) as log:
        assert [message.body for message in log.sessions.get("s").messages()] == [LARGE]


def test_a_symbolic_link_to_itself_is_a_typed_error(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(link)
    with pytest.raises(UnavailableError) as caught:
        Turnlog.open(f"sqlite:///{link}")
    assert caught.value.error_code == "no_access"


@pytest.mark.skipif(os.name != "posix", reason="an open file can't be deleted")
@pytest.mark.parametrize("is_replaced", [False, True])
def test_nothing_is_acknowledged_in_a_file_that_is_deleted_or_replaced(tmp_path: Path, is_replaced: bool) -> None:
    path, other = tmp_path / "agent.db", tmp_path / "other.db"
    Turnlog.open(other).close()
    with Turnlog.open(path) as log:
        session = log.sessions.create("s")
        other.replace(path) if is_replaced else path.unlink()
        with pytest.raises(UnavailableError) as caught:
            session.append({"role": "user", "content": "hi"})
        assert caught.value.error_code == "no_access"
        assert "deleted or replaced" in str(caught.value)


# ------------------------------------------------------------ format 1


@pytest.mark.parametrize("in_wal", [False, True])
def test_a_file_of_format_1_is_recognised_and_brought_to_this_format(tmp_path: Path, in_wal: bool) -> None:
    path = tmp_path / "turnlog.db"
    if in_wal:
        attributes = """CAST('{"pk":"p","sk":"plain"}' AS BLOB)"""
        insert = f"INSERT INTO items (pk, sk, size, attributes, data) VALUES ('p', 'plain', 9, {attributes}, x'');"  # noqa: S608
        in_wal_only(path, FORMAT_1 + insert)
    else:
        format_1(path)
    with closing(SqliteDatabase(path)) as database:
        table = SqliteItemTable(database)
        assert table.get_many([Key("p", "plain")]) == {Key("p", "plain"): {"pk": "p", "sk": "plain"}}
        for name in () if in_wal else ("damaged", "a list", "deep"):
            with pytest.raises(CorruptError):
                table.get_many([Key("p", name)])
        ttls = dict(database.connection().execute("SELECT sk, ttl FROM items").fetchall())
    damaged = {"damaged": None, "a list": None, "deep": None}
    assert ttls == ({"plain": None} if in_wal else {"plain": None, "late": 4102444800, "over": 1000, **damaged})
    assert stamp(path) == (APPLICATION_ID, FORMAT)


def test_a_new_and_a_changed_file_have_one_schema(tmp_path: Path) -> None:
    format_1(tmp_path / "old.db")
    schemas = []
    for name in ("old.db", "new.db"):
        opened(tmp_path / name)
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            columns = connection.execute("SELECT * FROM pragma_table_info('items')").fetchall()
            indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name")
            schemas.append((columns, indexes.fetchall()))
    assert schemas[0] == schemas[1]


def _open_and_count(path: str, start: float) -> int:
    import time

    time.sleep(max(0, start - time.time()))

    def change(connection: sqlite3.Connection) -> int:
        connection.execute(
            "INSERT INTO jobs (id, grp, body, visible_ms, sent) VALUES (hex(randomblob(8)), '', '', 0, 0)"
        )
        return int(connection.execute("SELECT count(*) FROM items").fetchone()[0])

    with closing(SqliteDatabase(path)) as database:
        return database.write(change)


@pytest.mark.parametrize(
    "is_old", [pytest.param(False, id="new", marks=pytest.mark.full), pytest.param(True, id="format 1")]
)
def test_several_processes_open_one_file_for_the_first_time_at_once(tmp_path: Path, is_old: bool) -> None:
    import time

    path = tmp_path / "turnlog.db"
    if is_old:
        format_1(path)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        counts = pool.starmap(_open_and_count, [(str(path), time.time() + 2)] * 8)
    assert counts == [6 if is_old else 0] * 8
    assert stamp(path) == (APPLICATION_ID, FORMAT)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (8,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Killed(sqlite3.Connection):
    """A connection whose process is killed before its statement number `left`."""

    left = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        Killed.left -= 1
        if Killed.left == 0:
            os._exit(9)
        return super().execute(*arguments)


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "format 1"])
def test_a_change_of_format_that_is_killed_anywhere_is_done_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    def open_and_be_killed(path: Path, statement: int) -> None:
        monkeypatch.setattr(sqlite, "MOVED_AT_ONCE", 2)
        connect, Killed.left = sqlite3.connect, statement
        sqlite3.connect = partial(connect, factory=Killed)  # type: ignore[assignment]
        SqliteDatabase(path).connection()
        os._exit(0)

    step = 1 if is_full() else 18  # a fork of a process as large as this one takes long
    statement, exits = 1 - step, list[int | None]()
    while 0 not in exits:
        statement += step
        path = tmp_path / f"{statement}.db"
        if is_old:
            format_1(path)
        child = multiprocessing.get_context("fork").Process(target=open_and_be_killed, args=(path, statement))
        child.start()
        child.join()
        exits.append(child.exitcode)
        opened(path)
        assert stamp(path) == (APPLICATION_ID, FORMAT)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*), count(ttl) FROM items").fetchone() == (
                (6, 2) if is_old else (0, 0)
            )
            assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'former_items'").fetchone()
    assert set(exits) == {9, 0} and len(exits) > (40 if is_old else 15) // step


def test_a_process_of_the_former_version_reads_and_writes_nothing_beside(tmp_path: Path) -> None:
    """Its connection was open when the file was changed; its statements name their columns."""
    path = tmp_path / "turnlog.db"
    format_1(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as former:
        former.execute("SELECT attributes FROM items").fetchone()
        opened(path)
        for statement in (
            "SELECT attributes, data FROM items WHERE pk = 'p' AND sk = 'plain'",
            "INSERT OR REPLACE INTO items (pk, sk, size, attributes, data) VALUES ('p', 'new', 9, '{}', x'')",
        ):
            with pytest.raises(
                sqlite3.OperationalError,
                match=r"no (such column:|column named) attributes",
            ):
                former.execute(statement)
        assert former.execute("SELECT count(*) FROM items").fetchone() == (6,)


def test_a_file_of_format_2_keeps_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was written by the last version of format 2."""
    path = tmp_path / "turnlog.db"
    path.write_bytes(gzip.decompress(Path(__file__).with_name("format-2.db.gz").read_bytes()))
    before = rows_of_format_2(path)
    monkeypatch.setattr(sqlite, "MOVED_AT_ONCE", 4)
    with closing(SqliteDatabase(path)) as database:
        table = SqliteItemTable(database)
        pages = database.connection().execute("PRAGMA freelist_count").fetchone()
        assert pages == (0,), "the file is rewritten"
        items = table.get_many(list(before))
        listed = table.query(Query("T#acme#U#ada", "", "~", index="activity")).items
    assert items == before and len(before) == 23
    assert [item["sk"] for item in listed] == ["S#golden", "S#other"]
    assert "you need a backup" in caplog.text and "23 items have the new format" in caplog.text
    with Turnlog.open(f"sqlite:///{path}", worker=False, tenant="acme", user="ada") as log:
        session = log.sessions.get("golden")
        texts = [message.body["content"] for message in session.messages()]
        assert texts[:2] == ["Question 0: where is order A0?", "Order A0 — Zürich 苏黎世 — arrives ."]
        assert len(texts) == 13 and texts[12] == "a long text " * 3000
        assert session.state().state == {"n": 1}
        assert session.append({"role": "user", "content": "Again"}).first == 15
        verified = log.verify()
        assert (verified.sessions, verified.damages) == (2, [])
        assert log.run_jobs() == 1


def rows_of_format_2(path: Path) -> dict[Key, Item]:
    items = dict[Key, Item]()
    with closing(sqlite3.connect(path)) as connection:
        for attributes, data in connection.execute("SELECT attributes, data FROM items"):
            item = json.loads(attributes)
            item = {
                name: data[value[0] : sum(value)] if isinstance(value, list) else value for name, value in item.items()
            }
            items[Key(item["pk"], item["sk"])] = item
    return items


# ------------------------------------------------------------ expired items


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with closing(SqliteDatabase(tmp_path / "turnlog.db")) as database:
        yield database


def test_items_go_when_their_ttl_has_passed_and_others_stay(database: SqliteDatabase) -> None:
    clock = FixedClock()
    table = SqliteItemTable(database, clock.now_ms)
    now = clock.now_ms() // 1000
    table.put({"pk": "p", "sk": "plain"})
    table.write_many([{"pk": "p", "sk": f"{number:03d}", "ttl": now + 60} for number in range(100)])
    clock.advance(60)
    table.put({"pk": "p", "sk": "y", "ttl": now + 3600})
    assert (
        len(table.get_many([Key("p", f"{number:03d}") for number in range(100)])) == 100
    )  # not yet: it is this second
    clock.advance(1)
    for number in range(25):
        table.put({"pk": "p", "sk": "z", "ttl": now + 3600 + number})
    assert not table.get_many([Key("p", f"{number:03d}") for number in range(100)])
    assert len(table.get_many([Key("p", name) for name in ("plain", "y", "z")])) == 3


def test_a_put_without_ttl_and_one_that_lost_remove_nothing(database: SqliteDatabase) -> None:
    clock = FixedClock()
    table = SqliteItemTable(database, clock.now_ms)
    table.write_many([{"pk": "p", "sk": "over", "ttl": 1}, {"pk": "p", "sk": "there"}])
    table.write_many([{"pk": "p", "sk": "again"}])
    SqliteItemTable(database).put({"pk": "p", "sk": "over", "ttl": 1})
    table.put({"pk": "p", "sk": "other"})
    assert table.put({"pk": "p", "sk": "there", "ttl": 1}, condition=Absent()) is not None
    assert table.get_many([Key("p", "over")])


def test_the_index_answers_which_items_are_over(database: SqliteDatabase) -> None:
    """No put reads the table from one end to the other."""
    statements, connection = list[str](), database.connection()
    connection.set_trace_callback(statements.append)
    SqliteItemTable(database, FixedClock().now_ms).put({"pk": "p", "sk": "s", "ttl": 1})
    connection.set_trace_callback(None)
    (removal,) = (statement for statement in statements if statement.startswith("DELETE"))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {removal}").fetchall()
    steps = [row[3] for row in plan if row[3].startswith(("SCAN", "SEARCH"))]
    assert steps and not any(step.startswith("SCAN items") for step in steps), steps
    assert any("expired" in step for step in steps)


# ------------------------------------------------------------ folders


def test_a_new_data_folder_is_durable_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = list[Path](), os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("names of open files are read from /proc")
    monkeypatch.setattr(os, "fsync", noted)
    opened(tmp_path / "a" / "b" / "turnlog.db")
    assert {tmp_path, tmp_path / "a"} <= set(synced)
    synced.clear()
    make_folder(tmp_path / "a" / "b")
    assert synced == []


def test_a_service_s_file_has_the_id(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Turnlog.open(f"sqlite:///{path}") as log:
        log.sessions.create("s")
        header = path.read_bytes()[:100]
        assert int.from_bytes(header[68:72], "big") == sqlite.APPLICATION_ID  # in the file itself, not in its WAL


def test_a_message_of_sqlite_that_is_no_text_is_damage(tmp_path: Path) -> None:
    """SQLite names what it can't read in a damaged schema; Python can't decode the name."""
    path = tmp_path / "turnlog.db"
    with Turnlog.open(f"sqlite:///{path}") as log:
        log.sessions.create("s")
    data = path.read_bytes()
    assert data.count(b"(g1pk, g1sk, pk, sk)") == 1
    path.write_bytes(data.replace(b"(g1pk, g1sk, pk, sk)", b"(g1pk, g1sk, p\xeb, sk)"))
    with pytest.raises(UnavailableError) as caught, Turnlog.open(f"sqlite:///{path}") as log:
        log.sessions.get("s").info()
    assert caught.value.error_code == "storage_damaged"
