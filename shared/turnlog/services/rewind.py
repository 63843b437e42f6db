"""Rewinds: one commit from which on all is as it was at an earlier position. Nothing is removed, so a rewind can be rewound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from turnlog.contracts.sessions import Session
from turnlog.contracts.time_travel import RewindSession
from turnlog.domain.errors import ConflictError, HeadMismatchError, UnavailableError
from turnlog.domain.events import RewindEvent
from turnlog.domain.identity import Owner
from turnlog.domain.view import MOST_STRETCHES, View
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys
from turnlog.log.request_keys import RequestKey
from turnlog.log.sessions import SessionLog, check_active
from turnlog.services.answers import session_answer
from turnlog.services.idempotency import request_key
from turnlog.services.moments import above_head, header_of, resolved


class RewindSessions:
    """The use case: messages, state, settings, loops and the summary in force are those of the position that it goes back to."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, body: RewindSession, *, key: str | None = None) -> Session:
        keys = SessionKeys(owner, session_id)
        position = resolved(self._log, keys, body.to, pointer="/to")
        request = request_key(key, f"rewind {session_id}", body)
        header = self.to(keys, position, request=request, if_head=body.if_head)
        found = self._log.settings_at(keys, header)
        return session_answer(keys, found.settings, header, created_ms=found.created_ms)

    def to(
        self,
        keys: SessionKeys,
        position: int,
        *,
        request: RequestKey | None = None,
        if_head: int | None = None,
        snapshot_id: str | None = None,
        made: Callable[[], Commit | None] = lambda: None,
    ) -> Header:
        """The header of the commit that goes back; of the one before when the request is repeated.

        ``made`` is asked for the commit that has brought a session back to this very position when nothing has come since.
        """

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            check_active(header)
            if if_head is not None and if_head != header.last:
                raise HeadMismatchError(f"the head is {header.last}, not {if_head}", details={"head": header.last})
            if header.last == position + 1 and (found := made()) is not None:
                return found
            if position > header.last:
                raise above_head(header, position, pointer="/to")
            then = header_of(self._log, keys, position, pointer="/to")
            new = following(header, kind="r", events=1, now_ms=self._log.clock.now_ms())
            view = gone_back(self._log, keys, then, at=new.first)
            event = RewindEvent(new.first, position, view.closed, snapshot_id)
            return Draft(as_it_was(then, new, view), (event,))

        written = self._log.commits.write(keys, compose, request)
        if written.repeated:
            self._log.mend(keys, written.tail)
        else:
            self._write_caches(keys, written.tail.header, written.commit.header)
        return written.commit.header

    def _write_caches(self, keys: SessionKeys, before: Header, header: Header) -> None:
        """The commit is durable already: what can't be written now is read from the log."""
        with suppress(UnavailableError):
            if header.last_settings != before.last_settings:
                in_force = self._log.settings_from_log(keys, header)
            else:
                in_force = self._log.settings(keys, None, None, header)
            if header.last_state != before.last_state:
                state = self._log.states.at(keys, header.last_state)
                self._log.states.remember(keys, state, rewound=header.rewound)
            summary = self._log.summaries.in_force(keys, header.summary) if header.summary != before.summary else None
            if summary is not None:
                self._log.summaries.write_cache(keys, summary.event, time_ms=summary.time_ms, rewound=header.rewound)
            self._log.show(keys, header, in_force)


def gone_back(log: SessionLog, keys: SessionKeys, then: Header, *, at: int) -> View:
    """What is in view from position ``at`` on when all is as it was at a header: every stretch, however many."""
    view = log.commits.view(keys, then).rewound(then.last, at=at)
    if len(view.closed) > MOST_STRETCHES:
        raise ConflictError(f"a session is rewound at most {MOST_STRETCHES} times", code="too_many_rewinds")
    return view


def as_it_was(then: Header, new: Header, view: View) -> Header:
    """The header of a new commit from which on all is as at an earlier one."""
    return replace(
        then,
        first=new.first,
        last=new.last,
        kind=new.kind,
        time_ms=new.time_ms,
        nonce=b"",
        hash=b"",
        keys=new.keys,
        idempotency=b"",
        version=new.version,
        ended=0,
        idle_ms=0,
        view=view.cut(),
        rewound=new.first,
        redacted=new.redacted,
    )
