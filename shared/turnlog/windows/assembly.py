"""Assembling: a log's messages become units and loops, the view of which a window is planned.

Messages are grouped into units that are in or out together (a call with its results), and units into loops. Messages that can
never be sent (an interrupted stream, an unknown role, a result without a call) are set aside with the reason.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from turnlog.core.calls import CallOutline, OpenCalls, Ref, pair
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.loops import REASONING
from turnlog.core.messages import Text
from turnlog.core.times import caller_time, milliseconds_since_epoch
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.blocks import legal_tool_name
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.recalled import RecalledParts, RecallFor
from turnlog.windows.text import SETTLEMENT_TOKENS, most_tokens_of_blocks, most_tokens_of_calls
from turnlog.windows.view import CallResult, Entry, Loop, Unit, WindowDraft, continues_answer, is_turn, never_sent

_MOST_REQUESTS = 4
"""Different budgets and policies whose sizes of a view's parts are remembered."""


@lazy_dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools whose calls may be sent as calls.

    ``names`` are None where those of all tools may; ``built_in`` are types of the provider's own tools. The provider of ``format``
    runs the hosted calls of messages in that format, so these always may.
    """

    names: frozenset[str] | None = None
    built_in: tuple[str, ...] = ()
    format: str = ""

    def have(self, entry: Entry, call: CallOutline) -> bool:
        """Return whether a call of a message may be sent as a call."""
        if self.names is None or (call.hosted and entry.event.format == self.format):
            return True
        is_named = not self.names.isdisjoint((call.name, legal_tool_name(call.name)))
        is_built_in = any(kind.startswith(call.name) or call.name.startswith(kind) for kind in self.built_in)
        return bool(call.name) and (is_named or is_built_in)


ALL_TOOLS = OfferedTools()


@lazy_dataclass(frozen=True, slots=True)
class Assembled:
    """The beginning of a log as it was assembled: all before its last unit, which newer messages may still change.

    ``total`` is the running total behind its entries. ``open_calls`` have no result; one that comes later, or a second result of
    another call, changes what was assembled.
    """

    total: int
    settles: bool
    offered: OfferedTools
    entries: Sequence[Entry] = ()
    preamble: tuple[Unit, ...] = ()
    loops: tuple[Loop, ...] = ()
    set_aside: tuple[tuple[Entry, str], ...] = ()
    open_calls: OpenCalls = OpenCalls()

    def begins(self, entries: Sequence[Entry], total: int) -> bool:
        """Return whether a log begins so. ``total`` is the running total behind the last of its entries."""
        count = len(self.entries)
        behind = sum(entry.event.tokens for entry in entries[count:])
        return total - behind == self.total and entries[:count] == self.entries


@dataclasses.dataclass(slots=True)
class Memory:
    """Keeps what a window found out about a log, for the next window of the same log in the same format.

    ``entries`` are its messages by position, ``read`` those with fetched bodies. ``assembled`` has the parts of its last views that
    newer messages no longer change. ``recalled`` has what came back, by the messages for which it did.
    """

    entries: dict[int, Entry] = field(default_factory=dict)
    read: dict[int, Entry] = field(default_factory=dict)
    assembled: list[Assembled] = field(default_factory=list)
    requests: list[object] = field(default_factory=list)
    recalled: dict[RecallFor, RecalledParts] = field(default_factory=dict)

    def begin(self, request: object) -> None:
        """Begin a window. ``request`` is what sizes depend on; after several different ones, views are forgotten."""
        if request in self.requests:
            return
        if len(self.requests) == _MOST_REQUESTS:
            self.assembled.clear()
            self.requests.clear()
        self.requests.append(request)

    def known(self, entries: Sequence[Entry], total: int, *, settles: bool, offered: OfferedTools) -> Assembled | None:
        """Return a beginning of a log that was assembled in the same way. ``total`` is as for `assemble`."""
        alike = (past for past in self.assembled if (past.settles, past.offered) == (settles, offered))
        return next((past for past in alike if past.begins(entries, total)), None)


def assemble(
    entries: Sequence[Entry],
    *,
    total: int,
    answer_open_calls: bool = False,
    unread: int = 0,
    offered: OfferedTools = ALL_TOOLS,
    memory: Memory | None = None,
) -> WindowDraft:
    """Return the view of entries in order of position. ``total`` is the log's running total of tokens at its end.

    A call without a result that is followed by a user or assistant message gets a neutral result (an answer without an entry). At
    the log's end such a call is left out with its message and listed in ``open_calls``; with ``answer_open_calls`` it gets one too.
    A message with a call of a tool that is not among those ``offered`` has all its calls as text.
    What ``memory`` has of the view is not made again while nothing changes it.
    """
    nothing = Assembled(total - sum(entry.event.tokens for entry in entries), answer_open_calls, offered)
    known = memory.known(entries, total, settles=answer_open_calls, offered=offered) if memory is not None else None
    past = known or nothing
    grouping = _Grouping(past, entries)
    if past.entries and grouping.has_late_results:
        past = nothing
        grouping = _Grouping(past, entries)
    units = grouping.units()
    set_aside = grouping.set_aside(units)
    loops = _extended(past.loops, grouping.entries, units, grouping.befores)
    current = loops[-1].number if loops else 0
    if memory is not None:
        longer = _assembled(past, grouping, units, set_aside)
        memory.assembled = [longer, *(other for other in memory.assembled if other is not known)][:2]
    return WindowDraft(
        (*past.preamble, *(unit for unit in units if not unit.entry.loop)),
        # The current loop is included even when none of it can be sent, so that the loop before it counts as past.
        tuple(loop for loop in loops if loop.units or loop.number == current),
        total,
        (*past.set_aside, *set_aside),
        tuple(grouping.open_calls),
        unread,
    )


def _assembled(
    past: Assembled, grouping: _Grouping, units: Sequence[Unit], set_aside: Sequence[tuple[Entry, str]]
) -> Assembled:
    """Return what is settled of a view: all before its last unit and before the calls that wait for results."""
    starts = [min(entry.position for entry in units[-1].said)] if units else []
    border = min([*starts, *grouping.waiting], default=0)
    closed = [entry for entry in grouping.entries if entry.position < border]
    before = [unit for unit in units if unit.position < border]
    if not closed or any(entry.position >= border for unit in before for entry in unit.entries):
        return past
    said = ((entry.position, entry.facts) for entry in closed if not never_sent(entry))
    return Assembled(
        grouping.befores[grouping.entries[len(closed)].position],
        past.settles,
        past.offered,
        [*past.entries, *closed],
        (*past.preamble, *(unit for unit in before if not unit.entry.loop)),
        _extended(past.loops, closed, before, grouping.befores),
        (*past.set_aside, *((entry, reason) for entry, reason in set_aside if entry.position < border)),
        pair(said, before=past.open_calls).open,
    )


def with_system_as_loop(view: WindowDraft) -> WindowDraft:
    """Return the view with the system messages before the first loop as loop 0, which steps may lower like any past loop."""
    lead = (_loop(0, [unit.entry for unit in view.preamble], view.preamble, 0),) if view.preamble else ()
    return replace(view, preamble=(), loops=(*lead, *view.loops), keeps_system=False)


class _Grouping:
    """Groups messages into units: a call with its results, whatever is between them."""

    def __init__(self, past: Assembled, entries: Sequence[Entry]) -> None:
        """Group the entries behind those that are settled."""
        self.entries = entries[len(past.entries) :]
        self.befores, running = dict[int, int](), past.total
        for entry in self.entries:
            self.befores[entry.position] = running
            running += entry.event.tokens
        self.open_calls: list[Ref] = []
        self._sendable = [entry for entry in self.entries if not never_sent(entry)]
        self.waiting: set[int] = set()
        self._groups = {
            # The item that stands for the group: the first with a call, else the last.
            next((entry for entry in group if entry.facts.calls), group[-1]).position: group
            for group in _item_groups(self.entries)
        }
        self._by_position = {entry.position: entry for entry in self._sendable}
        self._pairing = pair(((entry.position, entry.facts) for entry in self._sendable), before=past.open_calls)
        self._settle, self._offered = past.settles, past.offered
        self._last_turn = max((entry.position for entry in self._sendable if is_turn(entry)), default=0)

    @property
    def has_late_results(self) -> bool:
        """Whether a result may be one of a settled call."""
        is_of_past = any(ref.position not in self._by_position for ref in self._pairing.result_of)
        return is_of_past or bool(self._pairing.orphans)

    def units(self) -> list[Unit]:
        return [unit for entry in self._sendable if (unit := self._unit_of(entry)) is not None]

    def set_aside(self, units: Sequence[Unit]) -> list[tuple[Entry, str]]:
        """Return the entries that no unit has, each with the reason."""
        shown = {entry.position for unit in units for entry in unit.entries}
        return [
            (entry, never_sent(entry) or self._why_not(entry)) for entry in self.entries if entry.position not in shown
        ]

    def _unit_of(self, entry: Entry) -> Unit | None:
        """Return the unit that the message leads, if any.

        Messages with only results belong to the unit of their calls, items to the unit of their leader.
        """
        group, facts, before = self._groups.get(entry.position), entry.facts, self.befores[entry.position]
        # Reasoning at the end of a group: the item that it belongs to is missing.
        if group is None or group[-1].facts.given_role == REASONING:
            return None
        if not facts.calls and facts.role == "tool":
            return None
        if not facts.calls:
            companions = sum(member.cost for member in group) - entry.cost if len(group) > 1 else 0
            return _unit(entry, before, tokens=_own_tokens(entry) + companions, group=group)
        answers = [
            self._answer(Ref(member.position, index)) for member in group for index in range(len(member.facts.calls))
        ]
        answers.sort(key=lambda answer: (answer.entry.position if answer.entry else answer.ref.position, answer.index))
        whole = _unit(entry, before, tuple(answers), group=group)
        unanswered = [answer.ref for answer in answers if answer.entry is None]
        awaited = [ref for ref in unanswered if not self._is_hosted(ref)]
        if awaited and group[-1].position >= self._last_turn and not self._settle:
            self.open_calls.extend(awaited)
            self.waiting.update(member.position for member in whole.entries)
            # The user's text is sent, because it may be the task; the calls wait.
            is_task = facts.role != "assistant" and facts.head
            return _unit(entry, before, tokens=entry.cost) if is_task else None
        tokens = sum(member.cost for member in whole.entries) + SETTLEMENT_TOKENS * len(unanswered)
        calls = ((member, call) for member in whole.said for call in member.facts.calls)
        if facts.role == "assistant" and all(self._offered.have(member, call) for member, call in calls):
            return replace(whole, tokens=tokens)
        tokens += sum(most_tokens_of_blocks(member.message) for member in whole.entries if member.message is not None)
        tokens += most_tokens_of_calls([answer.ref for answer in answers], [member.facts for member in whole.entries])
        return replace(whole, tokens=tokens, calls_as_text=True)

    def _is_hosted(self, ref: Ref) -> bool:
        """Return whether the provider runs the call: nobody else can answer it."""
        return self._by_position[ref.position].facts.calls[ref.index].hosted

    def _why_not(self, entry: Entry) -> str:
        """Return why no unit has the message."""
        if entry.position in self.waiting:
            return "open_call"
        if entry.facts.given_role == REASONING:
            return "reasoning_alone"
        paired = any((entry.position, index) in self._pairing.call_of for index in range(len(entry.facts.results)))
        return "superseded_result" if paired else "orphan_result"

    def _answer(self, ref: Ref) -> CallResult:
        place = self._pairing.result_of.get(ref)
        return CallResult(ref, self._by_position[place[0]], place[1]) if place else CallResult(ref, None)


def _unit(
    entry: Entry, before: int, answers: tuple[CallResult, ...] = (), *, tokens: int = 0, group: tuple[Entry, ...] = ()
) -> Unit:
    group = group if len(group) > 1 else ()
    if not (group or answers):
        return Unit(entry, (entry,), (), tokens, before, pinned=entry.event.envelope.pin)
    members = {member.position: member for member in group or (entry,)}
    members |= {answer.entry.position: answer.entry for answer in answers if answer.entry is not None}
    entries = tuple(members.values())
    pinned = any(member.event.envelope.pin for member in entries)
    return Unit(entry, entries, answers, tokens, before, pinned=pinned, group=group)


def _own_tokens(entry: Entry) -> int:
    """Return what a message takes without its results, which are charged where their calls are."""
    facts, message = entry.facts, entry.message
    if not facts.results or message is None or not all(isinstance(block, Text) for block in message.content):
        return entry.cost
    bound = upper_bound_tokens(facts.head) + upper_bound_tokens(facts.name) + MESSAGE_OVERHEAD
    return min(entry.cost, bound)


def _extended(
    loops: tuple[Loop, ...], entries: Sequence[Entry], units: Sequence[Unit], befores: Mapping[int, int]
) -> tuple[Loop, ...]:
    """Return the loops with newer entries and their units; the first of these may continue the last loop."""
    newer = _loops(entries, units, befores)
    if not (loops and newer and newer[0].number == loops[-1].number):
        return (*loops, *newer)
    last, more = loops[-1], newer[0]
    continued = replace(last, units=(*last.units, *more.units), last=more.last, last_ms=more.last_ms)
    return (*loops[:-1], continued, *newer[1:])


def _loops(entries: Sequence[Entry], units: Sequence[Unit], befores: Mapping[int, int]) -> tuple[Loop, ...]:
    messages, sent = defaultdict[int, list[Entry]](list), defaultdict[int, list[Unit]](list)
    for entry in entries:
        messages[entry.loop].append(entry)
    for unit in units:
        sent[unit.entry.loop].append(unit)
    return tuple(
        _loop(number, messages[number], sent[number], befores[messages[number][0].position])
        for number in sorted(messages)
        if number
    )


def _loop(number: int, messages: Sequence[Entry], units: Sequence[Unit], before: int) -> Loop:
    first, last = messages[0], messages[-1]
    return Loop(number, tuple(units), first.position, last.position, _said_ms(first), _said_ms(last), before)


def _said_ms(entry: Entry) -> int:
    return milliseconds_since_epoch(caller_time(entry.event.envelope.created_at, entry.time_ms))


def _item_groups(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Return the entries in order, in groups that form one answer and are in or out of a window as a whole.

    In OpenAI Responses each item of an answer is a message of its own. Reasoning belongs to the items that follow it (OpenAI
    refuses one without the other: https://platform.openai.com/docs/guides/reasoning). Consecutive calls are parallel calls of one
    turn, except one behind a call that the provider ran. A message that is never sent parts items, too: an answer may have
    been made without those behind it.
    """
    groups, is_parted = list[list[Entry]](), True
    for entry in entries:
        if never_sent(entry):
            is_parted = True
            continue
        if is_parted or not _belongs(groups[-1], entry):
            groups.append([])
        groups[-1].append(entry)
        is_parted = False
    return [tuple(group) for group in groups]


def _belongs(group: Sequence[Entry], entry: Entry) -> bool:
    previous = group[-1]
    if not (continues_answer(entry, previous) and previous.loop == entry.loop):
        return False
    is_silent = previous.facts.given_role != "assistant" and not previous.facts.calls
    if is_silent or not (previous.facts.calls and entry.facts.calls):
        return is_silent
    is_reasoned = any(member.facts.given_role == REASONING for member in group)
    return is_reasoned or not _is_hosted(previous)


def _is_hosted(entry: Entry) -> bool:
    return all(call.hosted for call in entry.facts.calls)
