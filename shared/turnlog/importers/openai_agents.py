"""SQLite files of the OpenAI Agents SDK: `SQLiteSession`, and `AdvancedSQLiteSession` with its branches.

Tables are recognised by their columns, whatever their names. Items are stored unchanged in the format `openai_responses`. A
branch other than ``main`` is a session of its own, with all items of the branch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote

from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import parse_strict_json
from turnlog.importers.models import (
    IMPORTED,
    MALFORMED,
    SourceFile,
    SourceMessage,
    SourceRemark,
    SourceSession,
    id_warnings,
    session_id_of,
    time_of,
)

SHAPE = "openai_agents"
_MESSAGES = {"id", "session_id", "message_data", "created_at"}
_SESSIONS = {"session_id", "created_at", "updated_at"}
_STRUCTURE, _USAGE, _MAIN = "message_structure", "turn_usage", "main"
_ENCRYPTED = "__enc__"


class _Row(NamedTuple):
    id: int
    data: str
    created_at: str


def recognises(file: SourceFile) -> bool:
    """Return whether a database has messages, or is too damaged to say; `read` raises why."""
    if not file.is_sqlite:
        return False
    with suppress(InvalidInputError), _opened(file) as database:
        return bool(_tables(database, _MESSAGES))
    return True


def read(file: SourceFile) -> Iterator[SourceSession]:
    """Read the sessions of a file as of one moment, even while the library writes."""
    with _opened(file) as database:
        database.execute("BEGIN")
        for table in _tables(database, _MESSAGES):
            times = _times(database, table)
            for source_id, branch, rows in _sessions(database, table):
                usage = _usage(database, source_id, branch)
                yield _session(str(source_id), str(branch), rows, times.get(source_id, {}), usage)


@contextmanager
def _opened(file: SourceFile) -> Iterator[sqlite3.Connection]:
    """Open a database to read it. Raise `InvalidInputError` when that fails, and `MalformedError` for a damaged database."""
    address, is_open = f"file:{quote(str(file.path.resolve()))}?mode=ro", False
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
            database.execute("SELECT count(*) FROM sqlite_master")
            is_open = True
            yield database
    except sqlite3.Error as error:
        message = f"can't read {file.name!r} as a database: {error}"
        raise (MalformedError(message) if is_open else InvalidInputError(message, code="no_file")) from error


def _tables(database: sqlite3.Connection, columns: set[str]) -> list[str]:
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    return [name for name in names if columns <= _columns(database, name)]


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def _owners(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of the tables that a table refers to."""
    return {name for (name,) in database.execute('SELECT "table" FROM pragma_foreign_key_list(?)', (table,))}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _times(database: sqlite3.Connection, messages: str) -> dict[str, dict[str, str]]:
    """Return the times of creation and change of each session, from the table that the messages' table refers to."""
    owners = _owners(database, messages)
    times = dict[str, dict[str, str]]()
    for table in _tables(database, _SESSIONS):
        if table in owners:
            query = f"SELECT session_id, created_at, updated_at FROM {_quoted(table)}"  # noqa: S608 - a quoted name
            for session_id, created_at, updated_at in database.execute(query):
                times[session_id] = {"created_at": str(created_at), "updated_at": str(updated_at)}
    return times


def _sessions(database: sqlite3.Connection, table: str) -> Iterator[tuple[str, str, list[_Row]]]:
    name = _quoted(table)
    order = f"SELECT session_id FROM {name} GROUP BY session_id ORDER BY min(id)"  # noqa: S608 - a quoted name
    for (session_id,) in database.execute(order).fetchall():
        plain = f"SELECT id, message_data, created_at FROM {name} WHERE session_id = ? ORDER BY id"  # noqa: S608
        branches = _branches(database, table, session_id)
        if not branches:
            yield session_id, _MAIN, [_row(*row) for row in database.execute(plain, (session_id,))]
        for branch in branches:
            shown = (
                f"SELECT m.id, m.message_data, m.created_at FROM {name} m JOIN {_STRUCTURE} s ON s.message_id = m.id "  # noqa: S608
                "WHERE s.session_id = ? AND s.branch_id = ? ORDER BY s.sequence_number, s.id"
            )
            yield session_id, branch, [_row(*row) for row in database.execute(shown, (session_id, branch))]


def _row(id: Any, data: Any, created_at: Any) -> _Row:
    """Return a row with checked types: a column of SQLite may hold a value of any type."""
    return _Row(id, data if isinstance(data, str) else "", str(created_at))


def _branches(database: sqlite3.Connection, table: str, session_id: str) -> list[str]:
    """Return the branches of a session, oldest first; none when the file has no branches."""
    if table not in _owners(database, _STRUCTURE):
        return []
    query = f"SELECT branch_id FROM {_STRUCTURE} WHERE session_id = ? GROUP BY branch_id ORDER BY min(id)"  # noqa: S608
    return [branch for (branch,) in database.execute(query, (session_id,))]


def _usage(database: sqlite3.Connection, session_id: str, branch: str) -> list[dict[str, Any]]:
    columns = sorted(_columns(database, _USAGE) - {"id", "session_id", "branch_id"})
    if not columns:
        return []
    names = ", ".join(map(_quoted, columns))
    query = f"SELECT {names} FROM {_USAGE} WHERE session_id = ? AND branch_id = ? ORDER BY id"  # noqa: S608
    return [dict(zip(columns, row, strict=True)) for row in database.execute(query, (session_id, branch))]


def _session(
    source_id: str, branch: str, rows: list[_Row], times: dict[str, str], usage: list[dict[str, Any]]
) -> SourceSession:
    name = source_id if branch == _MAIN else f"{source_id}-{branch}"
    messages, between, skipped = list[SourceMessage](), list[dict[str, Any]](), list[SourceRemark]()
    for row in rows:
        item = _item(row)
        if item is None:
            skipped.append(SourceRemark(f"row {row.id}", MALFORMED))
            between.append({"row": row.id, "text": row.data})
            continue
        own: dict[str, Any] = {"row": row.id} | ({"before": between} if between else {})
        between = []
        created_at = time_of(_rfc3339(row.created_at))
        own |= {"created_at": row.created_at} if created_at is None else {}
        meta: dict[str, Any] = {"metadata": {IMPORTED: own}}
        meta |= {"created_at": created_at} if created_at is not None else {}
        messages.append(SourceMessage(f"row {row.id}", item, meta))
    extra: dict[str, Any] = dict(times)
    for key, value in (("turn_usage", usage), ("rows", between)):
        if value:
            extra[key] = value
    if branch != _MAIN:
        extra["branch"] = branch
    return SourceSession(
        id=session_id_of(name),
        shape=SHAPE,
        source_id=name,
        format="openai_responses",
        messages=tuple(messages),
        extra=extra,
        skipped=tuple(skipped),
        warnings=id_warnings(name),
    )


def _item(row: _Row) -> dict[str, Any] | None:
    """Return the item of a row, or None when it is not a JSON object; the library skips such rows, too."""
    try:
        value = parse_strict_json(row.data, is_stored=False)
    except MalformedError:
        return None
    if isinstance(value, dict) and _ENCRYPTED in value:
        raise InvalidInputError(f"row {row.id} is encrypted: read it through the library", code="encrypted_source")
    return value if isinstance(value, dict) and isinstance(value.get("type", "message"), str) else None


def _rfc3339(text: str) -> str:
    """Return a ``CURRENT_TIMESTAMP`` of SQLite, which is in UTC, as RFC 3339; other texts as they are."""
    return f"{text.replace(' ', 'T')}Z" if len(text) == len("2026-01-02 03:04:05") else text
