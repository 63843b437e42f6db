"""One round of compression: a bounded stretch of closed loops, and the summary that covers it, too, as the log's next commit.

A summary continues the one in force, which is read with the new loops. Every eighth is written anew, of what the rounds
before have stored in short, and so is one whose base no longer stands for the history that it names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, TypeAlias

from turnlog.core.errors import UnavailableError
from turnlog.core.events import KeptMessage, SummaryEvent
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import FAN, Growth, Summarised, SummaryRequest, grown
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import Covered, Header, following
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import Located, located
from turnlog.log.request_keys import Attempt, RequestKey
from turnlog.log.summary_cache import CurrentSummary
from turnlog.ports import Summariser, TokenCounter
from turnlog.sessions.context_requests import room_of
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.models import CompressSession
from turnlog.summaries.trigger import Reach, answered
from turnlog.windows.build import Source
from turnlog.windows.covering import Coverage, Facts, chosen_facts, cover, seen
from turnlog.windows.keep_newest import Pin
from turnlog.windows.policy import policy_of
from turnlog.windows.steps import Room
from turnlog.windows.summaries import MOST_AROUND, summary_body, summary_tokens
from turnlog.windows.triggers import Counted

ROUND_PAGES = 4
"""Pages of history that a round reads, of 1 MB each."""
ROUND_LOOPS = 50
"""Loops that a round covers at most: so many can be told in short without leaving one out."""


@lazy_dataclass(frozen=True, slots=True)
class History:
    """Messages of whole loops, and the commits that hold them and the position before them. ``has_more``: so do later ones."""

    messages: Sequence[Located]
    commits: Sequence[Commit]
    has_more: bool

    def commit_of(self, position: int) -> Commit:
        return self.commits[bisect_right(self.commits, position, key=lambda commit: commit.header.first) - 1]

    def while_covered(self, is_covered: Callable[[int, int, int], bool]) -> History:
        """The loops up to the first for which it is not so. It is asked about a loop and what of this comes before it: messages,
        tokens."""
        messages, tokens, loop = 0, 0, 0
        for one in self.messages:
            if one.loop != loop and not is_covered(one.loop, messages, tokens):
                return replace(self, messages=self.messages[:messages] if loop else (), has_more=False)
            loop = one.loop
            messages, tokens = messages + 1, tokens + one.event.tokens
        return self


def read_loops(log: SessionLog, keys: SessionKeys, header: Header, after: int, newest: int) -> History:
    """Whole loops behind a position that are in view at a header, up to loop ``newest``: as many as `ROUND_PAGES` pages hold,
    at least one, and at most `ROUND_LOOPS`."""
    commits, messages, is_all = list[Commit](), list[Located](), True
    last = newest
    for at, here in enumerate(log.commits.in_view_on(keys, header, first=max(1, after))):
        commits += here
        messages += [one for one in located(log.commits, keys, here) if one.event.position > after]
        reached = messages[-1].loop if messages else 0
        opened = max(messages[0].loop, 1) if messages else 0
        last = min(newest, opened + ROUND_LOOPS - 1)
        if reached > last or (at + 1 >= ROUND_PAGES and reached > opened):
            is_all = False
            break
    reached = messages[-1].loop if messages else 0
    # The newest loop of what was read may go on behind it.
    whole = min(last, reached if is_all else reached - 1)
    return History([one for one in messages if one.loop <= whole], commits, has_more=whole < newest)


OUTLINE_TOKENS = 3_000
"""What a round stores in short of what it has read; eight of them are what a summary is written anew of."""
_JOIN_TOKENS = 8
_FACTS_SHARE = 0.5
"""This share of a summary's tokens is kept for facts; they get more where the text takes less than the rest."""
Unchanged: TypeAlias = Literal["nothing_to_cover", "not_worth_it"]


class UnansweredError(Exception):
    """The summariser gives no answer, now: told apart from an outage of the log, and unwrapped."""

    def __init__(self, error: UnavailableError) -> None:
        super().__init__(error.error_code)
        self.error = error


@lazy_dataclass(frozen=True, slots=True)
class RoundResult:
    """``has_more``: another round would cover more."""

    published: bool
    reason: Unchanged | None
    summary: CurrentSummary | None
    has_more: bool

    def then(self, later: RoundResult) -> RoundResult:
        """This round and the next as one."""
        published = self.published or later.published
        return RoundResult(published, None if published else later.reason, later.summary, later.has_more)


