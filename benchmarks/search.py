"""Search: how much of the evidence it finds on real conversations, and what it costs at three lengths, and over sessions.

    make bench-search                                  # what it costs
    make bench-search ARGS='FOLDER --loader load.py'   # and what it finds in FOLDER/locomo and FOLDER/memorybank

The conversations are appended through the API, what is complete is sealed, and each question is asked through the API. Exit 1 when
less is found than the limits say.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import search_sessions
from benchmarks.engines import dynamo
from benchmarks.scenarios import chat_message
from benchmarks.search_questions import QUESTIONS
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import SessionKeys
from turnlog.search.fts5 import STOP_WORDS
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

LIMIT_5, LIMIT_10 = 0.71, 0.79
LENGTHS = (100, 1_000, 10_000)
CATEGORIES = {1: "several turns", 2: "time", 3: "inference", 4: "one turn", 5: "adversarial"}
"""LoCoMo's categories of questions."""
_OWNER = Owner.of("acme", "ada")
_BATCH = 25
_TIMES = 5


@dataclass
class Found:
    """Shares of the evidence among the first 5 and 10, a value for each question; ``plain`` those of plain BM25."""

    at_5: list[float] = field(default_factory=list)
    at_10: list[float] = field(default_factory=list)
    plain_5: list[float] = field(default_factory=list)
    plain_10: list[float] = field(default_factory=list)

    def add(self, evidence: Sequence[int], ours: Sequence[int], plain: Sequence[int]) -> None:
        for shares, ranked in (
            (self.at_5, ours[:5]),
            (self.at_10, ours),
            (self.plain_5, plain[:5]),
            (self.plain_10, plain),
        ):
            shares.append(sum(item in ranked for item in evidence) / len(evidence))

    def __iadd__(self, other: Found) -> Found:
        for name in ("at_5", "at_10", "plain_5", "plain_10"):
            getattr(self, name).extend(getattr(other, name))
        return self


class Asked:
    """One conversation in a session of its own, asked through the API; beside it FTS5 over the same texts with their days."""

    def __init__(self, messages: Sequence[Mapping[str, Any]], times: Sequence[str]) -> None:
        engine = Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None)
        app = Application(engine, Settings(token_counter="estimate"), clock=FixedClock(), ids=SequentialIds())
        self.session = Turnlog(InProcessBackend(app, _OWNER)).sessions.create("s", policy="turns")
        self.positions = list[int]()
        for at in range(0, len(messages), _BATCH):
            meta = [{"created_at": moment} for moment in times[at : at + _BATCH]]
            head = self.session.append(*messages[at : at + _BATCH], meta=meta).head
            self.positions += range(head - len(meta) + 1, head + 1)
        seal(app)
        self._plain = fts5_table(
            f"{day_in_words(day)} {message['content']}" for day, message in zip(times, messages, strict=True)
        )

    def ask(self, question: str, evidence: Sequence[int], found: Found) -> None:
        """Search for a question, and add its hits to ``found``. ``evidence`` are places in the conversation."""
        ours = [result.position for result in self.session.search(question, limit=10).results]
        plain = fts5_rows(self._plain, question)
        found.add([self.positions[at] for at in evidence], ours, [self.positions[at] for at in plain])


def locomo(loader: Any, folder: Path, *, every: int = 1) -> dict[str, Found]:
    """Measure the search in LoCoMo, by category; take one of each ``every`` questions."""
    values = {name: Found() for name in CATEGORIES.values()}
    for conversation in loader.iter_sessions(str(folder / "locomo")):
        result = conversation["messages"]
        asked = Asked([_message(item) for item in result], [item["created_at"] for item in result])
        places = {item["dia_id"]: at for at, item in enumerate(result)}
        for question in conversation["meta"]["qa"][::every]:
            evidence = [places[item] for item in loader.fix_evidence(question.get("evidence")) if item in places]
            if evidence:
                asked.ask(question["question"], evidence, values[CATEGORIES[question["category"]]])
    return values


def memorybank(loader: Any, folder: Path) -> Found:
    """Questions in Chinese: all days of a person are one session."""
    days: dict[str, list[tuple[str, Any]]] = {}
    for conversation in loader.iter_sessions(str(folder / "memorybank")):
        person, _, day = conversation["id"].partition("/")
        days.setdefault(person, []).extend((day, message) for message in conversation["messages"])
    value, asked = Found(), dict[str, tuple[Asked, dict[tuple[str, int, str], int]]]()
    for person, question, turns in QUESTIONS:
        if person not in asked:
            given, counts = days[person], dict[tuple[str, str], int]()
            places = dict[tuple[str, int, str], int]()
            for at, (day, result) in enumerate(given):
                number = counts.get((day, result["role"]), 0)
                counts[day, result["role"]] = number + 1
                places[day, number, result["role"]] = at
            asked[person] = (
                Asked([_message(item) for _, item in given], [f"{day}T00:00:00Z" for day, _ in given]),
                places,
            )
        result, places = asked[person]
        result.ask(question, [places[turn] for turn in turns], value)
    return value


def _message(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("role", "name", "content") if given.get(name)}


def day_in_words(moment: str) -> str:
    day = datetime.fromisoformat(moment)
    return f"{day.day} {day:%B} {day.year}"


def seal(app: Application) -> None:
    while app.seal_session.run(_OWNER, "s", {})["segments"]:
        pass


