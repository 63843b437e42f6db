"""Deciding what an agent waits for: approved it may run; refused, the refusal is its call's result, in one commit with the
end of the waiting."""

from __future__ import annotations

from turnlog.core.actions import APPROVE, REJECT
from turnlog.core.agent_state import agent_of, pending_of
from turnlog.core.calls import OpenIndex, ResultFact
from turnlog.core.errors import ConflictError, NotFoundError
from turnlog.core.events import MessageEvent, StateEvent
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_values import JsonObject
from turnlog.core.refs import id_key, is_ref, parse_ref
from turnlog.core.session_settings import SessionSettings
from turnlog.core.summaries import CompressionRequest
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import Header
from turnlog.log.idempotency import raw_request_key
from turnlog.log.keys import SessionKeys
from turnlog.ports import TokenCounter
from turnlog.providers.registry import CODECS
from turnlog.sessions.agents import waits_for
from turnlog.sessions.append import AppendWrite
from turnlog.sessions.incoming import understand_batch
from turnlog.sessions.message_models import AppendMessages as AppendBody
from turnlog.sessions.session_log import SessionLog
from turnlog.sessions.state import StateWrite
from turnlog.sessions.state_models import Decided, DecidePending
from turnlog.sessions.state_store import SessionState, next_event

REFUSED = "This action was rejected."


class DecidePendingActions:
    """The use case. Of two decisions, or a decision and the tool's result, the first one counts."""

    def __init__(self, log: SessionLog, counter: TokenCounter) -> None:
        self._log = log
        self._counter = counter

    def __call__(
        self, owner: Owner, session_id: str, agent_id: str, body: DecidePending, *, key: str | None = None
    ) -> Decided:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        request = raw_request_key(key, f"decide {agent_id}", body.model_dump())
        deciding: AppendWrite | StateWrite = self._marking(keys, agent_id, body)

        def compose(tail: Tail) -> Draft:
            nonlocal deciding
            deciding = self._deciding(keys, agent_id, body, tail)
            return deciding.compose(tail)

        written = self._log.commits.write(keys, compose, request)
        if written.repeated or deciding.state is None:
            return self._answered(keys, agent_id, written.commit)
        deciding.write_caches(written)
        return _answer(agent_id, deciding.state, written.commit)

    def _deciding(self, keys: SessionKeys, agent_id: str, body: DecidePending, tail: Tail) -> AppendWrite | StateWrite:
        """Return what writes the decision: a refusal is the result of its call, while that is open."""
        if body.decision == "reject":
            pending = _undecided(self._log.states.at(keys, tail.header.last_state).value, keys, agent_id)
            call_id = self._call_id(keys, pending, tail.header)
            if call_id is not None:
                return self._refusing(keys, agent_id, body, call_id)
        return self._marking(keys, agent_id, body)

    def _marking(self, keys: SessionKeys, agent_id: str, body: DecidePending) -> StateWrite:
        """The decision stands in the pending action, until the tool's result or the agent ends the waiting."""

        def decided(before: SessionState, position: int) -> tuple[StateEvent, SessionState]:
            _undecided(before.value, keys, agent_id)
            mark: JsonObject = {"decision": body.decision}
            if body.reason is not None:
                mark["reason"] = body.reason
            action = APPROVE if body.decision == "approve" else REJECT
            patch: JsonObject = {"agents": {agent_id: {"pending_action": mark}}}
            return next_event(before, position=position, action=action, patch=patch, agent_id=agent_id)

        return StateWrite(self._log, keys, decided)

    def _refusing(self, keys: SessionKeys, agent_id: str, body: DecidePending, call_id: str) -> AppendWrite:
        text = f"{REFUSED} Reason: {body.reason}" if body.reason is not None else REFUSED
        refusal = {
            "role": "tool",
            "tool_results": [{"tool_call_id": call_id, "result": text, "is_error": True}],
        }
        append = AppendBody(messages=[refusal], format="turnlog", run={"agent_id": agent_id, "pending_action": None})
        batch = understand_batch(append, self._counter)
        return AppendWrite(self._log, keys, append, batch, _asked_as_before, action=REJECT)

    def _answered(self, keys: SessionKeys, agent_id: str, commit: Commit) -> Decided:
        """The answer that was given when the commit was made."""
        return _answer(agent_id, self._log.states.at(keys, commit.header.last_state), commit)

    def _call_id(self, keys: SessionKeys, pending: JsonObject, header: Header) -> str | None:
        """The id that a refusal must name, while the call that the action waits for is open; else None."""
        calls = header.flow.open_calls
        waiting = next((call for call in calls.calls if waits_for(pending, call)), None)
        if waiting is None:
            return None
        call_id = pending.get("call_id")
        if is_ref(str(pending.get("ref"))):
            call_id = self._id_of(keys, str(pending["ref"]))
        if not isinstance(call_id, str):
            return None
        match = OpenIndex(calls).find(ResultFact(id_key(call_id), "", False, True))
        return call_id if match is not None and waits_for(pending, match) else None

    def _id_of(self, keys: SessionKeys, text: str) -> str | None:
        ref = parse_ref(text)
        commit = self._log.commits.containing(keys, ref.position)
        if commit is None:
            return None
        (event,) = self._log.commits.whole(keys, [(commit, ref.position)])
        if not isinstance(event, MessageEvent) or event.body is None:
            return None
        return CODECS[event.format].parse(event.body).tool_calls[ref.index].id


def _undecided(state: JsonObject, keys: SessionKeys, agent_id: str) -> JsonObject:
    """The action that waits for a decision."""
    agent = agent_of(state, agent_id)
    if agent is None:
        raise NotFoundError(f"no agent {agent_id!r} in session {keys.session_id!r}")
    pending = pending_of(agent)
    if pending is None:
        raise ConflictError(f"no action of agent {agent_id!r} waits for a decision", code="nothing_pending")
    if pending.get("decision") is not None:
        raise ConflictError(f"the action of agent {agent_id!r} is decided already", code="already_decided")
    return pending


def _answer(agent_id: str, state: SessionState, commit: Commit) -> Decided:
    agent_state = agent_of(state.value, agent_id) or {}
    refusal = commit.header.first if commit.header.kind == "m" else None
    return Decided(agent_id=agent_id, state=agent_state, version=state.version, refusal=refusal)


def _asked_as_before(header: Header, settings: SessionSettings) -> CompressionRequest | None:
    """A refusal asks for no summary: the next append does."""
    return header.asked
