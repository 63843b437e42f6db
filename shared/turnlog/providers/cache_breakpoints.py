"""Prompt-cache breakpoints in the form of each provider that wants them told.

Anthropic: ``cache_control`` on a block, at most four in a request; what stands before it is looked up up to 20 blocks back
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching). Not on thinking (400: ``thinking.cache_control: Extra
inputs are not permitted``), on empty text (400: ``cache_control cannot be set for empty text blocks``,
https://github.com/anthropics/claude-code/issues/54013), on a tool with ``defer_loading``
(https://github.com/router-for-me/CLIProxyAPI/issues/4561); one of an hour not behind one of five minutes
(https://github.com/cnighswonger/claude-code-cache-fix/issues/44).

Bedrock Converse: a ``cachePoint`` block behind what is to be cached, at most four
(https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html). Not behind reasoning
(https://github.com/anomalyco/opencode/issues/36517), nor behind a document that is no PDF
(https://github.com/strands-agents/harness-sdk/issues/1966), nor first in a message. Amazon Nova takes none among its tools
(https://github.com/strands-agents/sdk-python/issues/449), so there is none without a system text.

OpenAI caches by itself (https://developers.openai.com/api/docs/guides/prompt-caching): at the latest message, always. GPT-5.6 and
later take breakpoints beside that, models before refuse them (https://github.com/BerriAI/litellm/pull/37628): none are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.providers.base import BEFORE_ALL, End, Rendered

MAX_BREAKPOINTS = 4
MIN_TOKENS = 1_024
"""Fewer are cached by no model; some want 2,048 or 4,096. A breakpoint at fewer than the model wants does nothing."""
LOOKBACK_BLOCKS = 20
"""So far before a breakpoint a provider looks for what it has."""
System: TypeAlias = "str | list[JsonObject] | None"


class BlockPlace(NamedTuple):
    """A block of a request, in the order in which providers cache: ``part`` 0 are the tools, 1 the system text, 2 the messages.
    Of tools and system text ``message`` is 0."""

    part: Literal[0, 1, 2]
    message: int
    block: int


@lazy_dataclass(frozen=True, slots=True)
class CacheBreakpoint:
    """``form`` as it is applied at ``pointer``: members of the block there, or a block of its own inserted there."""

    pointer: str
    form: JsonObject


@lazy_dataclass(frozen=True, slots=True)
class _Kind:
    """How a provider's breakpoints look. ``behind``: they are blocks of their own behind what they are for."""

    form: JsonObject
    behind: bool
    takes: Callable[[JsonValue], bool]
    text_block: Callable[[str], JsonObject]

    def mark_of(self, block: JsonValue) -> JsonValue:
        """The block's own mark, if any."""
        return block.get(next(iter(self.form))) if isinstance(block, dict) else None


_ANTHROPIC_TAKE = frozenset({"text", "image", "document", "search_result", "tool_use", "tool_result"})


def _anthropic_takes(block: JsonValue) -> bool:
    if isinstance(block, str):
        return bool(block.strip())
    if not isinstance(block, dict) or block.get("type") not in _ANTHROPIC_TAKE:
        return False
    return block["type"] != "text" or bool(str(block.get("text")).strip())


def _converse_takes(block: JsonValue) -> bool:
    document = block.get("document") if isinstance(block, dict) else None
    is_other_document = isinstance(document, dict) and document.get("format") != "pdf"
    return isinstance(block, dict) and "reasoningContent" not in block and not is_other_document


KINDS: Mapping[str, _Kind] = {
    "anthropic": _Kind(
        {"cache_control": {"type": "ephemeral"}},
        behind=False,
        takes=_anthropic_takes,
        text_block=lambda text: {"type": "text", "text": text},
    ),
    "bedrock_converse": _Kind(
        {"cachePoint": {"type": "default"}},
        behind=True,
        takes=_converse_takes,
        text_block=lambda text: {"text": text},
    ),
}
"""Formats whose breakpoints are told. All others have none."""


def breakpoints(rendered: Rendered, wanted: Iterable[End | None], format: str) -> list[BlockPlace]:
    """The places for breakpoints, in order: at most four with those that the request has already, the first wanted first.

    `BEFORE_ALL` is the end of system text and tools. An end where none can stand is moved to the nearest block before it.
    """
    kind = KINDS.get(format)
    if kind is None:
        return []
    own = list(_own(rendered, kind))
    hours = [place for place, mark in own if isinstance(mark, dict) and mark.get("ttl") == "1h"]
    taken, found = {place for place, _ in own}, list[BlockPlace]()
    for end in wanted:
        place = _place(rendered, end, kind) if end is not None else None
        if len(own) + len(found) >= MAX_BREAKPOINTS or place is None or place in taken:
            continue
        # One of five minutes, as ours are, stands before none of an hour.
        if all(hour < place for hour in hours):
            taken.add(place)
            found.append(place)
    return sorted(found)


