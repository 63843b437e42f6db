"""Rows of a SQLite file: how an item is stored, which damage is told, and in which turn jobs are delivered."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnlog.core.errors import CorruptError, UnavailableError
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable, SqliteJobQueue
from turnlog.ports import Key, Query
from turnlog.testing.contracts.job_queue import dead_letters
from turnlog.testing.fixed import FixedClock, SequentialIds

KEY = Key("p", "C#1")


@pytest.fixture
def database() -> SqliteDatabase:
    return SqliteDatabase(MEMORY)


def test_a_row_has_its_keys_once_its_texts_and_numbers_as_json_and_its_bytes_beside_it(
    database: SqliteDatabase,
) -> None:
    """Files of years ago are read by this form."""
    index = {"g1pk": "owner", "g1sk": "1", "g2pk": "due", "g2sk": "2"}
    item = {"pk": "p", "sk": "C#1", "a": b"12", "n": 7, "e": b"", "b": b"345", "t": "ä", **index}
    SqliteItemTable(database).put(item)
    statement = "SELECT fields, data, g1pk, g1sk, g2pk, g2sk FROM items"
    fields, data, *keys = database.connection().execute(statement).fetchone()
    assert fields == b'{"a":[0,2],"n":7,"e":[2,0],"b":[2,3],"t":"\\u00e4"}'
    assert keys == list(index.values())
    assert data == b"12345"
    assert SqliteItemTable(database).get_many([KEY]) == {KEY: item}


@pytest.mark.parametrize("b", [[0, 5], [5, 0], [4, 1], [0, 0]], ids=str)
def test_bytes_up_to_the_end_of_the_data_are_read(database: SqliteDatabase, b: list[int]) -> None:
    table = changed(database, {"b": b})
    item = {"pk": "p", "sk": "C#1", "n": 1, "b": b"12345"[b[0] : sum(b)]}
    assert table.get_many([KEY])[KEY] == item
    assert table.query(Query("p", "C#", "C~")).items == (item,)


@pytest.mark.parametrize(
    "changes",
    [
        {"b": [0, 6]},
        {"b": [5, 1]},
        {"b": [6, 0]},
        {"b": [-1, 2]},
        {"b": [3, -1]},
        {"b": [0]},
        {"b": [0, 1, 2]},
        {"b": ["0", "1"]},
        {"n": 1.5},
        {"n": True},
        {"n": None},
        {"n": {}},
        {"pk": "q"},
        {"sk": "C#2"},
    ],
    ids=str,
)
def test_d4_a_damaged_row_is_told_with_the_name_of_its_item(database: SqliteDatabase, changes: dict[str, Any]) -> None:
    table = changed(database, changes)
    for read in (lambda: table.get_many([KEY]), lambda: table.query(Query("p", "C#", "C~"))):
        with pytest.raises(CorruptError) as raised:
            read()
        assert raised.value.details["item"] == "C#1"


def changed(database: SqliteDatabase, changes: dict[str, Any]) -> SqliteItemTable:
    """Return a table with an item whose row was changed."""
    table = SqliteItemTable(database)
    table.put({"pk": "p", "sk": "C#1", "n": 1})
    fields = json.dumps({"n": 1, **changes}).encode()
    statement = "UPDATE items SET fields = ?, data = ?"
    database.write(lambda connection: connection.execute(statement, (fields, b"12345")))
    return table


@pytest.mark.parametrize(
    ("ttl", "column"), [(0, 0), (1, 1), (2**63 - 1, 2**63 - 1), (2**63, None), (-1, None), ("1", None), (b"1", None)]
)
def test_a_time_that_no_column_can_hold_removes_no_item(database: SqliteDatabase, ttl: Any, column: int | None) -> None:
    table, item = SqliteItemTable(database), {"pk": "p", "sk": "C#1", "ttl": ttl}
    table.put(item)
    assert database.connection().execute("SELECT ttl FROM items").fetchall() == [(column,)]
    assert table.get_many([KEY]) == {KEY: item}


def test_d4_damage_of_the_file_is_listed_and_other_errors_are_raised(tmp_path: Path) -> None:
    path = tmp_path / "turnlog.db"
    database = SqliteDatabase(path)
    table = SqliteItemTable(database)
    table.write_many([{"pk": "p", "sk": f"C#{number:04}", "b": bytes(3_000)} for number in range(50)])
    assert table.damages() == []
    database.close()
    with pytest.raises(UnavailableError, match="closed"):
        table.damages()
    whole = path.read_bytes()
    for name, damaged in {
        "a page in the middle": whole[: len(whole) // 2] + b"\xff" * 4096 + whole[len(whole) // 2 + 4096 :],
        "the schema": whole[:100] + b"\xff" * 1000 + whole[1100:],
    }.items():
        path.write_bytes(damaged)
        damages = SqliteItemTable(SqliteDatabase(path)).damages()
        assert damages and all(text.startswith("SQLite: ") for text in damages), name


def test_items_over_one_kilobyte_share_pages(tmp_path: Path) -> None:
    with closing(SqliteDatabase(tmp_path / "turnlog.db")) as database:
        SqliteItemTable(database).write_many(
            [{"pk": "p", "sk": f"{number:04}", "b": bytes(1_100)} for number in range(300)]
        )
        database.purge()
    assert (tmp_path / "turnlog.db").stat().st_size < 300 * 1_100 * 1.5


# ------------------------------------------------------------ jobs


class FallingIds(SequentialIds):
    """Ids of which each sorts before the earlier ones: ids are random and say nothing of the order."""

    def new_id(self) -> str:
        return f"{10**6 - int(super().new_id()[1:])}"


class Queue:
    """A queue with a clock; a job is hidden for 60 s and dies of its third delivery."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.clock, ids = FixedClock(), FallingIds()
        self.jobs = SqliteJobQueue(database, ids, self.clock.now_ms, visibility_seconds=60, max_receives=2)

    def bodies(self, limit: int = 10) -> list[str]:
        return [delivery.body for delivery in self.jobs.receive(limit=limit)]


