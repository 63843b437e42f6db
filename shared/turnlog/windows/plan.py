"""Plans a view within the budget: the policy's steps, then the fit. Also plans the view of an earlier moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from typing import Protocol

from turnlog.core.calls import outline_of, pair
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.events import LoggedMessage, MessageEvent, SummaryEvent
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Message
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.assembly import Memory, assemble, with_system_as_loop
from turnlog.windows.breaks import EpochStart, breaks_of_results
from turnlog.windows.budgets import too_small
from turnlog.windows.epochs import FittedView, ViewLimits, fit, is_lowered
from turnlog.windows.ledger import bounded, ledger_of_facts
from turnlog.windows.prices import LINE_TOKENS, extra_tokens, oldest_sent, redacted_tokens
from turnlog.windows.recalled import RecallMessages, recalled_in
from turnlog.windows.registry import applied, is_built_in
from turnlog.windows.render import missing_bodies
from turnlog.windows.request import WindowRequest
from turnlog.windows.view import (
    NOT_READ,
    OF_ITEMS,
    Entry,
    RecalledPart,
    Room,
    WindowDraft,
    is_item,
    is_whole,
    never_sent,
    out,
    pinned_alone,
)

_COMPACTING = ("anthropic", *OF_ITEMS)
"""Formats whose providers summarise a conversation in a message of it."""
_COVERED = ("summary", "compaction", NOT_READ)


class History(Protocol):
    """A log as a window reads it: from the newest message back, as far as the plan needs."""

    @property
    def total(self) -> int:
        """The running total of tokens at the log's end."""

    @property
    def sources(self) -> Sequence[LoggedMessage]:
        """The newest messages, without a gap, oldest first."""

    @property
    def kept(self) -> Sequence[LoggedMessage]:
        """Older messages that every window sends, oldest first."""

    @property
    def has_all_kept(self) -> bool:
        """Whether no message but those of ``kept`` is pinned among the ones that are not read."""

    @property
    def unread(self) -> int:
        """The number of other messages before the first of ``sources``, without those that the current summary covers."""

    @property
    def limit_since(self) -> int | None:
        """The position since which ``sources`` begin with the same message because no more may be read; None otherwise."""

    def read_on(self) -> bool:
        """Read older messages. Returns False when there are none, or no more may be read."""

    def fetch(self, events: list[MessageEvent]) -> Mapping[int, MessageEvent]:
        """Return messages whose payloads are stored separately with their bodies, by position."""

    def breaks(self) -> Sequence[EpochStart]:
        """Return the last changes of settings, summary and budget among the messages read so far."""


@lazy_dataclass(frozen=True, slots=True)
class MessageList:
    """A history that is read as a whole. Answers up to the position ``since`` were made behind other messages."""

    sources: Sequence[LoggedMessage]
    total: int
    since: int = 0
    kept, unread, has_all_kept, limit_since = (), 0, True, None

    def read_on(self) -> bool:
        return False

    def fetch(self, events: list[MessageEvent]) -> Mapping[int, MessageEvent]:
        return {event.position: event for event in events}

    def breaks(self) -> Sequence[EpochStart]:
        return (EpochStart(self.since, "unprompted", "base"),) if self.since else ()


