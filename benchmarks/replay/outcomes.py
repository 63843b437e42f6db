"""Results of a replay: counts and findings of each conversation, and their sums by source."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import JsonObject, parse_strict_json
from turnlog.jobs.models import Job
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import Appended
from turnlog.summaries.routes import SummaryAnswer
from turnlog.summaries.trigger import KEEP_LOOPS
from turnlog.windows.policy import policy_of

OWN_TRIGGER = "policy"
_PAUSE_SECONDS = 0.1
_CLAUSE = re.compile(r"\s*(messages|tokens|loops|fraction)\s*>\s*(\d[\d_]*(?:\.\d+)?)\s*")


@dataclass(slots=True)
class Compression:
    """Counts about summaries of replayed sessions.

    ``asked`` counts appends that triggered a summary, ``made`` the published summaries. ``loops``, ``messages`` and
    ``source_tokens`` are covered by the summaries current at the end, which take ``tokens``. ``jobs`` counts jobs by how they
    ended; ``pending`` ones did not. ``wrong`` counts summaries that cover open or newest loops or miscount their messages, and
    invalid windows at the end.
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
        for attribute in fields(self):
            setattr(self, attribute.name, getattr(self, attribute.name) + getattr(other, attribute.name))

    def as_json(self) -> JsonObject:
        return {**asdict(self), "jobs": dict(sorted(self.jobs.items())), "saved": self.saved}


def compressing_policy(policy: str | Mapping[str, Any] | None, trigger: str) -> JsonObject:
    """Return the body of a policy with a compression trigger.

    ``trigger`` is a text such as ``messages > 30, tokens > 3000`` (also ``loops`` and ``fraction``), a trigger's JSON, or
    ``policy`` for the policy's own trigger. Raises `InvalidInputError` for other texts, and for a policy without a trigger.
    """
    resolved = policy_of("default" if policy is None else policy if isinstance(policy, str) else dict(policy))
    body: JsonObject = resolved.model_dump(mode="json")
    if trigger != OWN_TRIGGER:
        body["compress"] = _trigger(trigger)
    elif resolved.compress is None:
        raise InvalidInputError("the policy has no trigger of its own", code="invalid_trigger")
    policy_of(body)
    return body


def _trigger(text: str) -> JsonObject:
    if text.lstrip().startswith("{"):
        try:
            value = parse_strict_json(text)
        except MalformedError as error:
            raise InvalidInputError(f"trigger {text[:60]!r}: {error.detail}", code="invalid_trigger") from error
        assert isinstance(value, dict)
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


class SummaryWatch:
    """Checks the summaries of one session while it grows, from the answers of appends and windows."""

    def __init__(self) -> None:
        self.totals = Compression(sessions=1)
        self._loops = dict[int, int]()
        self._newest = 0

    def appended(self, answer: Appended) -> None:
        self.totals.asked += answer.compression == "queued"
        self._loops[answer.first] = self._newest = answer.loop or self._newest

    def fault(self, window: WindowAnswer) -> str | None:
        """Describe loops that the window's summary covers but must not, or return None."""
        for part in window.manifest.parts:
            if part.kind == "summary" and part.last is not None:
                return self._covers_too_much(part.last)
        return None

    def _covers_too_much(self, last: int) -> str | None:
        covered = max((loop for position, loop in self._loops.items() if position <= last), default=0)
        has_more = any(loop == covered for position, loop in self._loops.items() if position > last)
        if covered < self._newest - KEEP_LOOPS or has_more:
            # A summary that ends within a loop covers steps of it.
            return None
        return f"a summary up to position {last} covers loop {covered} while loop {self._newest} is open"

    def ended(self, session: Session, jobs: Iterable[Job], positions: Iterable[int]) -> list[str]:
        """Count the summaries of a session whose jobs have ended, and return descriptions of faults.

        ``positions`` are those of its messages.
        """
        mine = list(jobs)
        self.totals.jobs.update(_ending(job) for job in mine)
        known, head = set(positions), session.info().head
        others = {position for position in range(2, head + 1) if position not in known}
        self.totals.made = len(others)
        summary = session.summary()
        faults = [f"the job {job.job_id} is {_ending(job)}" for job in mine if _ending(job) in ("pending", "failed")]
        published = {job.result["position"] for job in mine if job.result and job.result["status"] == "published"}
        faults += [f"the summary at {position} is not in the log" for position in published - others]
        if summary is not None:
            self._take(summary)
            faults += self._faults(session, summary, known, others)
        elif others:
            faults.append(f"{len(others)} commits are neither messages nor the current summary")
        self.totals.wrong += len(faults) - self.totals.jobs["pending"] - self.totals.jobs["failed"]
        return faults

    def _take(self, summary: SummaryAnswer) -> None:
        self.totals.loops = summary.last_loop - summary.first_loop + 1
        self.totals.messages, self.totals.source_tokens = summary.messages, summary.source_tokens
        self.totals.tokens, self.totals.facts = summary.tokens, len(summary.facts)

    def _faults(self, session: Session, summary: SummaryAnswer, known: set[int], others: set[int]) -> Iterable[str]:
        if summary.position not in others:
            yield f"the summary at {summary.position} has the position of a message"
        covered = sum(summary.first <= position <= summary.last for position in known)
        if covered != summary.messages:
            yield f"the summary counts {summary.messages} messages in {summary.first} to {summary.last}, not {covered}"
        too_much = self._covers_too_much(summary.last)
        if too_much:
            yield too_much
        unfinished = [loop.loop for loop in session.loops() if loop.status == "open" and loop.loop <= summary.last_loop]
        if unfinished:
            yield f"the summary covers loop {unfinished[0]}, which is open"


