"""Compressing a session: a summary of closed loops as the log's next commit. What it covers stays in the log.

A summary is published only while the one that it continues is still in force, and never waits for an append nor an append
for it.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from turnlog.contracts.jobs import Job
from turnlog.contracts.summaries import Compressed, CompressSession, Fact, SummaryAnswer
from turnlog.domain.errors import NotFoundError, TurnlogError, UnavailableError
from turnlog.domain.events import Kept, SummaryEvent
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.summaries import SummaryRequest
from turnlog.domain.times import rfc3339
from turnlog.log.attempts import Attempts, read_attempts, write_attempts
from turnlog.log.commits import MAX_EVENTS, Commit, Draft, Tail, checked_chain
from turnlog.log.headers import Covered, following
from turnlog.log.keys import COMMITS_TO, SessionKeys, commit_sort_key
from turnlog.log.reading import Located, located
from turnlog.log.sessions import SessionLog
from turnlog.log.summaries import Summary
from turnlog.ports import Item, Query, Summariser, TokenCounter
from turnlog.services.asking import answered
from turnlog.services.idempotency import RequestKey, earlier, raw_request_key, request_key, stamped
from turnlog.services.jobs import RETRYABLE, StartJobs
from turnlog.windows.build import Source
from turnlog.windows.covering import cover
from turnlog.windows.pins import Pin
from turnlog.windows.policy import policy_of
from turnlog.windows.summaries import summary_body, summary_tokens
from turnlog.windows.summary_facts import Facts, chosen_facts, seen

SYNC_SECONDS = 20
ROUND_PAGES = 4
_JOIN_TOKENS = 8
_log = logging.getLogger("turnlog")
_FACTS_SHARE = 0.5
"""This share of a summary's tokens is kept for facts; they get more where the text takes less than the rest."""


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


