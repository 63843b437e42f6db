"""A long run: one server, session after session made, filled, read and erased; what the server holds, as it goes on."""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.clients import BUDGET, message, opened
from benchmarks.load.processes import Held, held
from benchmarks.load.recording import Records, together
from benchmarks.load.serving import serving
from turnlog import Turnlog

ROUND = 10
"""Operations of one session: create, 6 appends, window, page, erase."""
_CLIENTS = 2
_SAMPLES = 40
_ENOUGH = 2_000
_NOISE = 2.0
_SMALL_BYTES = 256 * 1024
"""Growth of the last half that no page of an allocator tells from none."""


@dataclass(frozen=True, slots=True)
class Endurance:
    """``samples``: what the server held after so many operations; the first is after warming up."""

    engine: str
    operations: int
    samples: list[tuple[int, Held]]
    errors: int

    @property
    def last_half(self) -> list[tuple[int, Held]]:
        return [sample for sample in self.samples if sample[0] * 2 >= self.operations]

    @property
    def slope(self) -> float:
        """Bytes of memory that 1,000 operations of the last half added: the line of least squares."""
        return 1_000 * _line([(at, item.rss_bytes) for at, item in self.last_half])[0]

    @property
    def is_flat(self) -> bool | None:
        """Whether the last half grew by no more than its samples scatter around their line, and kept no file open.

        None of a run that is too short to tell, and of moto, which keeps its table in memory."""
        if self.operations < _ENOUGH or self.engine != "embedded":
            return None
        points = [(at, item.rss_bytes) for at, item in self.last_half]
        slope, scatter = _line(points)
        grown = slope * (points[-1][0] - points[0][0])
        files = [item.files for _, item in self.last_half if item.files is not None]
        keeps_files = bool(files) and files[-1] > max(files[: len(files) // 2 + 1])
        return grown <= max(_NOISE * scatter, _SMALL_BYTES) and not keeps_files


def run_endurance(engine: str, operations: int) -> Endurance:
    """Run so many operations, rounded up to whole sessions of both clients, after a tenth as many to warm up."""
    rounds = -(-operations // (ROUND * _CLIENTS))
    with tempfile.TemporaryDirectory() as name, serving(engine, Path(name) / "data") as (served,):
        records = [Records() for _ in range(_CLIENTS)]
        clients = [opened(served.url, record) for record in records]
        try:
            _all(clients, 0, max(1, rounds // 10))
            samples, done = [(0, held(served.pid))], 0
            steps = min(_SAMPLES, rounds)
            for step in range(1, steps + 1):
                until = rounds * step // steps
                _all(clients, rounds + done, until - done)
                done = until
                samples.append((done * ROUND * _CLIENTS, held(served.pid)))
        finally:
            for client in clients:
                client.close()
    counts = together(records).counts
    wrong = sum(count for name, count in counts.items() if name.startswith("no answer") or name[:1] in ("4", "5"))
    return Endurance(engine, samples[-1][0], samples, wrong)


def _all(clients: Sequence[Turnlog], first: int, rounds: int) -> None:
    threads = [
        threading.Thread(target=_rounds, args=(log, f"c{number}", first, rounds)) for number, log in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _rounds(log: Turnlog, name: str, first: int, rounds: int) -> None:
    for number in range(first, first + rounds):
        session = log.sessions.create(f"{name}-{number}")
        for at in range(ROUND - 4):
            session.append(message(f"{name}/{number}/{at}", at), idempotency_key=f"{name}/{number}/{at}")
        session.context(budget=BUDGET)
        session.page(limit=50)
        session.erase()


def _line(points: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Slope of the line of least squares, and how far points lie from it (standard deviation)."""
    if len(points) < 3:
        return 0.0, 0.0
    line = statistics.linear_regression(*zip(*points, strict=True))
    return line.slope, statistics.pstdev(y - line.slope * x - line.intercept for x, y in points)
