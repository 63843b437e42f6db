"""`verify` finds what is wrong with stored sessions, and `backup` copies them while others write."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.cli import main
from turnlog.client.async_twins import AsyncTurnlog
from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.upkeep.verify import Verification


def noise(size: int, seed: int = 0) -> str:
    return random.Random(seed).randbytes(size // 2).hex()


def said(log: Turnlog, session_id: str = "s") -> Session:
    """A session with everything that has a place of its own: items beside commits, blobs, segments, documents, full snapshots."""
    session = log.sessions.create(session_id, system=noise(70_000), state={"a": 1}, metadata={"m": noise(900)})
    for number in range(14):
        session.append(*({"role": "user", "content": f"{number} {n}"} for n in range(25)))
    session.append({"role": "user", "content": noise(6_000)})
    session.append({"role": "user", "content": noise(90_000)})
    session.append({"role": "assistant", "content": "so"})
    session.documents.put("short", b"x")
    session.documents.put("long", os.urandom(300_000))
    while log.run_jobs():
        pass
    session.create_snapshot("full", kind="full")
    session.rewind(300)
    session.append({"role": "user", "content": "again"}, {"role": "assistant", "content": "yes"})
    while log.run_jobs():
        pass
    return session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "turnlog.db"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a closed log, to be copied."""
    folder = tmp_path_factory.mktemp("written")
    with Turnlog.open(f"sqlite:///{folder}/turnlog.db") as log:
        said(log).fork("f").append({"role": "user", "content": noise(90_000, 1)})
    return folder


@pytest.fixture
def log(written: Path, path: Path) -> Iterator[Turnlog]:
    shutil.copytree(written, path.parent)
    with Turnlog.open(f"sqlite:///{path}") as log:
        yield log


def checked(path: Path, session_id: str | None = None) -> Verification:
    """As another process would read it."""
    from turnlog.log.commit import VERIFIED

    VERIFIED.clear()
    with Turnlog.open(f"sqlite:///{path}") as log:
        return log.verify(session_id)


def execute(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement, values).rowcount != 0
        connection.commit()


def test_what_is_whole_has_no_damage_and_everything_is_counted(log: Turnlog, path: Path) -> None:
    with Turnlog.open(f"sqlite:///{path}", tenant="other", user="eve") as other:
        other.sessions.create("theirs").append({"role": "user", "content": "x"})
        result = list[int]()
        done = other.verify(progress=lambda sum: result.append(sum.sessions))
    assert done.damages == [] and result == [1, 2, 3]
    assert (done.sessions, done.segments, done.snapshots, done.documents) == (3, 1, 1, 2)
    assert done.commits > 20 and done.payloads >= 4
    alone = log.verify("s")
    assert (alone.sessions, alone.damages) == (1, [])


def test_an_unknown_session_and_another_owner_s_are_not_found(log: Turnlog, path: Path) -> None:
    with Turnlog.open(f"sqlite:///{path}", user="eve") as other, pytest.raises(NotFoundError):
        other.verify("s")
    with pytest.raises(NotFoundError):
        log.verify("nobody")


def test_an_empty_file_is_whole(tmp_path: Path) -> None:
    with Turnlog.open(f"sqlite:///{tmp_path}/a.db") as log:
        assert log.verify() == Verification()


def blob(path: Path, kind: str) -> Path:
    return next(match for match in path.with_name("turnlog.db.blobs").rglob(f"{kind}/*") if "/s/" in str(match))


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def gone(where: str) -> Callable[[Path], None]:
    """Delete items of the session ``s`` whose sort keys fit."""
    return lambda path: execute(path, f"DELETE FROM items WHERE pk LIKE 'T#local#U#me#S#s' AND {where}")  # noqa: S608


def changed(setting: str, where: str) -> Callable[[Path], None]:
    """Change items of the session ``s`` behind Turnlog's back."""
    return lambda path: execute(path, f"UPDATE items SET {setting} WHERE pk LIKE 'T#local#U#me#S#s' AND {where}")  # noqa: S608


