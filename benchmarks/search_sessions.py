"""Search over sessions: what it costs where an owner has 10, 100 and 1,000 of them. Run by `benchmarks.search`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines import dynamo
from benchmarks.scenarios import chat_message
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
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
        with dynamo(only_moto=True) as resource:
            engine = Engine("dynamodb", resource.metered.engine.items, MemoryBlobStore(), None, lambda: None)
            app, log = _filled(engine, count)
            with resource.guard.measure() as first:
                answer = log.search(QUESTION)
            with resource.guard.measure() as job:
                app.index_sessions.run(_OWNER, "", {})
            with resource.guard.measure() as then:
                assert log.search(QUESTION).unindexed == 0
            each = {name: round(of_all / count, 2) for name, of_all in job.requests.items()}
            units = first.read_units, then.read_units
            yield Cost(count, first.requests, units[0], answer.unindexed, each, then.requests, units[1], _own_ms(count))


# ------------------------------------------------------------ what it finds


def locomo(loader: Any, folder: Path, *, every: int = 1) -> dict[str, list[float]]:
    """Search with each day of a conversation as a session, and each question in all of them, by words alone: shares of the
    evidence among the first 5 and 10 messages, and of the sessions that have evidence among those of the first 10."""
    shares: dict[str, list[float]] = {"@5": [], "@10": [], "sessions @10": []}
    for conversation in loader.iter_sessions(str(folder / "locomo")):
        log, places = _by_day(conversation["messages"])
        for question in conversation["meta"]["qa"][::every]:
            evidence = {places[item] for item in loader.fix_evidence(question.get("evidence")) if item in places}
            if evidence:
                results = [
                    result for result in log.search(question["question"], limit=50).results if result.where == "message"
                ]
                outcome = [(result.session_id, result.position) for result in results][:10]
                shares["@5"].append(len(evidence & set(outcome[:5])) / len(evidence))
                shares["@10"].append(len(evidence & set(outcome)) / len(evidence))
                days = {day for day, _ in evidence}
                shares["sessions @10"].append(len(days & {day for day, _ in outcome}) / len(days))
    return shares


def _by_day(messages: Sequence[Mapping[str, Any]]) -> tuple[Turnlog, dict[str, tuple[str, int | None]]]:
    app, log = _application(
        Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None)
    )
    days: dict[str, list[Mapping[str, Any]]] = {}
    for message in messages:
        days.setdefault(str(message["dia_id"]).partition(":")[0], []).append(message)
    places = dict[str, tuple[str, int | None]]()
    for day, said in days.items():
        session = log.sessions.create(day, policy="turns")
        for at in range(0, len(said), 25):
            batch = said[at : at + 25]
            bodies = [{name: item[name] for name in ("role", "name", "content") if item.get(name)} for item in batch]
            first = session.append(*bodies, meta=[{"created_at": item["created_at"]} for item in batch]).first
            places |= {item["dia_id"]: (day, first + n) for n, item in enumerate(batch)}
    app.clock.sleep(600)
    app.index_sessions.run(_OWNER, "", {})
    return log, places


def show(rows: Iterable[Cost]) -> None:
    print(
        "| sessions | first search | read units | known by title | job, a session | then | read units | own time, ms |"
    )
    print("|---:|---|---:|---:|---|---|---:|---:|")
    for row in rows:
        first, job, then = (
            ", ".join(f"{n:g} {name}" for name, n in value.items() if n) for value in (row.first, row.job, row.then)
        )
        cells = f"{first} | {row.first_units:g} | {row.unindexed} | {job} | {then} | {row.then_units:g}"
        print(f"| {row.sessions:,} | {cells} | {row.milliseconds:.0f} |", flush=True)


def _application(engine: Engine) -> tuple[Application, Turnlog]:
    app = Application(engine, Settings(token_counter="estimate"), clock=FixedClock(), ids=SequentialIds())
    return app, Turnlog(InProcessBackend(app, _OWNER))


def _filled(engine: Engine, count: int) -> tuple[Application, Turnlog]:
    app, log = _application(engine)
    for at in range(count):
        session = log.sessions.create(f"s{at}", title=f"Case {at}", policy="turns")
        session.append(*map(chat_message, range(at * MESSAGES, (at + 1) * MESSAGES)))
        app.clock.sleep(1)
    app.clock.sleep(600)
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
