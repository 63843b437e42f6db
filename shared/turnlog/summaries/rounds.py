"""A round of compression: read a bounded stretch of closed loops, and write a summary that covers it as the log's next commit.

When the open loop has become long, the stretch ends between two of its steps.

A summary continues the current one: the summariser gets the current text and the new loops. Every eighth summary is rebuilt from
the outlines that earlier rounds have stored. A summary is rebuilt too if the current one covers a history that a rewind or
redaction has changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, TypeAlias

from turnlog.core.errors import UnavailableError
from turnlog.core.events import KeptMessage, SummaryEvent
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import FAN, Growth, Summarised, SummaryRequest, plan_growth
from turnlog.jobs.worker import OutageError
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import Covered, Header, following
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.reading import Located, located
from turnlog.log.request_keys import Attempt, RequestKey
from turnlog.ports import Summariser, TokenCounter
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.covering import Coverage, Facts, chosen_facts, closed_steps, cover, seen
from turnlog.summaries.routes import CompressSession
from turnlog.summaries.store import CurrentSummary, Summaries
from turnlog.summaries.trigger import Reach, answered, room_of
from turnlog.windows.policy import stored_policy
from turnlog.windows.steps import Pin
from turnlog.windows.text import MOST_AROUND, most_tokens_around, summary_body, summary_tokens
from turnlog.windows.triggers import Counted
from turnlog.windows.view import Room

ROUND_PAGES = 4
"""Pages of history that a round reads at most, of 1 MB each."""
ROUND_LOOPS = 50
"""Loops that a round covers at most; an outline has room for every one of them."""


@lazy_dataclass(frozen=True, slots=True)
class History:
    """The messages of whole loops, with the commits that hold the messages and the position before them.

    ``has_more`` says whether further loops are to be covered.
    """

    messages: Sequence[Located]
    commits: Sequence[Commit]
    has_more: bool

    def commit_of(self, position: int) -> Commit:
        """Return the commit that holds a position."""
        return self.commits[bisect_right(self.commits, position, key=lambda commit: commit.header.first) - 1]

    def kept(self, positions: Iterable[int]) -> list[KeptMessage]:
        """Return the messages at these positions as a summary names them, each with its commit."""
        return [KeptMessage(self.commit_of(position).header.first, position) for position in positions]

    def while_covered(self, is_covered: Callable[[int, int, int], bool]) -> History:
        """Return the loops before the first loop for which ``is_covered`` is false.

        ``is_covered`` gets a loop's number, and the messages and tokens of this history before the loop.
        """
        count, tokens, loop = 0, 0, 0
        for message in self.messages:
            if message.loop != loop and not is_covered(message.loop, count, tokens):
                return replace(self, messages=self.messages[:count] if loop else (), has_more=False)
            loop = message.loop
            count, tokens = count + 1, tokens + message.event.tokens
        return self

    def while_closed(self, open_loop: int, *, before: int, border: float) -> History:
        """Return the messages before the first step of the open loop that no summary covers.

        ``before`` and ``border`` are running totals of tokens: before this history, and up to which steps are covered.
        """
        start = next((index for index, message in enumerate(self.messages) if message.loop == open_loop), None)
        if start is None:
            return self
        before += sum(message.event.tokens for message in self.messages[:start])
        end = start + closed_steps(self.messages[start:], before=before, border=border)
        return replace(self, messages=self.messages[:end])


def read_loops(log: SessionLog, keys: SessionKeys, header: Header, after: int, newest: int) -> History:
    """Read the whole loops after position ``after`` that are visible at a header, up to loop ``newest``.

    Reads at most `ROUND_PAGES` pages and `ROUND_LOOPS` loops, but at least one loop, however many pages it takes. Of the open
    loop it may read a part.
    """
    commits, messages, is_all = list[Commit](), list[Located](), True
    opened, reached, last, open_loop = 0, 0, newest, header.flow.loop.number
    for pages, page in enumerate(log.commits.in_view_on(keys, header, first=max(1, after)), start=1):
        for commit in page:
            commits.append(commit)
            messages += [
                item
                for item in located(log.commits, keys, [commit])
                if item.event.position > after and item.event.envelope.parent is None
            ]
            opened, reached = (max(messages[0].loop, 1), messages[-1].loop) if messages else (0, 0)
            last = min(newest, opened + ROUND_LOOPS - 1)
            if reached > last:
                break
        if reached > last or (pages >= ROUND_PAGES and (reached > opened or reached == open_loop)):
            is_all = False
            break
    # The newest loop that was read may continue behind the last commit.
    last_whole = min(last, reached if is_all or reached == open_loop else reached - 1)
    whole_loops = [message for message in messages if message.loop <= last_whole]
    return History(whole_loops, commits, has_more=last_whole < newest or (last_whole == open_loop and not is_all))


OUTLINE_TOKENS = 3_000
"""Tokens of the outline that a round stores of the loops it covers; a rebuilt summary is made from eight outlines."""
_JOIN_TOKENS = 8
_FACTS_SHARE = 0.5
"""Share of a summary's tokens that is reserved for facts; they also get the tokens that the text leaves."""
_MOST_FACTS = 0.9
"""Share of the tokens of a small summary that facts may take."""
_LEAST_TEXT = 24
"""Tokens of the text of a small summary, about."""
Unchanged: TypeAlias = Literal["nothing_to_cover", "not_worth_it"]


