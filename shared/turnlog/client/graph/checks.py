"""What is wrong with a graph's state: rules of an execution state, and the types of what a graph keeps beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.domain.errors import Problem
from turnlog.domain.execution import validate

EXECUTION = (
    "name",
    "iteration",
    "max_iterations",
    "run_id",
    "scratchpad",
    "pending_action",
    "response_format",
    "llm_config",
    "tools",
    "errors",
)
"""Fields that an agent's execution state has under the same names."""
MESSAGES, FULL = "messages", "full_messages"
_TYPES: dict[str, tuple[type, ...]] = {
    "system_prompt": (str,),
    "callback_meta": (dict,),
    "last_content": (str,),
    "tool_calls": (list,),
    "tool_results": (list,),
    "finish_reason": (str,),
    "context": (dict,),
    "compression_applied": (bool,),
    "metadata": (dict,),
    FULL: (list,),
}


def problems_of(
    values: Mapping[str, Any],
    messages: list[dict[str, Any]] | None,
    agent_id: str,
    *,
    source: str = MESSAGES,
    earlier: Sequence[dict[str, Any]] = (),
) -> list[Problem]:
    """All problems, with pointers into the graph's state.

    ``messages`` are bodies, ``source`` the key that they are under, ``earlier`` those that were said before them.
    """
    fields = {name: values[name] for name in EXECUTION if name in values}
    given = values.get("agent_id", agent_id)
    whole = None if messages is None else [*earlier, *messages]
    found = validate({**fields, "agent_id": given, MESSAGES: whole})
    renamed = [made for one in found if (made := _placed(one, source, len(earlier))) is not None]
    for name, types in _TYPES.items():
        if values.get(name) is not None and not isinstance(values[name], types):
            renamed.append(Problem("wrong_type", f"/{name}", f"{name} is not {_WORDS[types[0]]} or null"))
    return renamed


_WORDS = {str: "a string", dict: "an object", list: "a list", bool: "true, false"}


def _placed(problem: Problem, source: str, earlier: int) -> Problem | None:
    """With the pointer of its message as it is under ``source``; None where the message is an earlier one."""
    steps = problem.pointer.split("/")
    if steps[1:2] != [MESSAGES]:
        return problem
    steps[1] = source
    if len(steps) > 2:
        at = int(steps[2]) - earlier
        if at < 0:
            return None
        steps[2] = str(at)
    return Problem(problem.code, "/".join(steps), problem.message)


def has_compressed(state: Mapping[str, Any]) -> bool:
    """Whether the state's ``messages`` are not all that was said."""
    if state.get("compression_applied") or state.get("conversation_summary"):
        return True
    full, short = state.get(FULL), state.get(MESSAGES)
    return isinstance(full, list | tuple) and isinstance(short, list | tuple) and list(full) != list(short)


def valid_fields(values: Mapping[str, Any], agent_id: str) -> dict[str, Any]:
    """The execution fields that can be stored as such; the rest of them travels with what the graph keeps."""
    found = {name: values[name] for name in EXECUTION if name in values}
    wrong = {one.pointer.split("/")[1] for one in validate({**found, "agent_id": agent_id}) if one.pointer}
    return {name: value for name, value in found.items() if name not in wrong}
