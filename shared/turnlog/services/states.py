"""The session's state: read at any moment, replaced, patched."""

from __future__ import annotations

from typing import cast

from turnlog.contracts.state import ReplaceState, StateAnswer
from turnlog.domain.actions import own_action
from turnlog.domain.events import StateEvent
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.patches import Patch
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.log.state import State, next_event, replacing_event, state_version_at
from turnlog.services.changes import ChangeState
from turnlog.services.idempotency import raw_request_key
from turnlog.services.moments import commit_at, resolved


class GetState:
    """The use case: the state at the head, at a position or at a time."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, *, at: int | str | None = None) -> StateAnswer:
        keys = SessionKeys(owner, session_id)
        if at is None:
            version = self._log.commits.tail(keys).header.last_state
        else:
            position = resolved(self._log, keys, at, pointer="/query/at")
            version = state_version_at(commit_at(self._log, keys, position, pointer="/query/at"), position)
        return _answer(self._log.states.at(keys, version))


class PutState:
    """The use case: another state in place of the one there is."""

    def __init__(self, log: SessionLog) -> None:
        self._change = ChangeState(log)

    def __call__(self, owner: Owner, session_id: str, body: ReplaceState, *, key: str | None = None) -> StateAnswer:
        value, action = cast("JsonObject", body.state), own_action(body.action, pointer="/action")
        request = raw_request_key(key, "put state", {"state": value, "action": action})

        def replaced(before: State, position: int) -> tuple[StateEvent, State]:
            return replacing_event(before, value, position=position, action=action)

        keys = SessionKeys(owner, session_id)
        return _answer(self._change(keys, replaced, request=request, if_version=body.if_version))


class PatchState:
    """The use case: a Merge Patch or a JSON Patch of the state, applied whole or refused."""

    def __init__(self, log: SessionLog) -> None:
        self._change = ChangeState(log)

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
        said = own_action(action, pointer="/query/action")
        request = raw_request_key(key, "patch state", {"patch": patch, "action": said})

        def patched(before: State, position: int) -> tuple[StateEvent, State]:
            return next_event(before, position=position, action=said, patch=patch, agent_id=None)

        keys = SessionKeys(owner, session_id)
        return _answer(self._change(keys, patched, request=request, if_version=if_version))


def _answer(state: State) -> StateAnswer:
    return StateAnswer(state=state.value, version=state.version)