@lazy_dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round. ``has_more`` says whether another round would cover more."""

    published: bool
    reason: Unchanged | None
    summary: CurrentSummary | None
    has_more: bool

    def then(self, later: RoundResult) -> RoundResult:
        """Return the result of this round and a later one together."""
        published = self.published or later.published
        return RoundResult(published, None if published else later.reason, later.summary, later.has_more)


@lazy_dataclass(frozen=True, slots=True)
class Rounds:
    """Makes summaries in rounds.

    ``summariser`` writes the text that windows show, once a round. ``outliner`` writes the outlines that rounds store, and costs
    nothing.
    """

    log: SessionLog
    counter: TokenCounter
    summariser: Summariser
    outliner: Summariser
    models: Mapping[str, int] | None = None

    def compress_once(self, keys: SessionKeys, body: CompressSession, request: RequestKey | None) -> RoundResult:
        """Read a bounded stretch of history after the current summary, and publish the next summary.

        Raises `OutageError` if the summariser is unavailable.
        """
        attempt = Attempt(self.log.commits, keys, request)
        tail, repeated = attempt.read()
        if not attempt.is_first:
            self.log.records.earlier_choice(OwnerKeys(keys.owner).jobs, request)  # a job may have the key
        if repeated is not None:
            return RoundResult(True, None, Summaries(self.log).current(keys, repeated.header.summary), False)
        base = Summaries(self.log).current(keys, tail.header.summary)
        before = base.event if base is not None else None
        settings = self.log.full_settings(keys, tail).settings
        reach = self._reach(tail.header, settings, body.max_tokens)
        scope = _Scope(reach, body.keep_loops, tail.header.flow.loop.number)
        if not scope.goes_beyond(before):
            return RoundResult(False, "nothing_to_cover", base, False)
        history = read_loops(self.log, keys, tail.header, before.last if before is not None else 0, scope.newest)
        is_bound = before is None or history.commit_of(before.last).header.hash.hex() == before.covers
        if not is_bound:
            before = self._newest_bound(keys, before) if before is not None else None
            history = read_loops(self.log, keys, tail.header, before.last if before is not None else 0, scope.newest)
        history = scope.within(history, before)
        if not history.messages:
            return RoundResult(False, "nothing_to_cover", base, False)
        open_loop = scope.open_loop if history.messages[-1].loop == scope.open_loop else 0
        event = self._make(_SummaryPlan(keys, body.max_tokens, before, is_bound, open_loop), history, reach.policy.pins)
        if event is None:
            return RoundResult(False, "not_worth_it", base, False)
        event = replace(event, base=base.event.position if base is not None else 0)
        published = self._publish(attempt, event, read=tail.header, has_more=history.has_more)
        if published is None:
            return self._overtaken(keys, scope, tail.header)
        return RoundResult(True, None, published, history.has_more)

    def _overtaken(self, keys: SessionKeys, scope: _Scope, read: Header) -> RoundResult:
        """Return the result of a round that another summary, a rewind or a redaction made useless, as if it began now."""
        header = self.log.commits.tail(keys).header
        base = Summaries(self.log).current(keys, header.summary)
        has_more = (header.rewound, header.redacted) != (read.rewound, read.redacted)
        has_more = has_more or scope.goes_beyond(base.event if base is not None else None)
        return RoundResult(False, None if has_more else "nothing_to_cover", base, has_more)

    def _reach(self, header: Header, settings: SessionSettings, max_tokens: int) -> Reach:
        """Return how far the policy lets a summary of ``max_tokens`` reach at a header."""
        flow, room = header.flow, room_of(header, settings, self.models)
        lead = Counted(0, flow.lead.messages, flow.lead.tokens)
        closed = flow.closed
        past = Counted(flow.loop.number - 1, lead.messages + closed.messages, lead.tokens + closed.tokens)
        policy = stored_policy(settings.policy)
        fixed = settings.system_tokens + settings.tools_tokens + (lead.tokens if policy.preserve_system else 0)
        return Reach(policy, Room(room.tokens, fixed), lead, past, flow.tokens, max_tokens + MOST_AROUND)

    # ------------------------------------------------------------ making

    def _newest_bound(self, keys: SessionKeys, unbound: SummaryEvent) -> SummaryEvent | None:
        """Return the newest earlier summary whose covered history is still that of the log; None if there is none."""
        for branch in reversed(unbound.branches[:-1]):
            event = Summaries(self.log).at(keys, [branch.position])[0].event
            commit = self.log.commits.find_holding(keys, event.last)
            if commit is not None and commit.header.hash.hex() == event.covers:
                return event
        return None

    def _make(self, plan: _SummaryPlan, history: History, pins: Sequence[Pin]) -> SummaryEvent | None:
        """Make the next summary; return None if it would not be smaller than the messages that it covers."""
        before, max_tokens = plan.before, plan.max_tokens
        coverage = cover(
            history.messages,
            pins=pins,
            before=before.messages if before is not None else 0,
            opening=self._opening(plan.keys, before) if before is not None and not plan.continues_loop else (),
            open_loop=plan.open_loop,
        )
        bare = plan.bare(history, coverage)
        # With so many tokens of text and values the summary is smaller than what it covers, its fence included.
        fence_before = most_tokens_around(before) + before.tokens if before is not None else 0
        allowed = coverage.saved - most_tokens_around(bare) + fence_before - 1
        most = min(max_tokens, allowed)
        known = seen(before.facts if before is not None else (), coverage.facts)
        share = min(int(max_tokens * _FACTS_SHARE), int(most * _MOST_FACTS))
        facts_tokens = self._facts_tokens(chosen_facts(known, share, self._facts_tokens))
        # A quarter of the new messages' tokens is saved, where values and a short text allow.
        limit = min(most, max(facts_tokens + _LEAST_TEXT, allowed - coverage.saved // 4))
        room = limit - facts_tokens - _JOIN_TOKENS
        # Checked by stored counts before the summariser is paid: even the shortest text must save something.
        if room <= 0:
            return None
        request, outline = self._request(plan, coverage, room)
        summary = self._summarise(request)
        text = summary.text.strip()
        # Facts get the tokens that the text leaves.
        facts = chosen_facts(known, max(share, limit - self._tokens(text, ()) - _JOIN_TOKENS), self._facts_tokens)
        tokens = self._tokens(text, facts)
        if not text or tokens > max_tokens:
            return None
        event = replace(bare, text=text, facts=facts, tokens=tokens, summariser=summary.summariser, outline=outline)
        return event if summary_tokens(event) - summary_tokens(before) < coverage.saved else None

    def _opening(self, keys: SessionKeys, before: SummaryEvent) -> list[Located]:
        """Return the messages of a loop that have stayed in windows while only steps of it were covered."""
        places = {kept.position: kept.commit for kept in before.parted or ()}
        commits = self.log.commits.at(keys, sorted(set(places.values())))
        messages = located(self.log.commits, keys, commits)
        return [message for message in messages if message.event.position in places]

    def _request(self, plan: _SummaryPlan, coverage: Coverage, room: int) -> tuple[SummaryRequest, str]:
        """Return the summariser's request and the outline to store: of this round, or of the rounds that are merged with it."""
        before, growth, tenant = plan.before, plan.growth, plan.keys.owner.tenant_id
        if before is None:
            return SummaryRequest("", coverage.loops, room, tenant), ""
        outline = self._outlined(SummaryRequest("", coverage.loops, OUTLINE_TOKENS))
        if not plan.is_rebuilt:
            return SummaryRequest(before.text, coverage.loops, room, tenant), outline
        wanted = [branch.position for branch in before.branches]
        events = [summary.event for summary in Summaries(self.log).at(plan.keys, wanted)]
        texts = {event.position: event.outline or event.text for event in events}
        for group in growth.merged:
            outline = self._merged([*(texts[branch.position] for branch in group), outline])
        parts = [*(texts[branch.position] for branch in growth.branches), outline]
        while len(parts) > FAN:
            parts = [self._merged(parts[:FAN]), *parts[FAN:]]
        return SummaryRequest("", (), room, tenant, tuple(parts)), outline

    def _merged(self, parts: Sequence[str]) -> str:
        return self._outlined(SummaryRequest("", (), OUTLINE_TOKENS, parts=tuple(parts)))

    def _outlined(self, request: SummaryRequest) -> str:
        return self.outliner.summarise(request).text.strip()

    def _summarise(self, request: SummaryRequest) -> Summarised:
        try:
            return self.summariser.summarise(request)
        except UnavailableError as error:
            raise OutageError(error) from error

    def _facts_tokens(self, facts: Facts) -> int:
        return self._tokens("", facts)

    def _tokens(self, text: str, facts: Facts) -> int:
        return self.counter.count(summary_body(text, facts))

    # ------------------------------------------------------------ publishing

    def _publish(self, attempt: Attempt, event: SummaryEvent, *, read: Header, has_more: bool) -> CurrentSummary | None:
        """Write the summary into the log's next slot and return it.

        Return None if its base is no longer the current summary, or if the log was rewound or redacted after the header ``read``.
        """
        keys, published = attempt.keys, event

        def compose(tail: Tail) -> Draft | Commit:
            nonlocal published
            header = tail.header
            if (header.summary, header.rewound, header.redacted) != (read.summary, read.rewound, read.redacted):
                raise _Superseded
            new = following(header, kind="y", events=1, now_ms=self.log.clock.now_ms())
            published = replace(event, position=new.first)
            covered = Covered(new.first, event.last, event.last_loop, event.messages, event.source_tokens, event.tokens)
            new = replace(new, summary=covered, asked=answered(new, read=read, has_more=has_more))
            return Draft(new, (published,))

        try:
            written = self.log.commits.write(keys, compose, begun=attempt)
        except _Superseded:
            return None
        if written.repeated:
            return Summaries(self.log).current(keys, written.commit.header.summary)
        with suppress(UnavailableError):  # the commit is durable; a reader that misses the cache reads the commit
            Summaries(self.log).write_cache(keys, published, time_ms=written.commit.header.time_ms)
        self.log.refresh_listing(keys, written.tail, written.commit.header)
        return CurrentSummary(published, written.commit.header.time_ms)


