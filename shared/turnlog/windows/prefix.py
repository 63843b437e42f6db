"""The stable prefix of a window: the part that the previous model call sent too, which a provider's prompt cache may still hold.

The previous window is that of the same request before the newest assistant message. When it belongs to the same epoch, this window
begins with all of it; otherwise only system text and tools can be expected to be the same.

Its tokens are a lower bound, without a tokeniser: a message that is sent unchanged has its stored count, text that the window makes
has a proven lower bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile, zip_longest

from turnlog.core.json_values import JsonObject, sendable_json_text
from turnlog.core.lazy_dataclass import lazy_dataclass, once
from turnlog.core.messages import Block, Media, Message, Text, Thinking
from turnlog.core.token_bounds import lower_bound_tokens
from turnlog.core.window_parts import PrefixAnswer
from turnlog.providers import BEFORE_ALL, Codec, End, Rendered
from turnlog.providers.registry import codec_of
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.breaks import NEVER_BROKEN, EpochStart, first_in_window, sent_before
from turnlog.windows.media import limits_of, within_media_limits, without_expired
from turnlog.windows.plan import WindowPlan
from turnlog.windows.prices import FENCING
from turnlog.windows.render import PlacedTurn, placed_turns, unsigned
from turnlog.windows.request import WindowRequest
from turnlog.windows.view import OF_ITEMS, Entry, continues_answer

_LEAVES_OUT = frozenset({"crossing", "large_result", "summary", "compaction", "media", "not_read"})
_CHANGES_ROOM = frozenset({"system", "policy", "budget", "redaction"})
_SYSTEM_IS_A_MESSAGE = ("openai_chat", *OF_ITEMS)


@lazy_dataclass(frozen=True, slots=True)
class RenderedWindow:
    """A window before it is returned: its plan, the request that is sent, its turns as rendered, and the breaks before it."""

    plan: WindowPlan
    request: WindowRequest
    placed_turns: Sequence[PlacedTurn]
    rendered: Rendered
    breaks: tuple[EpochStart, ...]

    @classmethod
    def of(cls, plan: WindowPlan, breaks: tuple[EpochStart, ...]) -> RenderedWindow:
        """Render a planned view. ``breaks`` are those of the request: of settings, summary and budget."""
        breaks, request, codec = (*breaks, *plan.breaks), plan.request, codec_of(plan.request.format)
        limits = limits_of(codec.format, request.context)
        window_turns, since, first = within_media_limits(placed_turns(plan.view, codec), limits, plan.view.units)
        if isinstance(since, int) and isinstance(first, int):
            breaks = (*breaks, EpochStart(since, "media", first))
        if codec.format == "openai_chat":
            window_turns, expired = without_expired(window_turns)
            breaks = (*breaks, *expired)
        if request.plain is not None:
            breaks, has_tools = _with_recall_tools(breaks, plan.outgrown)
            request = request if has_tools else request.plain
        start = max((broken.position for broken in breaks), default=0)
        if codec.format in FENCING:
            others = max((broken.position for broken in breaks if broken.reason != "unprompted"), default=0)
            bound = list(unsigned(window_turns, codec, others))
            window_turns = list(unsigned(bound, codec, start))
            changed = next((old.place for old, new in zip_longest(bound, window_turns) if old is not new), None)
            if isinstance(changed, int):
                breaks = tuple(
                    replace(item, broke_at=changed) if item.reason == "unprompted" else item for item in breaks
                )
        rendered = codec.render([item.turn for item in window_turns], system=request.system, tools=request.tools)
        return cls(plan, request, window_turns, rendered, breaks)

    @property
    def sent(self) -> Mapping[int, Sequence[JsonObject]]:
        """The bodies that are sent of each message, by position."""
        sent = defaultdict[int, list[JsonObject]](list)
        for item, bodies in zip(self.placed_turns, self.rendered.bodies, strict=True):
            if item.entry is not None:
                sent[item.entry.position] += bodies
        return sent

    def end_of(self, turns: int) -> End | None:
        """Return where the first turns end in the messages; None when nothing of them stands there."""
        end = self.rendered.ends[turns - 1] if turns else BEFORE_ALL
        return end if end != BEFORE_ALL else None

    @property
    def start(self) -> EpochStart:
        """The start of the window's epoch: the newest break."""
        return max(self.breaks, key=lambda broken: broken.position, default=NEVER_BROKEN)


