"""One cell: servers, client processes, and everything read back at the end."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

from benchmarks.load.checking import FIRST, OTHER, Checked, Reading, check
from benchmarks.load.clients import TENANT, Job, id_of, ids_of, message, opened, run_jobs
from benchmarks.load.grid import Cell
from benchmarks.load.processes import Held, Watch
from benchmarks.load.recording import Records, together
from benchmarks.load.serving import Served, serving
from turnlog import Turnlog

_LEAD_SECONDS = 0.5
_SERVER_ERRORS = ("500", "501", "502", "504")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a cell. ``held``: what the servers had, together, at the start and after each quarter of the time."""

    engine: str
    cell: Cell
    records: Records
    checked: Checked
    held: list[Held]
    readings: list[Reading]
    sent: dict[str, set[str]]

    @property
    def seconds(self) -> float:
        return self.records.ended - self.records.begun

    @property
    def requests(self) -> int:
        return self.records.counts["requests"]

    @property
    def errors(self) -> int:
        """Clients that gave up, requests without an answer, and answers of 5xx other than 503."""
        counts = self.records.counts
        unanswered = sum(count for name, count in counts.items() if name.startswith("no answer"))
        return (
            sum(self.records.errors.values())
            + unanswered
            + sum(counts[server_error] for server_error in _SERVER_ERRORS)
        )

    @property
    def ok(self) -> bool:
        return self.errors == 0 and self.checked.is_clean


def run_cell(engine: str, cell: Cell, *, processes: int = 2) -> Outcome:
    """Runs the cell with so many client processes, on a server of its own; 0: the clients are threads of this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        with serving(engine, folder, cell.servers) as servers:
            sessions = _created(servers[0], cell)
            with Watch([server.pid for server in servers]) as watch:
                records = _driven(_jobs(cell, servers, sessions), processes)
            readings = [
                _read_back(servers[at % len(servers)], sessions, order) for at, order in enumerate(("asc", "desc"))
            ]
        if engine == "embedded":
            readings.append(_read_file(folder, sessions))
    sent = {session: set[str]() for session in sessions}
    for job in _jobs(cell, servers, sessions):
        if job.writes:
            sent[job.session].update(ids_of(job))
    return Outcome(engine, cell, records, check(records, sent, readings), watch.quarters(), readings, sent)


def _created(served: Served, cell: Cell) -> list[str]:
    """Create the sessions, after one to warm up: the first append loads the vocabulary, the first window its modules."""
    with opened(served.url, Records()) as log:
        session = log.sessions.create("warm")
        session.append(message("warm", 0))
        session.context()
        return [log.sessions.create(f"s{number}").id for number in range(cell.sessions)]


def _jobs(cell: Cell, servers: Sequence[Served], sessions: Sequence[str], start_at: float = 0.0) -> list[Job]:
    """Writers and readers of each session, spread over the servers."""
    made = list[Job]()
    for session in sessions:
        for number in range(cell.writers + cell.readers):
            url = servers[len(made) % len(servers)].url
            made.append(Job(cell, url, session, number, number < cell.writers, start_at))
    return made


def _driven(jobs: Sequence[Job], processes: int) -> Records:
    if processes == 0:
        return run_jobs(jobs)
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Each process is up and has imported the client before the clock starts.
        list(pool.map(time.sleep, [_LEAD_SECONDS] * processes))
        parts = [jobs[at::processes] for at in range(processes)]
        return together(pool.map(run_jobs, parts))


def _read_back(served: Served, sessions: Sequence[str], order: str) -> Reading:
    """Read by a client that took no part, from the first message on or from the last one back."""
    with opened(served.url, Records()) as log:
        return {session: all_of(log, session, order) for session in sessions}


def _read_file(folder: Path, sessions: Sequence[str]) -> Reading:
    """Read the file itself, after its servers have ended."""
    with Turnlog.open(f"sqlite:///{folder / 'turnlog.db'}", tenant=TENANT, user="me", worker=False) as log:
        return {session: all_of(log, session, "asc") for session in sessions}


def all_of(log: Turnlog, session_id: str, order: str = "asc") -> list[tuple[int, str]]:
    """Return a session as `Reading` has it. Where positions are left out between messages, the history says what has them."""
    session = log.sessions.of(session_id)
    stored = session.messages(order="desc" if order == "desc" else "asc")
    values = [(item.position, id_of(item.body)) for item in stored]
    values = values[::-1] if order == "desc" else values
    if not values or values[-1][0] - FIRST + 1 == len(values):
        return values
    known, last = {position for position, _ in values}, values[-1][0]
    others = {int(entry.history_id) for entry in session.history()} - known
    # In their order of reading: one that is out of order stays so, and is told.
    return list(merge(values, [(other, OTHER) for other in sorted(others) if FIRST <= other <= last]))
