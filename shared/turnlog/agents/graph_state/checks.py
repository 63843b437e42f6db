"""Problems of a graph's state: the rules of an execution state, the types of the graph's own fields, and values that are not
JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from turnlog.client.model import Session
from turnlog.core.agent_state import validate
from turnlog.core.errors import Problem
from turnlog.core.json_values import MAX_INT, MIN_INT, is_unicode, json_pointer
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.snapshots.routes import Snapshot

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
_TYPES: dict[str, type] = {
    "system_prompt": str,
    "callback_meta": dict,
    "last_content": str,
    "tool_calls": list,
    "tool_results": list,
    "finish_reason": str,
    "context": dict,
    "compression_applied": bool,
    "metadata": dict,
    FULL: list,
}
_MAX_SYSTEM = 1_000_000


def problems_of(
    values: Mapping[str, Any],
    messages: list[dict[str, Any]] | None,
    agent_id: str,
    *,
    source: str = MESSAGES,
    earlier: Sequence[dict[str, Any]] = (),
    offset: int = 0,
) -> list[Problem]:
    """Return all problems, with pointers into the graph's state.

    ``messages`` are bodies, ``source`` is their key in the state, where ``offset`` messages come before them; ``earlier`` are
    bodies that may have the calls of their results.
    """
    fields = {name: values[name] for name in EXECUTION if name in values}
    own_id = values.get("agent_id", agent_id)
    bodies = None if messages is None else [*earlier, *messages]
    problems = validate({**fields, "agent_id": own_id, MESSAGES: bodies})
    renamed = [placed for problem in problems if (placed := _placed(problem, source, len(earlier), offset)) is not None]
    for name, expected in _TYPES.items():
        if values.get(name) is not None and not isinstance(values[name], expected):
            renamed.append(Problem("wrong_type", f"/{name}", f"{name} is not {_WORDS[expected]} or null"))
    if isinstance(system := values.get("system_prompt"), str) and not (is_system(system) or system == ""):
        message = f"a session has no such system text: over {_MAX_SYSTEM:,} characters, or with half a character"
        renamed.append(Problem("invalid_system", "/system_prompt", message))
    return renamed


def is_system(text: str) -> bool:
    """Return whether a session takes the text for its system text."""
    return 0 < len(text) <= _MAX_SYSTEM and is_unicode(text)


_WORDS = {str: "a string", dict: "an object", list: "a list", bool: "true, false"}


def _placed(problem: Problem, source: str, earlier: int, offset: int) -> Problem | None:
    """Return the problem with its pointer below ``source``; None when it concerns an earlier message."""
    steps = problem.pointer.split("/")
    if steps[1:2] != [MESSAGES]:
        return problem
    steps[1] = source
    if len(steps) > 2:
        index = int(steps[2]) - earlier
        if index < 0:
            return None
        steps[2] = str(index + offset)
    return Problem(problem.code, "/".join(steps), problem.message)


def has_compressed(state: Mapping[str, Any]) -> bool:
    """Return whether the state's ``messages`` leave out messages of the conversation."""
    if state.get("compression_applied") or state.get("conversation_summary"):
        return True
    full, short = state.get(FULL), state.get(MESSAGES)
    return isinstance(full, list | tuple) and isinstance(short, list | tuple) and list(full) != list(short)


def valid_fields(values: Mapping[str, Any], agent_id: str) -> dict[str, Any]:
    """Return the valid execution fields. The others are stored with the graph's own values."""
    fields = {name: values[name] for name in EXECUTION if name in values}
    wrong = {problem.pointer.split("/")[1] for problem in validate({**fields, "agent_id": agent_id}) if problem.pointer}
    return {name: value for name, value in fields.items() if name not in wrong}


MAX_LEVELS = 24
"""Levels of JSON in a value, so that the session's state around it stays within its own limit."""
Place: TypeAlias = tuple[str | int, ...]
Handlers: TypeAlias = dict[Place, Any]
_REMOVED = object()


def split_storable(values: Mapping[str, Any]) -> tuple[dict[str, Any], Handlers, list[Problem]]:
    """Split values into JSON and the rest.

    Returns the JSON, the values that are not JSON by their places, and a problem for each of these that a restart loses.
    """
    stored, handlers, problems = dict[str, Any](), Handlers(), list[Problem]()
    for name, value in values.items():
        if not isinstance(name, str):
            _hold(value, (name,), f"a key that is {type(name).__name__}", handlers, problems)
        elif (json_value := _extract(value, (name,), handlers, problems)) is not _REMOVED:
            stored[name] = json_value
    return stored, handlers, problems


def put_back(values: dict[str, Any], handlers: Mapping[Place, Any]) -> dict[str, Any]:
    """Put extracted values back into ``values``, where their places still exist. Changes ``values``."""
    for place, value in handlers.items():
        holder: Any = values
        for step in place[:-1]:
            holder = _step(holder, step)
        last = place[-1]
        if isinstance(holder, dict):
            holder.setdefault(last if len(place) == 1 else str(last), value)
        elif isinstance(holder, list) and isinstance(last, int) and last < len(holder) and holder[last] is None:
            holder[last] = value
    return values


