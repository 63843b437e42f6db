"""Plans a view within the budget: the policy's steps, then the fit. Also plans the view of an earlier moment."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from turnlog.core.calls import outline_of
from turnlog.core.errors import BudgetTooSmallError, StepError
from turnlog.core.events import MessageEvent, SummaryEvent
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Message
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.budgets import Budget
from turnlog.windows.digests import digest_pieces, with_note
from turnlog.windows.epochs import EpochStart, Fitted, fit
from turnlog.windows.policy import Policy
from turnlog.windows.prices import extra_tokens, frame_tokens
from turnlog.windows.registry import is_built_in
from turnlog.windows.render import missing_bodies
from turnlog.windows.steps import DigestWhenFull, Room, Step, out, pinned
from turnlog.windows.text import SETTLEMENT
from turnlog.windows.view import Entry, Loop, Unit, WindowDraft, assemble, turns_of

_REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OURS = frozenset({"summary", "not_included"})
"""Reasons that steps may not use: a summary covers the loop, or the caller did not want the current loop."""
_RANKS = {"whole": 0, "digest": 1, "out": 2}


def applied(step: Step, view: WindowDraft, room: Room) -> WindowDraft:
    """Return the view after a step. Raises `StepError` when a user's step fails or returns a view that it may not."""
    if is_built_in(step):
        return step.apply(view, room)
    try:
        after = step.apply(view, room)
    except Exception as error:
        raise StepError(f"step {step.step!r} failed: {type(error).__name__}", details={"step": step.step}) from error
    problem = _problem(view, after)
    if problem:
        raise StepError(f"step {step.step!r} {problem}", details={"step": step.step})
    return after


def _problem(before: WindowDraft, after: object) -> str:
    """Return what a step did that it may not, or an empty string."""
    if not isinstance(after, WindowDraft):
        return f"returned a {type(after).__name__}, not a view"
    if replace(after, loops=before.loops) != before:
        return "changed more of the view than its loops"
    if len(after.loops) != len(before.loops):
        return "added or removed a loop: one is taken out by its level"
    problems = [_of_loop(*pair) for pair in zip(before.past, after.past, strict=True)]
    problems += [_of_current(*pair) for pair in zip(before.loops[-1:], after.loops[-1:], strict=True)]
    return next(filter(None, problems), "")


def _of_current(before: Loop, after: Loop) -> str:
    if after is before:
        return ""
    is_pinned = len(after.units) == len(before.units) and all(
        new == old or new == pinned(old) for old, new in zip(before.units, after.units, strict=True)
    )
    same = is_pinned and replace(after, units=before.units) == before
    return "" if same else f"changed the current loop, {before.number}, otherwise than by pins"


def _of_loop(before: Loop, after: Loop) -> str:
    if after is before:
        return ""
    lowered = replace(
        before,
        units=after.units,
        level=after.level,
        reason=after.reason,
        notes=after.notes,
        max_message_chars=after.max_message_chars,
    )
    if lowered != after:
        return f"changed more of loop {before.number} than its level and units"
    if after.level not in _RANKS or _RANKS[after.level] < _RANKS[before.level]:
        return f"raised loop {before.number} from {before.level} to {after.level}"
    if before.level == "out" and after.reason != before.reason:
        return f"gave loop {before.number}, which was out, another reason"
    if after.level != "whole" and not _is_reason(after.reason, before.reason if after.level == before.level else ""):
        return (
            f"made loop {before.number} {after.level} with the reason {after.reason[:64]!r}, which is none of its own"
        )
    return _of_units(before, after.units) or _of_notes(before, after)


def _of_notes(before: Loop, after: Loop) -> str:
    if after.level == "digest":
        # A digest must be made by `digest`, with any ledger: then it has only content of its loop.
        values = sum(len(note.values) for note in after.notes)
        if after.max_message_chars < 1 or with_note(after, max_values=values).notes != after.notes:
            return f"made a digest of loop {before.number} otherwise than by digest()"
        if not after.notes and not digest_pieces(after):
            return f"made a digest of loop {before.number} that says nothing: such a loop is out"
    elif after.level == "out" and after.notes:
        return f"left notes of loop {before.number}, which is out"
    elif after.level == "whole" and replace(after, units=before.units) != before:
        return f"gave loop {before.number}, which is whole, a reason or notes"
    return ""


