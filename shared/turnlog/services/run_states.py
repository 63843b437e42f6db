"""What an append does to the state, in its own commit: the agent's ``run``, and the end of an action that waited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from turnlog.domain.actions import RUN
from turnlog.domain.errors import Problem
from turnlog.domain.events import StateEvent
from turnlog.domain.execution import agent_of, agents_of, pending_of, run_patch, validate
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.pairing import OpenCall, open_call
from turnlog.domain.refs import Ref, id_key
from turnlog.log.state import State, next_event
from turnlog.services.changes import check_size


def run_event(
    run: JsonObject | None, answered: Iterable[OpenCall], state: State, *, position: int, action: str = RUN
) -> tuple[StateEvent, State, list[Problem]] | None:
    """The state event of an append, the state after it, and what is wrong with the agent that ``run`` names; None: no event.

    An action waits for a call; ``answered`` are the calls that the append answers, so what waited for one of them is over.
    """
    patches: JsonObject = {name: {"pending_action": None} for name in over(state.value, list(answered))}
    agent_id: str | None = next(iter(patches)) if len(patches) == 1 else None
    if run is not None:
        agent_id, patch = run_patch(run)
        patches[agent_id] = {**cast("JsonObject", patches.get(agent_id, {})), **patch}
    if not patches:
        return None
    event, after = next_event(state, position=position, action=action, patch={"agents": patches}, agent_id=agent_id)
    check_size(after.value, state.value)
    problems = validate(agent_of(after.value, agent_id) or {}) if run is not None and agent_id is not None else []
    return event, after, problems


def over(state: JsonObject, answered: list[OpenCall]) -> list[str]:
    """The agents whose pending action waits for one of the calls."""
    found = list[str]()
    for agent_id, agent in agents_of(state).items():
        pending = pending_of(agent)
        if pending is not None and any(is_of(pending, call) for call in answered):
            found.append(agent_id)
    return found


def is_of(pending: JsonObject, call: OpenCall) -> bool:
    """Whether a pending action waits for the call: by its ``ref``, else by its ``call_id``."""
    if isinstance(pending.get("ref"), str):
        return pending["ref"] == str(call.ref)
    call_id = pending.get("call_id")
    return isinstance(call_id, str) and bool(call_id) and id_hash(call_id) == call.id_hash


def id_hash(call_id: str) -> bytes:
    return open_call(Ref(1, 0), key=id_key(call_id), name="").id_hash
