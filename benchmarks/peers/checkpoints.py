"""LangGraph's checkpoints in process: `TurnlogSaver` beside `SqliteSaver`, CPU of a put and of loads, files on disk."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from benchmarks.peers.table import Table
from benchmarks.scenarios import chat_message
from turnlog import Turnlog
from turnlog.integrations.langgraph import TurnlogSaver

LOADS, PUTS, _RUNS, _STARTS = (10, 100, 1_000), (1_000, 1_000_000, 20_000_000), 5, 3
_CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def open_turnlog(path: str) -> Any:
    return TurnlogSaver(Turnlog.open(f"sqlite:///{path}", worker=False))


def open_sqlite(path: str) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(sqlite3.connect(path, check_same_thread=False))


SAVERS: dict[str, Callable[[str], Any]] = {"TurnlogSaver": open_turnlog, "SqliteSaver": open_sqlite}


def table() -> Table:
    """Measure both savers. A process is measured with all that it imports, LangGraph too."""
    rows = list[tuple[str, ...]]()
    for size in PUTS:
        rows.append(_row(f"put of {size:,} bytes of noise", [_put(name, size) for name in SAVERS], "at most 4"))
    for count in LOADS:
        warm, first, process = zip(*(_loads(name, count) for name in SAVERS), strict=True)
        goal = "at most 2" if count == 100 else ""
        rows.append(_row(f"load, {count:,} checkpoints", warm, goal))
        rows.append(_row(f"first load of a saver, {count:,} checkpoints", first, goal))
        rows.append(_row(f"process that loads, {count:,} checkpoints", process, goal))
    return Table("LangGraph's checkpoints, CPU in ms", ("", *SAVERS, "ratio", "goal"), rows)


def _row(what: str, values: Any, goal: str) -> tuple[str, ...]:
    ours, other = values
    return (what, _number(ours), _number(other), f"{ours / other:.1f}", goal)


def _number(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def _put(name: str, size: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        saver, noise = SAVERS[name](f"{folder}/s.db"), random.Random(1)
        times = [_spent(lambda: _step(saver, number, {"x": noise.randbytes(size)})) for number in range(_RUNS)]  # noqa: B023
    return statistics.median(times[1:])


def _loads(name: str, count: int) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        path, messages = f"{folder}/s.db", list[Any]()
        saver = SAVERS[name](path)
        for number in range(count):
            kind = HumanMessage if number % 2 else AIMessage
            messages.append(kind(chat_message(number)["content"], id=f"m{number}"))
            _step(saver, number, {"messages": list(messages)})
        warm = statistics.median(_spent(lambda: saver.get_tuple(_CONFIG)) for _ in range(4 * _RUNS))
        savers = [SAVERS[name](path) for _ in range(_RUNS)]
        first = statistics.median(_spent(lambda: saver.get_tuple(_CONFIG)) for saver in savers)  # noqa: B023
        command = [sys.executable, "-c", _START + _PROGRAMS[name] + _END, path]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(_STARTS)]
    return warm, first, min(map(json.loads, runs))


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


_START = "import json, sys, time; import langgraph.graph; from langchain_core.messages import HumanMessage\n"
_END = "\nsaver.get_tuple({'configurable': {'thread_id': 't'}}); print(json.dumps(time.process_time() * 1_000))"
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