# ------------------------------------------------------------ what it costs


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the first search on DynamoDB and a blob store. ``index_bytes`` are what it reads of indexes, ``segment_bytes`` what all
    segments take. Milliseconds are own time on the embedded engine, processor only: of the first search in a process, with
    everything and with nothing sealed, of the next ones, and of FTS5 alone."""

    messages: int
    requests: Mapping[str, int]
    read_units: float
    index_bytes: int
    segment_bytes: int
    first_ms: float
    unsealed_ms: float
    next_ms: float
    fts5_ms: float


class _Counted(MemoryBlobStore):
    def __init__(self) -> None:
        super().__init__()
        self.gets, self.read_bytes = 0, 0

    def get(self, name: str) -> bytes | None:
        value = super().get(name)
        self.gets, self.read_bytes = self.gets + 1, self.read_bytes + len(value or b"")
        return value


def costs(lengths: Iterable[int] = LENGTHS) -> Iterable[Cost]:
    for length in lengths:
        with dynamo(only_moto=True) as resource:
            blobs = _Counted()
            engine = Engine("dynamodb", resource.metered.engine.items, blobs, None, lambda: None)
            app = Application(engine, Settings(token_counter="estimate"), clock=FixedClock(), ids=SequentialIds())
            session = Turnlog(InProcessBackend(app, _OWNER)).sessions.create("s", policy="turns")
            _fill(session, length)
            seal(app)
            size = sum(sessionkey.size_bytes for sessionkey in app.segments.list(SessionKeys(_OWNER, "s")))
            blobs.gets = blobs.read_bytes = 0
            with resource.guard.measure() as spent:
                assert session.search(QUESTION).results
            requests = {**spent.requests, "GetObject": blobs.gets}
            first, following = _own_ms(length, is_sealed=True)
            unsealed, _ = _own_ms(length, is_sealed=False)
            yield Cost(
                *(length, requests, spent.read_units, blobs.read_bytes, size),
                *(first, unsealed, following, _fts5_ms(length)),
            )


QUESTION = "When did the customer ask about the delivery of the parcel?"


def _fill(session: Session, length: int) -> None:
    for at in range(0, length, _BATCH):
        session.append(*map(chat_message, range(at, min(at + _BATCH, length))))


def _own_ms(length: int, *, is_sealed: bool) -> tuple[float, float]:
    """Return the time of the first search in a process, and of the next ones."""
    engine = Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None)
    app = Application(engine, Settings(token_counter="estimate"), clock=FixedClock(), ids=SequentialIds())
    session = Turnlog(InProcessBackend(app, _OWNER)).sessions.create("s", policy="turns")
    _fill(session, length)
    if is_sealed:
        seal(app)
    first, *others = (_spent_ms(lambda: session.search(QUESTION)) for _ in range(1 + _TIMES))
    return first, statistics.median(others)


def _fts5_ms(length: int) -> float:
    """Return the time of the question's words in a table of FTS5, which is no session: the least that a search can take."""
    with closing(fts5_table(str(chat_message(at)["content"]) for at in range(length))) as database:
        return statistics.median(_spent_ms(lambda: fts5_rows(database, QUESTION)) for _ in range(_TIMES))


def _spent_ms(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return 1000 * (time.process_time() - begun)


def fts5_table(texts: Iterable[str]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize='porter unicode61')")
    database.executemany("INSERT INTO said(text) VALUES (?)", ((text,) for text in texts))
    return database


def fts5_rows(database: sqlite3.Connection, question: str) -> list[int]:
    """Return the ten best rows for a question's words but stop words, counted from 0."""
    words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP_WORDS]
    match = " OR ".join(f'"{word}"' for word in words) or '""'
    rows = database.execute("SELECT rowid FROM said WHERE said MATCH ? ORDER BY rank LIMIT 10", (match,))
    return [row - 1 for (row,) in rows]


# ------------------------------------------------------------ showing


def show_found(rows: Mapping[str, Found]) -> None:
    print("| questions | | recall@5 | @10 | plain BM25 @5 | @10 |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, item in rows.items():
        if item.at_5:
            shares = [f"{100 * mean(shares):.1f} %" for shares in (item.at_5, item.at_10, item.plain_5, item.plain_10)]
            print(f"| {name} | {len(item.at_5)} | " + " | ".join(shares) + " |")


def show_costs(rows: Iterable[Cost]) -> None:
    print(
        "| messages | requests | read units | indexes read, KB | segments, KB | first, ms | nothing sealed | next | FTS5 |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        requests = ", ".join(f"{count} {name}" for name, count in row.requests.items() if count)
        sizes = f"{row.index_bytes / 1000:.0f} | {row.segment_bytes / 1000:.0f}"
        times = f"{row.first_ms:.0f} | {row.unsealed_ms:.0f} | {row.next_ms:.0f} | {row.fts5_ms:.1f}"
        print(f"| {row.messages:,} | {requests} | {row.read_units:g} | {sizes} | {times} |", flush=True)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="it has locomo and memorybank")
    parser.add_argument("--loader", type=Path, metavar="FILE.py", help="its iter_sessions(path) gives conversations")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS, metavar="N")
    parser.add_argument("--sessions", type=int, nargs="*", default=search_sessions.COUNTS, metavar="N")
    options = parser.parse_args(arguments)
    is_enough = True
    if options.folder is not None:
        if options.loader is None:
            parser.error("a FOLDER needs a --loader")
        spec = importlib.util.spec_from_file_location("loader", options.loader)
        assert spec is not None and spec.loader is not None
        loader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loader)
        rows, total = locomo(loader, options.folder), Found()
        for row in rows.values():
            total += row
        show_found({**rows, "LoCoMo, all": total, "Chinese": memorybank(loader, options.folder)})
        print()
        for name, shares in search_sessions.locomo(loader, options.folder).items():
            print(f"LoCoMo, each day a session, {name}: {100 * mean(shares):.1f} %")
        print()
        is_enough = mean(total.at_5) >= LIMIT_5 and mean(total.at_10) >= LIMIT_10
    show_costs(costs(options.lengths))
    print()
    search_sessions.show(search_sessions.costs(options.sessions))
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
