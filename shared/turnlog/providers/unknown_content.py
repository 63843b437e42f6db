"""Content that no rule of its format knows, such as a block in another library's shape. It is stored, and named in a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.providers import ai_sdk, openai_agents_js
from turnlog.providers.blocks import is_safe_name, object_of
from turnlog.providers.hosted_calls import shape_of_call, shape_of_output
from turnlog.providers.shapes import HOSTED, KNOWN_BLOCKS, UnfitError

_OF_OTHER_LIBRARIES = ("parts", "toolInvocations", "experimental_attachments", "callId")
"""Members that hold content in another library's messages: those of Vercel's AI SDK and of OpenAI's Agents SDK for JavaScript."""
_OF_CHAT = ("tool_calls", "tool_call_id", "function_call")
_IN_BLOCKS = (*_OF_OTHER_LIBRARIES, *_OF_CHAT, "tool_results")
_OF_OTHER_FORMATS = {
    "openai_chat": (*_OF_OTHER_LIBRARIES, "tool_results"),
    "turnlog": (*_OF_OTHER_LIBRARIES, "tool_call_id", "function_call"),
}
"""Format -> members that hold content in other formats; `_IN_BLOCKS` where calls and results are blocks or items."""
_WITH_OUTPUT_PARTS = ("function_call_output", "custom_tool_call_output")
_MAX_NAMED = 8


def unknown_content(body: JsonObject, format: str) -> dict[str, str]:
    """Return the content that no rule of the format knows, such as a block in another library's shape: its name -> its pointer.

    These are the first of each name, and the first `_MAX_NAMED` names.
    """
    if format == openai_agents_js.FORMAT:
        body, format = openai_agents_js.as_responses(body), "openai_responses"
    if format == "openai_responses" and not _is_known_item(body):
        return {_name_of(body): ""}
    if format == ai_sdk.FORMAT:
        names, holder = dict[str, str](), "parts" if isinstance(body.get("parts"), list) else "content"
    else:
        names = {name: f"/{name}" for name in _OF_OTHER_FORMATS.get(format, _IN_BLOCKS) if body.get(name)}
        holder = "output" if body.get("type") in _WITH_OUTPUT_PARTS and format == "openai_responses" else "content"
    is_known = ai_sdk.is_known_part if format == ai_sdk.FORMAT else _fits(format)
    for block, pointer in _unknown_blocks(body.get(holder), is_known, f"/{holder}"):
        names.setdefault(_name_of(block), pointer)
    return dict(islice(names.items(), _MAX_NAMED))


def _fits(format: str) -> Callable[[JsonValue], bool]:
    def is_known(block: JsonValue) -> bool:
        try:
            KNOWN_BLOCKS[format](block)
        except UnfitError:
            return False
        return True

    return is_known


def _is_known_item(item: JsonObject) -> bool:
    is_named = item.get("type", "message") in ("message", "reasoning", "item_reference", *HOSTED)
    return is_named or shape_of_call(item) is not None or shape_of_output(item) is not None


def _name_of(block: JsonValue) -> str:
    """Return the type of a block or, without one, the first of its members; never a text of the caller's."""
    fields = object_of(block)
    name = fields.get("type") or next(iter(fields), None)
    return name if isinstance(name, str) and is_safe_name(name) else "unknown"


def _unknown_blocks(
    content: JsonValue, is_known: Callable[[JsonValue], bool], pointer: str
) -> Iterator[tuple[JsonValue, str]]:
    """Yield value and pointer of each block that ``is_known`` does not know, also in the results of the caller's tools."""
    for index, block in enumerate(content if isinstance(content, list) else ()):
        place = f"{pointer}/{index}"
        if not is_known(block):
            yield block, place
            continue
        if not isinstance(block, dict):
            continue
        result = block.get("toolResult")
        if isinstance(result, dict):
            yield from _unknown_blocks(result.get("content"), is_known, f"{place}/toolResult/content")
        elif block.get("type") == "tool_result":
            yield from _unknown_blocks(block.get("content"), is_known, f"{place}/content")
