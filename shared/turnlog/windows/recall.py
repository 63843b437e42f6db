"""The tools with which a model gets back what a window left out, and the system line that explains them.

All texts are constants. Tools and system text come first in every provider's cache, so they come once: with a session's first
window, or with the first that leaves something out. Their token counts are constants too;
``tests/properties/test_recall_tools.py`` checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL
from turnlog.core.token_bounds import lower_bound_tokens, upper_bound_tokens
from turnlog.providers.blocks import tool_name
from turnlog.providers.registry import codec_of
from turnlog.windows.build import system_cost, upper_bound_of_json, with_tools_of
from turnlog.windows.plan import WindowRequest

RECALL_LINE = (
    "Earlier parts of this conversation may be shortened or left out here; nothing is lost. "
    "recall_tool_call shows an earlier tool call with its result (ref 12.0) or a message (ref 12), search_history finds "
    "earlier messages by words."
)
RECALL_LINE_TOKENS = 51
RECALL_TOOLS_TOKENS = 214
"""Tokens of the two tools as a list in compact JSON, in the longest of the shapes."""
_SEPARATOR = "\n\n"


def _tool(name: str, description: str, required: str, **fields: tuple[str, str]) -> JsonObject:
    properties: JsonObject = {field: {"type": kind, "description": text} for field, (kind, text) in fields.items()}
    parameters: JsonObject = {"type": "object", "properties": properties, "required": [required]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_TOOLS = (
    _tool(
        RECALL_TOOL,
        "Show an earlier tool call with its result, or a message, of this conversation, whole or in part.",
        "ref",
        ref=("string", "A ref, such as 12.0 or 12, or a call id"),
        pattern=("string", "Only lines that match this regular expression, with their numbers"),
        from_line=("integer", "First line of the result to show, counted from 1"),
        to_line=("integer", "Last line to show"),
    ),
    _tool(
        SEARCH_TOOL,
        "Find earlier messages of this conversation by words.",
        "q",
        q=("string", "Words to look for, or a question"),
        limit=("integer", "Results at most, 10 if left out"),
    ),
)


def recall_tools(format: str) -> list[JsonObject]:
    """Return the tools in the shape of a format."""
    return codec_of(format).tools(_TOOLS)


def with_recall(request: WindowRequest, *, is_late: bool = False) -> WindowRequest:
    """Return the request with the recall tools behind its own tools and the line behind its system text, both counted.

    The request's own tools are converted to the format's shape first, so that only tools that are sent are counted. A recall tool
    is left out when one of the request's tools has its name. ``is_late``: a window that leaves nothing out is sent without them.
    """
    request = with_tools_of(request)
    own = list(request.tools)
    names = set(map(tool_name, own))
    ours = [tool for tool in recall_tools(request.format) if tool_name(tool) not in names]
    line_tokens = line_least = system_cost(RECALL_LINE_TOKENS)
    system, known = RECALL_LINE, request.system_least
    if request.system:
        system = request.system + _SEPARATOR + RECALL_LINE
        line_tokens = request.system_tokens + RECALL_LINE_TOKENS + _joint(request.system, _SEPARATOR)
        # Joining may change the tokens at the end of the text; those of the line stay the same.
        line_least = (known or 0) + RECALL_LINE_TOKENS - _joint(request.system, "")
    return replace(
        request,
        system=system,
        system_tokens=line_tokens,
        system_least=line_least if known is not None or not request.system else None,
        tools=[*own, *ours],
        tools_tokens=_tools_tokens(own, ours, request.tools_tokens),
        tools_least=_tools_least(own, ours, request),
        plain=request if is_late else None,
    )


def _tools_tokens(own: Sequence[JsonObject], ours: Sequence[JsonObject], own_tokens: int) -> int:
    """Return at least the tokens of all tools as one list."""
    if not ours:
        return own_tokens
    added = RECALL_TOOLS_TOKENS if len(ours) == len(_TOOLS) else upper_bound_of_json(ours)
    if not own:
        return added
    last = encode_json(own[-1]).decode("utf-8")
    return own_tokens + added + _joint(last, ',{"')


def _tools_least(own: Sequence[JsonObject], ours: Sequence[JsonObject], request: WindowRequest) -> int | None:
    """Return at most the tokens of all tools as one list; None when no lower bound of its own tools is known."""
    known = request.tools_least
    if not own or not ours or known is None:
        return known if own else None
    # Joining changes only the tokens at the end of its own list and the first token of ours.
    tail = _joint(encode_json(own[-1]).decode("utf-8") + "]", "")
    return max(0, known - tail + (_least_of_ours(request.format) if len(ours) == len(_TOOLS) else 0) - 1)


@cache
def _least_of_ours(format: str) -> int:
    return lower_bound_tokens(encode_json(recall_tools(format)).decode("utf-8"))


def _joint(text: str, following: str) -> int:
    """Return the most tokens that joining ``text`` and ``following`` may add to the sum of their counts.

    Only the pieces between the text's last letter or digit, of any script, and the end of ``following`` can change, so these are
    charged with the bound. ``following`` begins with neither and ends at a border of pieces (see `turnlog.core.token_bounds`).
    """
    end = len(text)
    while end and not text[end - 1].isalnum():
        end -= 1
    return upper_bound_tokens(text[end:] + following)