@lazy_dataclass(frozen=True, slots=True)
class _SummaryPlan:
    """A summary that is to be made.

    ``before`` is the summary that it continues. ``is_bound`` is false if the current summary covers a history that the log no
    longer has; ``before`` is then an earlier one. ``open_loop`` is the loop of which only steps are to be covered, or 0.
    """

    keys: SessionKeys
    max_tokens: int
    before: SummaryEvent | None
    is_bound: bool
    open_loop: int

    @property
    def continues_loop(self) -> bool:
        """Whether ``before`` covers steps of the same open loop."""
        before = self.before
        return before is not None and before.parted is not None and before.last_loop + 1 == self.open_loop

    def bare(self, history: History, coverage: Coverage) -> SummaryEvent:
        """Return the summary without text and facts: what it covers, and its place in the tree of rounds."""
        before = self.before
        return SummaryEvent(
            position=0,
            first=before.first if before is not None else coverage.first,
            last=coverage.last,
            first_loop=before.first_loop if before is not None else 1,
            last_loop=self.open_loop - 1 if self.open_loop else history.messages[-1].loop,
            base=0,
            covers=history.commit_of(coverage.last).header.hash.hex(),
            text="",
            facts=(),
            tokens=0,
            source_tokens=coverage.tokens + (before.source_tokens if before is not None else 0),
            messages=coverage.messages + (before.messages if before is not None else 0),
            summariser="",
            kept=(*(before.kept if before is not None else ()), *history.kept(coverage.kept)),
            level=self.growth.level,
            tree=self.growth.branches,
            parted=self.parted(history.kept(coverage.parted)),
        )

    def parted(self, messages: Sequence[KeptMessage]) -> tuple[KeptMessage, ...] | None:
        """Return the messages of the open loop that stay in windows: ``messages``, and those that stayed before."""
        earlier = self.before.parted if self.before is not None and self.continues_loop else None
        return (*(earlier or ()), *messages) if self.open_loop else None

    @property
    def growth(self) -> Growth:
        """The tree of rounds after this summary."""
        return plan_growth(self.before.branches if self.before is not None else ())

    @property
    def is_rebuilt(self) -> bool:
        """Whether the text is made from outlines instead of continuing the text of ``before``."""
        return self.growth.is_rebuilt or not self.is_bound


