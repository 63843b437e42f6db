"""Prompt-cache breakpoints, in the form of each provider that takes them explicitly.

Anthropic: ``cache_control`` on a block, at most four in a request. The provider looks for a cached prefix up to 20 blocks
before a breakpoint (https://platform.claude.com/docs/en/build-with-claude/prompt-caching). Not allowed on thinking (400:
``thinking.cache_control: Extra inputs are not permitted``), on empty text (400: ``cache_control cannot be set for empty text
blocks``, https://github.com/anthropics/claude-code/issues/54013), or on a tool with ``defer_loading``
(https://github.com/router-for-me/CLIProxyAPI/issues/4561). A breakpoint of one hour may not follow one of five minutes
(https://github.com/cnighswonger/claude-code-cache-fix/issues/44), nor does Bedrock take it.

Bedrock Converse: a ``cachePoint`` block behind the content to cache, at most four
(https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html). Not allowed behind reasoning
(https://github.com/anomalyco/opencode/issues/36517), behind a document that is not a PDF
(https://github.com/strands-agents/harness-sdk/issues/1966), or first in a message. Amazon Nova refuses one among its tools
(https://github.com/strands-agents/sdk-python/issues/449), so none is placed behind tools.

OpenAI caches automatically up to the latest message (https://developers.openai.com/api/docs/guides/prompt-caching). GPT-5.6
and later also take breakpoints, but earlier models refuse them (https://github.com/BerriAI/litellm/pull/37628), so none are
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from turnlog.core.json_values import JsonObject, JsonValue, copied_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.window_parts import Breakpoint
from turnlog.providers import BEFORE_ALL, End, Rendered

MAX_BREAKPOINTS = 4
MIN_TOKENS = 1_024
"""No model caches fewer tokens; some need 2,048 or 4,096. A breakpoint behind fewer tokens has no effect."""
LOOKBACK_BLOCKS = 20
"""Blocks before a breakpoint in which a provider looks for a cached prefix."""
System: TypeAlias = "str | list[JsonObject] | None"


class BlockPlace(NamedTuple):
    """A block of a request. Places sort in the order in which providers cache.

    ``part`` is 0 for the tools, 1 for the system text, 2 for the messages. ``message`` is the index of the message, 0 for tools
    and system text; ``block`` is the index of the block.
    """

    part: Literal[0, 1, 2]
    message: int
    block: int


@lazy_dataclass(frozen=True, slots=True)
class _Kind:
    """A provider's form of breakpoints.

    ``behind``: a breakpoint is a block of its own behind the block that it is for, not members of that block.
    ``takes``: whether a block may have a breakpoint. ``text_block``: makes a block of a text.
    """

    form: JsonObject
    behind: bool
    takes: Callable[[JsonValue], bool]
    text_block: Callable[[str], JsonObject]

    def mark_of(self, block: JsonValue) -> JsonValue:
        """Return the breakpoint that the block already has, or None."""
        return block.get(next(iter(self.form))) if isinstance(block, dict) else None


_ANTHROPIC_TAKE = frozenset({"text", "image", "document", "search_result", "tool_use", "tool_result"})


def _anthropic_takes(block: JsonValue) -> bool:
    if isinstance(block, str):
        return bool(block.strip())
    if not isinstance(block, dict) or block.get("type") not in _ANTHROPIC_TAKE:
        return False
    return block["type"] != "text" or bool(str(block.get("text")).strip())


def _converse_takes(block: JsonValue) -> bool:
    if not isinstance(block, dict) or "reasoningContent" in block:
        return False
    document = block.get("document")
    return not isinstance(document, dict) or document.get("format") == "pdf"


KINDS: Mapping[str, _Kind] = {
    "anthropic": _Kind(
        {"cache_control": {"type": "ephemeral"}},
        behind=False,
        takes=_anthropic_takes,
        text_block=lambda text: {"type": "text", "text": text},
    ),
    "bedrock_converse": _Kind(
        {"cachePoint": {"type": "default"}}, behind=True, takes=_converse_takes, text_block=lambda text: {"text": text}
    ),
}
"""Format -> its form of breakpoints. Other formats have none."""


def breakpoints(rendered: Rendered, wanted: Iterable[End | None], format: str) -> list[BlockPlace]:
    """Return the places for new breakpoints, sorted. Earlier ends in ``wanted`` have precedence.

    There are at most four with the breakpoints that the request has already. `BEFORE_ALL` is the end of system text and tools.
    An end where no breakpoint is allowed moves to the nearest block before it.
    """
    kind = KINDS[format]
    own_marks = list(_own(rendered, kind))
    hour_places = [place for place, mark in own_marks if _lasts_hour(mark)]
    occupied, chosen = {place for place, _ in own_marks}, list[BlockPlace]()
    for end in wanted:
        place = _place(rendered, end, kind) if end is not None else None
        if len(own_marks) + len(chosen) >= MAX_BREAKPOINTS or place is None or place in occupied:
            continue
        # New breakpoints last five minutes, and none of them may come before one of an hour.
        if all(hour_place < place for hour_place in hour_places):
            occupied.add(place)
            chosen.append(place)
    return sorted(chosen)


def pointers(places: Sequence[BlockPlace], format: str) -> list[Breakpoint]:
    """Return the places as breakpoints that a caller applies one after the other."""
    if not places:
        return []
    kind, inserted_at, breakpoints = KINDS[format], dict[tuple[int, int], int](), list[Breakpoint]()
    for place in places:
        base = ("/tools", "/system", f"/messages/{place.message}/content")[place.part]
        inserted = inserted_at.get(place[:2], 0)
        breakpoints.append(
            Breakpoint(f"{base}/{place.block + (inserted + 1 if kind.behind else 0)}", copied_json(kind.form))
        )
        inserted_at[place[:2]] = inserted + 1
    return breakpoints


def apply_breakpoints(rendered: Rendered, places: Sequence[BlockPlace], format: str) -> tuple[Rendered, System]:
    """Return the request with breakpoints at the places, and its system text as blocks."""
    kind = KINDS.get(format)
    if kind is None:
        return rendered, rendered.system
    system = [kind.text_block(rendered.system)] if rendered.system is not None else None
    tools, messages = list(rendered.tools), list(rendered.messages)
    for place in reversed(places):
        if place.part == 0:
            tools[place.block : place.block + 1] = _marked(tools[place.block], kind)
        elif place.part == 1 and system is not None:
            system[place.block : place.block + 1] = _marked(system[place.block], kind)
        else:
            blocks = _blocks(messages[place.message])
            content: list[JsonValue] = [kind.text_block(block) if isinstance(block, str) else block for block in blocks]
            block = content[place.block]
            assert isinstance(block, dict)  # noqa: S101 - only an object takes a breakpoint
            content[place.block : place.block + 1] = _marked(block, kind)
            messages[place.message] = {**messages[place.message], "content": content}
    return replace(rendered, messages=messages, tools=tools), system


def _place(rendered: Rendered, end: End, kind: _Kind) -> BlockPlace | None:
    if end == BEFORE_ALL:
        if rendered.system is not None:
            return BlockPlace(1, 0, 0)
        cacheable = [
            index
            for index, tool in enumerate(rendered.tools)
            if not kind.behind and tool.get("defer_loading") is not True
        ]
        return BlockPlace(0, 0, cacheable[-1]) if cacheable else None
    for message in range(end.message, -1, -1):
        blocks = _blocks(rendered.messages[message])
        last = min(end.blocks, len(blocks)) if message == end.message else len(blocks)
        block = next((block for block in range(last - 1, -1, -1) if kind.takes(blocks[block])), None)
        if block is not None:
            return BlockPlace(2, message, block)
    return None


def _own(rendered: Rendered, kind: _Kind) -> Iterator[tuple[BlockPlace, JsonValue]]:
    """Yield the breakpoints that the request already has, in order, each with the place of the block that it is for."""
    offset = 1 if kind.behind else 0
    for index, tool in enumerate(rendered.tools):
        if (mark := kind.mark_of(tool)) is not None:
            yield BlockPlace(0, 0, index - offset), mark
    for index, message in enumerate(rendered.messages):
        content = message.get("content")
        for block_index, block in enumerate(content if isinstance(content, list) else ()):
            for mark in _marks_in(block, kind):
                yield BlockPlace(2, index, block_index - offset), mark


def _marks_in(block: JsonValue, kind: _Kind) -> Iterator[JsonValue]:
    """Yield the breakpoints of a block, and of the blocks in a result."""
    if (mark := kind.mark_of(block)) is not None:
        yield mark
    nested = block.get("content") if isinstance(block, dict) else None
    for inner_block in nested if isinstance(nested, list) else ():
        yield from _marks_in(inner_block, kind)


def with_legal_marks(rendered: Rendered, format: str) -> Rendered:
    """Change the breakpoints that the request already has where the provider refuses them.

    The oldest of the messages go when there are more than four. One of an hour behind one of five minutes lasts five minutes.
    """
    kind = KINDS.get(format)
    excess, is_short = (len(list(_own(rendered, kind))) - MAX_BREAKPOINTS if kind is not None else 0), False
    if kind is None or excess == -MAX_BREAKPOINTS:
        return rendered

    def legal(block: JsonValue, *, is_tool: bool = False) -> list[JsonValue]:
        nonlocal excess, is_short
        marks = list(_marks_in(block, kind))
        if marks and excess > 0 and not is_tool:
            excess -= len(marks)
            return _remarked(block, kind, {})
        is_short = is_short or not all(map(_lasts_hour, marks))
        return _remarked(block, kind, kind.form) if is_short and any(map(_lasts_hour, marks)) else [block]

    tools = [part for tool in rendered.tools for part in legal(tool, is_tool=True) if isinstance(part, dict)]
    messages = list(rendered.messages)
    for index, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            messages[index] = {**message, "content": [part for block in content for part in legal(block)]}
    return replace(rendered, messages=messages, tools=tools)


def _lasts_hour(mark: JsonValue) -> bool:
    return isinstance(mark, dict) and mark.get("ttl") == "1h"


def _remarked(block: JsonValue, kind: _Kind, form: JsonObject) -> list[JsonValue]:
    """Return a block, and the blocks in a result, with ``form`` in place of breakpoints. An empty ``form`` removes them."""
    if kind.behind or not isinstance(block, dict):
        return [form] if form and kind.behind else []
    bare = {key: value for key, value in block.items() if key not in kind.form}
    nested = bare.get("content")
    if isinstance(nested, list):
        bare["content"] = [part for inner in nested for part in (_remarked(inner, kind, form) or [inner])]
    return [bare if kind.mark_of(block) is None else bare | form]


def _marked(block: JsonObject, kind: _Kind) -> list[JsonObject]:
    return [block, kind.form] if kind.behind else [{**block, **kind.form}]


def _blocks(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else [content]
