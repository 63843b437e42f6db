"""The view: a session as the steps of a policy see it, and the draft of a window.

Messages are grouped into units that are in or out together (a call with its results), and units into loops. Messages that can
never be sent (an interrupted stream, an unknown role, a result without a call) are set aside with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, TypeAlias

from turnlog.core.calls import CallOutline, MessageOutline, OpenCalls, Ref, pair
from turnlog.core.events import MessageEvent, SummaryEvent
from turnlog.core.lazy_dataclass import Lasting, lazy_dataclass
from turnlog.core.loops import REASONING
from turnlog.core.messages import Message, Role, Text
from turnlog.core.times import caller_time, milliseconds_since_epoch
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.blocks import legal_tool_name
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.text import most_tokens_of_blocks, most_tokens_of_calls

_OF_ITEMS = "openai_responses"
NOT_READ = "not_read"
"""The reason in the manifest for messages that were not read."""
OLDER_TOO = frozenset({NOT_READ, "turns", "messages", "tokens", "max_loops", "max_age", "digests_full", "budget"})
"""The reasons for which all loops before a loop that is out are out, too."""
_MOST_REQUESTS = 4
"""Different budgets and policies whose sizes of a view's parts are remembered."""
Level: TypeAlias = Literal["whole", "digest", "out"]


@lazy_dataclass(frozen=True, slots=True)
class Entry:
    """A message with its outline. ``message`` is None while its payload has not been fetched.

    ``extra`` is the most tokens that the requested format may add. Running totals are sums of stored counts alone.
    ``values`` returns the values of its calls and results; it reads them once.
    """

    event: MessageEvent
    facts: MessageOutline
    loop: int
    time_ms: int
    message: Message | None = None
    extra: int = 0
    values: Callable[[], tuple[str, ...]] = field(default=tuple, compare=False)

    @property
    def position(self) -> int:
        return self.event.position

    @property
    def cost(self) -> int:
        """The most tokens that the message takes when it is sent: its stored count and ``extra``."""
        return self.event.tokens + self.extra


@lazy_dataclass(frozen=True, slots=True)
class CallResult:
    """The place of the result of a unit's call. ``entry`` is None when there is no result; a neutral text is sent for it."""

    ref: Ref
    entry: Entry | None
    index: int = 0


@lazy_dataclass(frozen=True, slots=True)
class Stub:
    """A message's results cut to their beginnings, as one unit sends them. ``tokens`` is the most that they take."""

    position: int
    texts: tuple[tuple[Ref, str], ...]
    tokens: int
    reason: str


@lazy_dataclass(frozen=True, slots=True)
class Unit(Lasting):
    """A message, or a message with calls and their results. ``tokens`` is what it takes as it is sent.

    ``before`` is the running total of stored tokens before its first message. A unit at the level ``digest`` is described in one
    of its loop's notes. ``stubs`` replace results that are not sent whole.
    ``entries`` are its messages, each once: its own, then those with results. ``pinned``: it stays in every window.
    ``calls_as_text``: the calls are a user's own, or of tools that the request does not offer, so they are sent with their results
    as text behind what the message says.
    ``group``: all items of an answer of several messages, ``entry`` among them; empty for a single message.
    """

    entry: Entry
    entries: tuple[Entry, ...]
    answers: tuple[CallResult, ...] = ()
    tokens: int = 0
    before: int = 0
    level: Level = "whole"
    reason: str = ""
    pinned: bool = False
    calls_as_text: bool = False
    group: tuple[Entry, ...] = ()
    stubs: tuple[Stub, ...] = ()

    @property
    def said(self) -> tuple[Entry, ...]:
        """The messages of the assistant's answer, or the message that leads the unit."""
        return self.group or (self.entry,)

    @property
    def position(self) -> int:
        return self.entry.position


@lazy_dataclass(frozen=True, slots=True)
class Note:
    """A text about calls that are not sent, before position ``at`` or at the end of its loop.

    ``values`` are those that lines and texts do not have already, in order of first appearance. ``fixed`` is an upper bound of the
    tokens of everything but the values.
    """

    title: str
    lines: tuple[str, ...]
    values: tuple[str, ...]
    fixed: int
    at: int | None = None