@lazy_dataclass(frozen=True, slots=True)
class _Scope:
    """The part of a session that a round may cover. ``keep_loops`` is what the caller said; None: the policy decides."""

    reach: Reach
    keep_loops: int | None
    open_loop: int

    @property
    def border(self) -> float:
        """The running total of tokens before which steps of the open loop may be covered; 0: none of them."""
        return self.reach.steps_border if self.keep_loops is None else 0

    @property
    def newest(self) -> int:
        """The number of the newest loop of which anything may be covered."""
        return self.open_loop if self.border else self._newest_closed

    @property
    def _newest_closed(self) -> int:
        """The number of the newest loop that may be covered while no step of the open loop is."""
        return self.open_loop - 1 - (self.keep_loops if self.keep_loops is not None else self.reach.keep_loops)

    @property
    def _is_limited(self) -> bool:
        """Whether only what the policy's windows don't show in full may be covered."""
        return self.keep_loops is None and not self.reach.is_endless

    def goes_beyond(self, before: SummaryEvent | None) -> bool:
        """Return whether something may be covered behind a summary, as far as is known without reading the log."""
        if before is None or self.newest <= before.last_loop:
            return before is None and self.newest > 0
        return not self._is_limited or self.reach.covers(before.last_loop + 1, before.messages, before.source_tokens)

    def within(self, history: History, before: SummaryEvent | None) -> History:
        """Return the part of a history behind a summary that may be covered."""
        messages, tokens = (before.messages, before.source_tokens) if before is not None else (0, 0)
        if self._is_limited:
            history = history.while_covered(
                lambda loop, more, more_tokens: self.reach.covers(loop, messages + more, tokens + more_tokens)
            )
        with_steps = history.while_closed(self.open_loop, before=tokens, border=self.border)
        if with_steps.messages and with_steps.messages[-1].loop == self.open_loop:
            return with_steps
        return history.while_covered(lambda loop, _messages, _tokens: loop <= self._newest_closed)


class _Superseded(Exception):  # noqa: N818 - ends an attempt, not an error
    """The summary's base is no longer the current summary, or the log was rewound or redacted."""
