"""Search over sessions: what it costs where an owner has 10, 100 and 1,000 of them. Run by `benchmarks.search`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.engines import dynamo
from benchmarks.scenarios import chat_message
from turnlog.adapters.embedded.files import MemoryBlobStore
from turnlog.adapters.embedded.sqlite import MEMORY, SqliteDatabase, SqliteItemTable
from turnlog.bootstrap import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.domain.identity import Owner
from turnlog.engines import Engine
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

COUNTS = (10, 100, 1_000)
MESSAGES = 20
"""Of a session."""
QUESTION = "When did the customer ask about the delivery of the parcel?"
_OWNER = Owner.of("acme", "ada")
_TIMES = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a search: ``first``, before a job has been there, and ``then``. ``job`` is what reading the words of one session takes.
    Milliseconds are own time on the embedded engine, processor only, once the job has been there."""

    sessions: int
    first: Mapping[str, int]
    first_units: float
    unindexed: int
    job: Mapping[str, float]
    then: Mapping[str, int]
    then_units: float
    milliseconds: float


def costs(counts: Iterable[int] = COUNTS) -> Iterable[Cost]:
    for count in counts:
        with dynamo(only_moto=True) as found:
            engine = Engine("dynamodb", found.metered.engine.items, MemoryBlobStore(), None, lambda: None)
            app, log = _filled(engine, count)
            with found.guard.measure() as first:
                answer = log.search(QUESTION)
            with found.guard.measure() as job:
                app.index_sessions.run(_OWNER, "", {})
            with found.guard.measure() as then:
                assert log.search(QUESTION).unindexed == 0
            each = {name: round(of_all / count, 2) for name, of_all in job.requests.items()}
            units = first.read_units, then.read_units
            yield Cost(count, first.requests, units[0], answer.unindexed, each, then.requests, units[1], _own_ms(count))


def show(rows: Iterable[Cost]) -> None:
    print(
        "| sessions | first search | read units | known by title | job, a session | then | read units | own time, ms |"
    )
    print("|---:|---|---:|---:|---|---|---:|---:|")
    for row in rows:
        first, job, then = (
            ", ".join(f"{n:g} {name}" for name, n in one.items() if n) for one in (row.first, row.job, row.then)
        )
        cells = f"{first} | {row.first_units:g} | {row.unindexed} | {job} | {then} | {row.then_units:g}"
        print(f"| {row.sessions:,} | {cells} | {row.milliseconds:.0f} |", flush=True)


def _filled(engine: Engine, count: int) -> tuple[Application, Turnlog]:
    clock = FixedClock()
    app = Application(engine, Settings(token_counter="estimate"), clock=clock, ids=SequentialIds())
    log = Turnlog(InProcessBackend(app, _OWNER))
    for at in range(count):
        session = log.sessions.create(f"s{at}", title=f"Case {at}", policy="turns")
        session.append(*map(chat_message, range(at * MESSAGES, (at + 1) * MESSAGES)))
        clock.advance(1)
    clock.advance(600)
    return app, log


def _own_ms(count: int) -> float:
    app, log = _filled(
        Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None), count
    )
    app.index_sessions.run(_OWNER, "", {})
    spent = list[float]()
    for _ in range(_TIMES):
        begun = time.process_time()
        log.search(QUESTION)
        spent.append(1000 * (time.process_time() - begun))
    return statistics.median(spent)
