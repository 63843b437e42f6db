"""Builds a window: from stored messages to a provider's request. Pure: no clock, no storage, no tokeniser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from turnlog.core.calls import Ref
from turnlog.core.json_values import JsonObject, canonical_json, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.prefix_breaks import BreakReason
from turnlog.providers.base import BEFORE_ALL, Codec, End, Rendered
from turnlog.providers.blocks import legal_tool_name
from turnlog.providers.cache_breakpoints import (
    KINDS,
    LOOKBACK_BLOCKS,
    MIN_TOKENS,
    BlockPlace,
    CacheBreakpoint,
    System,
    applied,
    breakpoints,
    pointers,
)
from turnlog.providers.registry import codec_of
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.costs import has_evicted, message_tokens
from turnlog.windows.manifest import Manifest, manifest_of
from turnlog.windows.plan import Fetch, Source, WindowRequest, entry_of, fixed_tokens, settled
from turnlog.windows.prefix import Common, Made, Prefix, prefix_of
from turnlog.windows.prices import frame_tokens
from turnlog.windows.truncate import newest_answer
from turnlog.windows.view import Loop, WindowDraft

_COUNTED = 1.5
"""The most tokens of a provider for one token of our count."""


def places_of(made: Made, common: Common, *, tokens: int) -> list[BlockPlace]:
    """Return the places for cache breakpoints, in order; empty for a format without breakpoints.

    ``tokens`` is the most that the window takes. A breakpoint behind too few tokens has no effect. The check uses bounds, and a
    provider may count more tokens than we do.
    """
    request, ends = made.request, made.rendered.ends
    if request.format not in KINDS or tokens * _COUNTED < MIN_TOKENS:
        return []

    def end_of(turns: int) -> End | None:
        return ends[turns - 1] if turns and ends[turns - 1] != BEFORE_ALL else None

    last, before = end_of(len(made.shares) - _volatile(made)), end_of(common.turns)
    is_far = last is not None and before is not None and _blocks_between(made, before, last) > LOOKBACK_BLOCKS
    fixed = BEFORE_ALL if (request.system_tokens + request.tools_tokens) * _COUNTED >= MIN_TOKENS else None
    borders = [end_of(border) for border in _borders(made)]
    wanted = [last, before if is_far else None, *borders[:1], fixed, *borders[1:], before]
    return breakpoints(made.rendered, wanted, request.format)


def _volatile(made: Made) -> int:
    """Return the number of turns at the end that the next window may replace.

    These begin at calls with a neutral result whose real result may still come.
    """
    view, answer_open_calls = made.settled.view, made.request.answer_open_calls
    units = view.loops[-1].units if answer_open_calls and view.loops else ()
    first = None
    for unit in reversed(units):
        if all(answer.entry is not None for answer in unit.answers):
            break
        first = unit.position
    return sum(
        1 for share in made.shares if first is not None and isinstance(share.place, int) and share.place >= first
    )


def _borders(made: Made) -> list[int]:
    """Return how many turns come before each border between shortened and whole parts: in the current loop, and among the past."""
    view = made.settled.view
    borders = [_border_inside(view.loops[-1])] if view.loops else []
    borders.append(_border_of(view))
    return [_turns_before(made, border) for border in borders if border is not None]


def _border_of(view: WindowDraft) -> int | None:
    """Return the first position of the newest whole loops; None when everything is whole, or no loop is."""
    borders = [loop.first for loop in _whole(view.loops)]
    is_all = len(borders) == len(view.loops) and view.summary is None and not view.unread
    return None if is_all or not borders else borders[-1]


def _whole(loops: Sequence[Loop]) -> list[Loop]:
    """Return the newest loops, newest first, up to the first that is not whole."""
    newest_loops = list[Loop]()
    for loop in reversed(loops):
        if loop.level != "whole":
            break
        newest_loops.append(loop)
    return newest_loops


def _border_inside(loop: Loop) -> int | None:
    """Return the position behind the loop's last shortened unit; None when all units are whole."""
    shortened = [unit for unit in loop.units if unit.stubs or unit.level != "whole"]
    return max(entry.position for entry in shortened[-1].entries) + 1 if shortened else None


def _turns_before(made: Made, position: int) -> int:
    """Return the number of turns before a position of the log."""
    places = [share.place for share in made.shares]
    return next(
        (index for index, place in enumerate(places) if isinstance(place, int) and place >= position), len(places)
    )


def _blocks_between(made: Made, start: End, end: End) -> int:
    """Return the number of blocks between two places of the rendered messages."""
    messages = made.rendered.messages

    def count(message: int) -> int:
        content = messages[message].get("content")
        return len(content) if isinstance(content, list) else 1

    return sum(count(index) for index in range(start.message, end.message)) - start.blocks + end.blocks


