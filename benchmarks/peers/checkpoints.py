"""LangGraph's checkpoints in process: `TurnlogSaver` beside `SqliteSaver`, CPU of a put and of loads, files on disk."""

from __future__ import annotations

import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from benchmarks.peers.table import Table
from benchmarks.scenarios import chat_message
from turnlog import Turnlog
from turnlog.integrations.langgraph import TurnlogSaver

LOADS, _RUNS, _STARTS = (100, 1_000), 5, 3
PUTS = {1_000: 200, 1_000_000: 20, 20_000_000: 4}
"""Sizes of what is put, each with how many are."""
_KINDS = ("load", "by another saver", "first load", "process")
_CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def sqlite_saver(connection: sqlite3.Connection) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(connection)


OPENED: dict[str, Callable[[str], Any]] = {
    "TurnlogSaver": lambda path: Turnlog.open(f"sqlite:///{path}", worker=False),
    "SqliteSaver": lambda path: sqlite3.connect(path, check_same_thread=False),
}
"""What a saver is made of, by its name: opened from a path."""
SAVERS: dict[str, Callable[[Any], Any]] = {"TurnlogSaver": TurnlogSaver, "SqliteSaver": sqlite_saver}


def table() -> Table:
    """Measure both savers. Another saver is of the same log, a first load is of a file just opened, a process imports all."""
    rows = list[tuple[str, ...]]()
    for size, count in PUTS.items():
        rows.append(_row(f"put of {size:,} bytes of noise", _puts(size, count), "4"))
    for count in LOADS:
        goal = "2" if count == 100 else ""
        for what, values in _loads(count, _KINDS).items():
            rows.append(_row(f"{what}, {count:,} checkpoints", values, goal))
        for what, values in _loads(count, ("first load",), at_once=True).items():
            rows.append(_row(f"{what}, {count:,} messages at once", values, goal))
    return Table("LangGraph's checkpoints, CPU in ms", ("", *SAVERS, "ratio", "goal ≤"), rows)


def _row(what: str, values: Any, goal: str) -> tuple[str, ...]:
    ours, other = values
    return (what, _number(ours), _number(other), f"{ours / other:.1f}", goal)


def _number(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def _puts(size: int, count: int) -> list[float]:
    """Return the CPU of a put of both savers, the median of ``count`` behind the first. They take turns."""
    times: dict[str, list[float]] = {name: [] for name in SAVERS}
    with tempfile.TemporaryDirectory() as folder:
        savers, noise = (
            {name: make(OPENED[name](f"{folder}/{name}.db")) for name, make in SAVERS.items()},
            random.Random(1),
        )
        for number in range(count + 1):
            values = {"x": noise.randbytes(size)}
            for name, saver in savers.items():
                times[name].append(_spent(lambda: _step(saver, number, values)))  # noqa: B023
    return [statistics.median(spent[1:]) for spent in times.values()]


def _loads(count: int, kinds: Sequence[str], *, at_once: bool = False) -> dict[str, list[float]]:
    """Return the CPU of both savers for each kind of load. They take turns, because the speed of a machine changes.

    Each checkpoint has a message more than the one before; with ``at_once`` there is one checkpoint, which has all messages.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}.db" for name in SAVERS}
        opened = {name: OPENED[name](path) for name, path in paths.items()}
        savers = {name: make(opened[name]) for name, make in SAVERS.items()}
        for saver in savers.values():
            messages = list[Any]()
            for number in range(count):
                kind = HumanMessage if number % 2 else AIMessage
                messages.append(kind(chat_message(number)["content"], id=f"m{number}"))
                if not at_once:
                    _step(saver, number, {"messages": list(messages)})
            if at_once:
                _step(saver, 0, {"messages": messages})
        measures: dict[str, Callable[[], list[float]]] = {
            "load": lambda: _medians(savers.__getitem__),
            "by another saver": lambda: _medians(lambda name: SAVERS[name](opened[name])),
            "first load": lambda: _medians(lambda name: SAVERS[name](OPENED[name](paths[name]))),
            "process": lambda: _starts(paths),
        }
        return {kind: measures[kind]() for kind in kinds}


def _starts(paths: dict[str, str]) -> list[float]:
    starts = [{name: _process(name, path) for name, path in paths.items()} for _ in range(_STARTS)]
    return [min(start[name] for start in starts) for name in SAVERS]


def _medians(make: Callable[[str], Any]) -> list[float]:
    times: dict[str, list[float]] = {name: [] for name in SAVERS}
    for _ in range(4 * _RUNS):
        for name, spent in times.items():
            saver = make(name)
            spent.append(_spent(lambda: saver.get_tuple(_CONFIG)))  # noqa: B023
    return list(map(statistics.median, times.values()))


def _process(name: str, path: str) -> float:
    command = [sys.executable, "-c", _START + _PROGRAMS[name] + _END, path]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _step(saver: Any, number: int, values: dict[str, Any]) -> None:
    """Put a checkpoint behind the one before, with a task's write of the newest message."""
    version, before = f"{number + 1:032}.0", {**_CONFIG["configurable"]}
    if number:
        before["checkpoint_id"] = f"{number - 1:06}"
        if "messages" in values:
            saver.put_writes({"configurable": before}, [("messages", values["messages"][-1:])], f"task-{number}")
    checkpoint = {
        "v": 4,
        "id": f"{number:06}",
        "ts": "2026-11-27T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, version),
        "versions_seen": {},
        "updated_channels": None,
    }
    saver.put({"configurable": before}, checkpoint, {"source": "loop", "step": number}, dict.fromkeys(values, version))


def _spent(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1_000


_START = "import sys, time; import langgraph.graph; from langchain_core.messages import HumanMessage\n"
_END = "\nsaver.get_tuple({'configurable': {'thread_id': 't'}}); print(time.process_time() * 1_000)"
_PROGRAMS = {
    "TurnlogSaver": """
from turnlog import Turnlog
from turnlog.integrations.langgraph import TurnlogSaver
saver = TurnlogSaver(Turnlog.open('sqlite:///' + sys.argv[1]))""",
    "SqliteSaver": """
import sqlite3
from langgraph.checkpoint.sqlite import SqliteSaver
saver = SqliteSaver(sqlite3.connect(sys.argv[1]))""",
}
"""Programs that load a thread, and say what CPU their process took."""
