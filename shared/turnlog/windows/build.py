"""A window, from messages to what the provider's call takes. Pure: no clock, no store, no tokeniser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from turnlog.codecs.base import Codec, Rendered
from turnlog.codecs.breakpoints import Breakpoint, Place, System, applied, pointers
from turnlog.codecs.names import legal_tool_name
from turnlog.codecs.registry import codec_of
from turnlog.domain.breaks import BreakReason
from turnlog.domain.jsonvalue import JsonObject, canonical_json, encode_json
from turnlog.domain.refs import Ref
from turnlog.domain.values import dataclass
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.caching import places_of
from turnlog.windows.costs import has_evicted, message_tokens
from turnlog.windows.manifest import Manifest, manifest_of
from turnlog.windows.plan import Fetch, Request, Source, entry_of, fixed_tokens, settled
from turnlog.windows.prefix import Made, Prefix, prefix_of
from turnlog.windows.prices import MESSAGE_OVERHEAD, frame_tokens
from turnlog.windows.truncate import newest_answer

__all__ = [
    "Fetch",
    "Request",
    "Source",
    "Then",
    "Window",
    "build",
    "entry_of",
    "system_cost",
    "upper_bound_of_json",
    "with_tools_of",
]

Then = Callable[[int | None], "Request | BreakReason"]
"""What the same call asked for as if the log ended before a position, that of the newest assistant message (None: none is among
the sources); or why nothing that was sent then can be expected to be sent still."""


@dataclass(frozen=True, slots=True)
class Window:
    """What one model call is sent. ``tokens`` is an upper bound of all of it, never more than the budget.

    ``requires_tool_config``: tool blocks are in the messages; ``tool_names`` are the names in them, as sent.
    ``breakpoints``: where the provider's prompt cache is told to end; in ``messages``, ``system`` and ``tools`` they are only
    where the request says so, and ``system`` is a list of blocks then.
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
    breakpoints: list[Breakpoint]
    is_partial: bool = False


def build(
    sources: Iterable[Source],
    request: Request,
    *,
    total: int,
    fetch: Fetch,
    unread: int = 0,
    then: Then | None = None,
) -> Window:
    """The window over messages in order of position, oldest first.

    ``total`` is the running total of tokens at the log's end; ``unread`` counts the messages before the first source.
    ``then``: by it the window is compared with the one before it; None: that was asked for in the same way.
    Raises `BudgetTooSmallError` when even the least window is larger than the budget.
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


def _window(made: Made, prefix: Prefix, places: list[Place], *, tokens: int) -> Window:
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
    """What a system text of that many tokens takes, its message included."""
    return text_tokens + MESSAGE_OVERHEAD


def upper_bound_of_json(value: object) -> int:
    """The most tokens that a JSON value takes, without counting."""
    return upper_bound_tokens(canonical_json(value).decode("ascii"))


def with_tools_of(codec: Codec, request: Request) -> Request:
    """The request with its tools in the provider's shape; those that had another are charged anew."""
    tools = codec.tools(request.tools)
    if tools == list(request.tools):
        return request
    return replace(request, tools=tools, tools_tokens=_bound_of_sent(tools) if tools else 0, tools_least=None)


def _bound_of_sent(tools: Sequence[JsonObject]) -> int:
    return upper_bound_tokens(encode_json(tools).decode("utf-8"))


def _tool_name(name: str, request: Request) -> str:
    return name if request.format == "turnlog" else legal_tool_name(name)