@lazy_dataclass(frozen=True, slots=True)
class Rounds:
    """``summariser`` writes what windows show, one text a round; ``outliner`` what rounds store, and costs nothing."""

    log: SessionLog
    counter: TokenCounter
    summariser: Summariser
    outliner: Summariser
    models: Mapping[str, int] | None = None

    def one(self, keys: SessionKeys, body: CompressSession, request: RequestKey | None) -> RoundResult:
        """Reads a bounded stretch of history behind the summary in force, and publishes the next summary."""
        attempt = self.log.commits.attempt(keys, request)
        tail = attempt.tail()
        repeated = attempt.earlier(tail)
        if repeated is not None:
            return RoundResult(True, None, self.log.summaries.in_force(keys, repeated.header.summary), False)
        base = self.log.summaries.in_force(keys, tail.header.summary)
        settings = self.log.settings(keys, tail.meta, None, tail.header).settings
        reach = self._reach(tail.header, settings, body.max_tokens)
        keep_loops = body.keep_loops if body.keep_loops is not None else reach.keep_loops
        newest = tail.header.flow.loop.number - 1 - keep_loops
        if newest <= (base.event.last_loop if base is not None else 0):
            return RoundResult(False, "nothing_to_cover", base, False)
        before = base.event if base is not None else None
        history = read_loops(self.log, keys, tail.header, before.last if before is not None else 0, newest)
        is_bound = before is None or history.commit_of(before.last).header.hash.hex() == before.covers
        if not is_bound:
            before = self._newest_bound(keys, before) if before is not None else None
            history = read_loops(self.log, keys, tail.header, before.last if before is not None else 0, newest)
        if body.keep_loops is None and not reach.is_endless:
            history = _within(reach, history, before)
        if not history.messages:
            return RoundResult(False, "nothing_to_cover", base, False)
        event = self._make(_Making(keys, body.max_tokens, before, is_bound), history, reach.policy.pins)
        if event is None:
            return RoundResult(False, "not_worth_it", base, False)
        event = replace(event, base=base.event.position if base is not None else 0)
        published = self._publish(attempt, event, read=tail.header)
        if published is None:
            # Another summary, a rewind or a redaction came in between: what is left to cover is seen from there.
            return RoundResult(False, None, base, True)
        return RoundResult(True, None, published, history.has_more)

    def _reach(self, header: Header, settings: SessionSettings, max_tokens: int) -> Reach:
        """How far the summary goes by the policy: as its windows will be with it."""
        flow, room = header.flow, room_of(header, settings, self.models)
        lead = Counted(0, flow.lead.messages, flow.lead.tokens)
        closed = flow.closed
        past = Counted(flow.loop.number - 1, lead.messages + closed.messages, lead.tokens + closed.tokens)
        fixed = settings.system_tokens + settings.tools_tokens + lead.tokens
        return Reach(
            policy_of(settings.policy), Room(room.tokens, fixed), lead, past, flow.tokens, max_tokens + MOST_AROUND
        )

    # ------------------------------------------------------------ making

    def _newest_bound(self, keys: SessionKeys, unbound: SummaryEvent) -> SummaryEvent | None:
        """The newest of the rounds before that stands for the history that the log has."""
        for branch in reversed(unbound.branches[:-1]):
            event = self.log.summaries.at(keys, [branch.position])[0].event
            commit = self.log.commits.containing(keys, event.last)
            if commit is not None and commit.header.hash.hex() == event.covers:
                return event
        return None

    def _make(self, made: _Making, history: History, pins: Sequence[Pin]) -> SummaryEvent | None:
        """The next summary, or None when it would not be smaller than what it covers."""
        before, max_tokens = made.before, made.max_tokens
        coverage = _covered_by(history, before, pins)
        known, share = seen(before.facts if before is not None else (), coverage.facts), int(max_tokens * _FACTS_SHARE)
        facts = chosen_facts(known, share, self._facts_tokens)
        least = SummaryEvent(
            position=0,
            first=before.first if before is not None else coverage.first,
            last=coverage.last,
            first_loop=before.first_loop if before is not None else 1,
            last_loop=history.messages[-1].loop,
            base=0,
            covers=history.commit_of(coverage.last).header.hash.hex(),
            text="",
            facts=facts,
            tokens=self._facts_tokens(facts),
            source_tokens=coverage.tokens + (before.source_tokens if before is not None else 0),
            messages=coverage.messages + (before.messages if before is not None else 0),
            summariser="",
            kept=(
                *(before.kept if before is not None else ()),
                *(KeptMessage(history.commit_of(at).header.first, at) for at in coverage.kept),
            ),
            level=made.growth.level,
            tree=made.growth.branches,
        )
        # By stored counts, before anything is paid for: the shortest of texts would have to save something.
        if summary_tokens(least) + 1 - summary_tokens(before) >= coverage.saved:
            return None
        request, outline = self._request(made, coverage, max_tokens - least.tokens - _JOIN_TOKENS)
        told = self._told(request)
        text = told.text.strip()
        # What the text leaves is room for facts too, while the summary saves half of what it covers, and of what is new.
        grown_by = coverage.saved // 2 + (before.tokens if before is not None else 0)
        left = min(max_tokens, least.source_tokens // 2, grown_by) - self._tokens(text, ()) - _JOIN_TOKENS
        facts = chosen_facts(known, max(share, left), self._facts_tokens)
        tokens = self._tokens(text, facts)
        if not text or tokens > max_tokens:
            return None
        event = replace(least, text=text, facts=facts, tokens=tokens, summariser=told.summariser, outline=outline)
        return event if summary_tokens(event) - summary_tokens(before) < coverage.saved else None

    def _request(self, made: _Making, coverage: Coverage, room: int) -> tuple[SummaryRequest, str]:
        """What the summariser is asked, and the outline of this round, or of all rounds that are put together in it."""
        before, growth, tenant = made.before, made.growth, made.keys.owner.tenant_id
        if before is None:
            return SummaryRequest("", coverage.loops, room, tenant), ""
        outline = self._outlined(SummaryRequest("", coverage.loops, OUTLINE_TOKENS))
        if not made.is_rebuilt:
            return SummaryRequest(before.text, coverage.loops, room, tenant), outline
        wanted = [branch.position for branch in before.branches]
        events = [summary.event for summary in self.log.summaries.at(made.keys, wanted)]
        texts = {event.position: event.outline or event.text for event in events}
        for group in growth.merged:
            outline = self._together([*(texts[branch.position] for branch in group), outline])
        parts = [*(texts[branch.position] for branch in growth.branches), outline]
        while len(parts) > FAN:
            parts = [self._together(parts[:FAN]), *parts[FAN:]]
        return SummaryRequest("", (), room, tenant, tuple(parts)), outline

    def _together(self, parts: Sequence[str]) -> str:
        return self._outlined(SummaryRequest("", (), OUTLINE_TOKENS, parts=tuple(parts)))

    def _outlined(self, request: SummaryRequest) -> str:
        return self.outliner.summarise(request).text.strip()

    def _told(self, request: SummaryRequest) -> Summarised:
        try:
            return self.summariser.summarise(request)
        except UnavailableError as error:
            raise UnansweredError(error) from error

    def _facts_tokens(self, facts: Facts) -> int:
        return self._tokens("", facts)

    def _tokens(self, text: str, facts: Facts) -> int:
        return self.counter.count(summary_body(text, facts))

    # ------------------------------------------------------------ publishing

    def _publish(self, attempt: Attempt, event: SummaryEvent, *, read: Header) -> CurrentSummary | None:
        """The summary in the log's next slot; None when its base is no longer in force, or since ``read`` the log was rewound, or
        something of it redacted."""
        keys, made = attempt.keys, event

        def compose(tail: Tail) -> Draft | Commit:
            nonlocal made
            header = tail.header
            base = header.summary.position if header.summary is not None else 0
            if base != event.base or (header.rewound, header.redacted) != (read.rewound, read.redacted):
                raise _Superseded
            new = following(header, kind="y", events=1, now_ms=self.log.clock.now_ms())
            made = replace(event, position=new.first)
            return Draft(replace(new, summary=_covered(made), asked=answered(new)), (made,))

        try:
            written = self.log.commits.write_attempt(attempt, compose)
        except _Superseded:
            return None
        if written.repeated:
            return self.log.summaries.in_force(keys, written.commit.header.summary)
        with suppress(UnavailableError):  # the commit is durable; a reader that misses the cache reads the commit
            self.log.summaries.write_cache(keys, made, time_ms=written.commit.header.time_ms)
        self.log.touch(keys, written.tail, written.commit.header)
        return CurrentSummary(made, written.commit.header.time_ms)


@lazy_dataclass(frozen=True, slots=True)
class _Making:
    """A summary to be made: ``before`` is what it goes on from; not ``is_bound``: that is not the one in force."""

    keys: SessionKeys
    max_tokens: int
    before: SummaryEvent | None
    is_bound: bool

    @property
    def growth(self) -> Growth:
        """What becomes of the tree of rounds."""
        return grown(self.before.branches if self.before is not None else ())

    @property
    def is_rebuilt(self) -> bool:
        return self.growth.is_rebuilt or not self.is_bound


def _within(reach: Reach, history: History, before: SummaryEvent | None) -> History:
    """The loops that the policy's windows don't show whole."""
    messages, tokens = (before.messages, before.source_tokens) if before is not None else (0, 0)
    return history.while_covered(
        lambda loop, more, more_tokens: reach.covers(loop, messages + more, tokens + more_tokens)
    )


def _covered_by(history: History, before: SummaryEvent | None, pins: Sequence[Pin]) -> Coverage:
    sources = [Source(one.event, one.loop, one.time_ms) for one in history.messages]
    return cover(sources, pins=pins, before=before.messages if before is not None else 0)


class _Superseded(Exception):  # noqa: N818 - a turn of events, not an error
    """Another summary is in force."""


def _covered(event: SummaryEvent) -> Covered:
    return Covered(event.position, event.last, event.last_loop, event.messages, event.source_tokens, event.tokens)
