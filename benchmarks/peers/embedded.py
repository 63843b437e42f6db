"""Turnlog in process beside what people keep sessions in without it: CPU and bytes by the length of the session, on SQLite.

Peers: `SQLiteSession` of the OpenAI Agents SDK, a table of FTS5, and rows of a table cut by LangChain's ``trim_messages``. All
times are CPU of the process, which other work on the machine changes least. One writer, one fsync for each append, files on disk.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.table import Table
from benchmarks.peers.windows import trimmed
from benchmarks.scenarios import chat_message
from benchmarks.search import QUESTION, fts5_rows
from turnlog import Turnlog
from turnlog.core.identity import Owner
from turnlog.search.corpus import INDEX_BYTES
from turnlog.sessions.session_history import WarmSessions

SIZES = (10, 1_000, 10_000, 100_000)
TURNLOG, AGENTS, FTS5, ROWS = "Turnlog", "SQLiteSession", "FTS5", "rows, trim_messages"
_RUNS, _WARM_RUNS, _APPENDS, _STARTS, _BUDGET, _BATCH = 5, 30, 40, 5, 8_000, 25
_TEXT = "hello world, " * 23


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the table: what a system takes at each size, in ``unit``. ``goal`` is Turnlog's."""

    what: str
    unit: str
    system: str
    values: dict[int, float]
    goal: str = ""

    @property
    def exponent(self) -> float | None:
        """The exponent of growth from the first size of 1,000 or more to the largest; None with less than two of them."""
        sizes = [size for size in self.values if size >= 1_000]
        if len(sizes) < 2 or not self.values[sizes[0]]:
            return None
        return math.log(self.values[sizes[-1]] / self.values[sizes[0]]) / math.log(sizes[-1] / sizes[0])


def measure(sizes: Sequence[int] = SIZES) -> list[Measure]:
    """Measure everything at each size."""
    lines = dict[tuple[str, str], Measure]()
    for size in sizes:
        print(f"{size:,} messages", file=sys.stderr, flush=True)
        for what, unit, system, value, goal in _at(size):
            line = lines.setdefault((what, system), Measure(what, unit, system, {}, goal))
            line.values[size] = value
    return list(lines.values())


def table(measures: Sequence[Measure]) -> Table:
    """Return the table of sizes."""
    sizes = list(dict.fromkeys(size for line in measures for size in line.values))
    heads = ("session of ... messages", "", *(f"{size:,}" for size in sizes), "exponent", "goal")
    whats = list(dict.fromkeys(line.what for line in measures))
    rows = [
        (f"{line.what}, {line.unit}", line.system, *_cells(line, sizes), line.goal)
        for line in sorted(measures, key=lambda line: whats.index(line.what))
    ]
    return Table("In process, SQLite", heads, rows)


def first_use() -> Table:
    """Measure the first append of a process, once its store is open."""
    rows = list[tuple[str, ...]]()
    for system, program in _FIRST.items():
        runs = list[tuple[float, float]]()
        for _ in range(_STARTS):
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-c", _CLOCK + program, f"{folder}/s.db", _TEXT]
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(tuple(json.loads(ran.stdout.splitlines()[-1])))
        milliseconds, megabytes = (min(values) for values in zip(*runs, strict=True))
        goal = "at most 40 ms, 60 MB" if system == TURNLOG else ""
        rows.append((system, f"{milliseconds:.1f}", f"{megabytes:.0f}", goal))
    return Table("The first append of a process", ("", "CPU, ms", "process, MB", "goal"), rows)