def _of_units(before: Loop, after: Iterable[Unit]) -> str:
    units = tuple(after)
    if len(units) != len(before.units):
        return f"added or removed a message of loop {before.number}: one is taken out by its level"
    for old, new in zip(before.units, units, strict=True):
        is_out = new.level == "out" and not old.pinned and new == replace(old, level="out", reason=new.reason)
        if not (new is old or new == old or new == pinned(old) or (is_out and _is_reason(new.reason, old.reason))):
            return (
                f"changed message {old.position} otherwise than by taking it out, with a reason of its own, or by a pin"
            )
    return ""


def _is_reason(reason: str, before: str) -> bool:
    """Return whether the reason may stand in a manifest: a word of the step, or the reason that was there before."""
    is_own = _REASON.fullmatch(reason) is not None and reason not in _OURS
    return is_own or (bool(before) and reason == before)


WINDOW_OVERHEAD = 3
SETTLEMENT_TOKENS = upper_bound_tokens(SETTLEMENT) + MESSAGE_OVERHEAD
Fetch = Callable[[list[MessageEvent]], Mapping[int, MessageEvent]]
"""Returns messages whose payloads are stored separately with their bodies, by position."""


@lazy_dataclass(frozen=True, slots=True)
class Source:
    """A message of the log as input of a window."""

    event: MessageEvent
    loop: int
    time_ms: int