class CompressSessions:
    """The use case: cover all closed loops but the newest few, a bounded round at a time."""

    def __init__(
        self,
        log: SessionLog,
        counter: TokenCounter,
        summariser: Summariser,
        start_job: StartJobs,
        *,
        longest_summary_ms: int = 0,
    ) -> None:
        self._log = log
        self._counter = counter
        self._summariser = summariser
        self._start_job = start_job
        self._sync_ms = max(0, SYNC_SECONDS * 1000 - longest_summary_ms)

    def __call__(
        self, owner: Owner, session_id: str, body: CompressSession, *, key: str | None = None
    ) -> Compressed | Job:
        """The outcome; or a job, in mode ``async`` and when there is more to do than fits `SYNC_SECONDS`."""
        keys, options = SessionKeys(owner, session_id), body.model_dump(exclude={"mode"})
        request = request_key(key, f"compress {session_id}", body)
        if body.mode == "async":
            self._log.commits.tail(keys)
            return self._start_job(owner, "compress", session_id, options, request)
        try:
            return self._at_once(owner, keys, body, options, key=key, request=request)
        except _Unanswered as unanswered:
            raise unanswered.error from unanswered

    def _at_once(
        self,
        owner: Owner,
        keys: SessionKeys,
        body: CompressSession,
        options: JsonObject,
        *,
        key: str | None,
        request: RequestKey | None,
    ) -> Compressed | Job:
        deadline = self._log.clock.now_ms() + self._sync_ms
        outcome = self._round(keys, body, request)
        while outcome.has_more:
            if self._log.clock.now_ms() >= deadline:
                rest = raw_request_key(key, f"compress {keys.session_id} rest", options)
                return self._start_job(owner, "compress", keys.session_id, options, rest)
            outcome = outcome.then(self._round(keys, body, None))
        return Compressed(
            status="published" if outcome.published else "unchanged",
            reason=cast("Any", outcome.reason),
            summary=summary_answer(outcome.summary) if outcome.summary is not None else None,
        )

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """A job's work. Its result has positions and counts."""
        keys, body = SessionKeys(owner, session_id), CompressSession.model_validate(options)
        try:
            outcome = self._round(keys, body, None)
            while outcome.has_more:
                outcome = outcome.then(self._round(keys, body, None))
        except _Unanswered as unanswered:
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
        return {
            "status": "published" if outcome.published else "unchanged",
            "reason": outcome.reason,
            "position": event.position if event is not None else None,
            "last": event.last if event is not None else None,
        }

    def _remember(self, keys: SessionKeys, change: Callable[[Attempts, int], Attempts]) -> None:
        """How a job went, for the next append that would ask."""
        before = read_attempts(self._log.items, keys)
        loop = self._log.commits.tail(keys).header.flow.loop.number
        after = change(before, loop)
        if after == before:
            return
        write_attempts(self._log.items, keys, after)
        if after.is_off(loop):
            _log.warning("compression is off: %d failures, %d useless attempts", after.failures, after.useless)

    def _round(self, keys: SessionKeys, body: CompressSession, request: RequestKey | None) -> _Outcome:
        """Reads at most `ROUND_PAGES` pages of history beyond the summary in force, and publishes the next summary."""
        tail = self._log.commits.tail(keys)
        base = self._log.summaries.in_force(keys, tail.header.summary)
        repeated = earlier(self._log.commits, keys, tail.header, request)
        if repeated is not None:
            return _Outcome(True, None, self._log.summaries.in_force(keys, repeated.header.summary), False)
        newest = tail.header.flow.loop.number - 1 - body.keep_loops
        if newest <= (base.event.last_loop if base is not None else 0):
            return _Outcome(False, "nothing_to_cover", base, False)
        history = self._read(keys, (base.event.last if base is not None else 0) + 1, newest)
        policy = policy_of(self._log.settings(keys, tail.meta, None, tail.header).settings.policy)
        event = self._make(history, base, body.max_tokens, policy.pins, keys.owner.tenant_id)
        if event is None:
            return _Outcome(False, "not_worth_it", base, False)
        published = self._publish(keys, event, request)
        if published is None:
            # Another summary came in between: what is left to cover is seen from there.
            return _Outcome(False, None, base, True)
        return _Outcome(True, None, published, event.last_loop < newest)

    def _read(self, keys: SessionKeys, first: int, newest: int) -> _History:
        """Whole loops up to ``newest`` from a position on: as many as `ROUND_PAGES` pages hold, at least one."""
        commits, messages, after = list[Commit](), list[Located](), None
        low, pages, newest_item = commit_sort_key(max(1, first - MAX_EVENTS + 1)), 0, tuple[Item, ...]()
        while True:
            page = self._log.items.query(Query(keys.partition, low, COMMITS_TO, after=after))
            here = checked_chain([*newest_item, *page.items])[len(newest_item) :]
            newest_item = page.items[-1:] or newest_item
            commits += here
            messages += [one for one in located(self._log.commits, keys, here) if one.event.position >= first]
            after, pages = page.next, pages + 1
            reached = messages[-1].loop if messages else 0
            opened = messages[0].loop if messages else 0
            if after is None or reached > newest or (pages >= ROUND_PAGES and reached > max(opened, 1)):
                break
        # The newest loop of what was read may go on behind it.
        whole = min(newest, reached - 1 if after is not None else reached)
        return _History([one for one in messages if one.loop <= whole], commits)

    def _make(
        self, history: _History, base: Summary | None, max_tokens: int, pins: Sequence[Pin], tenant_id: str
    ) -> SummaryEvent | None:
        """The next summary, or None when it would not be smaller than what it covers."""
        before = base.event if base is not None else None
        sources = [Source(one.event, one.loop, one.time_ms) for one in history.messages]
        coverage = cover(sources, pins=pins, before=before.messages if before is not None else 0)
        known, share = seen(before.facts if before is not None else (), coverage.facts), int(max_tokens * _FACTS_SHARE)
        room = max_tokens - self._facts_tokens(chosen_facts(known, share, self._facts_tokens)) - _JOIN_TOKENS
        previous = before.text if before is not None else ""
        try:
            told = self._summariser.summarise(SummaryRequest(previous, coverage.loops, room, tenant_id))
        except UnavailableError as error:
            raise _Unanswered(error) from error
        text = told.text.strip()
        source_tokens = coverage.tokens + (before.source_tokens if before is not None else 0)
        # What the text leaves is room for facts too, as long as the whole stays under half of what it covers.
        left = min(max_tokens, source_tokens // 2) - self._tokens(text, ()) - _JOIN_TOKENS
        facts = chosen_facts(known, max(share, left), self._facts_tokens)
        tokens = self._tokens(text, facts)
        if not text or tokens > max_tokens:
            return None
        kept = before.kept if before is not None else ()
        made = SummaryEvent(
            position=0,
            first=before.first if before is not None else coverage.first,
            last=coverage.last,
            first_loop=before.first_loop if before is not None else 1,
            last_loop=history.messages[-1].loop,
            base=before.position if before is not None else 0,
            covers=history.commit_of(coverage.last).header.hash.hex(),
            text=text,
            facts=facts,
            tokens=tokens,
            source_tokens=source_tokens,
            messages=coverage.messages + (before.messages if before is not None else 0),
            summariser=told.summariser,
            kept=(*kept, *(Kept(history.commit_of(at).header.first, at) for at in coverage.kept)),
        )
        return made if summary_tokens(made) - summary_tokens(before) < coverage.saved else None

    def _facts_tokens(self, facts: Facts) -> int:
        return self._tokens("", facts)

    def _tokens(self, text: str, facts: Facts) -> int:
        return self._counter.count(summary_body(text, facts))

    def _publish(self, keys: SessionKeys, event: SummaryEvent, request: RequestKey | None) -> Summary | None:
        """The summary in the log's next slot; None when its base is no longer in force."""
        made: SummaryEvent | None = None

        def compose(tail: Tail) -> Draft | Commit:
            nonlocal made
            header = tail.header
            if (header.summary.position if header.summary is not None else 0) != event.base:
                raise _Superseded
            new = following(header, kind="y", events=1, now_ms=self._log.clock.now_ms(), **stamped(request))
            made = replace(event, position=new.first)
            return Draft(replace(new, summary=_covered(made), asked=answered(new)), (made,))

        try:
            written = self._log.commits.write(keys, compose)
        except _Superseded:
            return None
        assert made is not None  # noqa: S101 - compose has run
        with suppress(UnavailableError):  # the commit is durable; a reader that misses the cache reads the commit
            self._log.summaries.write_cache(keys, made, written.commit)
        return Summary(made, written.commit.header.time_ms)


class _Unanswered(Exception):  # noqa: N818 - told apart from an outage of the log, and unwrapped
    """The summariser gives no answer, now."""

    def __init__(self, error: UnavailableError) -> None:
        super().__init__(error.error_code)
        self.error = error


class _Superseded(Exception):  # noqa: N818 - a turn of events, not an error
    """Another summary is in force."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """``has_more``: another round would cover more."""

    published: bool
    reason: str | None
    summary: Summary | None
    has_more: bool

    def then(self, later: _Outcome) -> _Outcome:
        """This round and the next as one."""
        published = self.published or later.published
        return _Outcome(published, None if published else later.reason, later.summary, later.has_more)


@dataclass(frozen=True, slots=True)
class _History:
    """Messages of whole loops, and the commits that hold them."""

    messages: Sequence[Located]
    commits: Sequence[Commit]

    def commit_of(self, position: int) -> Commit:
        return self.commits[bisect_right(self.commits, position, key=lambda commit: commit.header.first) - 1]


def _covered(event: SummaryEvent) -> Covered:
    return Covered(event.position, event.last, event.last_loop, event.messages, event.source_tokens, event.tokens)


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