MIDDLE = "sk = 'C#000000000027'"
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "first commit gone": (gone("sk = 'C#000000000001'"), "C#"),
    "a commit gone": (gone(MIDDLE), "C#"),
    "newest commits gone": (gone("sk > 'C#000000000100' AND sk < 'D'"), ""),
    "every commit gone": (gone("sk LIKE 'C#%'"), "C#000000000001"),
    "a body flipped": (
        changed("data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB)", MIDDLE),
        "C#000000000027",
    ),
    "a payload gone": (gone("sk LIKE 'R#%'"), "R#"),
    "a payload cut": (changed("data = substr(data, 1, 90)", "sk LIKE 'R#%'"), ""),
    "attributes damaged": (changed("fields = '{'", MIDDLE), ""),
    "payload blob gone": (lambda path: blob(path, "payload").unlink(), "blob:payload/"),
    "payload blob flipped": (lambda path: _flipped(blob(path, "payload")), "blob:payload/"),
    "segment gone": (lambda path: blob(path, "seg").unlink(), "seg/"),
    "segment flipped": (lambda path: _flipped(blob(path, "seg")), "seg/"),
    "document blob gone": (lambda path: blob(path, "doc").unlink(), "K#long"),
    "document blob flipped": (lambda path: _flipped(blob(path, "doc")), "K#long"),
    "snapshot blob gone": (lambda path: blob(path, "snap").unlink(), "snap/"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_and_named(log: Turnlog, path: Path, kind: str) -> None:
    damage, item = DAMAGES[kind]
    damage(path)
    for value in (checked(path, "s"), checked(path)):
        assert value.damages
        assert any(damage.item.startswith(item) for damage in value.damages), value.damages
        assert {damage.session_id for damage in value.damages} <= {"s", "f"}
        assert not any(noise(50)[:20] in damage.detail for damage in value.damages)


def test_damage_of_the_file_itself_is_found(log: Turnlog, path: Path) -> None:
    log.close()
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'activity'").fetchone()[0]
    data = bytearray(path.read_bytes())
    index = data.rindex(b"T#local#U#me", (root - 1) * size, root * size)
    data[index : index + 12] = b"T#local#U#mf"
    path.write_bytes(data)
    done = checked(path)
    assert any("SQLite" in damage.detail for damage in done.damages if not damage.session_id)


def test_what_is_erased_expires_or_is_redacted_is_no_damage(log: Turnlog, path: Path) -> None:
    log.sessions.get("s").redact(27)
    while log.run_jobs():
        pass
    assert checked(path).damages == []
    log.sessions.get("s").erase()  # what the fork shares with it becomes its own
    assert checked(path).damages == []
    while log.run_jobs():
        pass
    done = checked(path)
    assert (done.sessions, done.damages) == (1, [])


# ------------------------------------------------------------ backups

WRITER = """
import random, sys
from turnlog import Turnlog
from turnlog.core.errors import ConflictError, UnavailableError
with Turnlog.open(sys.argv[1]) as log:
    session = log.sessions.get_or_create("live")
    number = 0
    while True:
        content = str(number) if number % 5 else str(number) + " " + random.randbytes(25_000).hex()
        try:
            session.append({"role": "user", "content": content})
            session.documents.put("doc", random.randbytes(300_000))
            log.run_jobs()
        except (ConflictError, UnavailableError):
            continue
        number += 1
        print(number, flush=True)
"""


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("writers", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_backup_while_others_write_is_whole_and_opens_as_it_is(
    log: Turnlog, path: Path, tmp_path: Path, writers: int
) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True)
        for _ in range(writers)
    ]
    try:
        for number in range(2):
            assert processes[0].stdout is not None
            acknowledged = int(processes[0].stdout.readline())
            while acknowledged < 5 * (number + 1):
                acknowledged = int(processes[0].stdout.readline())
            copy = tmp_path / f"copy-{number}.db"
            made = log.backup(copy)
            assert made.verification.damages == []
            assert checked(copy) == made.verification
            with Turnlog.open(f"sqlite:///{copy}") as restored:
                live = [message.body["content"] for message in restored.sessions.get("live").messages()]
                assert len(live) >= acknowledged
                if writers == 1:
                    assert [int(text.split()[0]) for text in live] == list(range(len(live)))
                whole = list(log.sessions.get("s").messages())
                assert [message.body for message in restored.sessions.get("s").messages()] == [
                    item.body for item in whole
                ]
                restored.sessions.get("live").append({"role": "user", "content": "goes on"})
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert checked(path).damages == []


def test_a_backup_holds_what_is_named_and_nothing_else(log: Turnlog, path: Path, tmp_path: Path) -> None:
    left = blob(path, "payload").with_name("000000000999-00112233445566770e")
    left.write_text("named by nothing")
    unfinished = left.with_name(".x.00112233")
    unfinished.write_text("unfinished")
    totals = list[Verification]()
    made = log.backup(tmp_path / "copy.db", progress=totals.append)
    assert [done.sessions for done in totals] == [1, 2]
    names = [name for name in files_of(tmp_path / "copy.db.blobs") if "." not in Path(name).suffix]
    assert made.blobs == sum(path.is_file() for path in (tmp_path / "copy.db.blobs").rglob("*"))
    assert not any(left.name in name or unfinished.name in name for name in names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "copy.db.blobs", "data"]
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "copy.db.blobs").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("taken", ["copy.db", "copy.db.blobs", "copy.db-wal"])
def test_a_backup_overwrites_nothing(log: Turnlog, tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(InvalidInputError, match="already exists") as caught:
        log.backup(tmp_path / "copy.db")
    assert caught.value.error_code == "file_exists"
    assert (tmp_path / taken).read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["data", taken])