@lazy_dataclass(frozen=True, slots=True)
class WindowPlan:
    """The messages known so far, and the view of everything that could be sent of them; once settled, of all that is sent.

    ``breaks`` separate the settled view from earlier windows. ``outgrown`` is the position with which the log became larger than
    the room; None while it is not, 0 for one that was not read. From the position ``gapless`` on all messages are known.
    """

    entries: Sequence[Entry]
    request: WindowRequest
    view: WindowDraft
    gapless: int = 0
    breaks: tuple[EpochStart, ...] = ()
    outgrown: int | None = None

    @classmethod
    def of(cls, history: History, entries: Mapping[int, Entry], memory: Memory, request: WindowRequest) -> WindowPlan:
        """Return the plan over the messages read so far. A past loop whose beginning has not been read counts as unread."""
        sources = history.sources
        skipped = _unfinished(sources) if history.unread else 0
        oldest = sources[skipped].loop if history.unread and skipped < len(sources) else 0
        pinned = [source for source in sources[:skipped] if source.event.envelope.pin]
        chosen = [entries[source.event.position] for source in (*history.kept, *pinned, *sources[skipped:])]
        view = assemble(
            chosen,
            total=history.total,
            answer_open_calls=request.answer_open_calls,
            unread=history.unread + skipped - len(pinned),
            offered=request.offered,
            memory=memory,
        )
        has_system = (request.plain or request).system is not None
        view = replace(view, oldest=oldest, is_open=view.unread > 0, has_system=has_system, summary=request.summary)
        gapless = sources[skipped].event.position if skipped < len(sources) else 0
        return cls(chosen, request, _with_what_may_be_sent(view, request), gapless)

    @property
    def is_final(self) -> bool:
        """Whether the least that any window sends has been read: the current loop, and pinned calls with their results."""
        if not self.view.unread:
            return True
        summary, oldest = self.request.summary, self.view.oldest
        if not oldest:
            return False
        covered, covered_to = (summary.last_loop, summary.last) if summary is not None else (0, 0)
        pinned = [entry for entry in self.entries if covered < entry.loop < oldest]
        is_paired = any(entry.facts.calls or entry.facts.results or is_item(entry) for entry in pinned)
        read = [entry for entry in self.entries if entry.position > covered_to]
        # A pinned message that opens a loop may be known without the messages behind it.
        begun = (entry for entry in read if entry.position >= self.gapless or not entry.event.envelope.pin)
        if is_paired or not any(entry.event.opens_loop == oldest for entry in begun):
            return False
        # The call of a pinned result may be in an earlier loop, which has not been read.
        results = {entry.position for entry in read if entry.event.envelope.pin and entry.facts.results}
        sendable = ((entry.position, entry.facts) for entry in self.entries if not never_sent(entry))
        return not results or not any(position in results for position, _ in pair(sendable).orphans)

    def missing_in_every_window(self) -> list[MessageEvent]:
        """Return messages without a body that every window sends: before the first loop, in the current one, or pinned."""
        view = self._stepped(self.view)
        units = [*view.preamble, *(unit for loop in view.loops[-1:] for unit in loop.units)]
        units += [unit for loop in view.past for unit in loop.units if unit.pinned]
        by_position = {entry.position: entry for unit in units for entry in unit.entries}
        return [entry.event for entry in by_position.values() if entry.message is None]

    def fitted(self, recall: RecallMessages | None) -> FittedView:
        """Return the view within the budget, and the start of its epoch as far as policy and budget decide it.

        With ``recall`` room is set aside for what it brings back. A summary that does not fit is left out, and the messages it
        covers are counted as omitted. It may have been in the window before.
        """
        view, summary = self.view, self.request.summary
        if summary is None:
            return self._fitted(view, recall)
        with suppress(BudgetTooSmallError):
            return self._fitted(view, recall)
        fitted = self._fitted(self._without_summary(view, summary), recall)
        return replace(fitted, breaks=(*fitted.breaks, EpochStart(view.last, "budget", "summary")))

    def _without_summary(self, view: WindowDraft, summary: SummaryEvent) -> WindowDraft:
        """Return the view without the summary; loops that it covers stay out, because only its kept messages have been read.

        Its messages that are not shown are counted with the other omitted ones.
        """
        for step in self.request.policy.pins:
            view = step.apply(view, Room(0, 0))
        loops = [(loop.number > summary.last_loop, loop) for loop in view.loops]
        units = [*view.preamble, *(unit for is_newer, loop in loops for unit in loop.units if is_newer or unit.pinned)]
        kept = {message.position for message in (*summary.kept, *(summary.parted or ()))}
        shown = kept & {entry.position for unit in units for entry in unit.entries}
        past = [out(loop, "summary") if loop.number <= summary.last_loop else loop for loop in view.past]
        return replace(view.with_past(past), summary=None, unread=view.unread + summary.messages - len(shown))

    def _stepped(self, view: WindowDraft) -> WindowDraft:
        fixed = self.request.fixed_tokens + view.preamble_tokens
        for step in self.request.policy.steps:
            view = applied(step, view, Room(self.request.budget.tokens, fixed))
        return view

    def _fitted(self, view: WindowDraft, recall: RecallMessages | None) -> FittedView:
        request = self.request
        stepped = self._stepped(view)
        room = request.budget.tokens - request.fixed_tokens
        reserve = recall.reserve(stepped, room) if recall is not None else 0
        is_always_reserved = recall is not None and recall.scope == "user"
        of_whole = reserve if is_always_reserved or is_lowered(stepped) else 0
        try:
            fitted = fit(stepped, ViewLimits(room, request.policy.when_full, reserve, of_whole), self._compactions)
        except BudgetTooSmallError as error:
            raise too_small(int(error.details["needed"]), request.fixed_tokens, request.budget) from None
        is_final = fitted.is_final and self.is_final and self.keeps_newest
        if fitted.view.compacted_to:
            breaks = [*fitted.breaks, *self._breaks_of_steps(fitted.view, fitted.view.oldest)]
            return FittedView(fitted.view, tuple(breaks), is_final)
        shown = self._without_oldest(fitted.view)
        breaks = [*fitted.breaks, *self._breaks_of_steps(stepped, shown.oldest)]
        if recall is not None and reserve == fitted.reserve:
            breaks += _breaks_of_reserve(stepped, recall, room)
        return FittedView(shown, tuple(breaks), is_final, fitted.reserve)

    @property
    def _compactions(self) -> Sequence[int] | None:
        """The positions of messages in which the provider of the format has summarised all before, newest first.

        None for a format without such messages. Where a stored card says it, a body that was read changes nothing.
        """
        if self.request.format not in _COMPACTING:
            return None
        covered_to, compactions = self.request.summary.last if self.request.summary is not None else 0, list[int]()
        for entry in reversed(self.entries):
            card = entry.event.facts
            facts = card if card is not None and card.compacts is not None else entry.facts
            if facts.compacts and entry.event.format == self.request.format and entry.position > covered_to:
                compactions.append(entry.position)
        return compactions

    @property
    def keeps_newest(self) -> bool:
        """Whether what the policy does to a loop depends on newer messages alone."""
        return not self.view.unread or not (self._has_own_steps or self.request.policy.pins)

    @property
    def _has_own_steps(self) -> bool:
        return not all(map(is_built_in, self.request.policy.steps))

    def _without_oldest(self, view: WindowDraft) -> WindowDraft:
        """Return the view without its oldest loops, which are out: their pinned messages stay, the others count as unread.

        So the view is the same, however much has been read. With a registered step nothing changes: it gives each loop a reason.
        """
        if self._has_own_steps:
            return view
        oldest = oldest_sent(view)
        older = [loop for loop in view.past if loop.number < oldest and not loop.is_covered]
        if not older:
            return replace(view, oldest=oldest)
        numbers = {loop.number for loop in older}
        reason = older[-1].reason or next(unit.reason for unit in older[-1].units if not unit.pinned)
        pinned = [pinned_alone(loop, reason) for loop in older if any(unit.pinned for unit in loop.units)]
        loops = [loop for loop in view.loops if loop.number not in numbers]
        shown = {entry.position for loop in (*pinned, *loops) for unit in loop.units for entry in unit.entries}
        kept = [entry for entry in self.entries if entry.loop >= oldest or entry.position in shown]
        # The call of a superseded result may be in a loop that another process has not read.
        lone = _lone_results(view, kept)
        aside = [
            (entry, reason)
            for entry, reason in view.set_aside
            if entry.loop not in numbers and entry.position not in lone
        ]
        known = shown | {entry.position for entry, _ in aside} | {ref.position for ref in view.open_calls}
        not_included = {loop.number for loop in loops if loop.reason == "not_included"}
        behind = [entry for entry in kept if entry.position not in known and entry.loop not in not_included]
        return replace(
            view,
            loops=tuple(sorted((*pinned, *loops), key=lambda loop: loop.number)),
            set_aside=tuple(
                sorted([*aside, *((entry, "orphan_result") for entry in behind)], key=lambda pair: pair[0].position)
            ),
            unread_reason=reason,
            unread=view.unread + sum(entry.loop in numbers and entry.position not in shown for entry in self.entries),
            oldest=oldest,
        )

    def _breaks_of_steps(self, stepped: WindowDraft, oldest: int) -> Iterator[EpochStart]:
        """Yield since when the policy's steps have left the same: since the current loop began, when they lower past loops.

        Loops before ``oldest`` are not sent, so nothing that comes to them matters.
        """
        loops = stepped.loops
        if self._has_own_steps:
            yield EpochStart(loops[-1].last if loops else 0, "policy", "base")
        sent = [loop for loop in loops if loop.number >= oldest]
        if any(unit.stubs for loop in sent for unit in loop.units):
            answers = [answer for loop in sent for unit in loop.units for answer in unit.answers]
            last_result = max(answer.entry.position for answer in answers if answer.entry is not None)
            yield EpochStart(last_result, "stub", "base")
        # The loop before the oldest one that is sent matters when a step has left it out: then each new loop moves the border.
        before = [loop for loop in stepped.past if loop.number < oldest]
        lowered = [loop for loop in (*before[-1:], *sent[:-1]) if loop.reason not in _COVERED]
        if not all(map(is_whole, lowered)):
            # A late result of a past call makes its loop larger, so the steps may leave other messages, or not that loop.
            entries = [entry for loop in lowered for unit in loop.units if not unit.pinned for entry in unit.entries]
            newest = max((entry.position for entry in entries), default=0)
            yield EpochStart(max(newest, loops[-1].first), "past_loop", "base")