@pytest.mark.parametrize(("limit", "count"), [(-1, 1), (0, 1), (1, 1), (9, 9), (10, 10), (11, 10)])
def test_a_delivery_has_one_to_ten_jobs(database: SqliteDatabase, limit: int, count: int) -> None:
    queue = Queue(database)
    for number in range(12):
        queue.jobs.send(str(number), group="acme")
        queue.clock.advance(1)
    assert queue.bodies(limit) == [str(number) for number in range(count)]


@pytest.mark.parametrize("limit", [1, 2, 4, 10])
def test_groups_take_turns_and_each_is_in_order(database: SqliteDatabase, limit: int) -> None:
    """From one `receive` to the next, too: workers receive one job at a time."""
    queue = Queue(database)
    for body in ("b1", "b2", "b3", "a1", "c1", "a2", "b4"):
        queue.jobs.send(body, group=body[0])
        queue.clock.advance(1)
    bodies = list[str]()
    while received := queue.bodies(limit):
        bodies += received
    assert bodies == ["a1", "b1", "c1", "a2", "b2", "b3", "b4"]


@pytest.mark.parametrize(("seconds", "bodies"), [(59.999, []), (60, ["a"])])
def test_a_job_is_hidden_for_exactly_its_time(database: SqliteDatabase, seconds: float, bodies: list[str]) -> None:
    queue = Queue(database)
    queue.jobs.send("a", group="acme")
    assert [(delivery.body, delivery.receives) for delivery in queue.jobs.receive()] == [("a", 1)]
    queue.clock.advance(seconds)
    assert queue.bodies() == bodies
    queue.jobs.send("b", group="acme", delay_seconds=60)
    queue.clock.advance(seconds)
    assert ("b" in queue.bodies()) is bool(bodies)


def test_a_dead_job_is_listed_delivered_no_more_and_comes_new_after_a_redrive(database: SqliteDatabase) -> None:
    queue = Queue(database)
    queue.jobs.send("a", group="acme")
    for receives in (1, 2):
        assert [delivery.receives for delivery in queue.jobs.receive()] == [receives]
        assert dead_letters(queue.jobs) == [], "the last delivery may still succeed"
        queue.clock.advance(60)
    assert dead_letters(queue.jobs) == ["a"]
    assert queue.bodies() == []
    assert queue.jobs.redrive(lambda body: "acme") == 1
    assert dead_letters(queue.jobs) == []
    assert [(delivery.body, delivery.receives) for delivery in queue.jobs.receive()] == [("a", 1)]