def pointers(places: Sequence[BlockPlace], format: str) -> list[CacheBreakpoint]:
    """The places as a caller applies them, one after the other."""
    kind, before = KINDS[format] if places else None, dict[tuple[int, int], int]()
    found = list[CacheBreakpoint]()
    for place in places:
        assert kind is not None  # noqa: S101 - there are places
        base = ("/tools", "/system", f"/messages/{place.message}/content")[place.part]
        inserted = before.get(place[:2], 0)
        found.append(CacheBreakpoint(f"{base}/{place.block + (inserted + 1 if kind.behind else 0)}", kind.form))
        before[place[:2]] = inserted + 1
    return found


def applied(rendered: Rendered, places: Sequence[BlockPlace], format: str) -> tuple[Rendered, System]:
    """The request with breakpoints at the places, its system text as blocks; of more than four the oldest of its own go."""
    kind = KINDS.get(format)
    if kind is None:
        return rendered, rendered.system
    rendered = _without_oldest(rendered, len(list(_own(rendered, kind))) + len(places) - MAX_BREAKPOINTS, kind)
    system = [kind.text_block(rendered.system)] if rendered.system is not None else None
    tools, messages = list(rendered.tools), list(rendered.messages)
    for place in reversed(places):
        if place.part == 0:
            tools[place.block : place.block + 1] = _marked(tools[place.block], kind)
        elif place.part == 1 and system is not None:
            system[place.block : place.block + 1] = _marked(system[place.block], kind)
        else:
            content = _content(messages[place.message], kind)
            block = content[place.block]
            assert isinstance(block, dict)  # noqa: S101 - only such take one
            content[place.block : place.block + 1] = _marked(block, kind)
            messages[place.message] = {**messages[place.message], "content": content}
    return replace(rendered, messages=messages, tools=tools), system


def _place(rendered: Rendered, end: End, kind: _Kind) -> BlockPlace | None:
    if end == BEFORE_ALL:
        if rendered.system is not None:
            return BlockPlace(1, 0, 0)
        taken = [
            at for at, tool in enumerate(rendered.tools) if not kind.behind and tool.get("defer_loading") is not True
        ]
        return BlockPlace(0, 0, taken[-1]) if taken else None
    for message in range(end.message, -1, -1):
        blocks = _blocks(rendered.messages[message])
        last = min(end.blocks, len(blocks)) if message == end.message else len(blocks)
        block = next((block for block in range(last - 1, -1, -1) if kind.takes(blocks[block])), None)
        if block is not None:
            return BlockPlace(2, message, block)
    return None


def _own(rendered: Rendered, kind: _Kind) -> Iterator[tuple[BlockPlace, JsonValue]]:
    """The marks that the request has already, in order, by the block that each is for."""
    back = 1 if kind.behind else 0
    for at, tool in enumerate(rendered.tools):
        if kind.mark_of(tool) is not None:
            yield BlockPlace(0, 0, at - back), kind.mark_of(tool)
    for at, message in enumerate(rendered.messages):
        content = message.get("content")
        for number, block in enumerate(content if isinstance(content, list) else ()):
            for mark in _marks_in(block, kind):
                yield BlockPlace(2, at, number - back), mark


def _marks_in(block: JsonValue, kind: _Kind) -> Iterator[JsonValue]:
    """A result's blocks may have marks, too."""
    if kind.mark_of(block) is not None:
        yield kind.mark_of(block)
    inner = block.get("content") if isinstance(block, dict) and not kind.behind else None
    for one in inner if isinstance(inner, list) else ():
        yield from _marks_in(one, kind)


def _without_oldest(rendered: Rendered, excess: int, kind: _Kind) -> Rendered:
    messages = list(rendered.messages)
    for at, message in enumerate(messages):
        content = message.get("content")
        if excess <= 0:
            break
        if isinstance(content, list) and any(True for block in content for _ in _marks_in(block, kind)):
            kept = list[JsonValue]()
            for block in content:
                count = sum(1 for _ in _marks_in(block, kind))
                kept += _unmarked(block, kind) if count and excess > 0 else [block]
                excess -= count
            messages[at] = {**message, "content": kept}
    return replace(rendered, messages=messages)


def _unmarked(block: JsonValue, kind: _Kind) -> list[JsonValue]:
    if kind.behind or not isinstance(block, dict):
        return []
    bare = {key: value for key, value in block.items() if key not in kind.form}
    inner = bare.get("content")
    if isinstance(inner, list):
        bare["content"] = [part for one in inner for part in (_unmarked(one, kind) or [one])]
    return [bare]


def _marked(block: JsonObject, kind: _Kind) -> list[JsonObject]:
    return [block, kind.form] if kind.behind else [{**block, **kind.form}]


def _blocks(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else [content]


def _content(message: JsonObject, kind: _Kind) -> list[JsonValue]:
    """The content as blocks, for one of them is marked."""
    return [kind.text_block(block) if isinstance(block, str) else block for block in _blocks(message)]