def _breaks_of_reserve(view: WindowDraft, recall: RecallMessages, room: int) -> Iterator[EpochStart]:
    """Yield the first loop from which on as much room was set aside as now; the room grows with the first loops."""
    reserve = recall.reserve(view, room)
    for count, loop in enumerate(view.loops):
        if recall.reserve(replace(view, loops=view.loops[: count + 1]), room) == reserve:
            if count:
                yield EpochStart(loop.first, "recall", "base")
            return


def _with_what_may_be_sent(view: WindowDraft, request: WindowRequest) -> WindowDraft:
    """Return the view without loops of which only a part was read, and without the current one if the request excludes it."""
    covered = view.summary.last_loop if view.summary is not None else -1
    if not request.policy.preserve_system:
        view = with_system_as_loop(view)
    view = view.with_past(
        out(loop, "summary" if loop.number <= covered else NOT_READ) if loop.number < view.oldest else loop
        for loop in view.past
    )
    if request.include_current_loop:
        return view
    left_out = [replace(loop, units=(), level="out", reason="not_included") for loop in view.loops[-1:]]
    return replace(view, loops=(*view.past, *left_out), open_calls=())


def _lone_results(view: WindowDraft, entries: Sequence[Entry]) -> set[int]:
    """Return the positions of a view's superseded results whose calls are not among these entries."""
    superseded = {entry.position for entry, reason in view.set_aside if reason == "superseded_result"}
    if not superseded:
        return superseded
    sendable = ((entry.position, entry.facts) for entry in entries if not never_sent(entry))
    return superseded - {position for position, _ in pair(sendable).call_of}