@lazy_dataclass(frozen=True, slots=True)
class Loop(Lasting):
    """A run loop. ``before`` is the running total of tokens when it was opened; ``level`` is how it is sent.

    ``notes`` belong to a digest, or replace the earlier steps of a long loop.
    """

    number: int
    units: tuple[Unit, ...]
    first: int
    last: int
    opened_ms: int
    last_ms: int
    before: int
    level: Level = "whole"
    reason: str = ""
    max_message_chars: int = 0
    notes: tuple[Note, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(unit.tokens for unit in self.units)

    @property
    def is_covered(self) -> bool:
        """Whether the loop is out because a summary covers it, even when the summary did not fit."""
        return self.level == "out" and self.reason == "summary"


@lazy_dataclass(frozen=True, slots=True)
class SummaryWording:
    """The role of a summary's message, and the label before its text; None: a label in the text's language."""

    role: Role = "user"
    label: str | None = None


AS_USER = SummaryWording()


@lazy_dataclass(frozen=True, slots=True)
class RecalledMessage:
    """A message that a search brought back: its position, its score, and the most tokens that it takes."""

    position: int
    score: float
    tokens: int


@lazy_dataclass(frozen=True, slots=True)
class RecalledPart:
    """Messages that a search brought back, sent as one text before the loop ``loop``; an empty text: the search was skipped."""

    loop: int
    text: str
    tokens: int
    messages: tuple[RecalledMessage, ...]


@lazy_dataclass(frozen=True, slots=True)
class WindowDraft:
    """The draft of a window. ``preamble``: system messages before the first loop. The last loop is the current one.

    ``total`` is the running total of all stored tokens. ``unread`` counts the older messages that are left out and have no entry;
    ``unread_reason`` says why.
    ``oldest`` is the number of the first loop with all its messages; of loops before it only messages that every window sends are
    here. ``is_open``: older messages could be read and might change the window.
    ``has_system``: a system text is sent before the messages. ``summary`` replaces the messages it covers; only those it keeps are
    among the units. ``summary_reason``: why the summary is not shown whole.
    """

    preamble: tuple[Unit, ...]
    loops: tuple[Loop, ...]
    total: int = 0
    set_aside: tuple[tuple[Entry, str], ...] = ()
    open_calls: tuple[Ref, ...] = ()
    unread: int = 0
    unread_reason: str = NOT_READ
    oldest: int = 0
    is_open: bool = False
    has_system: bool = False
    summary: SummaryEvent | None = None
    summary_reason: str = ""
    wording: SummaryWording = AS_USER
    recalled: RecalledPart | None = None

    @property
    def past(self) -> tuple[Loop, ...]:
        return self.loops[:-1]

    def with_past(self, past: Iterable[Loop]) -> WindowDraft:
        return replace(self, loops=(*past, *self.loops[-1:]))

    def with_recalled(self, part: RecalledPart | None) -> WindowDraft:
        return replace(self, recalled=part)

    def with_current(self, loop: Loop) -> WindowDraft:
        return replace(self, loops=(*self.past, loop))


@dataclasses.dataclass(slots=True)
class _Extent:
    """The first and the last message of a loop, and the running total before it."""

    first: int
    opened_ms: int
    before: int
    last: int = 0
    last_ms: int = 0


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
    """What windows of one log in one format have made of it: entries by position, and what is settled of the view."""

    entries: dict[int, Entry] = field(default_factory=dict)
    assembled: Assembled | None = None
    requests: list[object] = field(default_factory=list)

    def begin(self, request: object) -> None:
        """Begin a window. ``request`` says what sizes depend on; after several different ones, what they left is forgotten."""
        if request in self.requests:
            return
        if len(self.requests) == _MOST_REQUESTS:
            self.assembled = None
            self.requests.clear()
        self.requests.append(request)


def assemble(
    entries: Sequence[Entry],
    *,
    total: int,
    answer_open_calls: bool = False,
    settlement_tokens: int = 0,
    unread: int = 0,
    has_system: bool = False,
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
    past = memory.assembled if memory is not None else None
    if past is None or (past.settles, past.offered) != (answer_open_calls, offered) or not past.begins(entries, total):
        past = nothing
    grouping = _Grouping(past, entries, settlement_tokens)
    if past.entries and grouping.has_late_results:
        past = nothing
        grouping = _Grouping(past, entries, settlement_tokens)
    units = grouping.units()
    set_aside = grouping.set_aside(units)
    loops = _extended(past.loops, grouping.entries, units, grouping.befores)
    current = loops[-1].number if loops else 0
    if memory is not None:
        memory.assembled = _assembled(past, grouping, units, set_aside)
    return WindowDraft(
        (*past.preamble, *(unit for unit in units if not unit.entry.loop)),
        # The current loop is included even when none of it can be sent, so that the loop before it counts as past.
        tuple(loop for loop in loops if loop.units or loop.number == current),
        total,
        (*past.set_aside, *set_aside),
        tuple(grouping.open_calls),
        unread,
        has_system=has_system,
    )


def _assembled(
    past: Assembled, grouping: _Grouping, units: Sequence[Unit], set_aside: Sequence[tuple[Entry, str]]
) -> Assembled:
    """Return what is settled of a view: all before its last unit and before the calls that wait for results."""
    starts = [min(entry.position for entry in units[-1].said)] if units else []
    border = min([*starts, *(ref.position for ref in grouping.open_calls)], default=0)
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


class _Grouping:
    """Groups messages into units: a call with its results, whatever is between them."""

    def __init__(self, past: Assembled, entries: Sequence[Entry], settlement_tokens: int) -> None:
        """Group the entries behind those that are settled."""
        self.entries = entries[len(past.entries) :]
        self.befores, running = dict[int, int](), past.total
        for entry in self.entries:
            self.befores[entry.position] = running
            running += entry.event.tokens
        self.open_calls: list[Ref] = []
        self._sendable = [entry for entry in self.entries if not never_sent(entry)]
        self._waiting: set[int] = set()
        self._groups = {_leader_of(group).position: group for group in _item_groups(self._sendable)}
        self._by_position = {entry.position: entry for entry in self._sendable}
        self._pairing = pair(((entry.position, entry.facts) for entry in self._sendable), before=past.open_calls)
        self._settle, self._offered = past.settles, past.offered
        self._settlement_tokens = settlement_tokens
        self._last_turn = max((entry.position for entry in self._sendable if is_turn(entry)), default=0)

    @property
    def has_late_results(self) -> bool:
        """Whether a result may be one of a settled call."""
        is_of_past = any(ref.position not in self._by_position for ref in self._pairing.result_of)
        return is_of_past or bool(self._pairing.orphans)

    def units(self) -> list[Unit]:
        return [unit for entry in self._sendable for unit in self._units_of(entry)]

    def set_aside(self, units: Sequence[Unit]) -> list[tuple[Entry, str]]:
        """Return the entries that no unit has, each with the reason."""
        shown = {entry.position for unit in units for entry in unit.entries}
        return [
            (entry, never_sent(entry) or self._why_not(entry)) for entry in self.entries if entry.position not in shown
        ]

    def _units_of(self, entry: Entry) -> Iterator[Unit]:
        """Yield the unit that the message leads, if any.

        Messages with only results belong to the unit of their calls, items to the unit of their leader.
        """
        group, facts, before = self._groups.get(entry.position), entry.facts, self.befores[entry.position]
        if group is None or _is_lone_reasoning(group):
            return
        if not facts.calls:
            if facts.role != "tool":
                companions = sum(member.cost for member in group) - entry.cost if len(group) > 1 else 0
                yield _unit(entry, before, tokens=_own_tokens(entry) + companions, group=group)
            return
        answers = [
            self._answer(Ref(member.position, index)) for member in group for index in range(len(member.facts.calls))
        ]
        answers.sort(key=lambda answer: (answer.entry.position if answer.entry else answer.ref.position, answer.index))
        whole = _unit(entry, before, tuple(answers), group=group)
        unanswered = [answer.ref for answer in answers if answer.entry is None]
        awaited = [ref for ref in unanswered if not self._is_hosted(ref)]
        if awaited and group[-1].position >= self._last_turn and not self._settle:
            self.open_calls.extend(awaited)
            self._waiting.update(member.position for member in whole.entries)
            if facts.role != "assistant" and facts.head:
                # The user's text is sent, because it may be the task; the calls wait.
                yield _unit(entry, before, tokens=entry.cost)
            return
        tokens = sum(member.cost for member in whole.entries) + self._settlement_tokens * len(unanswered)
        said = whole.said
        if facts.role == "assistant" and all(
            self._offered.have(member, call) for member in said for call in member.facts.calls
        ):
            yield replace(whole, tokens=tokens)
            return
        tokens += sum(most_tokens_of_blocks(member.message) for member in whole.entries if member.message is not None)
        tokens += most_tokens_of_calls([answer.ref for answer in answers], [member.facts for member in whole.entries])
        yield replace(whole, tokens=tokens, calls_as_text=True)

    def _is_hosted(self, ref: Ref) -> bool:
        """Return whether the provider runs the call: nobody else can answer it."""
        return self._by_position[ref.position].facts.calls[ref.index].hosted

    def _why_not(self, entry: Entry) -> str:
        """Return why no unit has the message."""
        if entry.position in self._waiting:
            return "open_call"
        if entry.facts.given_role == REASONING and entry.facts.role == "assistant":
            return "reasoning_alone"
        paired = any((entry.position, index) in self._pairing.call_of for index in range(len(entry.facts.results)))
        return "superseded_result" if paired else "orphan_result"

    def _answer(self, ref: Ref) -> CallResult:
        place = self._pairing.result_of.get(ref)
        return CallResult(ref, self._by_position[place[0]], place[1]) if place else CallResult(ref, None)


def _unit(
    entry: Entry,
    before: int,
    answers: tuple[CallResult, ...] = (),
    *,
    tokens: int = 0,
    group: tuple[Entry, ...] = (),
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
    extents = dict[int, _Extent]()
    for entry in entries:
        said_ms = milliseconds_since_epoch(caller_time(entry.event.envelope.created_at, entry.time_ms))
        extent = extents.get(entry.loop)
        if extent is None:
            extent = extents[entry.loop] = _Extent(entry.position, said_ms, befores[entry.position])
        extent.last, extent.last_ms = entry.position, said_ms
    by_loop = dict[int, list[Unit]]()
    for unit in units:
        by_loop.setdefault(unit.entry.loop, []).append(unit)
    return tuple(
        Loop(
            number,
            tuple(by_loop.get(number, ())),
            extent.first,
            extent.last,
            extent.opened_ms,
            extent.last_ms,
            extent.before,
        )
        for number, extent in sorted(extents.items())
        if number
    )


def _item_groups(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Return the entries in order, in groups that form one answer and are in or out of a window as a whole.

    In OpenAI Responses each item of an answer is a message of its own. Reasoning belongs to the items that follow it (OpenAI
    refuses one without the other: https://platform.openai.com/docs/guides/reasoning). Consecutive calls are parallel calls of one
    turn, except calls that the provider ran one after the other.
    """
    if not any(entry.event.format == _OF_ITEMS for entry in entries):
        return [(entry,) for entry in entries]
    groups: list[list[Entry]] = []
    for entry in entries:
        if groups and _belongs(groups[-1], entry):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [tuple(group) for group in groups]


def is_item(entry: Entry) -> bool:
    """Return whether the entry is an item of an assistant's answer."""
    return entry.event.format == _OF_ITEMS and entry.facts.role == "assistant"


def _is_lone_reasoning(group: Sequence[Entry]) -> bool:
    """Return whether the group ends with reasoning, so that the item it belongs to is missing."""
    return is_item(group[-1]) and group[-1].facts.given_role == REASONING


def _leader_of(group: Sequence[Entry]) -> Entry:
    """Return the item that stands for the group: the first with a call, else the last."""
    return next((entry for entry in group if entry.facts.calls), group[-1])


def _belongs(group: Sequence[Entry], entry: Entry) -> bool:
    previous = group[-1]
    if not (is_item(previous) and is_item(entry) and previous.loop == entry.loop):
        return False
    is_silent = previous.facts.given_role != "assistant" and not previous.facts.calls
    if is_silent or not (previous.facts.calls and entry.facts.calls):
        return is_silent
    is_reasoned = any(member.facts.given_role == REASONING for member in group)
    return is_reasoned or not (_is_hosted(previous) and _is_hosted(entry))


def _is_hosted(entry: Entry) -> bool:
    return all(call.hosted for call in entry.facts.calls)


def turns_of(view: WindowDraft) -> list[tuple[int, str]]:
    """Return the position and role of each turn in the loops of a view, those with open calls included; in order."""
    units = [unit for loop in view.loops for unit in loop.units]
    turns = {unit.position: str(unit.entry.facts.role) for unit in units if is_turn(unit.entry)}
    waiting = {ref.position: "assistant" for ref in view.open_calls}
    aside = {
        entry.position: str(entry.facts.role) for entry, _ in view.set_aside if is_turn(entry) and not never_sent(entry)
    }
    return sorted((waiting | aside | turns).items())


def never_sent(entry: Entry) -> str:
    """Return why a message is in no window at all, or an empty string."""
    if entry.event.envelope.status == "interrupted":
        return "interrupted"
    return "unknown_role" if entry.facts.role == "unknown" else ""


def is_whole(loop: Loop) -> bool:
    """Return whether all of a loop is sent as it is."""
    return loop.level == "whole" and all(unit.level == "whole" for unit in loop.units)


def is_turn(entry: Entry) -> bool:
    """Return whether the message is the user's or the assistant's; no call before it waits for a result after that."""
    return entry.facts.role in ("user", "assistant")
