"""A window, from messages to what the provider's call takes. Pure: no clock, no store, no tokeniser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from turnlog.codecs.base import Codec
from turnlog.codecs.names import legal_tool_name
from turnlog.codecs.registry import CODECS, codec_of
from turnlog.domain.errors import BudgetTooSmallError
from turnlog.domain.events import MessageEvent, SummaryEvent
from turnlog.domain.facts import facts_of
from turnlog.domain.jsonvalue import JsonObject, canonical_json, encode_json
from turnlog.domain.messages import Message
from turnlog.domain.refs import Ref
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.costs import has_evicted, message_tokens
from turnlog.windows.fit import fit
from turnlog.windows.manifest import Manifest, manifest_of
from turnlog.windows.models import Budget
from turnlog.windows.policy import Policy
from turnlog.windows.prices import MESSAGE_OVERHEAD, extra_tokens, frame_tokens
from turnlog.windows.render import missing_bodies, turns
from turnlog.windows.step_checks import applied
from turnlog.windows.steps import Room, out
from turnlog.windows.text import SETTLEMENT
from turnlog.windows.view import Entry, View, assemble

WINDOW_OVERHEAD = 3
SETTLEMENT_TOKENS = upper_bound_tokens(SETTLEMENT) + MESSAGE_OVERHEAD


@dataclass(frozen=True, slots=True)
class Source:
    """A message of the log on its way into a window."""

    event: MessageEvent
    loop: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. Tokens of system text and tools are counted by the caller.

    ``summary`` is the one in force where the policy takes it: what it covers is then not among the sources, but for what
    it keeps.
    """

    policy: Policy
    budget: Budget
    format: str
    system: str | None = None
    system_tokens: int = 0
    tools: Sequence[JsonObject] = ()
    tools_tokens: int = 0
    include_current_loop: bool = True
    settle: bool = False
    summary: SummaryEvent | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """What one model call is sent. ``tokens`` is an upper bound of all of it, never more than the budget.

    ``requires_tool_config``: tool blocks are in the messages; ``tool_names`` are the names in them, as sent.
    ``is_partial``: something that could be sent is neither shown nor digested nor covered by a summary.
    """

    messages: list[JsonObject]
    system: str | None
    tools: list[JsonObject]
    requires_tool_config: bool
    tool_names: tuple[str, ...]
    open_calls: tuple[Ref, ...]
    tokens: int
    manifest: Manifest
    is_partial: bool = False


Fetch = Callable[[list[MessageEvent]], Mapping[int, MessageEvent]]
"""Brings the bodies of messages whose payloads are out of line, by position."""


def build(sources: Iterable[Source], request: Request, *, total: int, fetch: Fetch, unread: int = 0) -> Window:
    """The window over messages in order of position, oldest first.

    ``total`` is the running total of tokens at the log's end; ``unread`` counts the messages before the first source.
    Raises `BudgetTooSmallError` when even the least window is larger than the budget.
    """
    codec = codec_of(request.format)
    request = with_tools_of(codec, request)
    planned = _Planned([entry_of(source) for source in sources], request, total, unread)
    wanted = planned.unknown()
    while True:
        if wanted:
            planned = planned.with_bodies(wanted, fetch(wanted))
        try:
            view = planned.fitted()
        except BudgetTooSmallError:
            # What is needed is exact once everything is read that is sent in any case.
            wanted = planned.certain()
            if not wanted:
                raise
        else:
            # A card tells what a message takes but for what sending it may add: with the bodies the plan is made again.
            wanted = missing_bodies(view)
            if not wanted:
                break
    ordered = turns(view, codec)
    called = [call for turn in ordered for call in turn.message.tool_calls]
    rendered = codec.render(ordered, system=request.system, tools=request.tools)
    return Window(
        messages=rendered.messages,
        system=rendered.system,
        tools=rendered.tools,
        requires_tool_config=bool(called) or any(turn.message.tool_results for turn in ordered),
        tool_names=tuple(dict.fromkeys(_tool_name(call.name, request) for call in called)),
        open_calls=view.open_calls,
        tokens=_fixed_tokens(request) + message_tokens(view),
        manifest=manifest_of(
            view,
            request.budget,
            system_tokens=request.system_tokens,
            tools_tokens=request.tools_tokens,
            frame_tokens=frame_tokens(request.format),
        ),
        is_partial=has_evicted(view),
    )


