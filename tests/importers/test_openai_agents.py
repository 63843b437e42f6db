"""SQLite files of the OpenAI Agents SDK, written by the SDK itself."""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.importers.reading import imported_twice, lost, statuses, told, written
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.importers import import_files
from turnlog.linter.rules import FORMATS as LINTED


@pytest.fixture
def log() -> Iterator[Turnlog]:
    """What depends on no engine; what does asks for the harness."""
    with Turnlog.open("memory://") as made:
        yield made


@pytest.fixture(scope="module")
def sdk() -> Any:
    return importlib.import_module("tests.importers.sdk")


def bodies(log: Turnlog, session_id: str) -> list[Any]:
    return [message.body for message in log.sessions.get(session_id).messages()]


def test_sessions_of_the_sdk_are_kept_item_by_item(harness: Any, sdk: Any, tmp_path: Path) -> None:
    log = harness.log()
    path = tmp_path / "agents.db"
    with (
        closing(sdk.SQLiteSession("desk-1", path)) as first,
        closing(sdk.SQLiteSession("desk-2", path)) as second,
    ):
        sdk.talked(first, "What is SKU-1?", "And SKU-2?")
        sdk.talked(second, "Hello")
        wanted = {"desk-1": sdk.items(first), "desk-2": sdk.items(second)}
    report = imported_twice(log, path)
    assert [(session.session_id, session.shape, session.messages) for session in report.sessions] == [
        ("desk-1", "openai_agents", 12),
        ("desk-2", "openai_agents", 6),
    ]
    for name, item in wanted.items():
        session = log.sessions.get(name)
        assert bodies(log, name) == item
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT message_data, created_at FROM agent_messages WHERE session_id = ?", (name,))
            times = [created_at.replace(" ", "T") + "Z" for _, created_at in rows]
            sessions = database.execute(
                "SELECT created_at, updated_at FROM agent_sessions WHERE session_id = ?", (name,)
            )
            assert lost(list(sessions.fetchone()), [session]) == []
        assert [message.created_at for message in session.messages()] == times
        for format in LINTED:
            window = session.context(format=format)
            assert log.lint(window.messages, format=format).problems == []
    loops = list(log.sessions.get("desk-1").loops())
    assert [(len(loop.tool_calls), loop.reply) for loop in loops] == [(2, "It is 4."), (2, "It is 2.")]


