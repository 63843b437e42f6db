"""D4, at random: a stored bit that flips, or a row that goes, changes no answer in silence.

A reader answers as before, or raises an error of Turnlog's own. A plain read can't miss a record that nothing counts (a snapshot, a
job, a document, a session in the list) when the key it is found by is damaged; `turnlog verify` is for those.
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Harness, moto_harness, sqlite_harness
from tests.effort import is_full
from tests.support.damaged_items import FEW, KEYS, OTHER_FORMS, READERS, Built, build, items_by_kind, kind_of
from turnlog import Turnlog
from turnlog.core import positions as borders
from turnlog.core.errors import CorruptError, TurnlogError
from turnlog.log.commit import VERIFIED
from turnlog.ports import Key, Page, Query
from turnlog.sessions.session_history import FIRST_ITEMS

UNCOUNTED = frozenset({"snapshots", "snapshot", "documents", "document", "jobs", "list", "search of all"})
"""Readers of records that nothing counts."""


@pytest.fixture(scope="module", params=["sqlite", "moto"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(borders, "SEGMENT_POSITIONS", FEW)
        folder = tmp_path_factory.mktemp("damage")
        with sqlite_harness(folder) if request.param == "sqlite" else moto_harness(patch) as harness:
            yield told(harness)


def told(harness: Harness) -> Built:
    """A session with every kind of item, whose newest commit is one that ``D#META`` tells of."""
    made = build(harness)
    harness.log().sessions.of("s").update(title="The last word")
    made.note()
    return made


def flipped(value: str | int | bytes, chance: random.Random) -> str | int | bytes:
    """The value with one bit that is another."""
    if isinstance(value, int):
        return value ^ (1 << chance.randrange(max(1, value.bit_length())))
    if isinstance(value, bytes):
        return bytes(_flip(bytearray(value), chance)) if value else b"\0"
    place = chance.randrange(len(value)) if value else 0
    return value[:place] + chr(ord(value[place]) ^ (1 << chance.randrange(7))) + value[place + 1 :] if value else "\1"


