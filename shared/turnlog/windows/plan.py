"""From messages to a view within the budget: the policy's steps, then the fit; and the same as it was at an earlier moment."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from turnlog.codecs.registry import CODECS
from turnlog.domain.errors import BudgetTooSmallError
from turnlog.domain.events import MessageEvent, SummaryEvent
from turnlog.domain.facts import facts_of
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.messages import Message
from turnlog.domain.values import dataclass
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.costs import says_nothing
from turnlog.windows.fit import fit
from turnlog.windows.models import Budget
from turnlog.windows.policy import Policy
from turnlog.windows.prices import MESSAGE_OVERHEAD, extra_tokens, frame_tokens
from turnlog.windows.registry import is_built_in
from turnlog.windows.render import missing_bodies
from turnlog.windows.step_checks import applied
from turnlog.windows.steps import Room, out
from turnlog.windows.text import SETTLEMENT
from turnlog.windows.truncate import truncated
from turnlog.windows.view import Entry, View, assemble

WINDOW_OVERHEAD = 3
SETTLEMENT_TOKENS = upper_bound_tokens(SETTLEMENT) + MESSAGE_OVERHEAD
Fetch = Callable[[list[MessageEvent]], Mapping[int, MessageEvent]]
"""Brings the bodies of messages whose payloads are out of line, by position."""


@dataclass(frozen=True, slots=True)
class Source:
    """A message of the log on its way into a window."""

    event: MessageEvent
    loop: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. Tokens of system text and tools are counted by the caller, or bounds of the count.

    ``system_least`` and ``tools_least``: so many they are at least, where the caller knows; a count is both.
    ``summary`` is the one in force where the policy takes it: what it covers is then not among the sources, but for what
    it keeps.
    """

    policy: Policy
    budget: Budget
    format: str
    system: str | None = None
    system_tokens: int = 0
    system_least: int | None = None
    tools: Sequence[JsonObject] = ()
    tools_tokens: int = 0
    tools_least: int | None = None
    include_current_loop: bool = True
    settle: bool = False
    apply_breakpoints: bool = False
    summary: SummaryEvent | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of the messages, and all that could be sent of them."""

    entries: Sequence[Entry]
    request: Request
    total: int
    unread: int
    assembled: View

    @classmethod
    def of(cls, entries: Sequence[Entry], request: Request, *, total: int, unread: int) -> Plan:
        view = assemble(
            [_priced(entry, request.format) for entry in entries],
            total=total,
            settle=request.settle,
            settlement_tokens=SETTLEMENT_TOKENS,
            unread=unread,
            has_system=request.system is not None,
        )
        return cls(entries, request, total, unread, view)

    def certain(self) -> list[MessageEvent]:
        """Messages out of line that every window sends: before the first loop, in the current loop, pinned."""
        view = self._stepped(self.view())
        units = [*view.preamble, *(unit for loop in view.loops[-1:] for unit in loop.units)]
        units += [unit for loop in view.past for unit in loop.units if unit.pinned]
        found = {entry.position: entry for unit in units for entry in unit.entries}
        return [entry.event for entry in found.values() if entry.message is None]

    def with_entries(self, known: Mapping[int, Entry]) -> Plan:
        """The plan when more is known of some messages, by position."""
        entries = [known.get(entry.position, entry) for entry in self.entries]
        return Plan.of(entries, self.request, total=self.total, unread=self.unread)

    def before(self, position: int, request: Request) -> tuple[Plan, bool]:
        """The plan of a request in the same format as if the log ended before a position, and whether all that it could
        send stands in this one too, in the same order and as it was."""
        kept = [entry for entry in self.entries if entry.position < position]
        total = self.total - sum(entry.event.tokens for entry in self.entries[len(kept) :])
        view = truncated(self.assembled, kept, position, total=total, settle=request.settle)
        if view is None:
            return Plan.of(kept, request, total=total, unread=self.unread), False
        view = replace(view, has_system=request.system is not None)
        return Plan(kept, request, total, self.unread, view), True

    def view(self) -> View:
        """All that could be sent."""
        view = replace(self.assembled, summary=self.request.summary)
        if self.request.include_current_loop:
            return view
        left_out = [replace(loop, units=(), level="out", reason="not_included") for loop in view.loops[-1:]]
        return replace(view, loops=(*view.past, *left_out), open_calls=())

    def leaves(self, view: View) -> bool:
        """Whether the view is all that could be sent."""
        is_same = view.summary is self.request.summary and view.told == self.assembled.told
        return is_same and view.loops == self.assembled.loops

    def fitted(self) -> View:
        """The view within the budget. A summary that has no room is left out, and what it covers is declared."""
        try:
            return self._fitted(self.view())
        except BudgetTooSmallError:
            summary = self.request.summary
            if summary is None:
                raise
            return self._fitted(self._without_summary(self.view(), summary))

    def _without_summary(self, view: View, summary: SummaryEvent) -> View:
        """What the summary covers stays out: only kept messages of it have been read. Those that are not shown are counted
        with the others."""
        for step in self.request.policy.pins:
            view = step.apply(view, Room(0, 0))
        units = [*view.preamble, *(unit for loop in view.past for unit in loop.units if unit.pinned)]
        shown = {kept.position for kept in summary.kept} & {entry.position for unit in units for entry in unit.entries}
        past = [out(loop, "summary") if loop.number <= summary.last_loop else loop for loop in view.past]
        return replace(view.with_past(past), summary=None, unread=view.unread + summary.messages - len(shown))

    def _stepped(self, view: View) -> View:
        fixed = fixed_tokens(self.request) + sum(unit.tokens for unit in view.preamble)
        for step in self.request.policy.steps:
            view = applied(step, view, Room(self.request.budget.tokens, fixed))
        return view

    def _fitted(self, view: View) -> View:
        request = self.request
        fixed = fixed_tokens(request)
        try:
            return fit(self._stepped(view), room=request.budget.tokens - fixed)
        except BudgetTooSmallError as error:
            needed = int(error.details["needed"]) + fixed
            raise BudgetTooSmallError(
                f"the least window needs {needed} tokens; the budget is {request.budget.tokens}",
                details={"needed": needed, "budget": request.budget.tokens},
            ) from error


@dataclass(frozen=True, slots=True)
class Settled:
    """A view with all the bodies that it sends. ``plans`` are those that were made on the way to it, the last one its own.

    ``is_untouched``: in none of them did the policy or the budget change anything of what could be sent. Of an earlier moment:
    ``is_within``: all that is sent stands in the later one, too, in the same order and as it was; not ``is_known``: bodies that
    it sends are not at hand, so the view is what it was planned as without them.
    """

    plans: tuple[Plan, ...]
    view: View
    is_untouched: bool
    is_within: bool = False
    is_known: bool = True

    @property
    def plan(self) -> Plan:
        return self.plans[-1]

    def before(self, position: int, request: Request) -> Settled:
        """What a request in the same format was given as if the log ended before a position, or `BudgetTooSmallError` when it
        was refused. Nothing is fetched."""
        plan, is_same = self.plan.before(position, request)
        if self.is_untouched and is_same and _changes_less(request, self.plan.request):
            view = plan.view()
            if not says_nothing(view):
                return Settled((plan,), view, is_untouched=True, is_within=True)
        if len(self.plans) > 1:
            plan, _ = self.plans[0].before(position, request)
        known = {entry.position: entry for entry in self.plan.entries if entry.message is not None}
        return _settled(plan, lambda events: {event.position: known[event.position] for event in events}, known)


def settled(entries: Sequence[Entry], request: Request, *, total: int, unread: int, fetch: Fetch) -> Settled:
    """The view of a request; `BudgetTooSmallError` when even the least window is larger than the budget."""
    by_position = {entry.position: entry for entry in entries}

    def bring(events: list[MessageEvent]) -> Mapping[int, Entry]:
        found, wanted = fetch(events) if events else {}, [by_position[event.position] for event in events]
        return {one.position: _read(found[one.position], one.loop, one.time_ms) for one in wanted}

    # Of these neither body nor card is at hand.
    known = bring([entry.event for entry in entries if entry.message is None and entry.event.facts is None])
    entries = [known.get(entry.position, entry) for entry in entries]
    return _settled(Plan.of(entries, request, total=total, unread=unread), bring)


def _settled(
    plan: Plan, bring: Callable[[list[MessageEvent]], Mapping[int, Entry]], at_hand: Container[int] | None = None
) -> Settled:
    """``at_hand``: the positions that can be brought; None: all."""
    plans, is_untouched = [plan], True
    while True:
        try:
            view = plan.fitted()
        except BudgetTooSmallError:
            # What is needed is exact once everything is read that is sent in any case.
            wanted, is_untouched = plan.certain(), False
            if not wanted or not _are_in(at_hand, wanted):
                raise
        else:
            # A card tells what a message takes but for what sending it may add: with the bodies the plan is made again.
            wanted, is_untouched = missing_bodies(view), is_untouched and plan.leaves(view)
            if not wanted:
                return Settled(tuple(plans), view, is_untouched)
            if not _are_in(at_hand, wanted):
                return Settled(tuple(plans), view, is_untouched, is_known=False)
        plan = plan.with_entries(bring(wanted))
        plans.append(plan)


def _are_in(at_hand: Container[int] | None, wanted: Iterable[MessageEvent]) -> bool:
    return at_hand is None or all(event.position in at_hand for event in wanted)


def _changes_less(then: Request, now: Request) -> bool:
    """Whether a request changes nothing of a shorter log when the other changes nothing of a longer one. Turnlog's own steps
    take the more the more there is; of others that is not known."""
    is_as_large = then.budget.tokens - fixed_tokens(then) >= now.budget.tokens - fixed_tokens(now)
    return (
        is_as_large
        and then.budget.tokens >= now.budget.tokens
        and then.policy == now.policy
        and then.summary is now.summary
        and all(is_built_in(step) for step in now.policy.steps)
    )


def fixed_tokens(request: Request) -> int:
    """What a window takes besides its messages."""
    return WINDOW_OVERHEAD + request.system_tokens + request.tools_tokens + frame_tokens(request.format)


def entry_of(source: Source) -> Entry:
    """The message as a view takes it, understood as far as its body is at hand."""
    if source.event.body is None:
        return Entry(source.event, source.event.facts or _NO_FACTS, source.loop, source.time_ms)
    return _read(source.event, source.loop, source.time_ms)


def _read(event: MessageEvent, loop: int, time_ms: int) -> Entry:
    """The entry with its message understood."""
    assert event.body is not None  # noqa: S101 - fetched
    message = CODECS[event.format].parse(event.body, is_error=event.envelope.is_error)
    return Entry(event, facts_of(message), loop, time_ms, message)


def _priced(entry: Entry, sent: str) -> Entry:
    extra = extra_tokens(entry.facts, entry.message, given=entry.event.format, sent=sent)
    return replace(entry, extra=extra) if extra else entry


_NO_FACTS = facts_of(Message("unknown"))
