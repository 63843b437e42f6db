"""What is wrong with a graph's state: rules of an execution state, and the types of what a graph keeps beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from turnlog.client.model import Session
from turnlog.core.agent_state import validate
from turnlog.core.errors import Problem
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.snapshots.models import Snapshot

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


MAX_LEVELS = 24
"""Of JSON in a value: what stands around it in a session's state is within its limit then."""
Place: TypeAlias = tuple[str | int, ...]
Handlers: TypeAlias = dict[Place, Any]
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_OUT = object()


def storable(values: Mapping[str, Any]) -> tuple[dict[str, Any], Handlers, list[Problem]]:
    """The JSON of the values, what was taken out of them, and what of that is data that a restart loses."""
    handlers, problems = Handlers(), list[Problem]()
    found = {}
    for name, value in values.items():
        made = _taken(value, (name,), handlers, problems)
        if made is not _OUT:
            found[name] = made
    return found, handlers, problems


def put_back(values: dict[str, Any], handlers: Mapping[Place, Any]) -> dict[str, Any]:
    """The values with what was taken out, where the place is still there. Changes ``values``."""
    for place, value in handlers.items():
        holder: Any = values
        for step in place[:-1]:
            holder = _step(holder, step)
        last = place[-1]
        if isinstance(holder, dict):
            holder.setdefault(str(last), value)
        elif isinstance(holder, list) and isinstance(last, int) and last < len(holder) and holder[last] is None:
            holder[last] = value
    return values


def pointer_of(place: Place) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in place)


def _step(holder: Any, step: str | int) -> Any:
    if isinstance(holder, dict):
        return holder.get(str(step))
    return holder[step] if isinstance(holder, list) and isinstance(step, int) and step < len(holder) else None


def _taken(value: Any, place: Place, handlers: Handlers, problems: list[Problem]) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and _MIN_INT <= value <= _MAX_INT:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping | list | tuple) and len(place) <= MAX_LEVELS:
        if isinstance(value, Mapping):
            if all(isinstance(name, str) for name in value):
                inner = {name: _taken(one, (*place, name), handlers, problems) for name, one in value.items()}
                return {name: one for name, one in inner.items() if one is not _OUT}
        else:
            made = [_taken(one, (*place, at), handlers, problems) for at, one in enumerate(value)]
            return [None if one is _OUT else one for one in made]
    handlers[place] = value
    if not callable(value):
        message = f"a {type(value).__name__} is not JSON that we keep: it is put back, but a restart loses it"
        problems.append(Problem("not_stored", pointer_of(place), message))
    return _OUT


ACTION = "state_conversion"
PRE_EXECUTION = "pre_execution"


@lazy_dataclass(frozen=True, slots=True)
class Converted:
    """A graph's state with what the conversion says in its ``metadata`` and ``errors``.

    ``handlers`` are what can't be stored, by place; ``problems`` what is wrong; ``first`` and ``last`` the positions of what
    was appended.
    """

    state: dict[str, Any]
    handlers: Handlers
    problems: tuple[Problem, ...]
    snapshot_id: str | None
    history_id: str
    first: int | None = None
    last: int | None = None


def take_snapshot(session: Session, name: str | None, agent_id: str) -> str | None:
    if name is None:
        return None
    made = session.create_snapshot(name, agent_id=agent_id, metadata={"action": ACTION})
    return made.snapshot_id if isinstance(made, Snapshot) else None


def concluded(
    session: Session,
    state: dict[str, Any],
    handlers: Handlers,
    problems: Sequence[Problem],
    agent_id: str,
    snapshot: str | None,
    direction: Literal["to_session", "from_session"],
    appended: tuple[int, int] | None,
    *,
    snapshot_id: str | None = None,
) -> Converted:
    """The entry in the history, and the state that tells of it."""
    snapshot_id = snapshot_id or take_snapshot(session, snapshot, agent_id)
    metadata: dict[str, Any] = {"direction": direction, "snapshot_id": snapshot_id}
    if appended is not None:
        metadata["appended"] = list(appended)
    if problems:
        metadata["validation_errors"] = [one.code for one in problems[:100]]
    entry = session.record(ACTION, agent_id=agent_id, metadata=metadata)
    first, last = appended if appended is not None else (None, None)
    made = Converted(state, handlers, (), snapshot_id, entry.history_id, first, last)
    return told_of(made, problems)


def told_of(converted: Converted, problems: Sequence[Problem]) -> Converted:
    """With the problems in the state's ``metadata`` and, each once, in its ``errors``."""
    told = [{"code": one.code, "pointer": one.pointer, "message": one.message} for one in problems]
    state = dict(converted.state)
    metadata = state.get("metadata")
    ids = {"history_id": converted.history_id, "validation_errors": told}
    if converted.snapshot_id is not None:
        ids["snapshot_id"] = converted.snapshot_id
    state["metadata"] = {**(metadata if isinstance(metadata, Mapping) else {}), **ids}
    errors = state.get("errors")
    known = list(errors) if isinstance(errors, list | tuple) else [] if errors is None else [errors]
    new = [one for one in told if one not in known]
    if new:
        state["errors"] = [*known, *new]
    return replace(converted, state=state, problems=tuple(problems))
