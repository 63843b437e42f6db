"""The request for a window: how much of what it may send, and the tokens of its system text and tools.

With the recall tools a model gets back what a window left out; a line of system text explains them. All their texts are constants.
Tools and system text come first in every provider's cache, so the recall tools come once: with a session's first window, or with
the first that leaves something out. Their token counts are constants too; ``tests/properties/test_recall_tools.py`` checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from turnlog.core.events import SummaryEvent
from turnlog.core.json_values import JsonObject, canonical_json, encode_json, sendable_json_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL
from turnlog.core.token_bounds import lower_bound_tokens, upper_bound_tokens
from turnlog.core.window_parts import OthersCalls
from turnlog.providers.blocks import nested_tools, string_of, tool_name
from turnlog.providers.registry import codec_of
from turnlog.providers.token_rules import MESSAGE_OVERHEAD, WINDOW_OVERHEAD
from turnlog.windows.assembly import OfferedTools
from turnlog.windows.budgets import Budget
from turnlog.windows.policy import Policy
from turnlog.windows.prices import frame_tokens
from turnlog.windows.recalled import Recaller


@lazy_dataclass(frozen=True, slots=True)
class WindowRequest:
    """A request for a window. The caller counts the tokens of system text and tools, or gives upper bounds.

    ``system_least`` and ``tools_least`` are lower bounds of these tokens, where the caller knows them; a count is both bounds.
    ``summary`` is the current summary where the policy uses it. The messages it covers are then not among the sources, except
    those it keeps. ``others_calls``: how calls of tools that are not among ``tools`` are sent. ``recaller`` searches the log for
    the step recall, which does nothing without it; ``query`` is what it searches for in place of the user's message.
    ``context`` is the size of the model's context, None for an unknown model.
    ``plain`` is the same request without the recall tools. It is sent while nothing is left out; the tools' room stays free.
    """

    policy: Policy
    budget: Budget
    format: str
    system: str | None = None
    system_tokens: int = 0
    system_least: int | None = None
    tools: Sequence[JsonObject] = ()
    tools_tokens: int = 0
    tools_least: int | None = None
    include_current_loop: bool = True
    answer_open_calls: bool = False
    apply_breakpoints: bool = False
    summary: SummaryEvent | None = None
    recaller: Recaller | None = None
    query: str | None = None
    others_calls: OthersCalls = "calls"
    context: int | None = None
    plain: WindowRequest | None = None

    @property
    def fixed_tokens(self) -> int:
        """The tokens of a window besides its messages."""
        return WINDOW_OVERHEAD + self.system_tokens + self.tools_tokens + frame_tokens(self.format)

    @property
    def offered(self) -> OfferedTools:
        """The tools whose calls may be sent as calls."""
        built_in = tuple(kind for tool in self.tools if not tool_name(tool) and (kind := string_of(tool.get("type"))))
        # With a tool search, outputs of earlier calls offer tools, too.
        if self.others_calls == "calls" or "tool_search" in built_in:
            return OfferedTools()
        names = frozenset(tool_name(inner) for tool in self.tools for inner in (tool, *nested_tools(tool)))
        return OfferedTools(names, built_in, self.format)


def system_cost(text_tokens: int) -> int:
    """Return the tokens of a system text with its message; ``text_tokens`` are those of the text alone."""
    return text_tokens + MESSAGE_OVERHEAD


def upper_bound_of_json(value: object) -> int:
    """Return the most tokens that a JSON value takes, without counting."""
    return upper_bound_tokens(canonical_json(value).decode("ascii"))


def with_tools_of(request: WindowRequest) -> WindowRequest:
    """Return the request with its tools in the provider's shape; converted tools are charged with a bound."""
    tools = codec_of(request.format).tools(request.tools)
    if tools == list(request.tools):
        return request
    bound = upper_bound_tokens(sendable_json_text(tools)) if tools else 0
    return replace(request, tools=tools, tools_tokens=bound, tools_least=None)


# ------------------------------------------------------------ the recall tools

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
    return own_tokens + added + _joint(encode_json(own[-1]).decode("utf-8"), ',{"')


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