def _with_recall_tools(breaks: Sequence[EpochStart], outgrown: int | None) -> tuple[tuple[EpochStart, ...], bool]:
    """Return the breaks of a request that has the recall tools when something is left out, and whether it has them.

    They come with the first such break, or when the log has outgrown the room. A break at which they may have come or gone changes
    the window from its beginning.
    """
    has_tools, changed = outgrown is not None, list[EpochStart]()
    for broken in breaks:
        is_before = broken.position > 0 and (outgrown is None or broken.position < outgrown)
        is_first = is_before and broken.reason in _LEAVES_OUT
        has_tools = has_tools or is_first
        changed.append(replace(broken, broke_at="tools") if is_first or broken.reason in _CHANGES_ROOM else broken)
    return (*changed, EpochStart(outgrown or 0, "tools", "tools")), has_tools


def _newest_answer(entries: Sequence[Entry]) -> int | None:
    """Return the position where the newest assistant answer begins; None when there is none.

    For an answer of several items it is the position of the first.
    """
    index = next((index for index in range(len(entries) - 1, -1, -1) if entries[index].facts.role == "assistant"), None)
    if index is None:
        return None
    while index and continues_answer(entries[index], entries[index - 1]):
        index -= 1
    return entries[index].position


def prefix_of(window: RenderedWindow) -> tuple[PrefixAnswer, int]:
    """Return the stable prefix, and the number of turns that the previous window sent too.

    The previous window ended before the newest answer.
    """
    position = _newest_answer(window.plan.entries)
    if position is None and any(broken.reason == "summary" for broken in window.breaks):
        # The summary covers the newest answer, too.
        return PrefixAnswer(_frame_tokens(window), "summary", "summary"), 0
    if position is None or position == 1:
        return PrefixAnswer(0, None, "first"), 0
    breaks = [broken for broken in window.breaks if broken.position >= position]
    position = sent_before(window.plan.view, position, answer_open_calls=window.request.answer_open_calls)
    turns = turns_before(window, position)
    if window.end_of(turns) is None and all(broken.reason == "unprompted" for broken in breaks):
        return PrefixAnswer(_frame_tokens(window) if turns else 0, None, "first"), 0
    if not breaks:
        return PrefixAnswer(_begun_tokens(window, turns), None, None), turns
    start = first_in_window(breaks)
    if start.broke_at == "tools":
        return PrefixAnswer(0, "tools", start.reason), 0
    if start.broke_at == "system":
        return PrefixAnswer(_tools_tokens(window), "system", start.reason), 0
    turns, broken = 0, start.broke_at
    if isinstance(broken, int) and any(item.place == broken for item in window.placed_turns):
        turns = turns_before(window, min(broken, position))
    return PrefixAnswer(_begun_tokens(window, turns), broken, start.reason), turns


def turns_before(window: RenderedWindow, position: int) -> int:
    """Return the number of turns before the first message at or behind a position."""
    return sum(
        1 for _ in takewhile(lambda item: not isinstance(item.place, int) or item.place < position, window.placed_turns)
    )


def _frame_tokens(window: RenderedWindow) -> int:
    """Return a lower bound of the tokens of tools and system text, as far as the previous window certainly had the same.

    Where system messages at the beginning join the system text, another beginning of the messages may change it.
    """
    return _tools_tokens(window) + (0 if window.request.format in FENCING else _system_tokens(window))


