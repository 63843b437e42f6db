"""Rewinds: one commit from which on all is as it was at an earlier position. Nothing is removed, so a rewind can be rewound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from turnlog.core.errors import ConflictError, CorruptError, HeadMismatchError, NotFoundError, UnavailableError
from turnlog.core.events import ForkEvent, RewindEvent
from turnlog.core.identity import Owner
from turnlog.core.positions import MOST_STRETCHES, VisibleRanges
from turnlog.core.session_settings import SessionSettings
from turnlog.log.commits import Commit, Draft, Tail
from turnlog.log.headers import Header, following
from turnlog.log.idempotency import request_key
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.request_keys import RequestKey
from turnlog.sessions.models import Session
from turnlog.sessions.moments import above_head, header_of, resolved
from turnlog.sessions.read import session_answer
from turnlog.sessions.session_log import SessionLog, check_active
from turnlog.sessions.state_models import RewindSession


class RewindSessions:
    """The use case: messages, state, settings, loops and the summary in force are those of the position that it goes back to."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(self, owner: Owner, session_id: str, body: RewindSession, *, key: str | None = None) -> Session:
        keys = SessionKeys(owner, session_id)
        position = resolved(self._log, keys, body.to, pointer="/to")
        request = request_key(key, f"rewind {session_id}", body)
        header = self.to(keys, position, request=request, if_head=body.if_head)
        current = self._log.settings_at(keys, header)
        return session_answer(keys, current.settings, header, created_ms=current.created_ms)

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
            if header.last == position + 1 and (commit := made()) is not None:
                return commit
            if position > header.last:
                raise above_head(header, position, pointer="/to")
            then = header_of(self._log, keys, position, pointer="/to")
            new = following(header, kind="r", events=1, now_ms=self._log.clock.now_ms())
            view = view_after_rewind(self._log, keys, then, position=new.first)
            event = RewindEvent(new.first, position, view.closed, snapshot_id)
            return Draft(header_as_of(then, new, view), (event,))

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
                current = self._log.settings_from_log(keys, header)
            else:
                current = self._log.settings(keys, None, None, header)
            if header.last_state != before.last_state:
                state = self._log.states.at(keys, header.last_state)
                self._log.states.remember(keys, state, rewound=header.rewound)
            summary = self._log.summaries.in_force(keys, header.summary) if header.summary != before.summary else None
            if summary is not None:
                self._log.summaries.write_cache(keys, summary.event, time_ms=summary.time_ms, rewound=header.rewound)
            self._log.show(keys, header, current)


def view_after_rewind(log: SessionLog, keys: SessionKeys, then: Header, *, position: int) -> VisibleRanges:
    """What is in view from position ``at`` on when all is as it was at a header: every stretch, however many."""
    view = log.commits.view(keys, then).rewound(then.last, at=position)
    if len(view.closed) > MOST_STRETCHES:
        raise ConflictError(f"a session is rewound at most {MOST_STRETCHES} times", code="too_many_rewinds")
    return view


def header_as_of(then: Header, new: Header, view: VisibleRanges) -> Header:
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


class ForkOrigin:
    """A moment of a session that others begin at."""

    def __init__(self, log: SessionLog, parent: SessionKeys, at: int | str | None) -> None:
        self._log = log
        self._parent = parent
        if at is not None:
            self.header = header_of(log, parent, at, pointer="/fork/at")
        else:
            self.header = log.commits.tail(parent).header
        self.settings = replace(
            log.settings_at(parent, self.header).settings,
            reset_of=None,
            forked_from=parent.session_id,
            forked_at=self.header.last,
        )

    def put(self, keys: SessionKeys, settings: SessionSettings, *, request: RequestKey | None) -> Commit | None:
        """The first commit of the fork; None when there is a session of that id."""
        log, position = self._log, self.header.last
        shared = log.commits.containing(self._parent, position)
        if shared is None:
            raise CorruptError("a commit is missing", item=commit_sort_key(position))
        key = self._parent.fork(keys.session_id)
        log.items.put({"pk": key.pk, "sk": key.sk, "c": log.clock.now_ms()})
        # Whoever erases the parent from here on sees the fork.
        log.commits.tail(self._parent)
        new = following(shared.header, kind="f", events=1, now_ms=log.clock.now_ms())
        view = view_after_rewind(log, self._parent, self.header, position=new.first)
        header = replace(
            header_as_of(self.header, new, view),
            keys=b"",
            idempotency=request.stamp if request is not None else b"",
            last_settings=new.first,
            ttl_days=settings.ttl_days or 0,
        )
        event = ForkEvent(new.first, keys.session_id, self._parent.session_id, position, settings, view.closed)
        return log.commits.put(
            keys,
            Draft(header, (event,)),
            nonce=log.ids.nonce(),
            previous=shared.header.hash,
            fork_of=(self._parent, position),
        )

    def write_caches(self, keys: SessionKeys, header: Header) -> None:
        """State and summary as the parent has them. The fork is durable already: what is not written is read from the log."""
        log, before = self._log, self.header
        with suppress(UnavailableError, NotFoundError):  # the parent may be gone by now
            if before.last_state:
                state = log.states.at(self._parent, before.last_state)
                log.states.remember(keys, state, rewound=header.rewound)
            summary = log.summaries.in_force(self._parent, before.summary)
            if summary is not None:
                log.summaries.write_cache(keys, summary.event, time_ms=summary.time_ms, rewound=header.rewound)
