"""Ending a session: one commit after which nothing more is said. Everything in it is read as before.

A reset ends it and begins another with the same settings.
"""

from __future__ import annotations

from dataclasses import replace

from turnlog.contracts.sessions import Session
from turnlog.domain.errors import CorruptError
from turnlog.domain.events import CloseEvent
from turnlog.domain.identity import Owner
from turnlog.domain.memory import OffloadReason
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import following
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.request_keys import RequestKey
from turnlog.log.sessions import InForce, SessionLog
from turnlog.services.answers import session_answer
from turnlog.services.create_session import CreateSessions, made_id
from turnlog.services.idempotency import raw_request_key
from turnlog.services.offload import AskForOffloads


class EndSessions:
    """The use case. An append in flight comes before the end or is refused; ending again is the same answer."""

    def __init__(self, log: SessionLog, offload: AskForOffloads) -> None:
        self._log = log
        self._offload = offload

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Session:
        keys = SessionKeys(owner, session_id)
        commit, found = self.close(keys, raw_request_key(key, "end session", {}), "ended")
        return session_answer(keys, found.settings, commit.header, created_ms=found.created_ms)

    def close(self, keys: SessionKeys, request: RequestKey | None, reason: OffloadReason) -> tuple[Commit, InForce]:
        """The commit that has ended the session, and the settings there. It is handed to long-term memory from then on."""

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            if header.ended:
                commit = self._log.commits.get(keys, header.ended)
                if commit is None:
                    raise CorruptError("the commit of the end is missing", item=commit_sort_key(header.ended))
                return commit
            self._offload.note(keys, reason)
            new = following(header, kind="e", events=1, now_ms=self._log.clock.now_ms())
            return Draft(replace(new, ended=new.first), (CloseEvent(new.first),))

        written = self._log.commits.write(keys, compose, request)
        header, tail = written.commit.header, written.tail
        if written.repeated:
            self._log.mend(keys, tail)
            self._offload.send(keys, header, reason)
            return written.commit, self._log.settings_at(keys, header)
        found = self._log.settings(keys, tail.meta, None, header)
        self._log.show(keys, header, found)
        self._offload.send(keys, header, reason)
        return written.commit, found


class ResetSessions:
    """The use case: the session ends, and there is one fresh session of its settings, however often this is asked for.

    The fresh one's id is made of the commit that has ended the old one, so a retry after any crash finds it or makes it.
    """

    def __init__(self, log: SessionLog, end: EndSessions, create: CreateSessions) -> None:
        self._log = log
        self._end = end
        self._create = create

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Session:
        keys = SessionKeys(owner, session_id)
        closed, _ = self._end.close(keys, raw_request_key(key, "reset session", {}), "reset")
        tail = self._log.commits.tail(keys)
        settings = self._log.settings(keys, tail.meta, None, tail.header).settings
        fresh = SessionKeys(owner, made_id(owner, b"reset#" + closed.header.hash))
        return self._create.in_place(fresh, replace(settings, reset_of=session_id, forked_from=None, forked_at=None))
