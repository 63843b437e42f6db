"""The current summary of a session: return it, and discard it."""

from __future__ import annotations

from dataclasses import replace

from turnlog.core.errors import NotFoundError
from turnlog.core.events import DiscardEvent
from turnlog.core.identity import Owner
from turnlog.core.summaries import CompressionRequest
from turnlog.core.times import rfc3339
from turnlog.jobs.models import Job
from turnlog.jobs.worker import StartJobs
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import following
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.request_keys import RequestKey, raw_request_key
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.routes import CompressSession, Fact, SummaryAnswer
from turnlog.summaries.store import CurrentSummary, Summaries


class GetSummary:
    """Use case: return the current summary; raise `NotFoundError` with the code ``no_summary`` if there is none."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

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
        attempt, jobs = self._log.commits.attempt(keys, request), OwnerKeys(keys.owner).jobs

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
            written = self._log.commits.write_attempt(attempt, compose)
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