@pytest.mark.parametrize("folder", [".", "/", ""])
def test_a_folder_is_no_place_for_a_backup(log: Turnlog, folder: str) -> None:
    with pytest.raises(InvalidInputError, match="already exists"):
        log.backup(folder)


def test_nothing_is_left_of_a_backup_that_fails(log: Turnlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnlog.engines.files import FileBlobStore

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileBlobStore, "put", full)
    with pytest.raises(OSError, match="No space"):
        log.backup(tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_is_damaged_is_backed_up_as_far_as_it_is_there(log: Turnlog, path: Path, tmp_path: Path) -> None:
    blob(path, "seg").unlink()
    gone(MIDDLE)(path)
    made = log.backup(tmp_path / "copy.db")
    assert any(damage.item.startswith("seg/") for damage in made.verification.damages)
    payloads = {match.name for match in path.with_name("turnlog.db.blobs").rglob("payload/*")}
    assert payloads == {path.name for path in (tmp_path / "copy.db.blobs").rglob("payload/*")}


def test_a_blob_that_goes_while_the_backup_is_made_does_not_spoil_it(
    log: Turnlog, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was named at the moment of the copy; the backup begins again with a newer copy."""
    from turnlog.engines.sqlite import SqliteDatabase

    copy_to, copies = SqliteDatabase.copy_to, list[Path]()

    def and_then_it_goes(self: SqliteDatabase, target: Path) -> None:
        copy_to(self, target)
        copies.append(target)
        if len(copies) == 1:
            old = blob(path, "doc")
            log.sessions.get("s").documents.put("long", os.urandom(300_000))
            old.unlink()

    monkeypatch.setattr(SqliteDatabase, "copy_to", and_then_it_goes)
    made = log.backup(tmp_path / "copy.db")
    assert len(copies) == 2 and made.verification.damages == []
    assert checked(tmp_path / "copy.db").damages == []


def test_what_the_process_has_in_memory_is_read_from_the_files(log: Turnlog, path: Path, tmp_path: Path) -> None:
    """Blobs that were read before are held in memory: neither a check nor a backup may do with these."""
    assert log.verify().damages == []
    log.sessions.get("s").snapshot("full")
    log.backup(tmp_path / "copy.db")
    assert checked(tmp_path / "copy.db").damages == []
    assert log.verify().damages == []
    blob(path, "snap").unlink()
    assert [damage.item[:5] for damage in log.verify().damages] == ["snap/"]


def test_memory_can_be_backed_up_too(tmp_path: Path) -> None:
    with Turnlog.open("memory://") as log:
        said(log)
        log.backup(tmp_path / "copy.db")
    assert checked(tmp_path / "copy.db").damages == []


def test_a_service_is_neither_verified_nor_backed_up(tmp_path: Path) -> None:
    with Turnlog.open("http://127.0.0.1:9") as log:
        for call in (log.verify, lambda: log.backup(tmp_path / "copy.db")):
            with pytest.raises(InvalidInputError) as caught:
                call()
            assert caught.value.error_code == "needs_engine"


def test_the_async_client_has_both(log: Turnlog, path: Path, tmp_path: Path) -> None:
    async def both() -> tuple[Verification, Verification]:
        async with AsyncTurnlog.open(f"sqlite:///{path}") as again:
            return await again.verify(), (await again.backup(tmp_path / "copy.db")).verification

    first, second = asyncio.run(both())
    assert first == second and first.damages == []


# ------------------------------------------------------------ the command line


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


def test_the_commands_say_what_they_found(
    log: Turnlog, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, copy = ("--data", str(path.parent)), tmp_path / "copy" / "turnlog.db"
    copy.parent.mkdir()
    assert run("verify", *data) == 0
    assert "all is whole" in capsys.readouterr().out
    assert run("verify", "s", *data, "--json") == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == 1
    assert run("backup", str(copy), *data, "--json") == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(copy)
    assert run("backup", str(copy), *data) == 2
    assert "already exists" in capsys.readouterr().err
    assert run("verify", "--data", str(copy.parent)) == 0
    blob(path, "seg").unlink()
    capsys.readouterr()
    assert run("verify", *data) == 1
    shown = capsys.readouterr().out
    assert "a segment is missing" in shown and "2 damaged" in shown  # the segment, and the snapshot that has it
    assert run("verify", "nobody", *data) == 1
