"""The state of a session, of its agents, and the history of what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from turnlog.client.backend import OfSession, given
from turnlog.contracts.agents import AgentState, Decided
from turnlog.contracts.history import HistoryEntry, HistoryPage
from turnlog.contracts.state import StateAnswer


class StateCalls(OfSession):
    """Reading and changing state, and recording entries."""

    def state(self, *, at: int | str | None = None) -> StateAnswer:
        """The state and its version, now or as it was ``at`` a position or time (RFC 3339)."""
        answer: StateAnswer = self._backend.call("get_state", path=self._path, query={"at": at})
        return answer

    def put_state(
        self,
        state: Mapping[str, Any],
        *,
        action: str | None = None,
        if_version: int | None = None,
        key: str | None = None,
    ) -> StateAnswer:
        """Another state in place of the one there is; `VersionMismatchError` unless it has the version ``if_version``."""
        body = given({"state": dict(state), "action": action, "if_version": if_version})
        answer: StateAnswer = self._backend.call("put_state", path=self._path, body=body, key=key)
        return answer

    def patch_state(
        self,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        action: str | None = None,
        if_version: int | None = None,
        key: str | None = None,
    ) -> StateAnswer:
        """Changes the state by a JSON Merge Patch (a mapping) or a JSON Patch (a list of operations).

        `PatchError` when it does not apply, `VersionMismatchError` unless the state has the version ``if_version``.
        """
        is_merge = isinstance(patch, Mapping)
        answer: StateAnswer = self._backend.call(
            "patch_state",
            path=self._path,
            query={"action": action, "if_version": if_version},
            body=dict(patch) if isinstance(patch, Mapping) else list(patch),
            key=key,
            media_type="application/merge-patch+json" if is_merge else "application/json-patch+json",
        )
        return answer

    def agent(self, agent_id: str = "main") -> AgentState:
        """The execution state of an agent, or `NotFoundError`."""
        answer: AgentState = self._backend.call("get_agent", path={**self._path, "agent_id": agent_id})
        return answer

    def patch_agent(self, patch: Mapping[str, Any], *, agent_id: str = "main", key: str | None = None) -> AgentState:
        """Changes an agent's execution state by a JSON Merge Patch; `InvalidInputError` when the result is not valid."""
        path = {**self._path, "agent_id": agent_id}
        answer: AgentState = self._backend.call("patch_agent", path=path, body=dict(patch), key=key)
        return answer

    def decide_pending(
        self,
        decision: Literal["approve", "reject"],
        *,
        reason: str | None = None,
        agent_id: str = "main",
        key: str | None = None,
    ) -> Decided:
        """Decides what an agent waits for. A refusal is the result of the call that waited, in the same commit.

        `ConflictError` when nothing waits, or it is decided already.
        """
        path, body = {**self._path, "agent_id": agent_id}, given({"decision": decision, "reason": reason})
        answer: Decided = self._backend.call("decide_pending", path=path, body=body, key=key)
        return answer

    def history_page(
        self, *, limit: int = 100, before: int | None = None, action: str | None = None, agent: str | None = None
    ) -> HistoryPage:
        """One page of what was done, newest first."""
        query = {"limit": limit, "before": before, "action": action, "agent": agent}
        answer: HistoryPage = self._backend.call("read_history", path=self._path, query=query)
        return answer

    def record(
        self,
        action: str,
        *,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> HistoryEntry:
        """An entry of one's own in the history; nothing changes."""
        body = given({"action": action, "agent_id": agent_id, "metadata": metadata})
        answer: HistoryEntry = self._backend.call("record_history", path=self._path, body=body, key=key)
        return answer
