"""The summary in force, as it is told."""

from __future__ import annotations

from turnlog.contracts.summaries import Fact, SummaryAnswer
from turnlog.domain.errors import NotFoundError
from turnlog.domain.identity import Owner
from turnlog.domain.times import rfc3339
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.log.summaries import Summary


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


def summary_answer(summary: Summary) -> SummaryAnswer:
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