def _flip(data: bytearray, chance: random.Random) -> bytearray:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def flips(item: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The item after one bit flip, or one attribute that is missing or of another type."""
    name = chance.choice(sorted(set(item) - set(KEYS)))
    how = chance.random()
    if how < 0.1 and name not in OTHER_FORMS.get(str(item["sk"])[:2], ()) and name != "cs":
        return {key: value for key, value in item.items() if key != name}
    if how < 0.2:
        return {**item, name: 7 if isinstance(item[name], str) else "x"}
    return {**item, name: flipped(item[name], chance)}


def test_d4_a_flipped_attribute_is_told_by_its_item_or_changes_nothing(built: Built) -> None:
    chance, wrong = random.Random(23), list[str]()
    count = {"sqlite": (80, 4_000), "moto": (3, 400)}[built.harness.name][is_full()]
    kinds = items_by_kind(built)
    for _ in range(count):
        item = chance.choice(kinds[chance.choice(sorted(kinds))])
        damaged = flips(item, chance)
        built.harness.app.engine.items.write_many([damaged])
        names = (str(item["sk"]), "seg/") if kind_of(item) == "entry of a segment" else (str(item["sk"]),)
        wrong += [f"{item['sk']} {changes(item, damaged)}: {answer}" for answer in built.wrong_about(damaged, *names)]
        built.restore()
    assert wrong == []


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    return "; ".join(
        f"{name}: {value!r} -> {after.get(name)!r}" for name, value in before.items() if after.get(name) != value
    )


def commits_of(built: Built, session: str = "s") -> list[dict[str, Any]]:
    items = [item for item in items_by_kind(built)["commit"] if str(item["pk"]).endswith(f"#S#{session}")]
    return sorted(items, key=lambda item: str(item["sk"]))


def test_d4_a_commit_that_is_gone_is_told_wherever_it_stood(built: Built) -> None:
    """The first, the last, which the session's card tells of, and each between."""
    wrong, table = list[str](), built.harness.app.engine.items
    commits = commits_of(built)
    chosen = commits if built.harness.name == "sqlite" else [commits[0], commits[3], commits[-1]]
    for item in chosen:
        table.delete_many([Key(item["pk"], item["sk"])])
        missed = list[str]()
        for reader, read in READERS.items():
            VERIFIED.clear()
            try:
                if read(built.harness.log()) != built.said[reader] and reader not in UNCOUNTED:
                    wrong.append(f"without {item['sk']} {reader} says something else")
            except CorruptError as error:
                missed.append(reader)
                if not error.item.startswith("C#"):
                    wrong.append(f"without {item['sk']} {reader}: {error}")
            except Exception as error:
                wrong.append(f"without {item['sk']} {reader} raised {type(error).__name__}: {error}")
        if not {"messages", "in view", "whole window", "history"} & set(missed):
            wrong.append(f"nobody misses {item['sk']}")
        built.restore()
    assert wrong == []


def test_d4_an_export_misses_a_commit(built: Built, tmp_path: Path) -> None:
    commits = commits_of(built)
    for item in (commits[0], commits[5], commits[-1]):
        built.harness.app.engine.items.delete_many([Key(item["pk"], item["sk"])])
        VERIFIED.clear()
        with pytest.raises(CorruptError, match="C#"):
            built.harness.log().sessions.get("s").export(tmp_path / "s.zip")
        built.restore()


def test_d4_a_hole_between_two_pages_is_told(built: Built) -> None:
    """Pages hold 64 commits: whichever is gone, one of the two directions crosses it between pages."""
    log = built.harness.log()
    session = log.sessions.create("pages")
    for number in range(0 if built.harness.name == "moto" else 140):
        session.append({"role": ("user", "assistant")[number % 2], "content": str(number)})
    whole = [message.position for message in session.messages()]
    for position in whole[1:-1:3]:
        key = Key("T#acme#U#ada#S#pages", f"C#{position:012d}")
        item = built.harness.app.engine.items.get_many([key])[key]
        built.harness.app.engine.items.delete_many([key])
        for order in ("asc", "desc"):
            with pytest.raises(CorruptError, match="C#"):
                _ = [message.position for message in session.messages(order=order)]
        built.harness.app.engine.items.put(item)
    built.restore()


def test_d4_a_log_in_which_a_window_finds_no_commit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged tree of SQLite may hide rows from one range and show them in another."""
    with sqlite_harness(tmp_path) as harness:
        session = harness.log().sessions.create("s")
        session.append({"role": "user", "content": "q"})
        items, query = harness.app.engine.items, harness.app.engine.items.query

        def hiding(asked: Query) -> Page:
            return Page((), None) if asked.descending and asked.limit == FIRST_ITEMS else query(asked)

        monkeypatch.setattr(items, "query", hiding)
        for at in (None, 1):
            with pytest.raises(CorruptError, match="no commit holds position"):
                session.context(at=at)


# ------------------------------------------------------------ the file


def test_d4_a_flipped_bit_of_a_row_is_told_or_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each column; the key of a commit too, but for the newest of a session without a card that tells of it."""
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", FEW)
    with sqlite_harness(tmp_path) as harness:
        made = told(harness)
        chance, wrong = random.Random(5), list[str]()
        connection = sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)
        connection.execute("PRAGMA synchronous=OFF")
        for _ in range(3_000 if is_full() else 30):
            rows = connection.execute("SELECT * FROM items").fetchall()
            pk, sk, *_ = row = chance.choice(rows)
            columns = ["fields", "data", "size"] + (["pk", "sk"] if sk.startswith("C#") and pk.endswith("#s") else [])
            column = chance.choice(columns)
            before = dict(zip(("pk", "sk", "size", "fields", "data"), row, strict=False))
            after = flipped(before[column], chance)
            connection.execute(f"UPDATE OR IGNORE items SET {column} = ? WHERE pk = ? AND sk = ?", (after, pk, sk))  # noqa: S608
            wrong += [f"{sk} {column}: {answer}" for answer in answers(harness.log(), made.said)]
            connection.execute("BEGIN")
            connection.execute("DELETE FROM items")
            connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")
            made.restore()
        connection.close()
    assert wrong == []


def answers(log: Turnlog, said: dict[str, Any], uncounted: frozenset[str] = frozenset()) -> Iterator[str]:
    """What readers say that is neither what they said before nor a typed error."""
    for reader, read in READERS.items():
        VERIFIED.clear()
        try:
            if read(log) != said[reader] and reader not in uncounted:
                yield f"{reader} says something else"
        except TurnlogError:
            continue
        except Exception as error:
            yield f"{reader} raised {type(error).__name__}: {error}"