def system_cost(text_tokens: int) -> int:
    """What a system text of that many tokens takes, its message included."""
    return text_tokens + MESSAGE_OVERHEAD


def upper_bound_of_json(value: object) -> int:
    """The most tokens that a JSON value takes, without counting."""
    return upper_bound_tokens(canonical_json(value).decode("ascii"))


def _fixed_tokens(request: Request) -> int:
    """What a window takes besides its messages."""
    return WINDOW_OVERHEAD + request.system_tokens + request.tools_tokens + frame_tokens(request.format)


def with_tools_of(codec: Codec, request: Request) -> Request:
    """The request with its tools in the provider's shape; those that had another are charged anew."""
    tools = codec.tools(request.tools)
    if tools == list(request.tools):
        return request
    return replace(request, tools=tools, tools_tokens=_bound_of_sent(tools) if tools else 0)


def _bound_of_sent(tools: Sequence[JsonObject]) -> int:
    return upper_bound_tokens(encode_json(tools).decode("utf-8"))


def _tool_name(name: str, request: Request) -> str:
    return name if request.format == "turnlog" else legal_tool_name(name)


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is known of the messages, and the window that comes of it."""

    entries: list[Entry]
    request: Request
    total: int
    unread: int

    def unknown(self) -> list[MessageEvent]:
        """Messages of which neither body nor card is at hand."""
        return [entry.event for entry in self.entries if entry.message is None and entry.event.facts is None]

    def certain(self) -> list[MessageEvent]:
        """Messages out of line that every window sends: before the first loop, in the current loop, pinned."""
        view = self._stepped(self.view())
        units = [*view.preamble, *(unit for loop in view.loops[-1:] for unit in loop.units)]
        units += [unit for loop in view.past for unit in loop.units if unit.pinned]
        found = {entry.position: entry for unit in units for entry in unit.entries}
        return [entry.event for entry in found.values() if entry.message is None]

    def with_bodies(self, wanted: Iterable[MessageEvent], events: Mapping[int, MessageEvent]) -> _Planned:
        found = {event.position: events[event.position] for event in wanted}
        entries = [
            _read(found[entry.position], entry.loop, entry.time_ms) if entry.position in found else entry
            for entry in self.entries
        ]
        return replace(self, entries=entries)

    def view(self) -> View:
        request = self.request
        view = assemble(
            [_priced(entry, request.format) for entry in self.entries],
            total=self.total,
            settle=request.settle,
            settlement_tokens=SETTLEMENT_TOKENS,
            unread=self.unread,
            has_system=request.system is not None,
        )
        view = replace(view, summary=request.summary)
        if request.include_current_loop:
            return view
        left_out = [replace(loop, units=(), level="out", reason="not_included") for loop in view.loops[-1:]]
        return replace(view, loops=(*view.past, *left_out), open_calls=())

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
        fixed = _fixed_tokens(self.request) + sum(unit.tokens for unit in view.preamble)
        for step in self.request.policy.steps:
            view = applied(step, view, Room(self.request.budget.tokens, fixed))
        return view

    def _fitted(self, view: View) -> View:
        request = self.request
        fixed = _fixed_tokens(request)
        try:
            return fit(self._stepped(view), room=request.budget.tokens - fixed)
        except BudgetTooSmallError as error:
            needed = int(error.details["needed"]) + fixed
            raise BudgetTooSmallError(
                f"the least window needs {needed} tokens; the budget is {request.budget.tokens}",
                details={"needed": needed, "budget": request.budget.tokens},
            ) from error


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