__all__ = [
    "Fetch",
    "Source",
    "Then",
    "Window",
    "WindowRequest",
    "build",
    "entry_of",
    "system_cost",
    "upper_bound_of_json",
    "with_tools_of",
]

Then = Callable[[int | None], "WindowRequest | BreakReason"]
"""Returns the request of the previous model call, for a log that ends before a position: that of the newest assistant message, or
None when there is none. Returns a reason instead when nothing of that call can be expected in this window."""


@lazy_dataclass(frozen=True, slots=True)
class Window:
    """The request of one model call. ``tokens`` is an upper bound of all of it, never above the budget.

    ``requires_tool_config``: the messages have tool blocks; ``tool_names`` are the names in them, as sent.
    ``breakpoints``: the prompt-cache breakpoints. They are applied to ``messages``, ``system`` and ``tools`` only when the request
    asks for it; ``system`` is then a list of blocks.
    ``is_partial``: something that could be sent is neither shown nor digested nor covered by a summary.
    """

    messages: list[JsonObject]
    system: System
    tools: list[JsonObject]
    requires_tool_config: bool
    tool_names: tuple[str, ...]
    open_calls: tuple[Ref, ...]
    tokens: int
    manifest: Manifest
    prefix: Prefix
    breakpoints: list[CacheBreakpoint]
    is_partial: bool = False


def build(
    sources: Iterable[Source],
    request: WindowRequest,
    *,
    total: int,
    fetch: Fetch,
    unread: int = 0,
    then: Then | None = None,
) -> Window:
    """Return the window over messages in order of position, oldest first.

    ``total`` is the running total of tokens at the log's end; ``unread`` counts the messages before the first source.
    ``then`` returns the request of the window before this one, for the comparison; None: the same request.
    Raises `BudgetTooSmallError` when even the smallest window is above the budget.
    """
    codec = codec_of(request.format)
    request = with_tools_of(codec, request)
    entries = [entry_of(source) for source in sources]
    made = Made.of(settled(entries, request, total=total, unread=unread, fetch=fetch), codec)
    position = newest_answer(made.settled.plan.entries)
    asked = then(position) if then is not None else request
    prefix, common = prefix_of(made, asked if isinstance(asked, str) else with_tools_of(codec, asked), position, codec)
    tokens = fixed_tokens(request) + message_tokens(made.settled.view)
    return _window(made, prefix, places_of(made, common, tokens=tokens), tokens=tokens)


def _window(made: Made, prefix: Prefix, places: list[BlockPlace], *, tokens: int) -> Window:
    request, view = made.request, made.settled.view
    rendered: Rendered = made.rendered
    system: System = rendered.system
    if request.apply_breakpoints:
        rendered, system = applied(rendered, places, request.format)
    turns = [share.turn for share in made.shares]
    called = [call for turn in turns for call in turn.message.tool_calls]
    return Window(
        messages=rendered.messages,
        system=system,
        tools=rendered.tools,
        requires_tool_config=bool(called) or any(turn.message.tool_results for turn in turns),
        tool_names=tuple(dict.fromkeys(_tool_name(call.name, request) for call in called)),
        open_calls=view.open_calls,
        tokens=tokens,
        manifest=manifest_of(
            view,
            request.budget,
            system_tokens=request.system_tokens,
            tools_tokens=request.tools_tokens,
            frame_tokens=frame_tokens(request.format),
        ),
        prefix=prefix,
        breakpoints=pointers(places, request.format),
        is_partial=has_evicted(view),
    )


def system_cost(text_tokens: int) -> int:
    """Return the tokens of a system text with its message; ``text_tokens`` are those of the text alone."""
    return text_tokens + MESSAGE_OVERHEAD


def upper_bound_of_json(value: object) -> int:
    """Return the most tokens that a JSON value takes, without counting."""
    return upper_bound_tokens(canonical_json(value).decode("ascii"))


def with_tools_of(codec: Codec, request: WindowRequest) -> WindowRequest:
    """Return the request with its tools in the provider's shape; converted tools are charged with a bound."""
    tools = codec.tools(request.tools)
    if tools == list(request.tools):
        return request
    return replace(request, tools=tools, tools_tokens=_bound_of_sent(tools) if tools else 0, tools_least=None)


def _bound_of_sent(tools: Sequence[JsonObject]) -> int:
    return upper_bound_tokens(encode_json(tools).decode("utf-8"))


def _tool_name(name: str, request: WindowRequest) -> str:
    return name if request.format == "turnlog" else legal_tool_name(name)