FILE_FLIPS = """
import json, random, sys
from pathlib import Path
from turnlog import Turnlog
from turnlog.core.errors import TurnlogError
from turnlog.log.commit import VERIFIED

folder, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
READERS = {
    "info": lambda log: log.sessions.get("s").info().model_dump_json(exclude={"status"}),
    "messages": lambda log: [one.model_dump_json() for one in log.sessions.get("s").messages()],
    "newest first": lambda log: [one.model_dump_json() for one in log.sessions.get("s").messages(order="desc")],
    "state": lambda log: log.sessions.get("s").state().model_dump_json(),
    "window": lambda log: log.sessions.get("s").context(budget=100_000, policy="full").messages,
    "history": lambda log: [one.model_dump_json() for one in log.sessions.get("s").history()],
}

def path_of(name):
    return f"sqlite:///{folder / name}"

with Turnlog.open(path_of("whole.db")) as log:
    session = log.sessions.create("s", title="T", state={"a": 1}, system="sys")
    for number in range(40):
        session.append({"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"})
    session.patch_state({"b": 2})
    session.create_snapshot("n")
    session.update(title="The last word")
    said = {name: read(log) for name, read in READERS.items()}
whole, chance, wrong = (folder / "whole.db").read_bytes(), random.Random(seed), []
told = 0
for _ in range(count):
    data, place = bytearray(whole), chance.randrange(100, len(whole))
    data[place] ^= 1 << chance.randrange(8)
    for suffix in ("", "-wal", "-shm"):
        (folder / f"flipped.db{suffix}").unlink(missing_ok=True)
    (folder / "flipped.db").write_bytes(bytes(data))
    for name, read in READERS.items():
        VERIFIED.clear()
        try:
            with Turnlog.open(path_of("flipped.db")) as log:
                if read(log) != said[name]:
                    wrong.append(f"byte {place}: {name} says something else")
        except TurnlogError:
            told += 1
        except Exception as error:
            wrong.append(f"byte {place}: {name} raised {type(error).__name__}: {error}")
print(json.dumps({"told": told, "wrong": wrong}))
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_d4_a_flipped_bit_of_the_file_is_told_or_changes_nothing(tmp_path: Path, seed: int) -> None:
    """In a process of its own: what SQLite makes of a damaged file is not ours."""
    count = 1_000 if is_full() else 50
    command = [sys.executable, "-c", FILE_FLIPS, str(tmp_path), str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["told"] > 0


OPTIMISED = """
from turnlog.core.errors import CorruptError
from turnlog.core.loops import Flow
from turnlog.log.headers import Header, header_attributes, read_header
from turnlog.log.keys import commit_sort_key

header = Header(first=1, last=1, kind="c", time_ms=1, nonce=b"12345678", flow=Flow())
item = {"pk": "p", "sk": commit_sort_key(1), "h": b"x" * 16, "b": b"", **header_attributes(header)}
for name, value in {"l": "7", "t": "yesterday", "n": "text", "ct": 4, "ol": b"1", "k": 1, "v": "1"}.items():
    try:
        print("accepted", name, read_header({**item, name: value}))
    except CorruptError:
        pass
"""


def test_damage_is_told_without_assertions() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-c", OPTIMISED], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("column", ["id", "grp", "body", "visible_ms", "receives", "sent", "dead"])
def test_a_flipped_bit_of_a_job_s_row_stops_no_other_job(tmp_path: Path, column: str) -> None:
    """The damaged one is done, waits or is poison."""
    with sqlite_harness(tmp_path) as harness:
        log, chance = harness.log(), random.Random(column)
        sessions = [log.sessions.create(f"s{number}") for number in range(2)]
        connection = sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)
        connection.text_factory = bytes
        for _ in range(400 if is_full() else 25):
            whole = log.sessions.of("s0").compress(mode="async").job_id
            damaged, value = connection.execute(f"SELECT rowid, {column} FROM jobs").fetchone()  # noqa: S608
            other = sessions[1].compress(mode="async").job_id
            after = flipped(value, chance)
            cast = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
            connection.execute(f"UPDATE jobs SET {column} = {cast} WHERE rowid = ?", (after, damaged))  # noqa: S608
            log.run_jobs()
            assert log.job(other).status == "done", (column, value, after)
            assert log.job(whole).status in ("queued", "done", "failed")
            connection.execute("DELETE FROM jobs")
        connection.close()