def _unfinished(sources: Sequence[LoggedMessage]) -> int:
    """Return how many of the oldest messages belong to a loop that began before them and is not the newest."""
    first = sources[0].loop if sources else 0
    if not first or sources[0].event.opens_loop == first or sources[-1].loop == first:
        return 0
    return next(index for index, source in enumerate(sources) if source.loop != first)


def settled(history: History, request: WindowRequest, memory: Memory) -> WindowPlan:
    """Return the plan of a request, with all the bodies that its view sends.

    ``memory`` is of the same log and format; it keeps what is made.
    Raises `BudgetTooSmallError` when even the smallest window is above the budget.
    """
    memory.begin((request.budget.tokens, request.policy))
    step, recaller, parts, recalls = request.policy.recall, request.recaller, list[RecalledPart](), list[EpochStart]()
    ways = step.ways(request.query) if step is not None and recaller is not None else (None,)
    for way in ways:
        plan, fitted = _planned(history, request, memory, way.step if way is not None else None)
        limits = list(_limit_breaks(plan, fitted, history))
        if way is None or recaller is None or not fitted.reserve or not fitted.view.loops:
            break
        begun = (*fitted.breaks, *history.breaks(), *limits)
        since = max((start.position for start in begun if isinstance(start.broke_at, str)), default=0)
        known = memory.recalled.get(way.messages)
        recalled, starts = recalled_in(fitted.view, way, fitted.reserve, since, recaller, known, query=request.query)
        memory.recalled[way.messages] = recalled
        # Where a way brings nothing back, less is set aside for the next. Windows before this epoch may have had more.
        parts += recalled.parts
        recalls += starts
        if any(part.text for part in recalled.parts):
            break
    late = breaks_of_results(fitted.view, answer_open_calls=request.answer_open_calls)
    breaks = (*fitted.breaks, *recalls, *late, *limits)
    view = replace(fitted.view, recalled=tuple(parts))
    return replace(plan, view=view, breaks=breaks, outgrown=_outgrown(history, request))


