"""Compress a session: write a summary of closed loops as the log's next commit; return and discard the current summary.

The summarised messages stay in the log. A summary is published only if the summary that it continues is still the current one.
Summaries and appends never wait for each other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from turnlog.core.errors import NotFoundError, TurnlogError
from turnlog.core.events import DiscardEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.summaries import CompressionRequest
from turnlog.core.times import rfc3339
from turnlog.jobs.models import Job
from turnlog.jobs.worker import OutageError, StartJobs
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import following
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.request_keys import Attempt, RequestKey, raw_request_key, request_key
from turnlog.ports import Signals, Summariser, TokenCounter
from turnlog.sessions.session_log import LogUseCase, SessionLog
from turnlog.summaries.rounds import RoundResult, Rounds
from turnlog.summaries.routes import Compressed, CompressSession, Fact, SummaryAnswer
from turnlog.summaries.store import CurrentSummary, Summaries
from turnlog.summaries.trigger import Attempts, SummaryTrigger, read_attempts, write_attempts

WORK_SECONDS = 20
"""Time after which a request or a job begins no further round."""
JOB_ROUNDS = 8
"""Rounds of one job; the next job covers the rest."""
_log = logging.getLogger("turnlog")


@lazy_dataclass(frozen=True, slots=True)
class CompressSessions:
    """Use case: summarise the closed loops that the policy's windows don't show in full, in bounded rounds."""

    log: SessionLog
    counter: TokenCounter
    summariser: Summariser
    outliner: Summariser
    start_job: StartJobs
    signals: Signals
    longest_summary_ms: int = 0
    models: Mapping[str, int] | None = None

    def __call__(
        self, owner: Owner, session_id: str, body: CompressSession, *, key: str | None = None
    ) -> Compressed | Job:
        """Compress the session and return the result; in mode ``async``, or if the work exceeds `WORK_SECONDS`, return a job."""
        keys, options = SessionKeys(owner, session_id), body.model_dump(exclude={"mode"})
        request = request_key(key, f"compress {session_id}", body)
        if body.mode == "async":
            Attempt(self.log.commits, keys, request).read()  # a commit may have the key
            return self.start_job(owner, "compress", session_id, options, request)
        try:
            result = self._rounds(keys, body, request)
        except OutageError as outage:
            raise outage.error from outage
        if result.has_more:
            return self.start_job(owner, "compress", session_id, options, request)
        return Compressed(
            status="published" if result.published else "unchanged",
            reason=result.reason,
            summary=summary_answer(result.summary) if result.summary is not None else None,
        )

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """Do the work of a job and return the job's result: positions and counts. Start another job if there is more to cover."""
        keys, body = SessionKeys(owner, session_id), CompressSession.model_validate(options)
        try:
            outcome = self._rounds(keys, body, None, limit=JOB_ROUNDS)
        except OutageError as outage:
            # The job ends without an error: a retry would count towards the queue's poison limit, and an outage must not use
            # that up. Later appends of the session request a summary again.
            return {"status": "postponed", "reason": outage.error.error_code, "position": None, "last": None}
        except TurnlogError as error:
            if not error.is_transient:
                self._remember(keys, None)
            raise
        tail = self._remember(keys, outcome)
        event = outcome.summary.event if outcome.summary is not None else None
        result: JsonObject = {
            "status": "published" if outcome.published else "unchanged",
            "reason": outcome.reason,
            "position": event.position if event is not None else None,
            "last": event.last if event is not None else None,
        }
        if outcome.has_more or (outcome.published and self._is_due(keys, tail)):
            # The key names the summary's position: a job that is delivered twice starts one next job.
            position = event.position if event is not None else 0
            rest = raw_request_key(f"turnlog rest {session_id} {position}", "compress rest", options)
            result["next_job"] = self.start_job(owner, "compress", session_id, options, rest).job_id
        return result

    def _rounds(
        self, keys: SessionKeys, body: CompressSession, request: RequestKey | None, *, limit: int | None = None
    ) -> RoundResult:
        """Run one round, then more while there is more to cover and time for it, at most ``limit`` rounds."""
        rounds = Rounds(self.log, self.counter, self.summariser, self.outliner, self.models)
        work_ms = max(0, WORK_SECONDS * 1000 - self.longest_summary_ms)
        deadline_ms, count = self.log.clock.now_ms() + work_ms, 1
        result = rounds.compress_once(keys, body, request)
        while result.has_more and count != limit and self.log.clock.now_ms() < deadline_ms:
            result, count = result.then(rounds.compress_once(keys, body, None)), count + 1
        return result

    def _is_due(self, keys: SessionKeys, tail: Tail) -> bool:
        """Return whether so much was appended while the job ran that there must be another. Appends have requested none."""
        settings, loop = self.log.short_settings(keys, tail).settings, tail.header.flow.loop.number
        return SummaryTrigger(settings, tail.meta, loop, self.models).is_due(tail.header)

    def _remember(self, keys: SessionKeys, outcome: RoundResult | None) -> Tail:
        """Store what the end of a job changes in the attempts that appends read, and return the end of the log.

        ``outcome`` is None for a job that failed.
        """
        tail = self.log.commits.tail(keys)
        before, loop, asked = read_attempts(tail.meta), tail.header.flow.loop.number, tail.header.asked
        if outcome is None:
            after = before.failed(loop)
        elif outcome.published:
            after = Attempts()
        else:
            after = before.saved_nothing(loop) if outcome.reason == "not_worth_it" else before
        if asked is not None and not asked.is_answered and (outcome is None or not outcome.has_more):
            after = replace(after, ended_ms=asked.time_ms)
        if after == before or tail.meta is None:
            return tail
        write_attempts(self.log.items, tail.meta, after)
        if after.is_off(loop) and not before.is_off(loop):
            self.signals.count("compression_off")
            _log.warning("compression is off: %d failures, %d useless attempts", after.failures, after.useless)
        return tail


