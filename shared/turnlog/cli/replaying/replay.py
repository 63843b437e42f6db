"""Replaying conversations: append message by message, ask a window before each reply, check everything that comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from turnlog.cli.replaying.outcomes import (
    MAX_FINDINGS,
    Finding,
    ReplayedCall,
    ReplayOutcome,
    ReplayReport,
    Row,
    SummaryWatch,
    compressing_policy,
    wait_for_jobs,
)
from turnlog.cli.replaying.transcripts import Transcript
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import BudgetTooSmallError, TurnlogError, UnavailableError
from turnlog.core.json_values import canonical_json
from turnlog.jobs.models import Job
from turnlog.linter.rules import FORMATS, lint
from turnlog.sessions.context_models import WindowAnswer
from turnlog.sessions.message_models import Appended

__all__ = ["MAX_FINDINGS", "Finding", "Replay", "ReplayOutcome", "ReplayReport", "ReplayedCall", "Row"]

WAIT_SECONDS = 120.0
_WINDOW_OVERHEAD = 3
_MAX_TITLE_CHARS = 200


@dataclass(frozen=True)
class Replay:
    """How to replay: the windows to ask for, and how many conversations at once (each in its own session).

    Without the recall tools, so that what a window takes is compared with sending the same messages and nothing else.

    ``compress``: sessions have the policy with this trigger (`compressing_policy`), so appends ask for summaries, which a
    worker makes while they go on. At the end it waits, for at most ``wait_seconds``, until no job is pending.
    """

    policy: str | Mapping[str, Any] | None = None
    budget: int | None = None
    format: str = "openai_chat"
    threads: int = 4
    recall: Literal["always", "never"] = "never"
    compress: str | None = None
    wait_seconds: float = WAIT_SECONDS

    @cached_property
    def session_policy(self) -> Mapping[str, Any] | None:
        """The policy that sessions are created with; `InvalidInputError` when the trigger is none."""
        return None if self.compress is None else compressing_policy(self.policy, self.compress)

    def run(
        self, log: Turnlog, transcripts: Sequence[Transcript], *, on_message: Callable[[], None] | None = None
    ) -> ReplayReport:
        """Replays into new sessions of ``log``; ``on_message`` is called after each message, by several threads.

        An error in one session is a finding; only a service that is gone (`UnavailableError`) ends it all.
        """
        report, stop = ReplayReport(), threading.Event()

        def tick() -> None:
            if stop.is_set():
                raise _StoppedError("stopped")
            if on_message is not None:
                on_message()

        played = list[_Judge]()
        with ThreadPoolExecutor(self.threads, thread_name_prefix="turnlog-replay") as pool:
            futures = [pool.submit(self._play, log, transcript, tick) for transcript in transcripts]
            try:
                for future in as_completed(futures):
                    played.append(future.result())
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._end(log, played)
        for judge in played:
            report.add(judge.outcome)
        report.findings.sort(key=lambda finding: (finding.source, finding.session, finding.place))
        return report

    def one(
        self, log: Turnlog, transcript: Transcript, *, on_message: Callable[[], None] | None = None
    ) -> ReplayOutcome:
        """Replays one conversation into a new session."""
        judge = self._play(log, transcript, on_message)
        self._end(log, [judge])
        return judge.outcome

    def _play(self, log: Turnlog, transcript: Transcript, on_message: Callable[[], None] | None) -> _Judge:
        outcome = ReplayOutcome(transcript.id, transcript.source)
        outcome.row.messages = len(transcript.messages)
        judge = _Judge(outcome, self.format, SummaryWatch() if self.compress is not None else None)
        try:
            judge.session = log.sessions.create(
                title=transcript.id[:_MAX_TITLE_CHARS],
                system=transcript.system,
                tools=transcript.tools or None,
                policy=self.session_policy,
                metadata={"source": transcript.source},
                recall=self.recall,
            )
            outcome.session_id = judge.session.id
            self._append_all(judge.session, transcript.messages, judge, on_message)
        except (UnavailableError, _StoppedError):
            raise
        except TurnlogError as error:
            outcome.row.failed += 1
            outcome.find(error.error_code, "", error.detail)
        if judge.session is not None:
            judge.check_history(judge.session, transcript.messages)
            judge.check_loops(judge.session)
        else:
            outcome.row.lost += len(transcript.messages)
        return judge

    def _end(self, log: Turnlog, played: Sequence[_Judge]) -> None:
        """With summaries: waits for the jobs, then looks at what they have made, and at the windows with it."""
        if self.compress is None:
            return
        sessions = [judge.session.id for judge in played if judge.session is not None]
        jobs = wait_for_jobs(log, sessions, seconds=self.wait_seconds)
        for judge in played:
            if judge.session is not None:
                judge.check_summaries(judge.session, jobs[judge.session.id], self._window)

    def _window(self, session: Session) -> WindowAnswer:
        policy = self.policy if self.session_policy is None else None  # the session's own
        return session.context(policy=policy, budget=self.budget, format=self.format)

    def _append_all(
        self, session: Session, messages: Sequence[Any], judge: _Judge, on_message: Callable[[], None] | None
    ) -> None:
        tokens = 0
        for at, message in enumerate(messages):
            if at and message.get("role") == "assistant":
                self._ask(session, tokens, f"/messages/{at}", judge)
            appended = session.append(message, key=f"replay-{at}")
            tokens += appended.tokens
            judge.check_position(at, appended)
            judge.outcome.warnings.update(warning.code for warning in appended.warnings)
            if on_message is not None:
                on_message()

    def _ask(self, session: Session, tokens: int, place: str, judge: _Judge) -> None:
        try:
            window = self._window(session)
        except BudgetTooSmallError:
            judge.outcome.row.too_small += 1
            judge.outcome.calls.append(ReplayedCall(tokens + _WINDOW_OVERHEAD, None, True))
            return
        judge.check_window(window, tokens, place)


class _StoppedError(Exception):
    """Another conversation's failure has ended the replay."""


