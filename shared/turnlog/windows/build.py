"""A window, from messages to what the provider's call takes. Pure: no clock, no store, no tokeniser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from turnlog.codecs.registry import CODECS, codec_of
from turnlog.domain.errors import BudgetTooSmallError
from turnlog.domain.events import MessageEvent
from turnlog.domain.facts import facts_of
from turnlog.domain.jsonvalue import JsonObject, canonical_json
from turnlog.domain.messages import Message
from turnlog.domain.refs import Ref
from turnlog.windows import steps
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.fit import fit, message_tokens
from turnlog.windows.manifest import Manifest, manifest_of
from turnlog.windows.models import Budget
from turnlog.windows.policy import Policy
from turnlog.windows.render import missing_bodies, parsed, turns
from turnlog.windows.text import SETTLEMENT, user_call_text
from turnlog.windows.view import Entry, Loop, View, assemble

WINDOW_OVERHEAD = 3
MESSAGE_OVERHEAD = 4
SETTLEMENT_TOKENS = upper_bound_tokens(SETTLEMENT) + MESSAGE_OVERHEAD
_SAFE_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_MADE_NAME_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Source:
    """A message of the log on its way into a window."""

    event: MessageEvent
    loop: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. Tokens of system text and tools are counted by the caller."""

    policy: Policy
    budget: Budget
    format: str
    system: str | None = None
    system_tokens: int = 0
    tools: Sequence[JsonObject] = ()
    tools_tokens: int = 0
    include_current_loop: bool = True
    settle: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """What one model call is sent. ``tokens`` is an upper bound of all of it, never more than the budget."""

    messages: list[JsonObject]
    system: str | None
    tools: list[JsonObject]
    requires_tool_config: bool
    open_calls: tuple[Ref, ...]
    tokens: int
    manifest: Manifest


Fetch = Callable[[list[MessageEvent]], Mapping[int, MessageEvent]]
"""Brings the bodies of messages whose payloads are out of line, by position."""


def build(sources: Iterable[Source], request: Request, *, total: int, fetch: Fetch, unread: int = 0) -> Window:
    """The window over messages in order of position, oldest first.

    ``total`` is the running total of tokens at the log's end; ``unread`` counts the messages before the first source.
    Raises `BudgetTooSmallError` when even the least window is larger than the budget.
    """
    codec = codec_of(request.format)
    given = list(sources)
    entries = [_entry(source) for source in given]
    unknown = [entry.event for entry in entries if entry.message is None and entry.event.facts is None]
    bodies = dict(fetch(unknown)) if unknown else {}
    view = assemble(
        [_priced(parsed(entry, bodies[entry.position]) if entry.position in bodies else entry) for entry in entries],
        total=total,
        settle=request.settle,
        settlement_tokens=SETTLEMENT_TOKENS,
        unread=unread,
    )
    if not request.include_current_loop:
        view = View(view.preamble, (*view.loops[:-1], *_emptied(view)), view.total, view.set_aside, (), view.unread)
    view = _fitted(view, request)
    missing = missing_bodies(view)
    fetched = fetch(missing) if missing else {}
    by_position = {entry.position: entry for entry in entries}
    full = {position: parsed(by_position[position], event) for position, event in fetched.items()}
    ordered = turns(view, codec, full)
    rendered = codec.render(ordered, system=request.system, tools=request.tools)
    fixed = WINDOW_OVERHEAD + request.system_tokens + request.tools_tokens
    return Window(
        messages=rendered.messages,
        system=rendered.system,
        tools=rendered.tools,
        requires_tool_config=any(turn.message.tool_calls or turn.message.tool_results for turn in ordered),
        open_calls=view.open_calls,
        tokens=fixed + message_tokens(view),
        manifest=manifest_of(
            view, request.budget, system_tokens=request.system_tokens, tools_tokens=request.tools_tokens
        ),
    )


def system_cost(text_tokens: int) -> int:
    """What a system text of that many tokens takes, its message included."""
    return text_tokens + MESSAGE_OVERHEAD


def upper_bound_of_json(value: object) -> int:
    """The most tokens that a JSON value takes, without counting."""
    return upper_bound_tokens(canonical_json(value).decode("ascii"))


def _fitted(view: View, request: Request) -> View:
    fixed = WINDOW_OVERHEAD + request.system_tokens + request.tools_tokens
    with_preamble = fixed + sum(unit.tokens for unit in view.preamble)
    for step in request.policy.steps:
        view = steps.apply(view, step, room=request.budget.tokens, fixed=with_preamble)
    try:
        return fit(view, room=request.budget.tokens - fixed)
    except BudgetTooSmallError as error:
        needed = int(error.details["needed"]) + fixed
        raise BudgetTooSmallError(
            f"the least window needs {needed} tokens; the budget is {request.budget.tokens}",
            details={"needed": needed, "budget": request.budget.tokens},
        ) from error


def _emptied(view: View) -> list[Loop]:
    return [
        Loop(loop.number, (), loop.first, loop.last, loop.opened_ms, loop.last_ms, loop.before)
        for loop in view.loops[-1:]
    ]


def _entry(source: Source) -> Entry:
    event = source.event
    if event.body is None:
        return Entry(event, event.facts or _NO_FACTS, source.loop, source.time_ms)
    message = CODECS[event.format].parse(event.body, is_error=event.envelope.is_error)
    return Entry(event, facts_of(message), source.loop, source.time_ms, message)


_NO_FACTS = facts_of(Message("unknown"))


def _priced(entry: Entry) -> Entry:
    """The entry with facts of its message, and with room for what renderers may have to add: legal names, fences."""
    facts = facts_of(entry.message) if entry.message is not None else entry.facts
    extra = sum(_MADE_NAME_TOKENS for call in facts.calls if not _is_safe_name(call.name))
    if facts.role == "user" and facts.calls:
        extra += upper_bound_tokens(user_call_text([(call, None) for call in facts.calls]))
    if not extra:
        return replace(entry, facts=facts)
    return replace(entry, facts=facts, event=replace(entry.event, tokens=entry.event.tokens + extra))


def _is_safe_name(name: str) -> bool:
    return 0 < len(name) <= 64 and _SAFE_NAME_CHARS.issuperset(name)
