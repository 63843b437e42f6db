"""Blobs in a folder: what stays of puts that ended early, when it goes, and what an erasure keeps and counts."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from turnlog.client.model import Turnlog
from turnlog.core.errors import CorruptError, InvalidInputError
from turnlog.engines.files import FileBlobStore, MemoryBlobStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def unfinished(folder: Path, name: str, *, age_seconds: float = 0) -> Path:
    """Leave the file of a put that ended early."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(f".{path.name}.0123456789abcdef")
    path.write_bytes(b"half")
    moment = time.time() - age_seconds
    os.utime(path, (moment, moment))
    return path


@pytest.mark.parametrize(("age_seconds", "is_there"), [(0, True), (590, True), (601, False)])
def test_a_purge_deletes_the_file_of_a_put_that_ended_ten_minutes_ago(
    folder: Path, age_seconds: float, is_there: bool
) -> None:
    blobs = FileBlobStore(folder)
    blobs.put("acme/ada/a", b"whole")
    os.utime(folder / "acme" / "ada" / "a", (0, 0))
    path = unfinished(folder, "acme/ada/a", age_seconds=age_seconds)
    blobs.purge()
    assert path.exists() is is_there
    assert blobs.get("acme/ada/a") == b"whole", "a finished blob has no age"


def test_a_blob_of_a_put_that_ended_early_is_not_listed_and_not_read(folder: Path) -> None:
    unfinished(folder, "acme/ada/a")
    blobs = FileBlobStore(folder)
    assert blobs.names("") == []
    assert blobs.get("acme/ada/a") is None


def test_an_erasure_takes_unfinished_files_by_the_names_that_they_were_to_get(folder: Path) -> None:
    blobs = FileBlobStore(folder)
    blobs.put("acme/ada/seg/a.1", b"x")
    taken = [unfinished(folder, "acme/ada/seg/a.2"), unfinished(folder, "acme/ada/seg/a.1")]
    kept = [unfinished(folder, "acme/ada/seg/b"), unfinished(folder, "acme/bob/seg/a.2")]
    assert blobs.erase("acme/ada/seg/a") == 3
    assert [path.exists() for path in (*taken, *kept)] == [False, False, True, True]


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_an_erasure_counts_what_it_deletes_and_keeps_the_named_blobs(folder: Path, kind: str) -> None:
    blobs = FileBlobStore(folder) if kind == "folder" else MemoryBlobStore()
    for name in ("acme/ada/a", "acme/ada/b", "acme/ada/c", "acme/adam/a"):
        blobs.put(name, b"x")
    assert blobs.erase("acme/ada/", keep=["acme/ada/b"]) == 2
    assert blobs.names("") == ["acme/ada/b", "acme/adam/a"]
    assert blobs.erase("acme/ada/") == 1
    assert blobs.erase("acme/ada/") == 0
    assert blobs.names("") == ["acme/adam/a"]


def test_folders_that_an_erasure_empties_go_and_others_stay(folder: Path) -> None:
    blobs = FileBlobStore(folder)
    for name in ("acme/ada/seg/a", "acme/ada/snap/a", "acme/bob/a"):
        blobs.put(name, b"x")
    blobs.erase("acme/ada/seg/")
    assert not (folder / "acme/ada/seg").exists()
    assert (folder / "acme/ada/snap").exists()
    blobs.erase("acme/ada/")
    assert not (folder / "acme/ada/snap").exists()
    assert (folder / "acme/bob").exists()


@pytest.mark.parametrize("prefix", ["s/", "s/x", "s", ""])
def test_folders_in_folders_go_with_the_last_of_their_blobs(folder: Path, prefix: str) -> None:
    blobs = FileBlobStore(folder)
    for name in ("s/x/a", "s/x/y/b", "s/x/y/z/c"):
        blobs.put(name, b"x")
    assert blobs.erase(prefix) == 3
    assert not (folder / "s" / "x").exists()


def test_a_blob_in_a_folder_has_no_address(folder: Path) -> None:
    assert FileBlobStore(folder).url("a", seconds=60, filename="a") is None
    assert MemoryBlobStore().url("a", seconds=60, filename="a") is None


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "ä", "a:b", "a\\b", "a.b", "a=b", "~a", "a" * 60])
def test_any_other_name_is_listed_as_it_was_written(folder: Path, name: str) -> None:
    blobs = FileBlobStore(folder)
    blobs.put(f"acme/{name}", b"x")
    assert blobs.names("acme/") == [f"acme/{name}"]
    assert [path.name for path in folder.iterdir()] == ["acme"], "the name made no folder of its own"


def test_a_refused_name_is_shown_by_its_beginning(folder: Path) -> None:
    with pytest.raises(InvalidInputError) as raised:
        FileBlobStore(folder).get("../" + "x" * 100)
    assert "'../" + "x" * 77 + "'" in str(raised.value)


def test_a_database_that_was_moved_without_its_folder_says_which_folder_is_missing(tmp_path: Path) -> None:
    with Turnlog.open(tmp_path / "agent.db") as log:
        session = log.sessions.create("desk")
        session.append({"role": "user", "content": random.Random(7).randbytes(100_000).hex()})
        session.fork("twin")
    (tmp_path / "agent.db").rename(tmp_path / "moved.db")
    with Turnlog.open(tmp_path / "moved.db") as log:
        for read in (lambda: log.sessions.of("desk").page(), lambda: log.sessions.of("twin").context(budget=2_000)):
            with pytest.raises(CorruptError, match=r"the folder moved\.db\.blobs, which does not exist"):
                read()
        assert "moved.db.blobs" in log.verify().damages[0].detail
        (tmp_path / "agent.db.blobs").rename(tmp_path / "moved.db.blobs")
        assert len(log.sessions.of("desk").page().messages) == 1