@lazy_dataclass(frozen=True, slots=True)
class WindowRequest:
    """A request for a window. The caller counts the tokens of system text and tools, or gives upper bounds.

    ``system_least`` and ``tools_least`` are lower bounds of these tokens, where the caller knows them; a count is both bounds.
    ``summary`` is the current summary where the policy uses it. The messages it covers are then not among the sources, except
    those it keeps.
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
    answer_open_calls: bool = False
    apply_breakpoints: bool = False
    summary: SummaryEvent | None = None


@lazy_dataclass(frozen=True, slots=True)
class WindowPlan:
    """The messages known so far, and the view of everything that could be sent of them."""

    entries: Sequence[Entry]
    request: WindowRequest
    total: int
    unread: int
    assembled: WindowDraft

    @classmethod
    def of(cls, entries: Sequence[Entry], request: WindowRequest, *, total: int, unread: int) -> WindowPlan:
        view = assemble(
            [_priced(entry, request.format) for entry in entries],
            total=total,
            answer_open_calls=request.answer_open_calls,
            settlement_tokens=SETTLEMENT_TOKENS,
            unread=unread,
            has_system=request.system is not None,
        )
        return cls(entries, request, total, unread, view)

    def certain(self) -> list[MessageEvent]:
        """Return messages without a body that every window sends.

        These are before the first loop, in the current loop, or pinned.
        """
        view = self._stepped(self.view())
        units = [*view.preamble, *(unit for loop in view.loops[-1:] for unit in loop.units)]
        units += [unit for loop in view.past for unit in loop.units if unit.pinned]
        by_position = {entry.position: entry for unit in units for entry in unit.entries}
        return [entry.event for entry in by_position.values() if entry.message is None]

    def with_entries(self, known: Mapping[int, Entry]) -> WindowPlan:
        """Return the plan with ``known`` entries, by position, in place of its own."""
        entries = [known.get(entry.position, entry) for entry in self.entries]
        return WindowPlan.of(entries, self.request, total=self.total, unread=self.unread)

    def view(self) -> WindowDraft:
        """Return the view of everything that could be sent."""
        view = replace(self.assembled, summary=self.request.summary)
        if self.request.include_current_loop:
            return view
        left_out = [replace(loop, units=(), level="out", reason="not_included") for loop in view.loops[-1:]]
        return replace(view, loops=(*view.past, *left_out), open_calls=())

    def fitted(self) -> Fitted:
        """Return the view within the budget, and the start of its epoch as far as policy and budget decide it.

        A summary that does not fit is left out, and the messages it covers are counted as omitted.
        """
        try:
            return self._fitted(self.view())
        except BudgetTooSmallError:
            summary = self.request.summary
            if summary is None:
                raise
            return self._fitted(self._without_summary(self.view(), summary))

    def _without_summary(self, view: WindowDraft, summary: SummaryEvent) -> WindowDraft:
        """Return the view without the summary; loops that it covers stay out, because only its kept messages have been read.

        Its messages that are not shown are counted with the other omitted ones.
        """
        for step in self.request.policy.pins:
            view = step.apply(view, Room(0, 0))
        units = [*view.preamble, *(unit for loop in view.past for unit in loop.units if unit.pinned)]
        shown = {kept.position for kept in summary.kept} & {entry.position for unit in units for entry in unit.entries}
        past = [out(loop, "summary") if loop.number <= summary.last_loop else loop for loop in view.past]
        return replace(view.with_past(past), summary=None, unread=view.unread + summary.messages - len(shown))

    def _stepped(self, view: WindowDraft) -> WindowDraft:
        fixed = fixed_tokens(self.request) + sum(unit.tokens for unit in view.preamble)
        for step in self.request.policy.steps:
            view = applied(step, view, Room(self.request.budget.tokens, fixed))
        return view

    def _fitted(self, view: WindowDraft) -> Fitted:
        request = self.request
        fixed = fixed_tokens(request)
        stepped = self._stepped(view)
        steps = [step for step in request.policy.steps if isinstance(step, DigestWhenFull)]
        try:
            fitted = fit(stepped, room=request.budget.tokens - fixed, step=steps[-1] if steps else DigestWhenFull())
        except BudgetTooSmallError as error:
            needed = int(error.details["needed"]) + fixed
            raise BudgetTooSmallError(
                f"the least window needs {needed} tokens; the budget is {request.budget.tokens}",
                details={"needed": needed, "budget": request.budget.tokens},
            ) from error
        return replace(fitted, breaks=(*fitted.breaks, *self._breaks_of_steps(view, stepped)))

    def _breaks_of_steps(self, view: WindowDraft, stepped: WindowDraft) -> Iterator[EpochStart]:
        """Yield since when the policy's steps have left the same: since the current loop began, when they lower past loops."""
        if any(not is_built_in(step) for step in self.request.policy.steps):
            yield EpochStart(view.loops[-1].last if view.loops else 0, "policy", "base")
        stubbed = [unit.position for loop in stepped.loops for unit in loop.units if unit.stubs]
        if stubbed:
            units = [unit for loop in view.loops for unit in loop.units]
            newest = max(answer.entry.position for unit in units for answer in unit.answers if answer.entry is not None)
            yield EpochStart(newest, "stub", "base")
        if any(not loop.is_covered and not _is_whole(loop) for loop in stepped.past):
            # A late result of a past call makes its loop larger, so the steps may leave other messages.
            newest = max(
                (entry.position for loop in stepped.past for unit in loop.units for entry in unit.entries), default=0
            )
            yield EpochStart(max(newest, stepped.loops[-1].first), "past_loop", "base")


def _is_whole(loop: Loop) -> bool:
    return loop.level == "whole" and all(unit.level == "whole" for unit in loop.units)


@lazy_dataclass(frozen=True, slots=True)
class Settled:
    """A view with all the bodies that it sends, the plan it comes from, and the breaks that separate it from earlier windows."""

    plan: WindowPlan
    view: WindowDraft
    breaks: tuple[EpochStart, ...]


def settled(entries: Sequence[Entry], request: WindowRequest, *, total: int, unread: int, fetch: Fetch) -> Settled:
    """Return the view of a request. Raises `BudgetTooSmallError` when even the smallest window is above the budget."""
    by_position = {entry.position: entry for entry in entries}

    def bring(events: list[MessageEvent]) -> Mapping[int, Entry]:
        fetched, wanted = fetch(events) if events else {}, [by_position[event.position] for event in events]
        return {entry.position: _read(fetched[entry.position], entry.loop, entry.time_ms) for entry in wanted}

    # These entries have neither a body nor a card.
    known = bring([entry.event for entry in entries if entry.message is None and entry.event.facts is None])
    entries = [known.get(entry.position, entry) for entry in entries]
    plan = WindowPlan.of(entries, request, total=total, unread=unread)
    while True:
        try:
            fitted = plan.fitted()
        except BudgetTooSmallError:
            # The reported need is exact only once all messages that every window sends are read.
            wanted = plan.certain()
            if not wanted:
                raise
        else:
            # A card lacks what sending may add to a message's tokens, so the plan is made again with the bodies.
            wanted = missing_bodies(fitted.view)
            if not wanted:
                late = breaks_of_results(fitted.view, answer_open_calls=request.answer_open_calls)
                return Settled(plan, fitted.view, (*fitted.breaks, *late))
        plan = plan.with_entries(bring(wanted))