def _planned(
    history: History, request: WindowRequest, memory: Memory, recall: RecallMessages | None
) -> tuple[WindowPlan, FittedView]:
    """Read messages and bodies until no more would change the window; return the plan and its view within the budget."""
    reader = _EntryReader(history, memory, request)
    while True:
        reader.read()
        plan = WindowPlan.of(history, reader.entries, memory, request)
        try:
            fitted = plan.fitted(recall)
        except BudgetTooSmallError:
            # A loop takes a message at least: few loops that have not been read may take less than the line about them.
            covered = request.summary.last_loop if request.summary is not None else 0
            unread_loops = min(plan.view.oldest - 1 - covered, plan.view.unread)
            may_take_less = unread_loops * MESSAGE_OVERHEAD < LINE_TOKENS
            is_final = plan.is_final and plan.keeps_newest and history.has_all_kept and not may_take_less
            if not is_final and history.read_on():
                continue
            # The reported need is exact only once all messages that every window sends are read.
            wanted = plan.missing_in_every_window()
            if not wanted:
                raise
        else:
            is_final = fitted.is_final and (history.has_all_kept or not plan.view.unread)
            if not is_final and history.read_on():
                continue
            # A card lacks what sending may add to a message's tokens, so the plan is made again with the bodies.
            wanted = missing_bodies(fitted.view)
            if not wanted:
                return plan, fitted
        reader.fetch(wanted)


def _outgrown(history: History, request: WindowRequest) -> int | None:
    """Return the position with which the log became larger than the room for messages (see `WindowPlan`)."""
    room, before = request.budget.tokens - request.fixed_tokens, history.total
    if before <= room:
        return None
    for source in reversed(history.sources):
        before -= source.event.tokens
        if before <= room:
            return source.event.position
    return 0