class _Judge:
    """Compares what comes back with what was sent."""

    def __init__(self, outcome: ReplayOutcome, format: str, watch: SummaryWatch | None) -> None:
        self.outcome = outcome
        self.session: Session | None = None
        self._format = format
        self._watch = watch
        self._positions = dict[int, int]()
        self._head = 1

    def check_position(self, at: int, appended: Appended) -> None:
        # Position 1 is the session's creation. Nothing but messages is appended, and summaries come in between.
        position, expected = appended.first, at + 2
        is_next = position == expected if self._watch is None else position > self._head
        if not is_next or appended.head != position:
            self.outcome.row.lost += 1
            wanted = str(expected) if self._watch is None else f"behind {self._head}"
            message = f"appended at {position} with the head {appended.head}, not at {wanted}"
            self.outcome.find("position", f"/messages/{at}", message)
        self._positions[at], self._head = position, appended.head
        if self._watch is not None:
            self._watch.appended(appended)

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
        fault = next(self._faults(window), None)
        if fault is not None:
            row.invalid += 1
            self.outcome.find(fault[0], place, f"window {fault[1]}")
        self.outcome.calls.append(ReplayedCall(tokens + fixed, window.tokens, fault is None))

    def check_summaries(
        self, session: Session, jobs: Sequence[Job], window_of: Callable[[Session], WindowAnswer]
    ) -> None:
        """What the worker has made of a session whose jobs are over, and the next window with it."""
        watch = self._watch or SummaryWatch()
        found = self.outcome.compression = watch.found
        for fault in watch.ended(session, jobs, self._positions.values()):
            self.outcome.find("summary", "", fault)
        try:
            faults = list(self._faults(window_of(session)))
        except BudgetTooSmallError:
            return
        if faults:
            found.wrong += 1
            self.outcome.find(faults[0][0], "", f"the window at the end {faults[0][1]}")

    def _faults(self, window: WindowAnswer) -> Iterator[tuple[str, str]]:
        yield from ((fault.rule, f"{fault.pointer}: {fault.message}") for fault in self._lint(window.messages))
        if window.tokens > window.manifest.budget.tokens:
            yield "over_budget", f": {window.tokens} tokens of {window.manifest.budget.tokens}"
        covered = self._watch.fault(window) if self._watch is not None else None
        if covered is not None:
            yield "summary", f": {covered}"

    def check_history(self, session: Session, messages: Sequence[Any]) -> None:
        """Every message is there, in its place, equal as JSON; and nothing else is."""
        # What was not appended has no place: none where summaries come in between.
        nowhere = range(2, len(messages) + 2) if self._watch is None else range(-1, -len(messages) - 1, -1)
        sent = {self._positions.get(at, nowhere[at]): message for at, message in enumerate(messages)}
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
            self.outcome.find("lost", f"position {min(sent)}", f"{len(sent)} messages are not in the history")

    def _lose(self, code: str, place: str, message: str) -> None:
        self.outcome.row.lost += 1
        self.outcome.find(code, place, message)

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
