"""Builds a window: from stored messages to a provider's request. Pure: no clock, no storage, no tokeniser."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

from turnlog.core.calls import Ref
from turnlog.core.json_values import JsonObject, encode_json, sendable_json, sendable_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.window_parts import Breakpoint, EpochAnswer, PrefixAnswer
from turnlog.providers import BEFORE_ALL, End, Rendered
from turnlog.providers.blocks import legal_tool_name
from turnlog.providers.cache_breakpoints import (
    KINDS,
    LOOKBACK_BLOCKS,
    MIN_TOKENS,
    BlockPlace,
    System,
    apply_breakpoints,
    breakpoints,
    pointers,
    with_legal_marks,
)
from turnlog.providers.token_rules import WINDOW_OVERHEAD
from turnlog.windows.assembly import Memory
from turnlog.windows.breaks import EpochStart, newest_unprompted
from turnlog.windows.manifest import Manifest, manifest_of
from turnlog.windows.media import limits_of
from turnlog.windows.plan import History, WindowPlan, settled
from turnlog.windows.prefix import RenderedWindow, prefix_of, turns_before
from turnlog.windows.prices import FENCING, has_evicted
from turnlog.windows.request import WindowRequest, with_tools_of
from turnlog.windows.view import WindowDraft

RENDERER_VERSION = 35
"""Raised by every change that gives another window for the same log and request. A ``build`` of another version is
refused (W8). ``tools/record_windows.py`` records the new windows."""
_COUNTED = 1.5
"""The most tokens of a provider for one token of our count."""


def places_of(window: RenderedWindow, stable_turns: int, *, tokens: int) -> list[BlockPlace]:
    """Return the places for cache breakpoints, in order; empty for a format without breakpoints.

    ``stable_turns`` is the number of turns that the previous window sent too.
    ``tokens`` is the most that the window takes. A breakpoint behind too few tokens has no effect. The check uses bounds, and a
    provider may count more tokens than we do.
    """
    request = window.request
    if request.format not in KINDS or tokens * _COUNTED < MIN_TOKENS:
        return []
    last, before = window.end_of(len(window.placed_turns) - _volatile(window)), window.end_of(stable_turns)
    is_far = last is not None and before is not None and _blocks_between(window, before, last) > LOOKBACK_BLOCKS
    fixed = BEFORE_ALL if (request.system_tokens + request.tools_tokens) * _COUNTED >= MIN_TOKENS else None
    border = _border_of(window.plan.view)
    base = window.end_of(turns_before(window, border)) if border is not None else None
    wanted = [last, before if is_far else None, base, fixed, before]
    return breakpoints(window.rendered, wanted, request.format)


def _volatile(window: RenderedWindow) -> int:
    """Return the number of turns at the end that the next window may replace.

    These begin at calls with a neutral result whose real result may still come.
    """
    view, answer_open_calls = window.plan.view, window.request.answer_open_calls
    units = view.loops[-1].units if answer_open_calls and view.loops else ()
    first = None
    for unit in reversed(units):
        if not unit.is_waiting:
            break
        first = unit.position
    return sum(
        1 for item in window.placed_turns if first is not None and isinstance(item.place, int) and item.place >= first
    )


def _border_of(view: WindowDraft) -> int | None:
    """Return the position behind the newest part that is summarised, cut or left out; None when every part is whole."""
    following = None
    for loop in reversed(view.loops):
        if loop.level != "whole":
            return following
        for unit in reversed(loop.units):
            if unit.level != "whole":
                return following
            following = unit.position
        following = loop.first
    return following if view.summary is not None or view.unread or view.compacted_to else None


def _blocks_between(window: RenderedWindow, start: End, end: End) -> int:
    """Return the number of blocks between two places of the rendered messages."""
    messages = window.rendered.messages

    def count(message: int) -> int:
        content = messages[message].get("content")
        return len(content) if isinstance(content, list) else 1

    return sum(count(index) for index in range(start.message, end.message)) - start.blocks + end.blocks


@lazy_dataclass(frozen=True, slots=True)
class Window:
    """The request of one model call. ``tokens`` is an upper bound of all of it, never above the budget.

    ``requires_tool_config``: the messages have tool blocks; ``tool_names`` are the names in them, as sent.
    ``breakpoints``: the prompt-cache breakpoints. They are applied to ``messages``, ``system`` and ``tools`` only when the request
    asks for it; ``system`` is then a list of blocks.
    ``is_partial``: something that could be sent is neither shown nor digested nor covered by a summary.
    ``elsewhere`` is a fingerprint of what is recalled from elsewhere or ranked by an embedder, which the log does not say; empty
    for nothing.
    """

    messages: list[JsonObject]
    system: System
    tools: list[JsonObject]
    requires_tool_config: bool
    tool_names: tuple[str, ...]
    open_calls: tuple[Ref, ...]
    tokens: int
    manifest: Manifest
    prefix: PrefixAnswer
    breakpoints: list[Breakpoint]
    epoch: EpochAnswer
    is_partial: bool = False
    elsewhere: str = ""


def build(history: History, request: WindowRequest, memory: Memory | None = None) -> Window:
    """Return the window over a log. Of older messages it reads only those that may change it.

    ``memory`` is what earlier windows of the same log and format have made; this one adds to it.
    Raises `BudgetTooSmallError` when even the smallest window is above the budget.
    """
    plan = settled(history, with_tools_of(request), memory or Memory())
    breaks = (*history.breaks(), *_break_of_answer(plan))
    window = RenderedWindow.of(plan, (*breaks, *_breaks_of_callers(plan, breaks)))
    prefix, turns = prefix_of(window)
    manifest = manifest_of(window)
    tokens = WINDOW_OVERHEAD + sum(manifest.totals.values())
    return _window(window, prefix, places_of(window, turns, tokens=tokens), manifest, tokens=tokens)


def _window(
    window: RenderedWindow, prefix: PrefixAnswer, places: list[BlockPlace], manifest: Manifest, *, tokens: int
) -> Window:
    request, view = window.request, window.plan.view
    rendered: Rendered = with_legal_marks(window.rendered, request.format)
    system: System = rendered.system
    if request.apply_breakpoints:
        rendered, system = apply_breakpoints(rendered, places, request.format)
    called = [call.name for item in window.placed_turns for call in item.turn.message.tool_calls]
    sent_names = called if request.format == "turnlog" else map(legal_tool_name, called)
    return Window(
        # Copies: what the caller gets is the caller's, and the process may build its next window of the same values.
        messages=sendable_json(rendered.messages),
        system=sendable_json(system),
        tools=sendable_json(rendered.tools),
        requires_tool_config=bool(called),
        tool_names=tuple(dict.fromkeys(map(sendable_text, sent_names))),
        open_calls=view.open_calls,
        tokens=tokens,
        manifest=manifest,
        prefix=prefix,
        breakpoints=pointers(places, request.format),
        is_partial=has_evicted(view),
        epoch=EpochAnswer(
            _epoch_id(window.plan.request, window.start.position, _elsewhere(view)), window.start.position
        ),
        elsewhere=_elsewhere(view, or_ranked=True),
    )


def _break_of_answer(plan: WindowPlan) -> Iterator[EpochStart]:
    """Yield the break at the newest answer whose window begins no later window, in formats that bind thinking to windows."""
    if plan.request.format in FENCING:
        newest = newest_unprompted(plan.view, answer_open_calls=plan.request.answer_open_calls)
        yield EpochStart(newest, "unprompted", newest)


def _breaks_of_callers(plan: WindowPlan, breaks: Sequence[EpochStart]) -> Iterator[EpochStart]:
    """Yield a break at each answer whose caller says that it was made under another window than this plan's.

    Calls may have different budgets or policies. Signed thinking of such an answer, and all before it, is bound elsewhere.
    """
    since = max((start.position for start in (*plan.breaks, *breaks)), default=0)
    noted: tuple[int, str] | None = None
    for entry in plan.entries:
        notes = entry.event.notes
        if notes is not None and notes.epoch is not None:
            noted = entry.time_ms, notes.epoch
        is_noted = noted is not None and noted[0] == entry.time_ms and entry.facts.role == "assistant"
        if noted is None or not is_noted or entry.position <= since:
            continue
        if noted[1] != _epoch_id(plan.request, since, _elsewhere(plan.view, entry.position)):
            since = entry.position
            yield EpochStart(since, "budget", "base")


def _elsewhere(view: WindowDraft, before: float = math.inf, *, or_ranked: bool = False) -> str:
    """Return a fingerprint of the parts before a position that have messages from elsewhere; empty for none.

    With ``or_ranked`` those that an embedder has ranked count, too. They stay the same, so an epoch's name is without them.
    """
    parts = [part for part in view.recalled if part.place < before]
    of_others = (part for part in parts if (or_ranked and part.ranked) or any(said.place for said in part.messages))
    texts = [part.text for part in of_others]
    return hashlib.sha256(encode_json(texts)).hexdigest()[:16] if texts else ""


def _epoch_id(request: WindowRequest, since: int, elsewhere: str) -> str:
    """Return the name of an epoch: two windows have the same just when requests and the start of their epochs are the same.

    ``elsewhere`` says what they have that is not in the log.
    """
    parts = [
        RENDERER_VERSION,
        request.format,
        request.system,
        list(request.tools),
        request.policy.model_dump(mode="json"),
        request.budget.tokens,
        request.answer_open_calls,
        request.include_current_loop,
        request.others_calls,
        limits_of(request.format, request.context),
        since,
    ]
    parts += [] if request.query is None else [request.query]
    parts += [elsewhere] if elsewhere else []
    return hashlib.sha256(encode_json(parts)).hexdigest()[:16]
