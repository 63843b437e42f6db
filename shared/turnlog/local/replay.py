"""Replaying conversations: append message by message, ask a window before each reply, check everything that comes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from turnlog.client.model import Session, Turnlog
from turnlog.codecs.rules import FORMATS, lint
from turnlog.contracts.context import WindowAnswer
from turnlog.domain.errors import BudgetTooSmallError, TurnlogError, UnavailableError
from turnlog.domain.jsonvalue import canonical_json
from turnlog.local.transcripts import Transcript

MAX_FINDINGS = 50
_WINDOW_OVERHEAD = 3
_MAX_TITLE_CHARS = 200


@dataclass(slots=True)
class Row:
    """Sums. ``tokens_full`` is what sending everything at each call would take, ``tokens_window`` what the windows take,
    ``tokens_stable`` how many of these are as the call before was sent them; ``breaks`` counts by reason the windows whose
    beginning is not.

    ``lost`` counts messages that did not come back, or not equal as JSON, or not in their place. Calls for which no window
    fits the budget are in ``too_small`` and in no other column.
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
    """Something that is wrong: in which session, where, and what."""

    session: str
    source: str
    code: str
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """One model call: what sending everything takes, what the window takes (None: none fits), and whether it is valid."""

    full: int
    window: int | None
    is_valid: bool


