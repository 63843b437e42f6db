"""Which result belongs to which call, written again as plainly as it can be: nothing of Turnlog is used here.

The rules are those of the data model: a result belongs to the newest message that has an open call of its id, and in it to
the first such call; an empty id is no id: the newest message with open calls, in order; a `function` message goes by name; a
second result for an answered call replaces the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.properties.histories import Body, Given, History

Call: TypeAlias = tuple[int, int]
Result: TypeAlias = tuple[int, int]

HOSTED = {
    "mcp_call": "",
    "mcp_list_tools": "mcp_list_tools",
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_interpreter",
    "image_generation_call": "image_generation",
}
"""Items that are a call and its result -> the name of the tool; empty: the item names it."""
CALLS = {"shell_call": "shell", "apply_patch_call": "apply_patch", "local_shell_call": "local_shell"}
"""Items that are calls of the provider's tools, which the caller answers -> the name of the tool."""
KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass
class Plain:
    """``calls``: of each message with calls, how many. ``result_of``: the newest result of an answered call."""

    calls: dict[int, int] = field(default_factory=dict)
    callers: dict[int, str] = field(default_factory=dict)
    result_of: dict[Call, Result] = field(default_factory=dict)
    last_turn: int = 0
    groups: dict[int, list[int]] = field(default_factory=dict)
    hosted: set[Call] = field(default_factory=set)

    def unanswered(self, position: int) -> list[Call]:
        return [(position, at) for at in range(self.calls[position]) if (position, at) not in self.result_of]

    def is_left_out(self, position: int, *, answer_open_calls: bool) -> bool:
        """Whether the message, or one of its parallel calls, waits for results at the log's end, so that it is not sent."""
        group = self.groups.get(position, [position])
        waits = any(call not in self.hosted for item in group if item in self.calls for call in self.unanswered(item))
        return waits and group[-1] >= self.last_turn and not answer_open_calls


def plainly_paired(history: History) -> Plain:
    plain = Plain()
    waiting = list[tuple[Call, str, str]]()
    group = list[int]()
    answered = dict[str, Call]()
    for at, entry in enumerate(history):
        position, role = at + 1, role_of(entry)
        if entry.interrupted or role == "unknown":
            group = []  # what is never sent parts items
            continue
        if role in ("user", "assistant"):
            plain.last_turn = position
        calls = calls_of(entry)
        before = history[group[-1] - 1] if group else None
        is_item = entry.format == "openai_responses" and role == "assistant"
        is_reasoned = any(history[item - 1].body.get("type") == "reasoning" for item in group)
        is_parallel = before is not None and calls_of(before) and calls and (is_reasoned or not _is_own(before))
        if is_item and before is not None and (_is_silent(before) or is_parallel):
            group.append(position)
        else:
            group = [position] if is_item else []
        plain.groups[position] = group or [position]
        if calls:
            plain.calls[position], plain.callers[position] = len(calls), role
            plain.hosted |= {
                (position, index) for index, (call_id, _) in enumerate(calls) if call_id in _hosted_ids(entry)
            }
        waiting += [((position, index), call_id, name) for index, (call_id, name) in enumerate(calls)]
        for index, (call_id, name) in enumerate(results_of(entry)):
            fitting = [item for item in waiting if _fits(item, call_id, name)]
            if fitting:
                newest = max(item[0][0] for item in fitting)
                taken = next(item for item in fitting if item[0][0] == newest)
                waiting.remove(taken)
                plain.result_of[taken[0]] = (position, index)
                if taken[1]:
                    answered[taken[1]] = taken[0]
            elif call_id in answered:
                plain.result_of[answered[call_id]] = (position, index)
    return plain


def _fits(call: tuple[Call, str, str], call_id: str, name: str) -> bool:
    if name:
        return call[2] == name
    return call_id in ("", call[1])


def _is_silent(given: Given) -> bool:
    """An item that belongs to the one behind it."""
    return given.body.get("type", "message") != "message" and not calls_of(given)