@lazy_dataclass(frozen=True, slots=True)
class _EntryReader:
    """Reads the messages of a log and makes an entry of each; the memory keeps it.

    A body that an earlier window has fetched counts when this one needs it: a plan depends on the log and the request alone.
    """

    history: History
    memory: Memory
    request: WindowRequest
    entries: dict[int, Entry] = field(default_factory=dict)

    def read(self) -> None:
        """Read older commits while all would be sent; make entries of their messages, with bodies where a card says too little."""
        while _fits_whole(self.history, self.request) and self.history.read_on():
            pass
        sources = (*self.history.kept, *self.history.sources)
        new = [source for source in sources if source.event.position not in self.entries]
        self._add(self.memory.entries, new)
        self.entries.update((source.event.position, self.memory.entries[source.event.position]) for source in new)
        self.fetch([source.event for source in new if source.event.body is None and self._needs_body(source.event)])

    def fetch(self, events: list[MessageEvent]) -> None:
        """Add the bodies of messages."""
        read = self.memory.read
        entries = [self.entries[event.position] for event in events if event.position not in read]
        fetched = self.history.fetch([entry.event for entry in entries]) if entries else {}
        self._add(read, [LoggedMessage(fetched[entry.position], entry.loop, entry.time_ms) for entry in entries])
        self.entries.update((event.position, read[event.position]) for event in events)

    def _add(self, known: dict[int, Entry], sources: Sequence[LoggedMessage]) -> None:
        """Make the entries of messages that are not ``known``."""
        for entry in map(entry_of, [source for source in sources if source.event.position not in known]):
            event, message, extra = entry.event, entry.message, 0
            if message is not None:
                extra = extra_tokens(message, stored_format=event.format, sent=self.request.format)
                extra += redacted_tokens(message) - event.tokens if event.redacted else 0
            known[entry.position] = replace(entry, extra=extra) if extra else entry

    def _needs_body(self, event: MessageEvent) -> bool:
        """Return whether a card is not enough: there is none, or it does not say what a window must know.

        That is what of the message's tokens its results take, and whether an answer of Anthropic's has a summary of all before.
        """
        facts = event.facts
        if facts is None or (facts.results and (facts.calls or facts.role != "tool")):
            return True
        return facts.compacts is None and event.format == self.request.format == "anthropic"


def _fits_whole(history: History, request: WindowRequest) -> bool:
    """Return whether older messages are sent too: the policy keeps all, and those read so far take less than half the budget."""
    tokens = sum(source.event.tokens for source in history.sources)
    return request.policy.keeps_all and bool(history.unread) and tokens < request.budget.tokens / 2


def _limit_breaks(plan: WindowPlan, fitted: FittedView, history: History) -> Iterator[EpochStart]:
    """Yield a break at the newest message where not all that matters could be read.

    While the window sends all messages up to the limit of reading, the next one begins with the same message: the break stays.
    """
    if fitted.is_final:
        return
    sent = (loop for loop in fitted.view.loops if loop.number >= fitted.view.oldest)
    since = history.limit_since if plan.is_final and all(map(is_whole, sent)) else None
    yield EpochStart(fitted.view.last if since is None else since, "not_read", "base")


def entry_of(source: LoggedMessage) -> Entry:
    """Return the source as an entry; its message is parsed when its body is known."""
    event, card = source.event, source.event.facts
    if event.body is None:
        facts = card or _NO_FACTS
        return Entry(event, facts, source.loop, source.time_ms, values=lambda: facts.ledger)
    message = CODECS[event.format].parse(event.body, is_error=event.envelope.is_error)
    facts = outline_of(message)
    if card is not None:
        # A card may be of an older extractor: its values stay those of the message when the body is read.
        return Entry(event, facts, source.loop, source.time_ms, message, values=lambda: card.ledger)
    values = cache(lambda: bounded(ledger_of_facts(facts))) if facts.calls or facts.results else tuple[str, ...]
    return Entry(event, facts, source.loop, source.time_ms, message, values=values)


_NO_FACTS = outline_of(Message("unknown"))
