"""Writers and readers: threads of a client process, each with a connection of its own, by the Python client."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.load.grid import Cell
from benchmarks.load.recording import Records, together
from turnlog import Turnlog
from turnlog.client.connections import Connections, HttpAnswer, HttpCall
from turnlog.client.model import Session
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import ConflictError, HeadMismatchError, TurnlogError

TENANT, BUDGET = "load", 8_000
_MOST_TRIES = 500
_READS = ("window", "page", "list")


@dataclass(frozen=True, slots=True)
class Job:
    """One writer (or reader) of a session."""

    cell: Cell
    url: str
    session: str
    number: int
    writes: bool
    start_at: float
    """By `time.time`: when all begin, in every process."""


def run_jobs(jobs: Sequence[Job]) -> Records:
    """Runs the jobs, each in a thread of this process, until all are done."""
    records = [Records() for _ in jobs]
    threads = [
        threading.Thread(target=_run, args=(job, record), name=f"load-{at}")
        for at, (job, record) in enumerate(zip(jobs, records, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return together(records)


def message(name: str, at: int) -> dict[str, str]:
    """Return a message that carries its id, of 60 to some 1,000 characters."""
    words = "the order was placed on Monday and has not arrived " * (at * 7 % 19 + 1)
    return {"role": "user" if at % 2 == 0 else "assistant", "content": f"{name} {words}"}


def id_of(body: object) -> str:
    """Return the id that a message carries; "" for one that is none of ours."""
    content = body.get("content") if isinstance(body, dict) else None
    return content.partition(" ")[0] if isinstance(content, str) else ""


def ids_of(job: Job) -> list[str]:
    """Return the ids of all messages that a writer sends."""
    return [f"{job.session}/{job.number}/{at}" for at in range(job.cell.appends)]


def opened(url: str, records: Records, user: str = "me") -> Turnlog:
    """Return a client whose answers are counted."""
    backend = HttpBackend(url, tenant=TENANT, user=user)
    backend._connections = _Counted(backend._connections, records)
    return Turnlog(backend)


class _Counted(Connections):
    """The connections of a client; what was answered, and what was not, is counted."""

    def __init__(self, inner: Connections, records: Records) -> None:
        super().__init__(inner._base, timeout_seconds=inner._timeout_seconds, clock=inner._clock)
        self._records = records

    def exchange(self, call: HttpCall, ends_ms: int | None) -> HttpAnswer:
        self._records.counts["requests"] += 1
        try:
            answer = super().exchange(call, ends_ms)
        except Exception as error:
            self._records.counts[f"no answer: {type(error).__name__}"] += 1
            raise
        self._records.counts[str(answer.status)] += 1
        return answer


def _run(job: Job, records: Records) -> None:
    with opened(job.url, records) as log:
        session = log.sessions.of(job.session)
        try:
            log.health()  # connected, before the clock starts
            records.counts.clear()
            time.sleep(max(0.0, job.start_at - time.time()))
            records.begun = time.monotonic()
            if job.writes:
                _write(job, session, records)
            else:
                _read(job, log, session, records)
        except Exception as error:  # noqa: BLE001 - one client's end is a row of the report, not the end of the others
            records.errors[f"{type(error).__name__}: {getattr(error, 'error_code', '')} {error}"[:200]] += 1
        records.ended = time.monotonic()


def _write(job: Job, session: Session, records: Records) -> None:
    head: int | None = None
    for at, name in enumerate(ids_of(job)):
        uses_head = head is not None and job.cell.if_head_every and at % job.cell.if_head_every == 0
        with _timed(records, "append, if_head" if uses_head else "append"):
            position = _appended(session, name, at, head if uses_head else None, records)
        records.acknowledged[job.session].append((name, position))
        head = position
        if at % 10 == 9:
            with _timed(records, "read own"):
                page = session.page(after=position - 1, limit=1)
            records.seen[job.session].add((page.messages[0].position, id_of(page.messages[0].body)))
            if id_of(page.messages[0].body) != name:
                records.errors["an acknowledged message was not readable at once"] += 1


def _appended(session: Session, name: str, at: int, head: int | None, records: Records) -> int:
    """Append a message and return its position. On 409 it is sent again, by the same key, with the head of the answer."""
    for _ in range(_MOST_TRIES):
        try:
            return session.append(message(name, at), idempotency_key=name, if_head=head).first
        except HeadMismatchError as error:
            records.counts["retries after 409"] += 1
            head = int(error.details["head"])
        except ConflictError:
            records.counts["retries after 409"] += 1
            records.counts["conflicts of slots"] += 1
    raise TurnlogError(f"{_MOST_TRIES} conflicts, one after the other", code="conflicts")


def _read(job: Job, log: Turnlog, session: Session, records: Records) -> None:
    chance = random.Random(job.number)
    for _ in range(job.cell.reads):
        kind = chance.choice(_READS)
        with _timed(records, kind):
            if kind == "window":
                session.context(budget=BUDGET)
            elif kind == "list":
                log.sessions.page(limit=20)
            else:
                page = session.page(order="desc", limit=50)
        if kind == "page":
            records.seen[job.session].update((message.position, id_of(message.body)) for message in page.messages)


@contextmanager
def _timed(records: Records, kind: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    records.seconds[kind].append(time.perf_counter() - begun)
