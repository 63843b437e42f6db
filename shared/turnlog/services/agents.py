"""Execution state of agents: reading and changing it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from turnlog.contracts.agents import AgentState
from turnlog.domain.errors import InvalidInputError, NotFoundError, TooLargeError, UnavailableError
from turnlog.domain.execution import agent_of, validate
from turnlog.domain.identity import Owner, check_agent_id
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import following
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.log.state import MAX_STATE_BYTES, State, next_event
from turnlog.services.idempotency import earlier, raw_request_key, stamped


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
        self._log = log

    def __call__(
        self, owner: Owner, session_id: str, agent_id: str, patch: JsonObject, *, key: str | None = None
    ) -> AgentState:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        request = raw_request_key(key, f"agent {agent_id}", patch)
        after: State | None = None

        def compose(tail: Tail) -> Draft | Commit:
            nonlocal after
            header = tail.header
            found = earlier(self._log.commits, keys, header, request)
            if found is not None:
                return found
            state = self._log.states.at(keys, header.last_state)
            position = header.last + 1
            whole_patch: JsonObject = {"agents": {agent_id: {**patch, "agent_id": agent_id}}}
            event, after = next_event(
                state, position=position, action="state_change", patch=whole_patch, agent_id=agent_id
            )
            _check(after, agent_id)
            draft = following(header, kind="s", events=1, now_ms=self._log.clock.now_ms(), **stamped(request))
            return Draft(replace(draft, last_state=position, pending=has_pending(after)), (event,))

        written = self._log.commits.write(keys, compose)
        if written.repeated or after is None:
            after = self._log.states.at(keys, written.commit.header.last_state)
        else:
            self._write_cache(keys, after)
        return AgentState(agent_id=agent_id, state=agent_of(after.value, agent_id) or {}, version=after.version)

    def _write_cache(self, keys: SessionKeys, after: State) -> None:
        try:
            self._log.caches.write_state(keys, after.value, position=after.version, count=after.count)
        except UnavailableError:
            # The commit is durable; a reader folds the state from the log.
            return


def has_pending(state: State) -> bool:
    """Whether an agent waits for a decision."""
    agents = state.value.get("agents")
    found = agents.values() if isinstance(agents, dict) else ()
    return any(isinstance(agent, dict) and agent.get("pending_action") is not None for agent in found)


def _check(state: State, agent_id: str) -> None:
    problems = validate(cast("JsonObject", agent_of(state.value, agent_id) or {}))
    if problems:
        raise InvalidInputError(
            f"the execution state is not valid: {problems[0].message}", code="invalid_state", problems=problems
        )
    if len(encode_json(state.value)) > MAX_STATE_BYTES:
        raise TooLargeError(f"state is over the limit of {MAX_STATE_BYTES} bytes")
