"""The summary in force: told, and discarded."""

from __future__ import annotations

from dataclasses import replace

from turnlog.core.errors import NotFoundError
from turnlog.core.events import DiscardEvent
from turnlog.core.identity import Owner
from turnlog.core.summaries import CompressionRequest
from turnlog.core.times import rfc3339
from turnlog.jobs.models import Job
from turnlog.jobs.worker import StartJobs
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import following
from turnlog.log.idempotency import raw_request_key
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.request_keys import RequestKey
from turnlog.log.summary_cache import CurrentSummary
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.models import CompressSession, Fact, SummaryAnswer


class GetSummary:
    """The use case: the summary in force."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str) -> SummaryAnswer:
        keys = SessionKeys(owner, session_id)
        summary = self._log.summaries.in_force(keys, self._log.commits.tail(keys).header.summary)
        if summary is None:
            raise NotFoundError(f"session {session_id!r} has no summary yet", code="no_summary")
        return summary_answer(summary)


class DiscardSummary:
    """The use case: from now on no summary is in force, and a job makes one of the history, as if there had been none.

    Nothing is rewritten: windows of earlier moments have the summary that was in force then.
    """

    def __init__(self, log: SessionLog, start_job: StartJobs) -> None:
        self._log = log
        self._start_job = start_job

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Job:
        """The job. Without a summary in force, and when it is asked for again, nothing is discarded."""
        keys, request = SessionKeys(owner, session_id), raw_request_key(key, f"discard summary {session_id}", {})
        self._start_job.check("compress")
        position = self._discarded_at(keys, request)
        if request is None and position is not None:
            request = raw_request_key(f"turnlog discarded {session_id} {position}", "rebuild", {})
        options = CompressSession().model_dump(exclude={"mode"})
        return self._start_job(owner, "compress", session_id, options, request)

    def _discarded_at(self, keys: SessionKeys, request: RequestKey | None) -> int | None:
        """The position of the commit, of this request or of the same one before."""
        attempt, jobs = self._log.commits.attempt(keys, request), OwnerKeys(keys.owner).jobs

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            if header.summary is None:
                raise _NothingInForce
            if not attempt.is_first and self._log.records.claimed(jobs, request) is not None:
                raise _NothingInForce  # the job of an earlier attempt has made the summary that is in force
            new = following(header, kind="d", events=1, now_ms=self._log.clock.now_ms())
            # The rebuild is asked for: appends need not.
            asked = CompressionRequest(new.flow.loop.number, new.time_ms)
            return Draft(replace(new, summary=None, asked=asked), (DiscardEvent(new.first, header.summary.position),))

        try:
            written = self._log.commits.write_attempt(attempt, compose)
        except _NothingInForce:
            return None
        self._log.touch(keys, written.tail, written.commit.header)
        return written.commit.header.first


class _NothingInForce(Exception):  # noqa: N818 - a turn of events, not an error
    """There is no summary to discard."""


def summary_answer(summary: CurrentSummary) -> SummaryAnswer:
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