def test_a_session_that_goes_on_in_the_sdk_gives_what_is_new(log: Turnlog, sdk: Any, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with closing(
        sdk.SQLiteSession("desk", path, sessions_table="my_sessions", messages_table="my_messages")
    ) as session:
        sdk.talked(session, "What is SKU-1?")
        import_files(log, [path]).check()
        sdk.talked(session, "And SKU-2?")
        # While the library has the file open.
        dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
        assert told(dry) == told(report)
        assert [(session.status, session.present, session.written) for session in report.sessions] == [("grown", 6, 6)]
        assert bodies(log, "desk") == sdk.items(session)
        asyncio.run(session.pop_item())
        (row,) = import_files(log, [path]).sessions
        assert (row.present, row.written, row.more) == (11, 0, 1)
        sdk.talked(session, "Something else")
        assert statuses(import_files(log, [path])) == ["refused"]


def test_branches_are_sessions_of_what_they_show(log: Turnlog, sdk: Any, tmp_path: Path) -> None:
    path = tmp_path / "advanced.db"
    with closing(sdk.AdvancedSQLiteSession(session_id="desk", db_path=path, create_tables=True)) as session:
        sdk.talked(session, "What is SKU-1?", "And SKU-2?")
        main = sdk.items(session)
        branch = asyncio.run(session.create_branch_from_turn(2))
        sdk.talked(session, "And SKU-3?")
        other = sdk.items(session)
        asyncio.run(session.switch_to_branch("main"))
        assert sdk.items(session) == main != other
    report = imported_twice(log, path)
    assert [session.source_id for session in report.sessions] == ["desk", f"desk-{branch}"]
    assert [bodies(log, session.session_id) for session in report.sessions] == [main, other]
    assert lost([branch], [log.sessions.get(session.session_id) for session in report.sessions]) == []


def test_a_row_that_is_no_item_is_told_and_kept(log: Turnlog, sdk: Any, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with closing(sdk.SQLiteSession("desk", path)) as session:
        sdk.talked(session, "What is SKU-1?")
        with closing(sqlite3.connect(path)) as database, database:
            for text in ("no json", "[1]"):
                row = (session.session_id, text)
                database.execute("INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)", row)
        sdk.talked(session, "And SKU-2?")
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('desk', 'the last')")
        wanted = [item for item in sdk.items(session) if isinstance(item, dict)]
    report = imported_twice(log, path)
    assert [item.reason for item in report.sessions[0].skipped] == ["malformed"] * 3
    assert bodies(log, "desk") == wanted
    assert lost(["no json", "[1]", "the last"], [log.sessions.get("desk")]) == []


def test_a_row_that_the_log_cannot_hold_is_an_item_with_a_text(log: Turnlog, sdk: Any, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    image = {"type": "input_image", "image_url": "https://example.com/a.png", "size": 2**64}
    with closing(sdk.SQLiteSession("desk", path)) as session:
        asyncio.run(session.add_items([{"role": "user", "content": [image]}]))
    (row,) = imported_twice(log, path).sessions
    assert (row.skipped, [note.reason for note in row.changed]) == ([], ["as_text /content/0/size"])
    assert bodies(log, "desk") == [{"role": "user", "content": [{**image, "size": str(2**64)}]}]


def test_an_encrypted_session_is_refused(log: Turnlog, sdk: Any, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with closing(sdk.SQLiteSession("desk", path)) as inner:
        session = sdk.EncryptedSession("desk", inner, encryption_key="a key of ours")
        asyncio.run(session.add_items([{"role": "user", "content": "a secret"}]))
    with pytest.raises(InvalidInputError, match="row 1 is encrypted") as raised:
        import_files(log, [path])
    assert raised.value.error_code == "encrypted_source" and list(log.sessions.list()) == []
    written(tmp_path, "next.json", [{"kind": "user", "content": "hi"}])
    rows = [(row.shape, row.status, row.error) for row in import_files(log, tmp_path, dry_run=True).sessions]
    assert rows[0][:2] == ("openai_agents", "refused") and "row 1 is encrypted" in str(rows[0][2])
    assert rows[-1] == ("flat", "new", None)


def test_a_database_of_something_else_has_no_shape(log: Turnlog, tmp_path: Path) -> None:
    for name, schema in (("other.db", "CREATE TABLE agent_messages (id INTEGER, body TEXT)"), ("empty.db", "SELECT 1")):
        with closing(sqlite3.connect(tmp_path / name)) as database, database:
            database.execute(schema)
    (tmp_path / "torn.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 100)
    for name in ("other.db", "empty.db", "torn.db"):
        with pytest.raises(InvalidInputError, match=name):
            import_files(log, [tmp_path / name])


def test_a_file_that_is_refused_is_closed(log: Turnlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 warns of each connection that is collected open."""
    opened, closed = list[str](), list[str]()

    class Watched(sqlite3.Connection):
        def __init__(self, name: str, **options: Any) -> None:
            super().__init__(name, **options)
            opened.append(name)

        def close(self) -> None:
            closed.append(opened[-1])
            super().close()

    (tmp_path / "torn.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 100)
    monkeypatch.setattr(sqlite3, "connect", Watched)
    with pytest.raises(InvalidInputError, match=r"torn\.db"):
        import_files(log, [tmp_path / "torn.db"])
    assert opened and opened == closed


def test_a_damaged_database_is_refused_by_name(log: Turnlog, tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
        rows = [("s", "x" * 500, "2026-01-02 03:04:05")] * 200
        database.executemany("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows)
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xff" * (len(data) - 8192))
    with pytest.raises(MalformedError, match=r"can't read '.*damaged\.db' as a database"):
        import_files(log, [path])
    assert list(log.sessions.list()) == []


@pytest.mark.parametrize("size", [120, 9_000])
def test_half_a_database_of_a_folder_is_refused_and_the_others_are_imported(
    log: Turnlog, tmp_path: Path, size: int
) -> None:
    """Cut in its first page, which has the tables, and behind it."""
    path = tmp_path / "cut.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
        rows = [("s", "x" * 500, "2026-01-02 03:04:05")] * 200
        database.executemany("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows)
    path.write_bytes(path.read_bytes()[:size])
    written(tmp_path, "next.json", [{"kind": "user", "content": "hi"}])
    report = import_files(log, tmp_path)
    assert statuses(report) == ["refused", "new"] and report.sessions[0].shape == "openai_agents"
    with pytest.raises(InvalidInputError, match=r"can't read '.*cut\.db' as a database"):
        report.check()
