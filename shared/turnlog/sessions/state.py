"""Read, replace and patch the state of a session, as a whole or the execution state of one of its agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from turnlog.core.agent_state import agent_of, agents_of, pending_of, run_patch, validate
from turnlog.core.calls import UnansweredCall, call_hash, id_key
from turnlog.core.errors import InvalidInputError, NotFoundError, Problem, TooLargeError, VersionMismatchError
from turnlog.core.events import RUN, STATE_CHANGE, StateEvent, own_action
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_patch import Patch, equal
from turnlog.core.json_values import MAX_DEPTH, JsonObject, JsonValue, encode_json, measured
from turnlog.core.run_lease import current
from turnlog.log.commits import Draft, Tail, WriteResult
from turnlog.log.headers import following
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import header_of_moment
from turnlog.log.request_keys import RequestKey, raw_request_key
from turnlog.sessions.session_log import LogUseCase, SessionLog, check_active
from turnlog.sessions.state_routes import AgentState, ReplaceState, StateAnswer
from turnlog.sessions.state_store import (
    MAX_STATE_BYTES,
    SessionState,
    next_event,
    replacing_event,
    state_at,
    write_state_cache,
)

MAX_STATE_DEPTH = MAX_DEPTH - 1
"""Deepest state. A request may be one level deeper, since it holds the state in a field."""
MAX_STATE_VALUES = 250_000
"""JSON values of a state, counting the state itself. Limited, since each read and change visits all of them."""
Change: TypeAlias = Callable[[SessionState, int], tuple[StateEvent, SessionState]]
"""A function from the state and the position of the new event to that event and the state after it. Raises to refuse."""


class StateWrite:
    """The write of one change of the state: composes its commit from the end of the log, then updates the caches.

    The log calls `compose` again when another writer takes the position first.
    """

    def __init__(
        self,
        log: SessionLog,
        keys: SessionKeys,
        change: Change,
        *,
        if_version: int | None = None,
        lease: int | None = None,
    ) -> None:
        """Store the request. With ``lease``, the write is refused unless it is the token of the session's lease."""
        self._log = log
        self._keys = keys
        self._change = change
        self._if_version = if_version
        self._lease = lease
        self._before = self.state = SessionState({}, -1)

    def compose(self, tail: Tail) -> Draft:
        """Return the commit to write after ``tail``, or raise to refuse the change."""
        header, if_version = tail.header, self._if_version
        check_active(header)
        if self._lease is not None:
            current(header.lease, self._lease)
        if if_version is not None and if_version != header.last_state:
            message = f"the version of the state is {header.last_state}, not {if_version}"
            raise VersionMismatchError(message, details={"version": header.last_state})
        if self._before.version != header.last_state:
            self._before = state_at(self._log, self._keys, header.last_state)
        position = header.last + 1
        event, self.state = self._change(self._before, position)
        check_change(self._before.value, self.state.value)
        schema = self._log.state_schema(self._keys, tail)
        if schema is not None:
            from turnlog.sessions.state_schema import check_state, check_work

            check_state(self.state.value, schema, check_work())
        draft = following(header, kind="s", events=1, now_ms=self._log.clock.now_ms())
        return Draft(replace(draft, last_state=position, pending=has_pending(self.state)), (event,))

    def write(self, request: RequestKey | None) -> SessionState:
        """Write the change; return the state after it. For a repeated request, that is the state after the first one."""
        written = self._log.commits.write(self._keys, self.compose, request)
        if written.repeated:
            return state_at(self._log, self._keys, written.commit.header.last_state)
        self.write_caches(written)
        return self.state

    def write_caches(self, written: WriteResult) -> None:
        """Update the cache of the state and the session's entry in the list after the commit."""
        write_state_cache(self._log, self._keys, self.state)
        self._log.refresh_listing(self._keys, written.tail, written.commit.header)


