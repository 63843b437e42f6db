"""Approve or reject the pending action of an agent.

An approval is recorded in the pending action. A rejection becomes the result of the tool call, in the commit that removes
the pending action.
"""

from __future__ import annotations

from turnlog.core.agent_state import agent_of, pending_of
from turnlog.core.calls import OpenIndex, ResultOutline, id_key, is_ref, parse_ref
from turnlog.core.errors import ConflictError
from turnlog.core.events import APPROVE, REJECT, MessageEvent, StateEvent
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_values import JsonObject, without_none
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import raw_request_key
from turnlog.ports import TokenCounter
from turnlog.providers.registry import CODECS
from turnlog.sessions.append import AppendWrite, all_open_calls
from turnlog.sessions.incoming import understand_batch
from turnlog.sessions.message_models import AppendMessages
from turnlog.sessions.session_log import SessionLog
from turnlog.sessions.state import StateWrite, existing_agent, waits_for
from turnlog.sessions.state_routes import Decided, DecidePending
from turnlog.sessions.state_store import SessionState, next_event, state_at

REFUSED = "This action was rejected."
UNKNOWN = "It is not known whether this action took effect. It was not repeated."


class DecidePendingActions:
    """Use case: decide a pending action. The first decision, or the tool's result if it comes first, is final."""

    def __init__(self, log: SessionLog, counter: TokenCounter) -> None:
        self._log = log
        self._counter = counter

    def __call__(
        self, owner: Owner, session_id: str, agent_id: str, body: DecidePending, *, key: str | None = None
    ) -> Decided:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        request = raw_request_key(key, f"decide {agent_id}", body.model_dump())
        write: AppendWrite | StateWrite = self._mark_decided(keys, agent_id, body)

        def compose(tail: Tail) -> Draft:
            nonlocal write
            write = self._write_of_decision(keys, agent_id, body, tail)
            return write.compose(tail)

        written = self._log.commits.write(keys, compose, request)
        if written.repeated or write.state is None:
            state = state_at(self._log, keys, written.commit.header.last_state)
        else:
            write.write_caches(written)
            state = write.state
        refusal = written.commit.header.first if written.commit.header.kind == "m" else None
        agent_state = agent_of(state.value, agent_id) or {}
        return Decided(agent_id=agent_id, state=agent_state, version=state.version, refusal=refusal)

    def _write_of_decision(
        self, keys: SessionKeys, agent_id: str, body: DecidePending, tail: Tail
    ) -> AppendWrite | StateWrite:
        """Return the write of the decision: a rejection of an open call appends its result, all else marks the action."""
        if body.decision == "reject":
            pending = _action_to_decide(state_at(self._log, keys, tail.header.last_state).value, keys, agent_id)
            call_id = self._open_call_id(keys, pending, tail.header)
            if call_id is not None:
                text = UNKNOWN if pending.get("effect") == "unknown" else REFUSED
                return self._append_refusal(keys, agent_id, body, call_id, text)
        return self._mark_decided(keys, agent_id, body)

    def _mark_decided(self, keys: SessionKeys, agent_id: str, body: DecidePending) -> StateWrite:
        """Return a write that records the decision in the pending action.

        The action stays pending until the tool's result or the agent removes it.
        """

        def decided(before: SessionState, position: int) -> tuple[StateEvent, SessionState]:
            _action_to_decide(before.value, keys, agent_id)
            mark = without_none({"decision": body.decision, "reason": body.reason})
            action = APPROVE if body.decision == "approve" else REJECT
            patch: JsonObject = {"agents": {agent_id: {"pending_action": mark}}}
            return next_event(before, position=position, action=action, patch=patch, agent_id=agent_id)

        return StateWrite(self._log, keys, decided)

    def _append_refusal(
        self, keys: SessionKeys, agent_id: str, body: DecidePending, call_id: str, text: str
    ) -> AppendWrite:
        text = f"{text} Reason: {body.reason}" if body.reason is not None else text
        refusal = {"role": "tool", "tool_results": [{"tool_call_id": call_id, "result": text, "is_error": True}]}
        append = AppendMessages(
            messages=[refusal], format="turnlog", run={"agent_id": agent_id, "pending_action": None}
        )
        batch = understand_batch(append, self._counter)
        return AppendWrite(self._log, keys, append, batch, action=REJECT)

    def _open_call_id(self, keys: SessionKeys, pending: JsonObject, header: Header) -> str | None:
        """Return the call id that a rejection's result must name; None unless the call of the action is open."""
        calls = all_open_calls(self._log, keys, header)
        if not any(waits_for(pending, call) for call in calls.calls):
            return None
        call_id = pending.get("call_id")
        if is_ref(str(pending.get("ref"))):
            call_id = self._call_id_at(keys, str(pending["ref"]))
        if not isinstance(call_id, str):
            return None
        match = OpenIndex(calls).find(ResultOutline(id_key(call_id), "", False, True))
        return call_id if match is not None and waits_for(pending, match) else None

    def _call_id_at(self, keys: SessionKeys, text: str) -> str | None:
        ref = parse_ref(text)
        commit = self._log.commits.holding(keys, ref.position)
        (event,) = self._log.commits.whole(keys, [(commit, ref.position)])
        if not isinstance(event, MessageEvent) or event.body is None:
            return None
        return CODECS[event.format].parse(event.body).tool_calls[ref.index].id


def _action_to_decide(state: JsonObject, keys: SessionKeys, agent_id: str) -> JsonObject:
    """Return the agent's pending action that has no decision yet.

    `NotFoundError` without the agent, `ConflictError` when no action is pending or the action is already decided.
    """
    pending = pending_of(existing_agent(state, keys, agent_id))
    if pending is None:
        raise ConflictError(f"no action of agent {agent_id!r} is pending", code="nothing_pending")
    if pending.get("decision") is not None:
        raise ConflictError(f"the action of agent {agent_id!r} is already decided", code="already_decided")
    return pending
