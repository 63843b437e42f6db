"""Replays conversations: appends message by message, requests a window before each reply, and checks every answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from benchmarks.replay.outcomes import (
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
from turnlog.cli.transcripts import Transcript
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
    """A plan of a replay: the windows to request, and how many conversations run at once, each in its own session.

    Recall tools are left out by default, so that a window is compared with sending the same messages and nothing else.

    With ``compress``, sessions get the policy with this trigger (`compressing_policy`), and a worker makes summaries while
    appends continue. At the end, the replay waits at most ``wait_seconds`` for pending jobs.
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
        """The policy of new sessions; None without ``compress``. Raises `InvalidInputError` for an invalid trigger."""
        return None if self.compress is None else compressing_policy(self.policy, self.compress)

    def run(
        self, log: Turnlog, transcripts: Sequence[Transcript], *, on_message: Callable[[], None] | None = None
    ) -> ReplayReport:
        """Replay conversations into new sessions of ``log``. Several threads call ``on_message`` after each message.

        An error in one session becomes a finding. Only `UnavailableError`, an unreachable service, ends the replay.
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

    def replay_one(
        self, log: Turnlog, transcript: Transcript, *, on_message: Callable[[], None] | None = None
    ) -> ReplayOutcome:
        """Replay one conversation into a new session."""
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
        """Wait for the jobs of summaries, then check the summaries and the windows that use them."""
        if self.compress is None:
            return
        sessions = [judge.session.id for judge in played if judge.session is not None]
        jobs = wait_for_jobs(log, sessions, seconds=self.wait_seconds)
        for judge in played:
            if judge.session is not None:
                judge.check_summaries(judge.session, jobs[judge.session.id], self._window)

    def _window(self, session: Session) -> WindowAnswer:
        policy = self.policy if self.session_policy is None else None  # None: the session has its own policy
        return session.context(policy=policy, budget=self.budget, format=self.format)

    def _append_all(
        self, session: Session, messages: Sequence[Any], judge: _Judge, on_message: Callable[[], None] | None
    ) -> None:
        tokens = 0
        for index, message in enumerate(messages):
            if index and message.get("role") == "assistant":
                self._ask(session, tokens, f"/messages/{index}", judge)
            appended = session.append(message, lenient=True, idempotency_key=f"replay-{index}")
            tokens += appended.tokens
            judge.check_position(index, appended)
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
    """Raised in the other threads when the failure of one conversation has ended the replay."""


class _Judge:
    """Compares the answers of one session with the messages sent to it."""

    def __init__(self, outcome: ReplayOutcome, format: str, watch: SummaryWatch | None) -> None:
        self.outcome = outcome
        self.session: Session | None = None
        self._format = format
        self._watch = watch
        self._positions = dict[int, int]()
        self._head = 1

    def check_position(self, index: int, appended: Appended) -> None:
        # Position 1 is the session's creation. After it come messages only, with summaries between them.
        position, expected = appended.first, index + 2
        is_next = position == expected if self._watch is None else position > self._head
        if not is_next or appended.head != position:
            self.outcome.row.lost += 1
            place = str(expected) if self._watch is None else f"behind {self._head}"
            message = f"appended at {position} with the head {appended.head}, not at {place}"
            self.outcome.find("position", f"/messages/{index}", message)
        self._positions[index], self._head = position, appended.head
        if self._watch is not None:
            self._watch.appended(appended)

    def check_window(self, window: WindowAnswer, tokens: int, place: str) -> None:
        """Count a window and check that it is valid. ``tokens`` is the sum over all messages so far."""
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
        """Check the summaries of a session whose jobs have ended, and the next window, built by ``window_of``."""
        watch = self._watch or SummaryWatch()
        totals = self.outcome.compression = watch.totals
        for fault in watch.ended(session, jobs, self._positions.values()):
            self.outcome.find("summary", "", fault)
        try:
            faults = list(self._faults(window_of(session)))
        except BudgetTooSmallError:
            return
        if faults:
            totals.wrong += 1
            self.outcome.find(faults[0][0], "", f"the window at the end {faults[0][1]}")

    def _faults(self, window: WindowAnswer) -> Iterator[tuple[str, str]]:
        yield from ((fault.rule, f"{fault.pointer}: {fault.message}") for fault in self._lint(window.messages))
        if window.tokens > window.manifest.budget.tokens:
            yield "over_budget", f": {window.tokens} tokens of {window.manifest.budget.tokens}"
        covered = self._watch.fault(window) if self._watch is not None else None
        if covered is not None:
            yield "summary", f": {covered}"

    def check_history(self, session: Session, messages: Sequence[Any]) -> None:
        """Check that the session has every message in its place, equal as JSON, and nothing else."""
        # Messages that were not appended get a position that no stored one has.
        nowhere = range(2, len(messages) + 2) if self._watch is None else range(-1, -len(messages) - 1, -1)
        sent = {self._positions.get(index, nowhere[index]): message for index, message in enumerate(messages)}
        previous = 0
        for stored in session.messages():
            place, known = f"position {stored.position}", stored.position in sent
            sent_body = sent.pop(stored.position, None)
            if not known or stored.position <= previous:
                self._lose("order", place, f"a message that is not expected after position {previous}")
            elif canonical_json(sent_body) != canonical_json(stored.body):
                self._lose(
                    "unequal",
                    place,
                    f"the message differs from the one sent, at {_difference(sent_body, stored.body)!r}",
                )
            previous = stored.position
        self.outcome.row.lost += len(sent)
        if sent:
            self.outcome.find("lost", f"position {min(sent)}", f"{len(sent)} messages are not in the history")

    def _lose(self, code: str, place: str, message: str) -> None:
        self.outcome.row.lost += 1
        self.outcome.find(code, place, message)

    def check_loops(self, session: Session) -> None:
        """Count repeated call ids over the whole session; warnings of appends cover only open calls."""
        seen: set[str] = set()
        for loop in reversed(list(session.loops())):
            for call in loop.tool_calls:
                self.outcome.repeated_ids += call.call_id in seen
                if call.call_id:
                    seen.add(call.call_id)

    def _lint(self, messages: list[dict[str, Any]]) -> Iterable[Any]:
        return lint(messages, format=self._format) if self._format in FORMATS else ()


def _difference(sent: Any, stored: Any, pointer: str = "") -> str:
    """Return the JSON pointer of the first difference between two values."""
    if isinstance(sent, dict) and isinstance(stored, dict) and sent.keys() == stored.keys():
        pairs = [(str(key), sent[key], stored[key]) for key in sent]
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = [
            (str(index), sent_value, stored_value)
            for index, (sent_value, stored_value) in enumerate(zip(sent, stored, strict=True))
        ]
    else:
        return pointer
    for name, sent_value, stored_value in pairs:
        if canonical_json(sent_value) != canonical_json(stored_value):
            return _difference(sent_value, stored_value, f"{pointer}/{name}")
    return pointer