def check_change(before: JsonObject, after: JsonObject) -> None:
    """Refuse a state that is too large or too deep, and execution states of agents that the change has made invalid."""
    check_size(after, before)
    agents = after.get("agents")
    if agents is not None and not isinstance(agents, dict):
        raise _invalid([Problem("wrong_type", "/agents", "agents is not an object")])
    earlier_agents = agents_of(before)
    for agent_id, state in (agents or {}).items():
        if agent_id in earlier_agents and equal(earlier_agents[agent_id], state):
            continue
        if not isinstance(state, dict):
            raise _invalid([Problem("wrong_type", f"/agents/{agent_id}", "an execution state is not an object")])
        check_agent_id(agent_id, pointer="/agents")
        check_agent(state, agent_id, earlier_agents.get(agent_id), pointer=f"/agents/{agent_id}")


def check_size(state: JsonObject, before: JsonObject) -> None:
    """Refuse a state that is too deep or too large.

    A stored state with more than `MAX_STATE_VALUES` values may be changed, but its number of values must not grow.
    """
    count, depth = measured(state)
    if depth > MAX_STATE_DEPTH:
        raise InvalidInputError.at("", f"state is deeper than {MAX_STATE_DEPTH} levels", "too_deep")
    if count > MAX_STATE_VALUES and count > measured(before)[0]:
        raise TooLargeError(f"a state of {count} JSON values is over the limit of {MAX_STATE_VALUES}")
    if len(encode_json(state)) > MAX_STATE_BYTES:
        raise TooLargeError(f"state is over the limit of {MAX_STATE_BYTES} bytes")


def check_agent(state: JsonObject, agent_id: str, before: JsonValue, *, pointer: str = "") -> None:
    """Refuse an execution state that a change has made invalid. ``pointer`` is its place in the session's state.

    Fields that an append has kept invalid may stay as they are.
    """
    earlier = before if isinstance(before, dict) else None
    kept = validate(earlier) if earlier is not None else []
    problems = [
        problem
        for problem in validate(state)
        for name in [problem.pointer.split("/")[1]]
        if problem not in kept or not equal((earlier or {}).get(name), state.get(name))
    ]
    if not problems and state["agent_id"] != agent_id:
        problems = [Problem("wrong_agent_id", "/agent_id", "agent_id differs from the agent's key in the state")]
    if problems:
        raise _invalid([replace(problem, pointer=pointer + problem.pointer) for problem in problems])


def has_pending(state: SessionState) -> bool:
    """Return whether an agent has a pending action."""
    return any(
        isinstance(agent, dict) and agent.get("pending_action") is not None for agent in agents_of(state.value).values()
    )


def _invalid(problems: list[Problem]) -> InvalidInputError:
    message = f"the execution state is not valid: {problems[0].message}"
    return InvalidInputError(message, code="invalid_state", problems=problems)


class GetState(LogUseCase):
    """Use case: return the state at the head, at a position or at a time."""

    def __call__(self, owner: Owner, session_id: str, *, at: int | str | None = None) -> StateAnswer:
        keys = SessionKeys(owner, session_id)
        if at is None:
            version = self._log.commits.tail(keys).header.last_state
        else:
            version = header_of_moment(self._log.commits, keys, at, pointer="/query/at").last_state
        return _answer(state_at(self._log, keys, version))


class PutState(LogUseCase):
    """Use case: replace the state."""

    def __call__(self, owner: Owner, session_id: str, body: ReplaceState, *, key: str | None = None) -> StateAnswer:
        value, action = cast("JsonObject", body.state), own_action(body.action, pointer="/action")
        request = raw_request_key(key, "put state", {"state": value, "action": action})

        def replaced(before: SessionState, position: int) -> tuple[StateEvent, SessionState]:
            return replacing_event(before, value, position=position, action=action)

        keys = SessionKeys(owner, session_id)
        return _answer(StateWrite(self._log, keys, replaced, if_version=body.if_version).write(request))


