"""Read and change the execution state of a session's agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from turnlog.core.actions import RUN, STATE_CHANGE
from turnlog.core.agent_state import agent_of, agents_of, pending_of, run_patch, validate
from turnlog.core.calls import UnansweredCall, open_call
from turnlog.core.errors import NotFoundError, Problem
from turnlog.core.events import StateEvent
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_values import JsonObject
from turnlog.core.refs import Ref, id_key
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import raw_request_key
from turnlog.sessions.session_log import SessionLog
from turnlog.sessions.state import ChangeState, check_agent, check_size
from turnlog.sessions.state_models import AgentState
from turnlog.sessions.state_store import SessionState, States, next_event


class GetAgent:
    """Use case: return the execution state of one agent. `NotFoundError` when the session has no such agent."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, agent_id: str) -> AgentState:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        header = self._log.commits.tail(keys).header
        state = States(self._log).at(keys, header.last_state)
        agent = agent_of(state.value, agent_id)
        if agent is None:
            raise NotFoundError(f"no agent {agent_id!r} in session {session_id!r}")
        return AgentState(agent_id=agent_id, state=agent, version=state.version)


class PatchAgent:
    """Use case: apply a JSON Merge Patch to one agent's execution state. Refuse a patch whose result is not a valid state."""

    def __init__(self, log: SessionLog) -> None:
        self._change = ChangeState(log)

    def __call__(
        self, owner: Owner, session_id: str, agent_id: str, patch: JsonObject, *, key: str | None = None
    ) -> AgentState:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        request = raw_request_key(key, f"agent {agent_id}", patch)
        state_patch: JsonObject = {"agents": {agent_id: {**patch, "agent_id": agent_id}}}

        def patched(before: SessionState, position: int) -> tuple[StateEvent, SessionState]:
            event, after = next_event(
                before, position=position, action=STATE_CHANGE, patch=state_patch, agent_id=agent_id
            )
            check_agent(agent_of(after.value, agent_id) or {}, agent_id)
            return event, after

        return agent_answer(self._change(keys, patched, request=request), agent_id)


def agent_answer(state: SessionState, agent_id: str) -> AgentState:
    """Return the answer for one agent; ``state`` is empty when the session has no such agent."""
    return AgentState(agent_id=agent_id, state=agent_of(state.value, agent_id) or {}, version=state.version)


def run_event(
    run: JsonObject | None, answered: Iterable[UnansweredCall], state: SessionState, *, position: int, action: str = RUN
) -> tuple[StateEvent, SessionState, list[Problem]] | None:
    """Return the state event of an append, the state after it, and the problems of the agent that ``run`` names.

    None when the append does not change the state. ``answered`` are the calls that the append answers: a pending action that
    waits for one of them is removed from its agent.
    """
    patches: JsonObject = {name: {"pending_action": None} for name in agents_answered(state.value, list(answered))}
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


def agents_answered(state: JsonObject, answered: list[UnansweredCall]) -> list[str]:
    """Return the ids of agents whose pending action waits for one of the answered calls."""
    agent_ids = list[str]()
    for agent_id, agent in agents_of(state).items():
        pending = pending_of(agent)
        if pending is not None and any(waits_for(pending, call) for call in answered):
            agent_ids.append(agent_id)
    return agent_ids


def waits_for(pending: JsonObject, call: UnansweredCall) -> bool:
    """Return whether a pending action waits for the call. Compare its ``ref``, or without one its ``call_id``."""
    if isinstance(pending.get("ref"), str):
        return pending["ref"] == str(call.ref)
    call_id = pending.get("call_id")
    return isinstance(call_id, str) and bool(call_id) and id_hash(call_id) == call.id_hash


def id_hash(call_id: str) -> bytes:
    """Return the hash by which open calls remember a provider's call id."""
    return open_call(Ref(1, 0), key=id_key(call_id), name="").id_hash
