"""Execution state of agents: reading and changing it."""

from __future__ import annotations

from turnlog.contracts.agents import AgentState
from turnlog.domain.actions import STATE_CHANGE
from turnlog.domain.errors import NotFoundError
from turnlog.domain.events import StateEvent
from turnlog.domain.execution import agent_of
from turnlog.domain.identity import Owner, check_agent_id
from turnlog.domain.jsonvalue import JsonObject
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.log.state import State, next_event
from turnlog.services.changes import ChangeState, check_agent
from turnlog.services.idempotency import raw_request_key


class GetAgent:
    """The use case: the execution state of one agent."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, agent_id: str) -> AgentState:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        header = self._log.commits.tail(keys).header
        state = self._log.states.at(keys, header.last_state)
        found = agent_of(state.value, agent_id)
        if found is None:
            raise NotFoundError(f"no agent {agent_id!r} in session {session_id!r}")
        return AgentState(agent_id=agent_id, state=found, version=state.version)


class PatchAgent:
    """The use case: a JSON Merge Patch of one agent's execution state; an invalid result is refused."""

    def __init__(self, log: SessionLog) -> None:
        self._change = ChangeState(log)

    def __call__(
        self, owner: Owner, session_id: str, agent_id: str, patch: JsonObject, *, key: str | None = None
    ) -> AgentState:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        request = raw_request_key(key, f"agent {agent_id}", patch)
        whole: JsonObject = {"agents": {agent_id: {**patch, "agent_id": agent_id}}}

        def patched(before: State, position: int) -> tuple[StateEvent, State]:
            event, after = next_event(before, position=position, action=STATE_CHANGE, patch=whole, agent_id=agent_id)
            check_agent(agent_of(after.value, agent_id) or {}, agent_id)
            return event, after

        return agent_answer(self._change(keys, patched, request=request), agent_id)


def agent_answer(state: State, agent_id: str) -> AgentState:
    return AgentState(agent_id=agent_id, state=agent_of(state.value, agent_id) or {}, version=state.version)
