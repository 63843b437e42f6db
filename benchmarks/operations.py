"""Own CPU time and calls of the table per append and window, by length of the session, on the embedded engine in memory.

    make bench

CPU time of this process, the engine's included; the median of some runs. Compare ratios: machines differ.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

from turnlog.adapters.embedded.files import MemoryBlobStore
from turnlog.adapters.embedded.sqlite import MEMORY, SqliteDatabase, SqliteItemTable
from turnlog.adapters.system import RandomIds, SystemClock
from turnlog.bootstrap import Application, Engine
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.domain.identity import Owner
from turnlog.settings import Settings
from turnlog.testing.faults import Faults, FaultyBlobStore, FaultyItemTable

LENGTHS = (10, 100, 1_000)
TEXT = "Could you please check whether the order that I placed last Tuesday has already left the warehouse? " * 6
RUNS = 15


def measure(work: Callable[[], object], faults: Faults) -> tuple[float, int]:
    """Median CPU milliseconds and calls of one run."""
    work()
    times, calls = list[float](), faults.calls
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) * 1000)
    return statistics.median(times), (faults.calls - calls) // RUNS


def main() -> None:
    faults, rows = Faults(), list[dict[str, float | int]]()
    engine = Engine(
        "memory",
        FaultyItemTable(SqliteItemTable(SqliteDatabase(MEMORY)), faults),
        FaultyBlobStore(MemoryBlobStore(), faults),
        None,
        lambda: None,
    )
    log = Turnlog(
        InProcessBackend(
            Application(engine, Settings(), clock=SystemClock(), ids=RandomIds()), Owner.of("local", "bench")
        )
    )
    for length in LENGTHS:
        session = log.sessions.create()
        for at in range(length):
            session.append({"role": ("user", "assistant")[at % 2], "content": f"{at} {TEXT[:590]}"})
        window_ms, window_calls = measure(session.context, faults)
        append_ms, append_calls = measure(lambda: session.append({"role": "user", "content": TEXT[:600]}), faults)  # noqa: B023
        rows.append(
            {
                "messages": length,
                "append_ms": round(append_ms, 2),
                "append_calls": append_calls,
                "window_ms": round(window_ms, 2),
                "window_calls": window_calls,
            }
        )
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    print(f"{'messages':>9} {'append ms':>10} {'calls':>6} {'window ms':>10} {'calls':>6}")
    for row in rows:
        print(
            f"{row['messages']:>9,} {row['append_ms']:>10} {row['append_calls']:>6} {row['window_ms']:>10} {row['window_calls']:>6}"
        )


if __name__ == "__main__":
    main()