class PatchState(LogUseCase):
    """Use case: apply a Merge Patch or a JSON Patch to the state, completely or not at all."""

    def __call__(
        self,
        owner: Owner,
        session_id: str,
        patch: Patch,
        *,
        action: str | None = None,
        if_version: int | None = None,
        key: str | None = None,
    ) -> StateAnswer:
        recorded_action = own_action(action, pointer="/query/action")
        request = raw_request_key(key, "patch state", {"patch": patch, "action": recorded_action})

        def patched(before: SessionState, position: int) -> tuple[StateEvent, SessionState]:
            return next_event(before, position=position, action=recorded_action, patch=patch, agent_id=None)

        keys = SessionKeys(owner, session_id)
        return _answer(StateWrite(self._log, keys, patched, if_version=if_version).write(request))


def _answer(state: SessionState) -> StateAnswer:
    return StateAnswer(state=state.value, version=state.version)


class GetAgent(LogUseCase):
    """Use case: return the execution state of one agent. `NotFoundError` when the session has no such agent."""

    def __call__(self, owner: Owner, session_id: str, agent_id: str) -> AgentState:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        header = self._log.commits.tail(keys).header
        state = state_at(self._log, keys, header.last_state)
        agent = existing_agent(state.value, keys, agent_id)
        return AgentState(agent_id=agent_id, state=agent, version=state.version)


def existing_agent(state: JsonObject, keys: SessionKeys, agent_id: str) -> JsonObject:
    """Return the execution state of an agent. `NotFoundError` when the session has no such agent."""
    agent = agent_of(state, agent_id)
    if agent is None:
        raise NotFoundError(f"no agent {agent_id!r} in session {keys.session_id!r}")
    return agent


class PatchAgent(LogUseCase):
    """Use case: apply a JSON Merge Patch to one agent's execution state. Refuse a patch whose result is not a valid state."""

    def __call__(
        self,
        owner: Owner,
        session_id: str,
        agent_id: str,
        patch: JsonObject,
        *,
        lease: int | None = None,
        key: str | None = None,
    ) -> AgentState:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        request = raw_request_key(key, f"agent {agent_id}", patch)
        state_patch: JsonObject = {"agents": {agent_id: {**patch, "agent_id": agent_id}}}

        def patched(before: SessionState, position: int) -> tuple[StateEvent, SessionState]:
            event, after = next_event(
                before, position=position, action=STATE_CHANGE, patch=state_patch, agent_id=agent_id
            )
            check_agent(agent_of(after.value, agent_id) or {}, agent_id, agent_of(before.value, agent_id))
            return event, after

        state = StateWrite(self._log, keys, patched, lease=lease).write(request)
        return AgentState(agent_id=agent_id, state=agent_of(state.value, agent_id) or {}, version=state.version)


def run_event(
    run: JsonObject | None, answered: Sequence[UnansweredCall], state: SessionState, *, position: int, action: str = RUN
) -> tuple[StateEvent, SessionState, list[Problem]] | None:
    """Return the state event of an append, the state after it, and the problems of the agent that ``run`` names.

    None when the append does not change the state. ``answered`` are the calls that the append answers: a pending action that
    waits for one of them is removed from its agent.
    """
    patches: JsonObject = {
        name: {"pending_action": None}
        for name, agent in agents_of(state.value).items()
        if (pending := pending_of(agent)) is not None and any(waits_for(pending, call) for call in answered)
    }
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


def waits_for(pending: JsonObject, call: UnansweredCall) -> bool:
    """Return whether a pending action waits for the call. Compare its ``ref``, or without one its ``call_id``."""
    if isinstance(pending.get("ref"), str):
        return pending["ref"] == str(call.ref)
    call_id = pending.get("call_id")
    return isinstance(call_id, str) and bool(call_id) and call_hash(id_key(call_id)) == call.id_hash
