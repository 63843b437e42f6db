"""Take, renew and release the session for one run, and put messages into the inbox of the run that has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from turnlog.core.agent_state import agent_of, agents_of, run_patch
from turnlog.core.errors import ConflictError, RunActiveError
from turnlog.core.events import RUN_ACQUIRED, RUN_RELEASED, RUN_RENEWED, SENT_TO_RUN, NoteEvent, StateEvent
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_values import JsonObject
from turnlog.core.run_lease import RunLease, acquired, current, renewed
from turnlog.core.times import rfc3339
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import following, short_hash
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import request_key
from turnlog.ports import TokenCounter
from turnlog.sessions.incoming import understand_batch
from turnlog.sessions.message_models import AppendMessages, HeldLease, LeaseAnswer, LeaseRequest, SendToRun, SentToRun
from turnlog.sessions.session_log import LogUseCase, SessionLog, check_active
from turnlog.sessions.state import StateWrite
from turnlog.sessions.state_store import SessionState, next_event

DEFAULT_LEASE_SECONDS = 120
_RUN_HASH_BYTES = 6


def hash_of_run(run_id: object) -> bytes:
    """Return the hash by which a header names a run; empty without an id."""
    return short_hash(run_id)[:_RUN_HASH_BYTES] if isinstance(run_id, str) else b""


def lease_after(
    request: LeaseRequest | None, lease: RunLease | None, *, position: int, time_ms: int, keeps: bool = False
) -> RunLease | None:
    """Return the lease after a request in the commit at ``position``; None when it is released.

    With ``keeps``, a release only renews it. Raises `RunActiveError` or `RunLostError`.
    """
    if request is None:
        return lease
    if request.holder is not None:
        seconds = request.seconds or DEFAULT_LEASE_SECONDS
        return acquired(lease, request.holder, seconds, position=position, time_ms=time_ms)
    token = cast("int", request.token)
    if request.release and not keeps:
        current(lease, token)
        return None
    return renewed(lease, token, request.seconds, time_ms=time_ms)


def held_lease(lease: RunLease | None) -> HeldLease | None:
    """Return a lease as the API sends it."""
    if lease is None:
        return None
    return HeldLease(token=lease.token, holder=lease.holder, expires_at=rfc3339(lease.expires_ms))


def has_inbox(state: SessionState, run: Mapping[str, Any] | None) -> bool:
    """Return whether messages wait for the agent that ``run`` of an append names."""
    if run is None:
        return False
    agent_id, _ = run_patch(cast("JsonObject", dict(run)))
    return bool((agent_of(state.value, agent_id) or {}).get("inbox"))


class LeaseSession(LogUseCase):
    """Use case: take, renew or release the session for one run, in a commit of its own."""

    def __call__(self, owner: Owner, session_id: str, body: LeaseRequest, *, key: str | None = None) -> LeaseAnswer:
        keys = SessionKeys(owner, session_id)

        def compose(tail: Tail) -> Draft:
            header = tail.header
            check_active(header)
            draft = following(header, kind="h", events=1, now_ms=self._log.clock.now_ms())
            lease = lease_after(body, header.lease, position=draft.first, time_ms=draft.time_ms)
            named = lease or header.lease
            metadata: JsonObject = {"token": named.token, "holder": named.holder} if named is not None else {}
            released_or_renewed = RUN_RELEASED if body.release else RUN_RENEWED
            action = RUN_ACQUIRED if body.holder is not None else released_or_renewed
            event = NoteEvent(draft.first, action, None, metadata)
            return Draft(replace(draft, lease=lease), (event,))

        written = self._log.commits.write(keys, compose, request_key(key, "lease", body))
        header = written.commit.header
        if not written.repeated:
            self._log.refresh_listing(keys, written.tail, header)
        return LeaseAnswer(lease=held_lease(header.lease), head=header.last)


class SendToRuns:
    """Use case: put messages into the inbox of an agent whose run has the session."""

    def __init__(self, log: SessionLog, counter: TokenCounter) -> None:
        self._log = log
        self._counter = counter

    def __call__(
        self, owner: Owner, session_id: str, agent_id: str, body: SendToRun, *, key: str | None = None
    ) -> SentToRun:
        keys = SessionKeys(owner, session_id)
        check_agent_id(agent_id)
        # What the run would be refused is refused here.
        understand_batch(AppendMessages(messages=body.messages, format=body.format), self._counter)
        entry: JsonObject = {"mode": body.mode, "messages": cast("Any", body.messages), "format": body.format}

        def sent(before: SessionState, position: int) -> tuple[StateEvent, SessionState]:
            patch: JsonObject = {"agents": {agent_id: {"agent_id": agent_id, "inbox": {str(position): entry}}}}
            return next_event(before, position=position, action=SENT_TO_RUN, patch=patch, agent_id=agent_id)

        write = StateWrite(self._log, keys, sent)

        def compose(tail: Tail) -> Draft:
            draft = write.compose(tail)
            lease, run = tail.header.lease, tail.header.run
            if lease is None or not lease.is_held(draft.header.time_ms):
                raise ConflictError("no run has the session: append the messages yourself", code="no_run")
            for other, agent in agents_of(write.state.value).items():
                if run and other != agent_id and hash_of_run(cast("JsonObject", agent).get("run_id")) == run:
                    raise RunActiveError(f"the run of agent {other!r} has the session, and takes no messages of others")
            return draft

        written = self._log.commits.write(keys, compose, request_key(key, f"inbox {agent_id}", body))
        if not written.repeated:
            write.write_caches(written)
        return SentToRun(agent_id=agent_id, position=written.commit.header.last_state, mode=body.mode)