def _is_own(given: Given) -> bool:
    """An item with a call and its result, because the provider ran it."""
    return given.format == "openai_responses" and given.body.get("type") in HOSTED


def _hosted_ids(given: Given) -> set[str]:
    content = given.body.get("content")
    blocks = content if isinstance(content, list) and given.format == "anthropic" else []
    own = {block["id"] for block in blocks if block.get("type") in ("server_tool_use", "mcp_tool_use")}
    return own | ({given.body["id"]} if _is_own(given) else set())


def role_of(given: Given) -> str:
    if given.format == "openai_responses" and given.body.get("type", "message") != "message":
        return "tool" if given.body["type"].endswith("_output") else "assistant"
    body, role = given.body, given.body["role"]
    if role not in KNOWN_ROLES:
        return "unknown"
    if role in ("function", "developer"):
        return {"function": "tool", "developer": "system"}[role]
    if given.format == "turnlog":
        if body.get("tool_calls") and role == "tool":
            return "assistant"
        if body.get("tool_results") and not body.get("tool_calls") and not body.get("content"):
            return "tool"
    is_blocks = given.format in ("anthropic", "bedrock_converse")
    if is_blocks and results_of(given) and not calls_of(given) and not _says(given):
        return "tool"
    return str(role)


def _says(given: Given) -> bool:
    blocks = given.body["content"] if isinstance(given.body["content"], list) else []
    others = [block for block in blocks if block.get("type") != "tool_result" and "toolResult" not in block]
    return any(other.get("text") != "" for other in others)


def _blocks(given: Given, kind: str) -> list[Body]:
    """Blocks of a kind, in the shape of either provider that has them."""
    content = given.body.get("content")
    blocks = content if isinstance(content, list) else []
    if given.format == "bedrock_converse":
        key = {"tool_use": "toolUse", "tool_result": "toolResult"}[kind]
        return [{**block[key], "id": block[key].get("toolUseId")} for block in blocks if key in block]
    values = [block for block in blocks if block.get("type", "").endswith(kind)]
    return [{**item, "id": item.get("id", item.get("tool_use_id"))} for item in values]


def calls_of(given: Given) -> list[tuple[str, str]]:
    """(id, name) of each call."""
    body = given.body
    if given.format in ("anthropic", "bedrock_converse"):
        return [(_string(block["id"]), _string(block.get("name"))) for block in _blocks(given, "tool_use")]
    if given.format == "openai_responses":
        kind = body.get("type")
        if kind in HOSTED:
            return [(body["id"], HOSTED[kind] or body["name"])]
        is_call = kind in ("function_call", "custom_tool_call", *CALLS)
        return [(_string(body.get("call_id")), CALLS.get(kind, _string(body.get("name"))))] if is_call else []
    if given.format == "openai_chat" and role_of(given) == "tool":
        return []
    values = [(_string(call.get("id")), _string(_called(call).get("name"))) for call in body.get("tool_calls") or []]
    if given.format == "openai_chat" and isinstance(body.get("function_call"), dict):
        values.append(("", _string(body["function_call"].get("name"))))
    return values


def results_of(given: Given) -> list[tuple[str, str]]:
    """(call id, function name) of each result; the name only where it takes the place of an id."""
    body = given.body
    if given.format in ("anthropic", "bedrock_converse"):
        return [(_string(block["id"]), "") for block in _blocks(given, "tool_result")]
    if given.format == "openai_responses":
        if _is_own(given):
            return [(body["id"], "")]
        return [(_string(body.get("call_id")), "")] if str(body.get("type")).endswith("_output") else []
    if given.format == "turnlog":
        return [(_string(result.get("tool_call_id")), "") for result in body.get("tool_results") or []]
    if body["role"] == "function":
        return [("", _string(body.get("name")))]
    return [(_string(body.get("tool_call_id")), "")] if body["role"] == "tool" else []


def _called(call: Body) -> Body:
    inner = call.get("function", call.get("custom"))
    return inner if isinstance(inner, dict) else call


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
