"""Replaying with summaries: sessions that ask for them by a trigger, the wait for the worker, and what summaries must not do."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from turnlog.client.model import Session, Turnlog
from turnlog.contracts.context import WindowAnswer
from turnlog.contracts.jobs import Job
from turnlog.contracts.messages import Appended
from turnlog.contracts.summaries import SummaryAnswer
from turnlog.domain.errors import InvalidInputError, MalformedError
from turnlog.domain.jsonvalue import JsonObject, parse_strict_json
from turnlog.windows.policy import policy_of
from turnlog.windows.reach import KEEP_LOOPS

OWN_TRIGGER = "policy"
_PAUSE_SECONDS = 0.1
_CLAUSE = re.compile(r"\s*(messages|tokens|loops|fraction)\s*>\s*(\d[\d_]*(?:\.\d+)?)\s*")


@dataclass(slots=True)
class Compression:
    """Sums. ``asked``: appends that asked for a summary; ``made``: summaries published, one continuing the other. ``loops``,
    ``messages`` and ``source_tokens`` are what those in force at the end cover, in ``tokens``.

    ``jobs``: how the jobs ended, ``pending`` among them: not at all. ``wrong``: summaries over an open loop, the newest
    few, or more than is there; windows of the end that are not valid.
    """

    sessions: int = 0
    asked: int = 0
    made: int = 0
    loops: int = 0
    messages: int = 0
    source_tokens: int = 0
    tokens: int = 0
    facts: int = 0
    wrong: int = 0
    jobs: Counter[str] = field(default_factory=Counter)

    @property
    def saved(self) -> int:
        return self.source_tokens - self.tokens

    @property
    def ok(self) -> bool:
        return not (self.wrong or self.jobs["failed"] or self.jobs["pending"])

    def add(self, other: Compression) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def as_json(self) -> JsonObject:
        return {**asdict(self), "jobs": dict(sorted(self.jobs.items())), "saved": self.saved}


def compressing_policy(policy: str | Mapping[str, Any] | None, trigger: str) -> JsonObject:
    """The policy's body with a trigger: ``messages > 30, tokens > 3000``, of ``loops`` and ``fraction`` too; a trigger's JSON;
    or ``policy``, for the one that the policy has. `InvalidInputError` for what is none, and for a policy without summaries."""
    found = policy_of("default" if policy is None else policy if isinstance(policy, str) else dict(policy))
    body: JsonObject = found.model_dump(mode="json")
    if trigger != OWN_TRIGGER:
        body["compress"] = _trigger(trigger)
    elif found.compress is None:
        raise InvalidInputError("the policy has no trigger of its own", code="invalid_trigger")
    policy_of(body)
    return body


def _trigger(text: str) -> JsonObject:
    if text.lstrip().startswith("{"):
        try:
            value = parse_strict_json(text)
        except MalformedError as error:
            raise InvalidInputError(f"trigger {text[:60]!r}: {error.detail}", code="invalid_trigger") from error
        assert isinstance(value, dict)  # noqa: S101 - it begins with a brace
        return value
    clauses = list[JsonObject]()
    for part in text.split(","):
        clause = _CLAUSE.fullmatch(part)
        if clause is None:
            raise InvalidInputError(
                f"trigger {text[:60]!r} is not like 'messages > 30, tokens > 3000' (messages, tokens, loops, fraction)",
                code="invalid_trigger",
            )
        number = float(clause[2]) if clause[1] == "fraction" or "." in clause[2] else int(clause[2])
        clauses.append({f"{clause[1]}_over": number})
    return {"any": [*clauses]}


class Watch:
    """One session's summaries, looked at from outside while it grows: what appends answer, and what windows show."""

    def __init__(self) -> None:
        self.found = Compression(sessions=1)
        self._loops = dict[int, int]()
        self._newest = 0

    def appended(self, answer: Appended) -> None:
        self.found.asked += answer.compression == "queued"
        self._loops[answer.first] = self._newest = answer.loop or self._newest

    def fault(self, window: WindowAnswer) -> str | None:
        """What the window's summary stands for and must not, if it does."""
        for part in window.manifest.parts:
            if part.kind == "summary" and part.last is not None:
                return self._covers_too_much(part.last)
        return None

    def _covers_too_much(self, last: int) -> str | None:
        covered = max((loop for position, loop in self._loops.items() if position <= last), default=0)
        if covered < self._newest - KEEP_LOOPS:
            return None
        return f"a summary up to position {last} covers loop {covered} while loop {self._newest} is open"

    def ended(self, session: Session, jobs: Iterable[Job], positions: Iterable[int]) -> list[str]:
        """Takes the sums of a session whose jobs are over, and says what is wrong. ``positions`` are those of its messages."""
        mine = list(jobs)
        self.found.jobs.update(_ending(job) for job in mine)
        known, head = set(positions), session.info().head
        others = {position for position in range(2, head + 1) if position not in known}
        self.found.made = len(others)
        summary = session.summary()
        faults = [f"the job {job.job_id} is {_ending(job)}" for job in mine if _ending(job) in ("pending", "failed")]
        published = {job.result["position"] for job in mine if job.result and job.result["status"] == "published"}
        faults += [f"the summary at {position} is not in the log" for position in published - others]
        if summary is not None:
            self._take(summary)
            faults += self._faults(session, summary, known, others)
        elif others:
            faults.append(f"{len(others)} commits are neither messages nor in force")
        self.found.wrong += len(faults) - self.found.jobs["pending"] - self.found.jobs["failed"]
        return faults

    def _take(self, summary: SummaryAnswer) -> None:
        self.found.loops = summary.last_loop - summary.first_loop + 1
        self.found.messages, self.found.source_tokens = summary.messages, summary.source_tokens
        self.found.tokens, self.found.facts = summary.tokens, len(summary.facts)

    def _faults(self, session: Session, summary: SummaryAnswer, known: set[int], others: set[int]) -> Iterable[str]:
        if summary.position not in others:
            yield f"the summary at {summary.position} stands where a message does"
        covered = sum(summary.first <= position <= summary.last for position in known)
        if covered != summary.messages:
            yield f"the summary counts {summary.messages} messages in {summary.first} to {summary.last}, not {covered}"
        too_much = self._covers_too_much(summary.last)
        if too_much:
            yield too_much
        unfinished = [one.loop for one in session.loops() if one.status == "open" and one.loop <= summary.last_loop]
        if unfinished:
            yield f"the summary covers loop {unfinished[0]}, which is open"


def _ending(job: Job) -> str:
    """done jobs by what came of them: published, unchanged, postponed."""
    if job.status == "done" and job.result is not None:
        return str(job.result.get("status", "done"))
    return "pending" if job.status == "queued" else job.status


def wait_for_jobs(log: Turnlog, sessions: Iterable[str], *, seconds: float) -> dict[str, list[Job]]:
    """The compress jobs of sessions, once none of them is pending; after ``seconds`` as they are then.

    In a process without a worker, it does them.
    """
    mine, pause = set(sessions), threading.Event()
    for _ in range(int(seconds / _PAUSE_SECONDS)):
        if not log.run_jobs() and not any(job.session_id in mine for job in log.jobs(status="queued")):
            break
        pause.wait(_PAUSE_SECONDS)
    found: dict[str, list[Job]] = {session_id: [] for session_id in mine}
    for job in log.jobs():
        if job.session_id in mine and job.kind == "compress":
            found[job.session_id].append(job)
    return found