def _step(holder: Any, step: str | int) -> Any:
    if isinstance(holder, dict):
        return holder.get(str(step))
    return holder[step] if isinstance(holder, list) and isinstance(step, int) and step < len(holder) else None


def _extract(value: Any, place: Place, handlers: Handlers, problems: list[Problem]) -> Any:
    """Return the value as JSON; put what is not JSON into ``handlers`` and return `_REMOVED` for it."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and MIN_INT <= value <= MAX_INT:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    may_nest = len(place) <= MAX_LEVELS
    if may_nest and isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        inner = {name: _extract(item, (*place, name), handlers, problems) for name, item in value.items()}
        return {name: item for name, item in inner.items() if item is not _REMOVED}
    if may_nest and isinstance(value, list | tuple):
        items = [_extract(item, (*place, index), handlers, problems) for index, item in enumerate(value)]
        return [None if item is _REMOVED else item for item in items]
    return _hold(value, place, type(value).__name__, handlers, problems)


def _hold(value: Any, place: Place, kind: str, handlers: Handlers, problems: list[Problem]) -> Any:
    """Put a value that is not JSON into ``handlers``, and return `_REMOVED`. Data is a problem, too."""
    handlers[place] = value
    if not callable(value):
        message = f"{kind} is not JSON that we keep: it is put back, but a restart loses it"
        problems.append(Problem("not_stored", json_pointer(place), message))
    return _REMOVED


ACTION = "state_conversion"
PRE_EXECUTION = "pre_execution"
KEPT_SNAPSHOTS = 10
"""Snapshots of a name that the conversions of an agent leave."""
_MAX_RECORDED = 20
"""Problems that an entry of the history names."""


@lazy_dataclass(frozen=True, slots=True)
class Converted:
    """A graph's state after a conversion, with the conversion's ``metadata`` and ``errors``.

    ``handlers`` are the values that can't be stored, by place; ``problems`` are the problems found. ``first`` and ``last`` are
    the positions of the appended messages.
    """

    state: dict[str, Any]
    handlers: Handlers
    problems: tuple[Problem, ...]
    snapshot_id: str | None
    history_id: str
    first: int | None = None
    last: int | None = None


def listed_problems(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Return problems as JSON: the ``type``, the ``path`` (a JSON pointer into the state) and a ``message`` of each."""
    return [{"type": problem.code, "path": problem.pointer, "message": problem.message} for problem in problems]


def record_conversion(
    session: Session,
    state: dict[str, Any],
    handlers: Handlers,
    problems: Sequence[Problem],
    agent_id: str,
    snapshot: str | None,
    appended: tuple[int, int] | None = None,
    *,
    direction: Literal["to_session", "from_session"],
) -> Converted:
    """Take the snapshot of this name, record the conversion, and return the state with its metadata and problems.

    The snapshot is a ``ref``; the oldest of its name and agent are deleted. Without a name there is none.
    """
    snapshot_id = None
    if snapshot is not None:
        about = {"action": ACTION}
        made = session.create_snapshot(snapshot, agent_id=agent_id, metadata=about, keep=KEPT_SNAPSHOTS)
        snapshot_id = made.snapshot_id if isinstance(made, Snapshot) else None
    metadata: dict[str, Any] = {"direction": direction, "snapshot_id": snapshot_id}
    if appended is not None:
        metadata["appended"] = list(appended)
    if problems:
        metadata |= _failure(listed_problems(problems[:_MAX_RECORDED]))
    entry = session.record(ACTION, agent_id=agent_id, metadata=metadata)
    state = with_problems(state, problems)
    ids = {"history_id": entry.history_id} | ({"snapshot_id": snapshot_id} if snapshot_id is not None else {})
    state["metadata"] |= ids
    first, last = appended if appended is not None else (None, None)
    return Converted(state, handlers, tuple(problems), snapshot_id, entry.history_id, first, last)


def with_problems(state: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the state with all problems in its ``metadata``, and an entry in its ``errors`` for those that are new."""
    entries, metadata, errors = listed_problems(problems), state.get("metadata"), state.get("errors")
    known = list(errors) if isinstance(errors, list | tuple) else [] if errors is None else [errors]
    lists = [error.get("errors") for error in known if isinstance(error, Mapping)]
    earlier = [problem for problems in lists if isinstance(problems, list | tuple) for problem in problems]
    new = [entry for entry in entries if entry not in earlier]
    metadata = {**(metadata if isinstance(metadata, Mapping) else {}), "validation_errors": entries}
    return {**state, "metadata": metadata, **({"errors": [*known, _failure(new)]} if new else {})}


def _failure(problems: list[dict[str, str]]) -> dict[str, Any]:
    return {"type": "validation_failed", "errors": problems, "timestamp": datetime.now(UTC).isoformat()}
