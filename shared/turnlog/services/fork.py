"""Forks: a session that begins as another was at some moment. It shares that log by a pointer; nothing is copied.

Order of writes: the parent is told of its fork, then asked whether it is still there, then the fork's one commit is put. Who
erases the parent stops its writers first and looks for forks after that, so no fork is left with a log that is gone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from turnlog.domain.errors import CorruptError, NotFoundError, UnavailableError
from turnlog.domain.events import ForkEvent
from turnlog.domain.session import Settings
from turnlog.log.commits import Commit, Draft
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.request_keys import RequestKey
from turnlog.log.sessions import SessionLog
from turnlog.services.moments import header_of
from turnlog.services.rewind import as_it_was, gone_back


class ForkPoint:
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

    def put(self, keys: SessionKeys, settings: Settings, *, request: RequestKey | None) -> Commit | None:
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
        view = gone_back(log, self._parent, self.header, at=new.first)
        header = replace(
            as_it_was(self.header, new, view),
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
