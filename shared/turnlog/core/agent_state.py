"""The execution state of an agent (iteration, run id, scratchpad, pending action and others) and its validator.

The execution state is a part of the session's state, under ``agents/<agent_id>``. Unknown fields are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from turnlog.core.errors import Problem
from turnlog.core.identity import check_agent_id
from turnlog.core.json_values import JsonObject, JsonValue

DEFAULT_AGENT = "main"


_Field: TypeAlias = tuple[type, JsonValue, str]
"""A field of an execution state: the type that it has when it is not null, its JSON Schema, and both in words."""
_TEXT: _Field = (str, {"type": ["string", "null"]}, "a string or null")
_COUNT: _Field = (int, {"type": ["integer", "null"], "minimum": 0}, "an integer of at least 0, or null")
_OBJECT: _Field = (dict, {"type": ["object", "null"]}, "an object or null")
_LIST: _Field = (list, {"type": ["array", "null"]}, "a list or null")
_ANYTHING: _Field = (object, True, "anything")
_FIELDS: dict[str, _Field] = {
    "name": _TEXT,
    "iteration": _COUNT,
    "max_iterations": _COUNT,
    "run_id": _TEXT,
    "scratchpad": _ANYTHING,
    "pending_action": _OBJECT,
    "inbox": _OBJECT,
    "response_format": _OBJECT,
    "llm_config": _OBJECT,
    "tools": _LIST,
    "errors": _LIST,
}


def _fits(value: object, kind: type) -> bool:
    if kind is int and value is not None:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value is None or isinstance(value, kind)


def validate(state: Mapping[str, Any]) -> list[Problem]:
    """List the problems of an execution state; an empty list means it is valid.

    An iteration equal to ``max_iterations`` is allowed.
    """
    problems = list[Problem]()
    agent_id = state.get("agent_id")
    if not isinstance(agent_id, str) or not agent_id:
        problems.append(Problem("agent_id_missing", "/agent_id", "agent_id is missing or empty"))
    for name, (kind, _, wanted) in _FIELDS.items():
        if not _fits(state.get(name), kind):
            problems.append(Problem("wrong_type", f"/{name}", f"{name} is not {wanted}"))
    pending = state.get("pending_action")
    for name in ("call_id", "ref"):
        if isinstance(pending, dict) and not _fits(pending.get(name), str):
            problems.append(Problem("wrong_type", f"/pending_action/{name}", f"{name} is not a string or null"))
    if "messages" in state:
        problems.extend(_messages_problems(state["messages"]))
    iteration, maximum = state.get("iteration"), state.get("max_iterations")
    if isinstance(iteration, int) and isinstance(maximum, int) and iteration > maximum:
        message = f"iteration {iteration} is above max_iterations {maximum}"
        problems.append(Problem("iteration_above_maximum", "/iteration", message))
    return problems


def _messages_problems(messages: object) -> list[Problem]:
    if not isinstance(messages, list):
        return [Problem("messages_not_list", "/messages", "messages is missing or not a list")]
    problems, called = list[Problem](), set[str]()
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            problems.append(Problem("wrong_type", f"/messages/{index}", "a message is not an object"))
            continue
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            called |= {str(call.get("id")) for call in calls if isinstance(call, dict)}
        if message.get("role") == "tool" and str(message.get("tool_call_id")) not in called:
            problems.append(Problem("result_without_call", f"/messages/{index}", "a result without a call"))
    return problems


def run_patch(run: JsonObject) -> tuple[str, JsonObject]:
    """Return the agent id that an append's ``run`` names, and the merge patch for the agent's execution state."""
    value = run.get("agent_id", DEFAULT_AGENT)
    agent_id = check_agent_id(value if isinstance(value, str) else "", pointer="/run/agent_id")
    return agent_id, {**run, "agent_id": agent_id}


def agents_of(state: JsonObject) -> JsonObject:
    """Return the execution states that a session's state holds, by agent id."""
    agents = state.get("agents")
    return agents if isinstance(agents, dict) else {}


def pending_of(agent: JsonValue) -> JsonObject | None:
    """Return the agent's action that waits for a decision or a result, or None."""
    action = agent.get("pending_action") if isinstance(agent, dict) else None
    return action if isinstance(action, dict) else None


def agent_of(state: JsonObject, agent_id: str) -> JsonObject | None:
    """Return the execution state of an agent, or None when the session has no such agent."""
    agent = agents_of(state).get(agent_id)
    return agent if isinstance(agent, dict) else None


_AGENT_STATE_SCHEMA: JsonObject = {
    "description": "The execution state of an agent; unknown fields are kept. An iteration above max_iterations is refused.",
    "type": "object",
    "required": ["agent_id"],
    "properties": {
        "agent_id": {"type": "string", "minLength": 1},
        **{name: schema for name, (_, schema, _) in _FIELDS.items()},
        "pending_action": {
            "type": ["object", "null"],
            "description": "What waits for a decision. With the id or the ref of its call, the call's result ends the waiting.",
            "properties": {
                "call_id": {"type": ["string", "null"]},
                "ref": {"type": ["string", "null"]},
                "decision": {"enum": ["approve", "reject"]},
                "reason": {"type": "string"},
            },
        },
        "inbox": {
            "type": ["object", "null"],
            "description": "Messages that wait for the run, by the position of each entry.",
        },
    },
}
STATE_SCHEMA: JsonObject = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "State",
    "description": "The state of a session: names and values of the caller's own, and the execution states of its agents.",
    "type": "object",
    "properties": {"agents": {"type": "object", "additionalProperties": {"$ref": "#/$defs/AgentState"}}},
    "$defs": {"AgentState": _AGENT_STATE_SCHEMA},
}
