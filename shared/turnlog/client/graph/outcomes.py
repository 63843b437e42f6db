"""What a conversion says of itself: in the history, and in the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from turnlog.client.graph.handlers import Handlers
from turnlog.client.model import Session
from turnlog.contracts.snapshots import Snapshot
from turnlog.domain.errors import Problem
from turnlog.domain.values import dataclass

ACTION = "state_conversion"
PRE_EXECUTION = "pre_execution"


@dataclass(frozen=True, slots=True)
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