def _begun_tokens(window: RenderedWindow, turns: int) -> int:
    """Return a lower bound of the tokens of tools, system text and the first turns; if no message begins so, `_frame_tokens`."""
    end = window.end_of(turns)
    if end is None:
        return _frame_tokens(window)
    begun, system = end.message + 1, _system_tokens(window)
    if window.request.system is not None and window.request.format in _SYSTEM_IS_A_MESSAGE:
        begun, system = (begun - 1, system) if begun else (0, 0)
    codec, pairs = (
        codec_of(window.request.format),
        zip(window.placed_turns[:turns], window.rendered.bodies, strict=False),
    )
    return (
        _tools_tokens(window) + system + begun * MESSAGE_OVERHEAD + sum(least_of_turn(*pair, codec) for pair in pairs)
    )


def _tools_tokens(window: RenderedWindow) -> int:
    """Return at most the tokens of the tools' compact JSON."""
    known, tools = window.request.tools_least, window.rendered.tools
    if known is not None:
        return known
    return lower_bound_tokens(sendable_json_text(list(tools))) if tools else 0


def _system_tokens(window: RenderedWindow) -> int:
    """Return at most the tokens of the system text."""
    request, system = window.request, window.rendered.system
    if system is None and request.format in _SYSTEM_IS_A_MESSAGE:
        system = request.system
    if system is None:
        return 0
    known = request.system_least if system == request.system else None
    return known if known is not None else lower_bound_tokens(system) + MESSAGE_OVERHEAD


def least_of_turn(item: PlacedTurn, bodies: Sequence[JsonObject], codec: Codec) -> int:
    """Return at most the tokens of a turn's content, as it is sent in ``bodies``.

    `MESSAGE_OVERHEAD` is not included, because a message may hold several turns.
    """
    return _least_as_made(item, codec) if bodies == codec.bodies(item.turn) else _least_of(item, bodies, codec)


@once
def _least_as_made(item: PlacedTurn, codec: Codec) -> int:
    return _least_of(item, codec.bodies(item.turn), codec)


def _least_of(item: PlacedTurn, bodies: Sequence[JsonObject], codec: Codec) -> int:
    if not bodies:
        return 0
    entry, message = item.entry, item.turn.message
    is_given = entry is not None and message is entry.message and item.part == "all" and not entry.event.redacted
    stored = max(0, entry.event.tokens - MESSAGE_OVERHEAD) if entry is not None and is_given else 0
    is_verbatim = item.turn.format == codec.format and list(bodies) == [item.turn.body]
    # A codec may rename files when it joins all messages.
    if is_given and is_verbatim and "file" not in _media_kinds(message):
        return stored
    parsed = [codec.parse(body) for body in bodies]
    if is_given and not _media_kinds(message) and _counted([message]) == _counted(parsed):
        return stored
    return sum(lower_bound_tokens(text) for sent in parsed for text in _texts(sent))


def _media_kinds(message: Message) -> set[str]:
    return {block.kind for block in message.blocks if isinstance(block, Media)}


def _counted(messages: Sequence[Message]) -> tuple[object, ...]:
    """Return everything that the count of messages without media depends on."""
    return (
        [message.name for message in messages if message.name],
        [block for message in messages for block in message.content if block != Text("")],
        [(call.name, call.arguments) for message in messages for call in message.tool_calls],
        [(result.name, result.content) for message in messages for result in message.tool_results],
    )


def _texts(message: Message) -> Iterator[str]:
    """Yield the texts of the message that are counted."""
    yield message.name
    yield from _texts_of(message.content)
    for call in message.tool_calls:
        yield call.name
        yield call.arguments
    for result in message.tool_results:
        yield result.name
        yield from _texts_of(result.content)


def _texts_of(content: Sequence[Block]) -> Iterator[str]:
    return (block.text for block in content if isinstance(block, Text | Thinking))