@dataclass(slots=True)
class Outcome:
    """What became of one conversation. ``repeated_ids`` counts calls whose id stood earlier in the session."""

    id: str
    source: str
    session_id: str | None = None
    row: Row = field(default_factory=lambda: Row(sessions=1))
    warnings: Counter[str] = field(default_factory=Counter)
    repeated_ids: int = 0
    findings: list[Finding] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """All outcomes, summed per source. ``ok``: every message came back and every window was valid."""

    rows: dict[str, Row] = field(default_factory=dict)
    total: Row = field(default_factory=Row)
    warnings: Counter[str] = field(default_factory=Counter)
    repeated_ids: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.total.invalid or self.total.lost or self.total.failed)

    def add(self, outcome: Outcome) -> None:
        self.rows.setdefault(outcome.source, Row()).add(outcome.row)
        self.total.add(outcome.row)
        self.warnings.update(outcome.warnings)
        self.repeated_ids += outcome.repeated_ids
        self.findings += outcome.findings[: MAX_FINDINGS - len(self.findings)]

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "sources": {name: _row_json(row) for name, row in sorted(self.rows.items())},
            "total": _row_json(self.total),
            "warnings": dict(sorted(self.warnings.items())),
            "repeated_ids": self.repeated_ids,
            "findings": [asdict(finding) for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Replay:
    """How to replay: the windows to ask for, and how many conversations at once (each in its own session).

    Without the recall tools, so that what a window takes is compared with sending the same messages and nothing else.
    """

    policy: str | Mapping[str, Any] | None = None
    budget: int | None = None
    format: str = "openai_chat"
    threads: int = 4
    recall: Literal["always", "never"] = "never"

    def run(
        self, log: Turnlog, transcripts: Sequence[Transcript], *, on_message: Callable[[], None] | None = None
    ) -> Report:
        """Replays into new sessions of ``log``; ``on_message`` is called after each message, by several threads.

        An error in one session is a finding; only a service that is gone (`UnavailableError`) ends it all.
        """
        report, stop = Report(), threading.Event()

        def tick() -> None:
            if stop.is_set():
                raise _StoppedError("stopped")
            if on_message is not None:
                on_message()

        with ThreadPoolExecutor(self.threads, thread_name_prefix="turnlog-replay") as pool:
            futures = [pool.submit(self.one, log, transcript, on_message=tick) for transcript in transcripts]
            try:
                for future in as_completed(futures):
                    report.add(future.result())
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        report.findings.sort(key=lambda finding: (finding.source, finding.session, finding.place))
        return report

    def one(self, log: Turnlog, transcript: Transcript, *, on_message: Callable[[], None] | None = None) -> Outcome:
        """Replays one conversation into a new session."""
        outcome = Outcome(transcript.id, transcript.source)
        outcome.row.messages = len(transcript.messages)
        judge, session = _Judge(outcome, self.format), None
        try:
            session = log.sessions.create(
                title=transcript.id[:_MAX_TITLE_CHARS],
                system=transcript.system,
                tools=transcript.tools or None,
                metadata={"source": transcript.source},
                recall=self.recall,
            )
            outcome.session_id = session.id
            self._append_all(session, transcript.messages, judge, on_message)
        except (UnavailableError, _StoppedError):
            raise
        except TurnlogError as error:
            outcome.row.failed += 1
            judge.find(error.error_code, "", error.detail)
        if session is not None:
            judge.check_history(session, transcript.messages)
            judge.check_loops(session)
        else:
            outcome.row.lost += len(transcript.messages)
        return outcome

    def _append_all(
        self, session: Session, messages: Sequence[Any], judge: _Judge, on_message: Callable[[], None] | None
    ) -> None:
        tokens = 0
        for at, message in enumerate(messages):
            if at and message.get("role") == "assistant":
                self._ask(session, tokens, f"/messages/{at}", judge)
            appended = session.append(message, key=f"replay-{at}")
            tokens += appended.tokens
            judge.check_position(at, appended.first, appended.head)
            judge.outcome.warnings.update(warning.code for warning in appended.warnings)
            if on_message is not None:
                on_message()

    def _ask(self, session: Session, tokens: int, place: str, judge: _Judge) -> None:
        try:
            window = session.context(policy=self.policy, budget=self.budget, format=self.format)
        except BudgetTooSmallError:
            judge.outcome.row.too_small += 1
            judge.outcome.calls.append(Call(tokens + _WINDOW_OVERHEAD, None, True))
            return
        judge.check_window(window, tokens, place)


class _StoppedError(Exception):
    """Another conversation's failure has ended the replay."""


class _Judge:
    """Compares what comes back with what was sent."""

    def __init__(self, outcome: Outcome, format: str) -> None:
        self.outcome = outcome
        self._format = format

    def find(self, code: str, place: str, message: str) -> None:
        if len(self.outcome.findings) < MAX_FINDINGS:
            self.outcome.findings.append(Finding(self.outcome.id, self.outcome.source, code, place, message))

    def check_position(self, at: int, position: int, head: int) -> None:
        # Position 1 is the session's creation, and nothing but messages is appended.
        if position != at + 2 or head != at + 2:
            self.outcome.row.lost += 1
            self.find("position", f"/messages/{at}", f"appended at {position} with the head {head}, not at {at + 2}")

    def check_window(self, window: WindowAnswer, tokens: int, place: str) -> None:
        """``tokens`` is the sum over all messages so far."""
        row, fixed = self.outcome.row, _WINDOW_OVERHEAD
        fixed += sum(part.tokens for part in window.manifest.parts if part.kind in ("system", "tools"))
        row.windows += 1
        row.tokens_full += tokens + fixed
        row.tokens_window += window.tokens
        row.tokens_stable += window.prefix.stable_tokens
        if window.prefix.reason not in (None, "first"):
            row.broke(str(window.prefix.reason))
        faults = [(fault.rule, fault.pointer, fault.message) for fault in self._lint(window.messages)]
        if window.tokens > window.manifest.budget.tokens:
            faults.append(("over_budget", "", f"{window.tokens} tokens of {window.manifest.budget.tokens}"))
        if faults:
            row.invalid += 1
            rule, pointer, message = faults[0]
            self.find(rule, place, f"window {pointer}: {message}")
        self.outcome.calls.append(Call(tokens + fixed, window.tokens, not faults))

    def check_history(self, session: Session, messages: Sequence[Any]) -> None:
        """Every message is there, in its place, equal as JSON; and nothing else is."""
        sent = {at + 2: message for at, message in enumerate(messages)}
        previous = 0
        for stored in session.messages():
            place, known = f"position {stored.position}", stored.position in sent
            given = sent.pop(stored.position, None)
            if not known or stored.position <= previous:
                self._lose("order", place, f"a message that is not expected after position {previous}")
            elif canonical_json(given) != canonical_json(stored.body):
                self._lose(
                    "unequal", place, f"the message differs from the one sent, at {_difference(given, stored.body)!r}"
                )
            previous = stored.position
        self.outcome.row.lost += len(sent)
        if sent:
            self.find("lost", f"position {min(sent)}", f"{len(sent)} messages are not in the history")

    def _lose(self, code: str, place: str, message: str) -> None:
        self.outcome.row.lost += 1
        self.find(code, place, message)

    def check_loops(self, session: Session) -> None:
        """Counts repeated call ids over the whole session; a window of open calls sees only some of them."""
        seen: set[str] = set()
        for loop in reversed(list(session.loops())):
            for call in loop.tool_calls:
                self.outcome.repeated_ids += call.call_id in seen
                if call.call_id:
                    seen.add(call.call_id)

    def _lint(self, messages: list[dict[str, Any]]) -> Iterable[Any]:
        return lint(messages, format=self._format) if self._format in FORMATS else ()


def _difference(given: Any, stored: Any, pointer: str = "") -> str:
    """The JSON pointer of the first thing that is not the same."""
    if isinstance(given, dict) and isinstance(stored, dict) and given.keys() == stored.keys():
        pairs = [(str(key), given[key], stored[key]) for key in given]
    elif isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        pairs = [(str(at), one, other) for at, (one, other) in enumerate(zip(given, stored, strict=True))]
    else:
        return pointer
    for name, one, other in pairs:
        if canonical_json(one) != canonical_json(other):
            return _difference(one, other, f"{pointer}/{name}")
    return pointer


def _row_json(row: Row) -> dict[str, Any]:
    breaks = dict(sorted(row.breaks.items()))
    return {**asdict(row), "breaks": breaks, "ratio": None if row.ratio is None else round(row.ratio, 4)}