def _ending(job: Job) -> str:
    """Return how a job ended: published, unchanged, postponed or failed; pending while it has not."""
    if job.status == "done" and job.result is not None:
        return str(job.result.get("status", "done"))
    return "pending" if job.status == "queued" else job.status


def wait_for_jobs(log: Turnlog, sessions: Iterable[str], *, seconds: float) -> dict[str, list[Job]]:
    """Wait up to ``seconds`` for the queued jobs of sessions, and return the compress jobs of each session.

    Without a service, this process runs the jobs.
    """
    mine, pause = set(sessions), threading.Event()
    for _ in range(int(seconds / _PAUSE_SECONDS)):
        if not log.run_jobs() and not any(job.session_id in mine for job in log.jobs(status="queued")):
            break
        pause.wait(_PAUSE_SECONDS)
    by_session: dict[str, list[Job]] = {session_id: [] for session_id in mine}
    for job in log.jobs():
        if job.session_id in mine and job.kind == "compress":
            by_session[job.session_id].append(job)
    return by_session


MAX_FINDINGS = 50


@dataclass(slots=True)
class Row:
    """Counts of one source, or of all.

    ``tokens_full`` is the cost of sending all messages at each call, ``tokens_window`` that of the windows. ``tokens_stable`` of
    the latter repeat the previous call's window from its beginning. ``breaks`` counts windows that do not, by reason.

    ``lost`` counts messages that did not come back, came back in another place, or unequal as JSON. Calls for which no window
    fits the budget count only in ``too_small``.
    """

    sessions: int = 0
    messages: int = 0
    windows: int = 0
    tokens_full: int = 0
    tokens_window: int = 0
    tokens_stable: int = 0
    invalid: int = 0
    lost: int = 0
    too_small: int = 0
    failed: int = 0
    breaks: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.tokens_window / self.tokens_full if self.tokens_full else None

    def add(self, other: Row) -> None:
        for name, value in asdict(other).items():
            if name != "breaks":
                setattr(self, name, getattr(self, name) + value)
        for reason, count in other.breaks.items():
            self.broke(reason, count)

    def broke(self, reason: str, count: int = 1) -> None:
        self.breaks[reason] = self.breaks.get(reason, 0) + count


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a replay detected: its session, place and description."""

    session: str
    source: str
    code: str
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One model call: tokens of all messages, tokens of its window (None: none fits), and whether the window is valid."""

    full: int
    window: int | None
    is_valid: bool


@dataclass(slots=True)
class ReplayOutcome:
    """The result of one replayed conversation.

    ``repeated_ids`` counts calls whose id the session has used before. ``compression`` is None without summaries.
    """

    id: str
    source: str
    session_id: str | None = None
    row: Row = field(default_factory=lambda: Row(sessions=1))
    warnings: Counter[str] = field(default_factory=Counter)
    repeated_ids: int = 0
    findings: list[Finding] = field(default_factory=list)
    calls: list[ReplayedCall] = field(default_factory=list)
    compression: Compression | None = None

    def find(self, code: str, place: str, message: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(self.id, self.source, code, place, message))


@dataclass(slots=True)
class ReplayReport:
    """All outcomes of a replay, summed by source. ``sessions`` lists the summaries of each session.

    ``ok``: every message came back and every window was valid. With summaries, also every job has ended without failure and no
    summary covers loops that it must not.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    total: Row = field(default_factory=Row)
    warnings: Counter[str] = field(default_factory=Counter)
    repeated_ids: int = 0
    findings: list[Finding] = field(default_factory=list)
    compressed: dict[str, Compression] = field(default_factory=dict)
    sessions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        is_well = not (self.total.invalid or self.total.lost or self.total.failed)
        return is_well and all(compression.ok for compression in self.compressed.values())

    def add(self, outcome: ReplayOutcome) -> None:
        self.rows.setdefault(outcome.source, Row()).add(outcome.row)
        self.total.add(outcome.row)
        self.warnings.update(outcome.warnings)
        self.repeated_ids += outcome.repeated_ids
        self.findings += outcome.findings[: MAX_FINDINGS - len(self.findings)]
        if outcome.compression is not None:
            self.compressed.setdefault(outcome.source, Compression()).add(outcome.compression)
            identity = {"session": outcome.id, "source": outcome.source, "session_id": outcome.session_id}
            self.sessions.append({**identity, **outcome.compression.as_json()})

    @property
    def all_compressed(self) -> Compression:
        total = Compression()
        for compression in self.compressed.values():
            total.add(compression)
        return total

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "sources": {name: _row_json(row) for name, row in sorted(self.rows.items())},
            "total": _row_json(self.total),
            "warnings": dict(sorted(self.warnings.items())),
            "repeated_ids": self.repeated_ids,
            "findings": [asdict(finding) for finding in self.findings],
            **(self._compression_json() if self.compressed else {}),
        }

    def _compression_json(self) -> dict[str, Any]:
        sources = {name: compression.as_json() for name, compression in sorted(self.compressed.items())}
        sessions = sorted(self.sessions, key=lambda entry: (entry["source"], entry["session"]))
        total = self.all_compressed.as_json()
        return {"compression": {"sources": sources, "total": total, "sessions": sessions}}


def _row_json(row: Row) -> dict[str, Any]:
    breaks = dict(sorted(row.breaks.items()))
    return {**asdict(row), "breaks": breaks, "ratio": None if row.ratio is None else round(row.ratio, 4)}