def _cells(line: Measure, sizes: Sequence[int]) -> tuple[str, ...]:
    exponent = line.exponent
    shown = "" if exponent is None else f"{exponent:.2f}"
    return (*(_number(line.values[size]) if size in line.values else "" for size in sizes), shown)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _at(size: int) -> Iterator[tuple[str, str, str, float, str]]:
    with tempfile.TemporaryDirectory() as folder:
        yield from measures_of_turnlog(Path(folder), size)
        yield "append", "ms", AGENTS, asyncio.run(_appends_of_agents(Path(folder), size)), ""
        yield "window of 8,000 tokens", "ms", ROWS, trimmed(size, order_message), ""
        yield "next search", "ms", FTS5, _search_of_fts5(Path(folder), size), ""
    if size <= 10_000:  # A file of more sessions takes as much for each of them.
        yield (
            "file, sessions of 2 x 300 bytes",
            "KB each",
            TURNLOG,
            file_of_turnlog(size // 2),
            "at most 2.13",
        )
        yield (
            *("file, sessions of 2 x 300 bytes", "KB each", AGENTS),
            *(asyncio.run(_file_of_agents(size // 2)), ""),
        )


def order_message(number: int) -> dict[str, Any]:
    """Return a message of 600 characters about an order of its own, which a question can ask for."""
    message = chat_message(number)
    return {**message, "content": f"Order {number}: {message['content']}"[:600]}


def measures_of_turnlog(folder: Path, size: int) -> Iterator[tuple[str, str, str, float, str]]:
    with Turnlog.open(f"sqlite:///{folder}/turnlog.db", worker=False) as log:
        app = log.backend.app  # type: ignore[attr-defined]
        session = log.sessions.create("s")
        for start in range(0, size, _BATCH):
            session.append(*map(order_message, range(start, min(size, start + _BATCH))))
        spent = _median(lambda: [session.append(order_message(size + number)) for number in range(_APPENDS)])
        yield "append", "ms", TURNLOG, spent / _APPENDS, "at most 1.2 x"
        session.context(budget=_BUDGET)
        more = lambda: session.append(order_message(0), order_message(1))  # noqa: E731
        spent = _median(lambda: session.context(budget=_BUDGET), more)
        yield "window of 8,000 tokens", "ms", TURNLOG, spent, "at most 15"
        yield "first search, nothing sealed", "ms", TURNLOG, _spent(lambda: session.search(QUESTION)), "at most 300"
        while app.seal_session.run(Owner.of("local", "me"), "s", {})["segments"]:
            pass
        app.corpus.warm_sessions = WarmSessions(INDEX_BYTES)
        yield "first search", "ms", TURNLOG, _spent(lambda: session.search(QUESTION)), "at most 300"
        yield "next search", "ms", TURNLOG, _median(lambda: session.search(QUESTION)), "at most 5 x"
        orders = itertools.cycle(range(0, size, max(1, size // 29)))
        asked = lambda: session.append(  # noqa: E731
            order_message(1), {"role": "user", "content": f"What did we say about order {next(orders)}?"}
        )
        spent = _median(lambda: session.context(budget=_BUDGET, policy="recall"), asked, runs=_WARM_RUNS)
        yield "window that recalls, first of a loop", "ms", TURNLOG, spent, "at most 5 more"


async def _appends_of_agents(folder: Path, size: int) -> float:
    from agents import SQLiteSession

    session = SQLiteSession("s", folder / "agents.db")
    for start in range(0, size, 1_000):
        await session.add_items([order_message(number) for number in range(start, min(size, start + 1_000))])  # type: ignore[misc]

    async def append() -> None:
        for number in range(_APPENDS):
            await session.add_items([order_message(size + number)])  # type: ignore[list-item]

    spent = await _median_of(append)
    session.close()
    return spent / _APPENDS


def _search_of_fts5(folder: Path, size: int) -> float:
    with closing(sqlite3.connect(folder / "fts5.db")) as database:
        database.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize='porter unicode61')")
        texts = ((order_message(number)["content"],) for number in range(size))
        database.executemany("INSERT INTO said(text) VALUES (?)", texts)
        database.commit()
        return _median(lambda: fts5_rows(database, QUESTION))


def file_of_turnlog(sessions: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "turnlog.db"
        with Turnlog.open(f"sqlite:///{path}", worker=False) as log:
            for number in range(sessions):
                session = log.sessions.create(f"s{number}")
                for message in _two(number):
                    session.append(message)
        return _kilobytes(path) / sessions


async def _file_of_agents(sessions: int) -> float:
    from agents import SQLiteSession

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agents.db"
        for number in range(sessions):
            session = SQLiteSession(f"s{number}", path)
            for message in _two(number):
                await session.add_items([message])  # type: ignore[list-item]
            session.close()
        return _kilobytes(path) / sessions


def _two(number: int) -> list[dict[str, Any]]:
    return [
        {**message, "content": message["content"][:300]} for message in map(order_message, (2 * number, 2 * number + 1))
    ]


def _kilobytes(path: Path) -> float:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size / 1_000


def _spent(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1_000


def _median(work: Callable[[], object], before: Callable[[], object] = lambda: None, *, runs: int = _RUNS) -> float:
    times = list[float]()
    for _ in range(runs):
        before()
        times.append(_spent(work))
    return statistics.median(times)


async def _median_of(work: Callable[[], Awaitable[None]]) -> float:
    times = list[float]()
    for _ in range(_RUNS):
        start = time.process_time()
        await work()
        times.append((time.process_time() - start) * 1_000)
    return statistics.median(times)


_CLOCK = """
import json, sys, time
path, text = sys.argv[1:]
def told(start):
    spent = (time.process_time() - start) * 1_000
    with open('/proc/self/status') as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith('VmRSS'))
    print(json.dumps([spent, kilobytes / 1_024]))
"""
_FIRST = {
    TURNLOG: """
from turnlog import Turnlog
with Turnlog.open('sqlite:///' + path) as log:
    session = log.sessions.create()
    start = time.process_time()
    session.append({'role': 'user', 'content': text})
    told(start)
""",
    AGENTS: """
import asyncio
from agents import SQLiteSession
session = SQLiteSession('s', path)
async def append():
    start = time.process_time()
    await session.add_items([{'role': 'user', 'content': text}])
    told(start)
asyncio.run(append())
""",
}
"""Programs that measure the first append of their process, each once its store is open."""
