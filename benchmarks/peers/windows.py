"""What a window costs in one process, by the length of the session: Turnlog beside rows of a table and LangChain's trimmer.

On SQLite the CPU of the process for the window after two more messages, the least of several, because other work adds to it; on
DynamoDB requests and read units.
`warm`: the process has built a window of the session before; `cold`: it has not.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.meter import Meter
from benchmarks.peers.system import world
from benchmarks.peers.table import Table
from benchmarks.peers.turnlog_log import make_stores, open_log
from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.sessions.session_history import WarmSessions
from turnlog.testing.fixed import FixedClock

SIZES = (12, 100, 1_000, 10_000, 100_000)
ON_DYNAMODB = (10, 1_000, 10_000)
GOALS = {
    "context(8k), warm": {1_000: 10, 10_000: 15, 100_000: 15},
    "context(8k), cold": {1_000: 10, 10_000: 15, 100_000: 15},
    "context(), warm": {1_000: 15, 10_000: 40, 100_000: 40},
}
"""The most milliseconds, by messages."""
_RUNS, _PER_COMMIT, _BUDGET = 7, 20, 8_000
Message = dict[str, Any]


def message(number: int) -> Message:
    """Return a message of about 100 tokens."""
    words = " ".join(f"word{(number * 7 + place) % 97}" for place in range(40))
    return {"role": ("user", "assistant")[number % 2], "content": f"{number} {words}"}


def step(number: int) -> Message:
    """Return a message of an agent's loop: the task, then calls and results of about 100 tokens."""
    if not number:
        return message(0)
    call = {"id": f"c{(number - 1) // 2}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    if number % 2:
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "tool", "tool_call_id": call["id"], "content": message(number)["content"]}


def tables(sizes: Sequence[int] = SIZES, on_dynamodb: Sequence[int] = ON_DYNAMODB) -> list[Table]:
    """Measure, and return both tables."""
    rows = dict[str, list[str]]()
    for size in sizes:
        for name, milliseconds in _of_size(size).items():
            goal = GOALS.get(name, {}).get(size)
            shown = f"{milliseconds:.1f}" + (f" (at most {goal})" if goal is not None else "")
            rows.setdefault(name, []).append(shown)
    heads = ("CPU of a window, ms", *(f"{size:,} messages" for size in sizes))
    return [
        Table("A window in one process, SQLite", heads, [(name, *cells) for name, cells in rows.items()]),
        Table(
            "context(8k) on DynamoDB, one message a commit",
            ("messages", "requests, cold", "read units, cold", "requests, warm", "read units, warm"),
            [_on_dynamodb(size) for size in on_dynamodb],
        ),
    ]


def _of_size(size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Turnlog.open(f"sqlite:///{folder}/turnlog.db", worker=False) as log:
        session = _filled(log, size, message)
        use_case = log.backend.app.build_context  # type: ignore[attr-defined]

        def cold(**options: Any) -> None:
            use_case.warm_sessions = WarmSessions()
            session.context(**options)

        def more() -> None:
            session.append(message(size), message(size + 1))

        loop, count = _filled(log, size | 1, step), size | 1

        def more_steps() -> None:
            nonlocal count
            loop.append(step(count), step(count + 1))
            count += 2

        measured = {
            "context(8k), warm": _least(lambda: session.context(budget=_BUDGET), more),
            "context(8k), cold": _least(lambda: cold(budget=_BUDGET), more),
            "context(), warm": _least(session.context, more),
            "context(), cold": _least(cold, more),
            "context(8k), warm, all in one open loop": _least(lambda: loop.context(budget=_BUDGET), more_steps),
        }
    return measured | {"rows of a table + trim_messages": trimmed(size, message)}


def _least(build: Callable[[], object], more: Callable[[], object]) -> float:
    build()
    times = list[float]()
    for _ in range(_RUNS):
        more()
        start = time.process_time()
        build()
        times.append((time.process_time() - start) * 1_000)
    return min(times)


def _filled(log: Turnlog, size: int, message: Callable[[int], Message]) -> Session:
    session = log.sessions.create(system="You are a careful agent.")
    for start in range(0, size, _PER_COMMIT):
        session.append(*(message(number) for number in range(start, min(size, start + _PER_COMMIT))))
    return session


def trimmed(size: int, message: Callable[[int], Message]) -> float:
    """Return the CPU of the usual way, in milliseconds: read all rows, and keep the newest messages that fit."""
    from langchain_core.messages import convert_to_messages, trim_messages

    with tempfile.TemporaryDirectory() as folder, sqlite3.connect(Path(folder) / "rows.db") as database:
        database.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT, body TEXT)")

        def add(first: int, last: int) -> None:
            rows = [("s", json.dumps(message(number))) for number in range(first, last)]
            database.executemany("INSERT INTO messages (session, body) VALUES (?, ?)", rows)
            database.commit()

        def build() -> None:
            rows = database.execute("SELECT body FROM messages WHERE session = 's' ORDER BY id").fetchall()
            messages = convert_to_messages([json.loads(body) for (body,) in rows])
            trim_messages(messages, max_tokens=_BUDGET, token_counter="approximate", strategy="last", start_on="human")

        add(0, size)
        return _least(build, lambda: add(size, size + 2))


def _on_dynamodb(size: int) -> tuple[str, ...]:
    with world() as shadow:
        make_stores()
        meter = Meter(shadow, guarded=True)
        with meter.clients():
            session = open_log(FixedClock()).sessions.create("s", system="You are a careful agent.")
            for number in range(size):
                session.append(message(number))
            cells = list[str]()
            for _ in range(2):
                with meter.measure() as spent:
                    session.context(budget=_BUDGET)
                cells += [str(spent.dynamodb), f"{spent.read_units:g}"]
                session.append(message(size), message(size + 1))
    return (f"{size:,}", *cells)
