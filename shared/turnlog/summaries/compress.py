"""Compressing a session: a summary of closed loops as the log's next commit. What it covers stays in the log.

A summary is published only while the one that it continues is still in force, and never waits for an append nor an append
for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from turnlog.core.errors import TurnlogError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.jobs.models import Job
from turnlog.jobs.worker import RETRYABLE, StartJobs
from turnlog.log.idempotency import raw_request_key, request_key
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import RequestKey
from turnlog.ports import Signals, Summariser, TokenCounter
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.current import summary_answer
from turnlog.summaries.models import Compressed, CompressSession
from turnlog.summaries.rounds import RoundResult, Rounds, UnansweredError
from turnlog.summaries.trigger import Attempts, read_attempts, write_attempts

WORK_SECONDS = 20
"""No request and no job begins another round after that time."""
JOB_ROUNDS = 8
"""Rounds of one job; what is left to cover is the next job's."""
_log = logging.getLogger("turnlog")


class CompressSessions:
    """The use case: cover closed loops up to where the policy's windows show what is said, a bounded round at a time."""

    def __init__(
        self,
        log: SessionLog,
        counter: TokenCounter,
        summariser: Summariser,
        outliner: Summariser,
        start_job: StartJobs,
        *,
        longest_summary_ms: int = 0,
        models: Mapping[str, int] | None = None,
        signals: Signals | None = None,
    ) -> None:
        self._log = log
        self._counter = counter
        self._summariser = summariser
        self._outliner = outliner
        self._start_job = start_job
        self._models = models
        self._signals = signals
        self._work_ms = max(0, WORK_SECONDS * 1000 - longest_summary_ms)

    def __call__(
        self, owner: Owner, session_id: str, body: CompressSession, *, key: str | None = None
    ) -> Compressed | Job:
        """The outcome; or a job, in mode ``async`` and when there is more to do than fits `WORK_SECONDS`."""
        keys, options = SessionKeys(owner, session_id), body.model_dump(exclude={"mode"})
        request = request_key(key, f"compress {session_id}", body)
        if body.mode == "async":
            self._log.commits.tail(keys)
            return self._start_job(owner, "compress", session_id, options, request)
        try:
            outcome = self._rounds(keys, body, request)
        except UnansweredError as unanswered:
            raise unanswered.error from unanswered
        if outcome.has_more:
            rest = raw_request_key(key, f"compress {session_id} rest", options)
            return self._start_job(owner, "compress", session_id, options, rest)
        return Compressed(
            status="published" if outcome.published else "unchanged",
            reason=outcome.reason,
            summary=summary_answer(outcome.summary) if outcome.summary is not None else None,
        )

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """A job's work. Its result has positions and counts; what it has no time for is another job's, which it starts."""
        keys, body = SessionKeys(owner, session_id), CompressSession.model_validate(options)
        try:
            outcome = self._rounds(keys, body, None, most=JOB_ROUNDS)
        except UnansweredError as unanswered:
            # Receives of the queue count poison: an outage uses none up. The session's appends ask again (S4).
            return {"status": "postponed", "reason": unanswered.error.error_code, "position": None, "last": None}
        except RETRYABLE:
            raise
        except TurnlogError:
            self._remember(keys, lambda attempts, loop: attempts.failed(loop))
            raise
        if outcome.published:
            self._remember(keys, lambda _attempts, _loop: Attempts())
        elif outcome.reason == "not_worth_it":
            self._remember(keys, lambda attempts, loop: attempts.saved_nothing(loop))
        event = outcome.summary.event if outcome.summary is not None else None
        result: JsonObject = {
            "status": "published" if outcome.published else "unchanged",
            "reason": outcome.reason,
            "position": event.position if event is not None else None,
            "last": event.last if event is not None else None,
        }
        if outcome.has_more:
            # Named by how far this one came: however often it is delivered, there is one next job.
            came = event.position if event is not None else 0
            rest = raw_request_key(f"turnlog rest {session_id} {came}", "compress rest", options)
            result["next_job"] = self._start_job(owner, "compress", session_id, options, rest).job_id
        return result

    def _rounds(
        self, keys: SessionKeys, body: CompressSession, request: RequestKey | None, *, most: int | None = None
    ) -> RoundResult:
        """Rounds while there is more to cover and time for it; one at least."""
        rounds = Rounds(self._log, self._counter, self._summariser, self._outliner, self._models)
        deadline_ms, made = self._log.clock.now_ms() + self._work_ms, 1
        outcome = rounds.one(keys, body, request)
        while outcome.has_more and made != most and self._log.clock.now_ms() < deadline_ms:
            outcome, made = outcome.then(rounds.one(keys, body, None)), made + 1
        return outcome

    def _remember(self, keys: SessionKeys, change: Callable[[Attempts, int], Attempts]) -> None:
        """How a job went, for the next append that would ask."""
        before = read_attempts(self._log.items, keys)
        loop = self._log.commits.tail(keys).header.flow.loop.number
        after = change(before, loop)
        if after == before:
            return
        write_attempts(self._log.items, keys, after)
        if after.is_off(loop) and not before.is_off(loop):
            if self._signals is not None:
                self._signals.count("compression_off")
            _log.warning("compression is off: %d failures, %d useless attempts", after.failures, after.useless)