def breaks_of_results(view: WindowDraft, *, answer_open_calls: bool) -> Iterator[EpochStart]:
    """Yield since when results of the view have replaced what an answer's window had for their calls.

    That was a neutral text, or an earlier result of the call, or nothing: a call whose result is awaited is not sent.
    """
    units = [unit for loop in view.loops for unit in loop.units]
    roles = dict(turns_of(view))
    turns = list(roles)
    said = [position for position, role in roles.items() if role == "assistant"]
    said += [entry.position for entry, _ in view.set_aside if entry.facts.role == "assistant"]
    said.sort()
    superseded = sorted(entry.position for entry, reason in view.set_aside if reason == "superseded_result")
    for unit, following in zip_longest(units, units[1:]):
        if not unit.answers:
            continue
        last = unit.said[-1].position
        settled_at = _next(turns, last)
        for position in {answer.entry.position for answer in unit.answers if answer.entry is not None}:
            is_replacing = answer_open_calls or unit.is_folded or (_next(superseded, last) or position) < position
            sent_at = last if is_replacing else settled_at
            if sent_at is not None and (_next(said, sent_at) or position + 1) <= position:
                yield EpochStart(position, "late_result", unit.position)
        if (
            answer_open_calls
            or settled_at is None
            or roles[settled_at] != "assistant"
            or _is_complete(unit, settled_at)
        ):
            continue
        # The answer was given while the call waited, so neither the call nor its place had been sent.
        if unit.is_folded or (following is not None and following.position < settled_at):
            yield EpochStart(settled_at, "late_result", unit.position)


def _next(positions: Sequence[int], position: int) -> int | None:
    """Return the first of ordered positions that is larger than ``position``."""
    index = bisect_right(positions, position)
    return positions[index] if index < len(positions) else None


def _is_complete(unit: Unit, position: int) -> bool:
    """Return whether all results of a unit came before a position."""
    return all(answer.entry is not None and answer.entry.position < position for answer in unit.answers)


def sent_before(view: WindowDraft, position: int, *, answer_open_calls: bool) -> int:
    """Return the position up to which an answer at ``position`` was made behind the same messages.

    That is the answer's own position, or that of a call whose results it did not wait for.
    """
    if answer_open_calls:
        return position
    units = [unit for loop in view.loops for unit in loop.units if unit.position < position]
    last_turn = max((turn for turn, _ in turns_of(view) if turn < position), default=0)
    waiting = [unit for unit in units if unit.said[-1].position >= last_turn and not _is_complete(unit, position)]
    return min((unit.position for unit in waiting), default=position)


def fixed_tokens(request: WindowRequest) -> int:
    """Return the tokens of a window besides its messages."""
    return WINDOW_OVERHEAD + request.system_tokens + request.tools_tokens + frame_tokens(request.format)


def entry_of(source: Source) -> Entry:
    """Return the source as an entry; its message is parsed when its body is known."""
    if source.event.body is None:
        return Entry(source.event, source.event.facts or _NO_FACTS, source.loop, source.time_ms)
    return _read(source.event, source.loop, source.time_ms)


def _read(event: MessageEvent, loop: int, time_ms: int) -> Entry:
    """Return the entry of an event with its message parsed."""
    assert event.body is not None  # noqa: S101 - fetched
    message = CODECS[event.format].parse(event.body, is_error=event.envelope.is_error)
    return Entry(event, outline_of(message), loop, time_ms, message)


def _priced(entry: Entry, sent: str) -> Entry:
    extra = extra_tokens(entry.facts, entry.message, stored_format=entry.event.format, sent=sent)
    return replace(entry, extra=extra) if extra else entry


_NO_FACTS = outline_of(Message("unknown"))
