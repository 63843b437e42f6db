"""Rewind a session to an earlier position, and fork it there.

A rewind is one commit after which everything is as it was at the earlier position. Nothing is removed from the log, so a
rewind can be undone by another one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from turnlog.core.errors import ConflictError, HeadMismatchError, NotFoundError, UnavailableError
from turnlog.core.events import ForkEvent, RewindEvent
from turnlog.core.identity import Owner
from turnlog.core.positions import MAX_STRETCHES, VisibleRanges
from turnlog.core.session_settings import WINDOW_SETTINGS, SessionSettings
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys, item_at
from turnlog.log.reading import above_head_error, header_of_moment, position_of_moment
from turnlog.log.request_keys import RequestKey, request_key
from turnlog.sessions.history_routes import RewindSession
from turnlog.sessions.models import Session
from turnlog.sessions.read import session_answer
from turnlog.sessions.session_log import SessionLog, check_active
from turnlog.sessions.state_store import state_at, write_state_cache

if TYPE_CHECKING:
    from turnlog.summaries.store import Summaries


class RewindSessions:
    """Use case: rewind a session. Messages, state, settings, loops and summary become those of the target position."""

    def __init__(self, log: SessionLog, summaries: Summaries) -> None:
        self._log = log
        self._summaries = summaries

    def __call__(self, owner: Owner, session_id: str, body: RewindSession, *, key: str | None = None) -> Session:
        keys = SessionKeys(owner, session_id)
        position = position_of_moment(self._log.commits, keys, body.to, pointer="/to")
        request = request_key(key, f"rewind {session_id}", body)
        header = self.to(keys, position, request=request, if_head=body.if_head)
        return session_answer(keys, self._log.settings_at(keys, header), header)

    def to(
        self,
        keys: SessionKeys,
        position: int,
        *,
        request: RequestKey | None = None,
        if_head: int | None = None,
        snapshot_id: str | None = None,
        find_earlier: Callable[[], Commit | None] = lambda: None,
    ) -> Header:
        """Write the commit that rewinds to ``position``; return its header. A repeated request returns the first one's.

        ``find_earlier`` is called when the head is one event behind ``position``. If that event is a restore that has made the
        session, it returns the event's commit, and nothing is written.
        """

        def compose(tail: Tail) -> Draft | Commit:
            header = tail.header
            check_active(header)
            if if_head is not None and if_head != header.last:
                raise HeadMismatchError(f"the head is {header.last}, not {if_head}", details={"head": header.last})
            if header.last == position + 1 and (commit := find_earlier()) is not None:
                return commit
            if position > header.last:
                raise above_head_error(header, position, pointer="/to")
            target = header_of_moment(self._log.commits, keys, position, pointer="/to")
            first, now_ms = header.last + 1, self._log.clock.now_ms()
            view = _view_after_rewind(self._log, keys, target, position=first)
            event = RewindEvent(first, position, view.closed, snapshot_id)
            return Draft(_header_as_of(target, header, view, kind="r", now_ms=now_ms), (event,))

        written = self._log.commits.write(keys, compose, request)
        if written.repeated:
            self._log.repair_caches(keys, written.tail)
        else:
            self._write_caches(keys, written.tail.header, written.commit.header)
        return written.commit.header

    def _write_caches(self, keys: SessionKeys, before: Header, header: Header) -> None:
        """Update the caches after the commit. The commit is durable: readers repair a cache that could not be written."""
        with suppress(UnavailableError):
            current = self._log.settings_from_log(keys, header)
            if header.last_state != before.last_state:
                state = state_at(self._log, keys, header.last_state)
                write_state_cache(self._log, keys, state, rewound=header.rewound)
            summary = self._summaries.current(keys, header.summary) if header.summary != before.summary else None
            if summary is not None:
                self._summaries.write_cache(keys, summary.event, time_ms=summary.time_ms, rewound=header.rewound)
            self._log.write_listing(keys, header, current)


def _view_after_rewind(log: SessionLog, keys: SessionKeys, target: Header, *, position: int) -> VisibleRanges:
    """Return the positions in view from ``position`` on, after a rewind to the header ``target``.

    `ConflictError` when the session was rewound too often.
    """
    view = log.commits.view(keys, target).rewound(target.last, at=position)
    if len(view.closed) > MAX_STRETCHES:
        raise ConflictError(f"a session is rewound at most {MAX_STRETCHES} times", code="too_many_rewinds")
    return view


def _header_as_of(target: Header, before: Header, view: VisibleRanges, *, kind: str, now_ms: int) -> Header:
    """Return the header of a commit behind ``before`` after which everything is as at the earlier header ``target``.

    A compression request that was pending there is dropped: its job is over, or another session's. A run loses its lease, since
    its loop is no longer in view. A summary from before a redaction is dropped: it may be of the message.
    """
    return replace(
        following(before, kind=kind, events=1, now_ms=now_ms, state=target),
        asked=target.asked if target.asked is not None and target.asked.is_answered else None,
        summary=target.summary if target.redacted == before.redacted else None,
        ended=0,
        lease=None,
        view=view.cut(),
        rewound=before.last + 1,
        redacted=before.redacted,
    )


class ForkOrigin:
    """The moment of a parent session that forks begin at. ``at`` is a position or a time; None for the head."""

    def __init__(self, log: SessionLog, parent: SessionKeys, at: int | str | None) -> None:
        self._log = log
        self._parent = parent
        if at is not None:
            self.header = header_of_moment(log.commits, parent, at, pointer="/fork/at")
        else:
            self.header = log.commits.tail(parent).header
        self.settings = replace(
            log.settings_at(parent, self.header).settings,
            reset_of=None,
            forked_from=parent.session_id,
            forked_at=self.header.last,
        )

    def put(self, keys: SessionKeys, settings: SessionSettings, *, request: RequestKey | None) -> Commit | None:
        """Write the first commit of the fork and return it; None when a session of that id exists."""
        log, position = self._log, self.header.last
        shared = log.commits.holding(self._parent, position)
        log.items.put(item_at(self._parent.fork(keys.session_id), {"c": log.clock.now_ms()}))
        # An erasure of the parent that begins after this write sees the fork.
        newest, before = log.commits.tail(self._parent).header, shared.header
        first, now_ms = before.last + 1, log.clock.now_ms()
        if newest.redacted != before.redacted:
            # Redacted since: the log up to here does not say so.
            before = replace(before, redacted=first)
        view = _view_after_rewind(log, self._parent, self.header, position=first)
        begins_alike = all(getattr(settings, name) == getattr(self.settings, name) for name in WINDOW_SETTINGS)
        header = replace(
            _header_as_of(self.header, before, view, kind="f", now_ms=now_ms),
            last_settings=first,
            last_frame=self.header.last_frame if begins_alike else first,
            ttl_days=settings.ttl_days or 0,
        )
        event = ForkEvent(first, keys.session_id, self._parent.session_id, position, settings, view.closed)
        return log.commits.put(
            keys,
            Draft(header, (event,)),
            nonce=log.ids.nonce(),
            previous=before.hash,
            stamp=request.stamp if request is not None else b"",
            fork_of=(self._parent, position),
        )

    def write_caches(self, keys: SessionKeys, header: Header, summaries: Summaries) -> None:
        """Write state and summary of the fork point to the fork's caches.

        The fork is durable: readers repair a cache that could not be written.
        """
        log, before = self._log, self.header
        with suppress(UnavailableError, NotFoundError):  # the parent may be gone by now
            if before.last_state:
                state = state_at(log, self._parent, before.last_state)
                write_state_cache(log, keys, state, rewound=header.rewound)
            summary = summaries.current(self._parent, header.summary)
            if summary is not None:
                summaries.write_cache(keys, summary.event, time_ms=summary.time_ms, rewound=header.rewound)
