"""Retention: find due sessions on an index by time, and start what is due. Readers do not depend on it: they check expiry.

The index is a cache, so each session is judged by its own log. Run again, or twice at once, retention does nothing twice.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice

from turnlog.core.errors import ConflictError, InvalidInputError, TurnlogError
from turnlog.core.events import TIME_OUT, NoteEvent
from turnlog.core.identity import Owner, owner_of_ids, serving
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import DAY_MS, MINUTE_MS
from turnlog.jobs.worker import StartJobs
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import Header, following, item_name
from turnlog.log.keys import OFFLOAD_DUE, SessionKeys, item_at
from turnlog.log.payloads import in_parallel
from turnlog.log.tombstones import EXPIRY_SHARDS, due_bucket, due_shards
from turnlog.memory.hand_over import AskForOffloads
from turnlog.ports import Item, Key, Query, pages
from turnlog.privacy.erase import start_due
from turnlog.privacy.fence_and_delete import Erasure
from turnlog.sessions.session_log import SessionLog

WORK_MS = 120_000
"""Default time after which a run begins nothing; the next run continues."""
FIRST_DAYS = 400
"""Days that the first run looks back."""
_SWEPT = Key("#turnlog", "swept")
_BATCH, _THREADS, _SEQUENTIAL = 100, 10, 4
"""Threads: as many as a client has connections."""
_log = logging.getLogger("turnlog")


@lazy_dataclass(frozen=True, slots=True)
class RetentionCounts:
    """The sessions that a run has processed, counted by what became of them.

    ``moved`` sessions are due later than the index said. ``offloaded`` ones were asked for again. The next run retries
    ``failed`` ones.
    """

    expired: int = 0
    released: int = 0
    timed_out: int = 0
    offloaded: int = 0
    moved: int = 0
    failed: int = 0


class RetainSessions:
    """Use case of a schedule: start what is due.

    Expired sessions get a job that erases them, except for their full snapshots. Silent sessions are marked inactive and
    handed to long-term memory, as ended ones are. Ids of sessions that were erased a day ago become free.
    """

    def __init__(self, log: SessionLog, erasure: Erasure, start_job: StartJobs, offload: AskForOffloads) -> None:
        self._log = log
        self._erasure = erasure
        self._start_job = start_job
        self._offload = offload

    def __call__(self, worker: int = 0, workers: int = 1, *, work_ms: int = WORK_MS) -> RetentionCounts:
        """Process what is due in the shards of one of several workers, numbered from 0.

        A failed session does not stop the others; the next run retries it. Raises `InvalidInputError` for an invalid worker
        number.
        """
        if not 0 <= worker < workers <= EXPIRY_SHARDS:
            raise InvalidInputError(f"worker {worker} of {workers}: there are 1 to {EXPIRY_SHARDS}, numbered from 0")
        now, done = self._log.clock.now_ms(), RetentionCounts()
        # Every shard is sorted by time, and the merge keeps that order: the longest overdue session comes first.
        shards = [self._due(bucket, now) for bucket in due_shards(worker, workers)]
        for names in self._process_all(heapq.merge(*shards, key=lambda item: str(item["g2sk"])), now + work_ms):
            done = counted(done, names)
        if worker == 0 and self._log.clock.now_ms() < now + work_ms:
            for names in self._process_days(now, now + work_ms):
                done = counted(done, names)
        return done

    def _process_days(self, now_ms: int, ends_ms: int) -> Iterator[Sequence[str]]:
        """Process index entries that were written before shards existed. A stored mark names the first day with entries left."""
        today = now_ms // DAY_MS
        mark = self._log.items.get_many([_SWEPT]).get(_SWEPT, {}).get("pos")
        first = mark if isinstance(mark, int) else today - FIRST_DAYS
        first_left = today
        for day in range(first, today + 1):
            for names in self._process_all(self._due(due_bucket(day), now_ms), ends_ms):
                first_left = min(first_left, day)
                yield names
            if self._log.clock.now_ms() >= ends_ms:
                first_left = min(first_left, day)
                break
        self._log.items.put(item_at(_SWEPT, {"pos": first_left}))

    def _process_all(self, due: Iterator[Item], ends_ms: int) -> Iterator[Sequence[str]]:
        """Process entries until ``ends_ms``. Yields the outcomes, as field names of `RetentionCounts`."""
        while self._log.clock.now_ms() < ends_ms and (batch := list(islice(due, _BATCH))):
            yield in_parallel(self._process, batch, threads=_THREADS, sequential=_SEQUENTIAL)

    def _due(self, bucket: str, now_ms: int) -> Iterator[Item]:
        """Return the due entries of a shard, oldest first."""
        query = Query(bucket, "", f"{now_ms + 1:013d}", index="expiry")
        return chain.from_iterable(pages(self._log.items, query))

    def _process(self, item: Item) -> str:
        """Process an entry of the index; an error is logged and returned as ``failed``."""
        try:
            keys = keys_of(item)
            # The index spans all tenants; work on an entry runs for the entry's own tenant.
            with serving(keys.owner.tenant_id):
                return self._process_entry(item, keys)
        except TurnlogError as error:
            _log.warning("retention of one session failed: %s", error.error_code)
            return "failed"

    def _process_entry(self, item: Item, keys: SessionKeys) -> str:
        """Start what is due for one entry. Returns the outcome as a field name of `RetentionCounts`; empty when nothing was due."""
        name, due = item_name(item), str(item["g2sk"])[:13]
        if name.startswith("C#"):
            start_due(self._start_job, self._erasure, keys, name, due, "release")
            return "released"
        tail = self._log.commits.find_tail(keys)
        if name == OFFLOAD_DUE:  # a hand-over to long-term memory that has not happened
            return self._offload.again(keys, tail.header if tail is not None else None)
        if tail is None:
            if self._erasure.expired_ms(keys) is not None:
                start_due(self._start_job, self._erasure, keys, keys.directory.sk, due, "expired")
                return "expired"
            return ""
        settings = self._log.full_settings(keys, tail).settings
        if is_inactive(settings, tail.header, self._log.clock.now_ms()):
            with suppress(_IsActive, ConflictError):
                self._time_out(keys, settings)
                return "timed_out"
        self._write_entry(keys, tail)
        return "moved"

    def _time_out(self, keys: SessionKeys, settings: SessionSettings) -> None:
        """Commit that the session is inactive. This fences nobody: the next commit makes the session active again."""

        def compose(tail: Tail) -> Draft:
            header, now = tail.header, self._log.clock.now_ms()
            if not is_inactive(settings, header, now):
                raise _IsActive
            new = following(header, kind="h", events=1, now_ms=now)
            return Draft(replace(new, idle_ms=header.active_ms), (NoteEvent(new.first, TIME_OUT, None, None),))

        self._offload.note(keys, "inactive")
        written = self._log.commits.write(keys, compose)
        self._write_entry(keys, replace(written.tail, header=written.commit.header))
        self._offload.send(keys, written.commit.header, "inactive")

    def _write_entry(self, keys: SessionKeys, tail: Tail) -> None:
        """Write the session's entry in the list and on the index as of a commit."""
        self._log.write_listing(keys, tail.header, self._log.full_settings(keys, tail), again=True)


def counted(done: RetentionCounts, names: Sequence[str]) -> RetentionCounts:
    """Return the counts with one more for each outcome, a field name of `RetentionCounts`."""
    return replace(done, **{name: getattr(done, name) + count for name, count in Counter(names).items() if name})


class _IsActive(Exception):  # noqa: N818 - a control signal, not an error
    """Raised when the session became active in the meantime."""


def is_inactive(settings: SessionSettings, header: Header, now_ms: int) -> bool:
    """Return whether an active session, not waiting for a decision, has been silent for as long as its settings allow."""
    minutes = settings.inactive_after_minutes
    if minutes is None or header.status != "active" or header.pending:
        return False
    return now_ms >= header.active_ms + minutes * MINUTE_MS


def keys_of(item: Item) -> SessionKeys:
    """Return the keys of the session that an item on the index belongs to: a list entry, or a first slot's tombstone."""
    parts = str(item["pk"]).split("#")
    owner: Owner = owner_of_ids(parts[1], parts[3])
    return SessionKeys(owner, parts[5] if len(parts) > 5 else item_name(item)[2:])