class GetSummary(LogUseCase):
    """Use case: return the current summary; raise `NotFoundError` with the code ``no_summary`` if there is none."""

    def __call__(self, owner: Owner, session_id: str) -> SummaryAnswer:
        keys = SessionKeys(owner, session_id)
        summary = Summaries(self._log).current(keys, self._log.commits.tail(keys).header.summary)
        if summary is None:
            raise NotFoundError(f"session {session_id!r} has no summary yet", code="no_summary")
        return summary_answer(summary)


class DiscardSummary:
    """Use case: discard the current summary, and start a job that summarises the history from the beginning.

    The log is not rewritten: a window at an earlier position still has the summary that was current there.
    """

    def __init__(self, log: SessionLog, start_job: StartJobs) -> None:
        self._log = log
        self._start_job = start_job

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Job:
        """Discard the current summary and return the job. Without a current summary, or on a repeated request, only the job."""
        keys, request = SessionKeys(owner, session_id), raw_request_key(key, f"discard summary {session_id}", {})
        self._start_job.check("compress")
        position = self._discarded_at(keys, request)
        if request is None and position is not None:
            request = raw_request_key(f"turnlog discarded {session_id} {position}", "rebuild", {})
        options = CompressSession().model_dump(exclude={"mode"})
        return self._start_job(owner, "compress", session_id, options, request)

    def _discarded_at(self, keys: SessionKeys, request: RequestKey | None) -> int | None:
        """Write the commit that discards the summary, and return its position, also on a repeated request.

        Return None if there is no current summary.
        """
        attempt, jobs = Attempt(self._log.commits, keys, request), OwnerKeys(keys.owner).jobs

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            if header.summary is None:
                raise _NoSummary
            if not attempt.is_first and self._log.records.claimed(jobs, request) is not None:
                raise _NoSummary  # an earlier attempt's job has already made the current summary
            new = following(header, kind="d", events=1, now_ms=self._log.clock.now_ms())
            # This request starts the job, so appends must not start another.
            asked = CompressionRequest(new.flow.loop.number, new.time_ms)
            return Draft(replace(new, summary=None, asked=asked), (DiscardEvent(new.first, header.summary.position),))

        try:
            written = self._log.commits.write(keys, compose, begun=attempt)
        except _NoSummary:
            return None
        self._log.refresh_listing(keys, written.tail, written.commit.header)
        return written.commit.header.first


class _NoSummary(Exception):  # noqa: N818 - ends an attempt, not an error
    """There is no summary to discard."""


def summary_answer(summary: CurrentSummary) -> SummaryAnswer:
    """Return the answer that shows a summary."""
    event = summary.event
    return SummaryAnswer(
        position=event.position,
        first=event.first,
        last=event.last,
        first_loop=event.first_loop,
        last_loop=event.last_loop,
        text=event.text,
        facts=[Fact(position=position, value=value) for position, value in event.facts],
        tokens=event.tokens,
        source_tokens=event.source_tokens,
        messages=event.messages,
        base=event.base or None,
        summariser=event.summariser,
        created_at=rfc3339(summary.time_ms),
    )
