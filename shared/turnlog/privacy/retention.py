"""Retention: what is due is found on an index by time, and dealt with. Readers do not wait for it: they see what has expired.

The index is a cache, so each session that it names is judged by its own log. Run again, or twice at once, it does nothing twice.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from turnlog.core import actions
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError, TurnlogError, UnavailableError
from turnlog.core.events import NoteEvent
from turnlog.core.identity import Owner, owner_of_ids, serving
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import DAY_MS
from turnlog.jobs.worker import StartJobs
from turnlog.log.caches import directory_item
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import Header, following, item_name
from turnlog.log.keys import OFFLOAD_DUE, SessionKeys
from turnlog.log.parallel import in_parallel
from turnlog.log.tombstones import EXPIRY_SHARDS, due_bucket, due_shards
from turnlog.memory.hand_over import AskForOffloads
from turnlog.ports import Item, Key, Less, Query
from turnlog.privacy.erase_session import due_job_id, start_expiry
from turnlog.privacy.erasure import Erasure
from turnlog.sessions.session_log import SessionLog

WORK_MS = 120_000
"""A run begins nothing after that time, unless it is told another; the next one goes on."""
FIRST_DAYS = 400
"""How far the very first run looks back."""
_SWEPT = Key("#turnlog", "swept")
_BATCH, _PARALLEL, _FEW = 100, 10, 4
"""As many sessions at once as a client has connections."""
_log = logging.getLogger("turnlog")


@lazy_dataclass(frozen=True, slots=True)
class Retained:
    """What a run has begun. ``moved``: due later than the index said. ``offloaded``: asked for again. ``failed`` is looked at again
    by the next run."""

    expired: int = 0
    released: int = 0
    timed_out: int = 0
    offloaded: int = 0
    moved: int = 0
    failed: int = 0


class RetainSessions:
    """The use case of a schedule: sessions that have expired get a job that erases them, all but their full snapshots; silent ones
    are marked inactive, and handed to long-term memory like those that have ended; ids of sessions that were erased a day ago
    become free."""

    def __init__(self, log: SessionLog, erasure: Erasure, start_job: StartJobs, offload: AskForOffloads) -> None:
        self._log = log
        self._erasure = erasure
        self._start_job = start_job
        self._offload = offload

    def __call__(self, worker: int = 0, workers: int = 1, *, work_ms: int = WORK_MS) -> Retained:
        """Deal with what is due in the shards of one of several workers, each numbered from 0.

        One failure stops no other; what is left over is looked at again by the next run. `InvalidInputError` for a worker that
        there is not.
        """
        if not 0 <= worker < workers <= EXPIRY_SHARDS:
            raise InvalidInputError(f"worker {worker} of {workers}: there are 1 to {EXPIRY_SHARDS}, numbered from 0")
        now, done = self._log.clock.now_ms(), Retained()
        # Each shard is in the order of time, and so are they together: what is overdue longest comes first.
        shards = [self._due(bucket, now) for bucket in due_shards(worker, workers)]
        for names in self._dealt_with_all(heapq.merge(*shards, key=_due_key), now + work_ms):
            done = counted(done, names)
        if worker == 0 and self._log.clock.now_ms() < now + work_ms:
            for names in self._dealt_with_days(now, now + work_ms):
                done = counted(done, names)
        return done

    def _dealt_with_days(self, now_ms: int, ends_ms: int) -> Iterator[Sequence[str]]:
        """Deal with entries from before there were shards. A mark says on which day the first of them is left."""
        today = now_ms // DAY_MS
        mark = self._log.items.get_many([_SWEPT]).get(_SWEPT, {}).get("pos")
        first = mark if isinstance(mark, int) else today - FIRST_DAYS
        left = today
        for day in range(first, today + 1):
            for names in self._dealt_with_all(self._due(due_bucket(day), now_ms), ends_ms):
                left = min(left, day)
                yield names
            if self._log.clock.now_ms() >= ends_ms:
                left = min(left, day)
                break
        self._log.items.put({"pk": _SWEPT.pk, "sk": _SWEPT.sk, "pos": left})

    def _dealt_with_all(self, due: Iterator[Item], ends_ms: int) -> Iterator[Sequence[str]]:
        """Deal with entries until the time is up. Yields what was done, by its names in `Retained`."""
        while self._log.clock.now_ms() < ends_ms and (batch := list(islice(due, _BATCH))):
            yield in_parallel(self._dealt_with, batch, threads=_PARALLEL, few=_FEW)

    def _due(self, bucket: str, now_ms: int) -> Iterator[Item]:
        after: Mapping[str, str] | None = None
        while True:
            high = f"{now_ms + 1:013d}"
            page = self._log.items.query(Query(bucket, "", high, index="expiry", consistent=False, after=after))
            yield from page.items
            after = page.next
            if after is None:
                return

    def _dealt_with(self, item: Item) -> str:
        try:
            keys = keys_of(item)
            # The index is of all tenants, what is done about an entry is for its own.
            with serving(keys.owner.tenant_id):
                return self._deal_with(item, keys)
        except TurnlogError as error:
            _log.warning("retention of one session failed: %s", error.error_code)
            return "failed"

    def _deal_with(self, item: Item, keys: SessionKeys) -> str:
        """What was done, by its name in `Retained`; empty for nothing."""
        if item_name(item).startswith("C#"):
            due = str(item["g2sk"])[:13]
            options: JsonObject = {"first": self._erasure.identity(keys), "release": True}
            job_id = due_job_id(keys, item_name(item), due)
            self._start_job(keys.owner, "erase", keys.session_id, options, job_id=job_id)
            return "released"
        if item_name(item) == OFFLOAD_DUE:
            return self._hand_over(keys)
        try:
            tail = self._log.commits.tail(keys)
        except NotFoundError:
            if self._erasure.expired_ms(keys) is not None:
                start_expiry(self._start_job, self._erasure, keys, str(item["g2sk"])[:13])
                return "expired"
            return ""
        settings = self._log.settings(keys, tail.meta, None, tail.header).settings
        if is_inactive(settings, tail.header, self._log.clock.now_ms()):
            with suppress(_IsActive, ConflictError):
                self._time_out(keys, settings)
                return "timed_out"
        self._show(keys, tail)
        return "moved"

    def _hand_over(self, keys: SessionKeys) -> str:
        """Asks once more for what was to be handed to long-term memory, and is not."""
        try:
            return self._offload.again(keys, self._log.commits.tail(keys).header)
        except NotFoundError:
            return self._offload.again(keys, None)

    def _time_out(self, keys: SessionKeys, settings: SessionSettings) -> None:
        """A commit that says so and fences nobody: the next one makes the session active again."""

        def compose(tail: Tail) -> Draft:
            header, now = tail.header, self._log.clock.now_ms()
            if not is_inactive(settings, header, now):
                raise _IsActive
            new = following(header, kind="h", events=1, now_ms=now)
            return Draft(replace(new, idle_ms=header.active_ms), (NoteEvent(new.first, actions.TIME_OUT, None, None),))

        self._offload.note(keys, "inactive")
        written = self._log.commits.write(keys, compose)
        self._show(keys, replace(written.tail, header=written.commit.header))
        self._offload.send(keys, written.commit.header, "inactive")

    def _show(self, keys: SessionKeys, tail: Tail) -> None:
        """The entry in the list, and on the index, as of a commit."""
        found = self._log.settings(keys, tail.meta, None, tail.header)
        entry = directory_item(
            keys, found.settings, created_ms=found.created_ms, header=tail.header, missing=found.missing
        )
        with suppress(UnavailableError):
            self._log.items.put(entry, condition=Less("pos", tail.header.last + 1, or_absent=False))


def counted(done: Retained, names: Sequence[str]) -> Retained:
    """With what was done since, by its names in `Retained`."""
    return replace(done, **{name: getattr(done, name) + count for name, count in Counter(names).items() if name})


def _due_key(item: Item) -> str:
    return str(item["g2sk"])


class _IsActive(Exception):  # noqa: N818 - a turn of events, not an error
    """Something was said in the meantime."""


def is_inactive(settings: SessionSettings, header: Header, now_ms: int) -> bool:
    """Whether a session that is not marked yet has been silent for as long as its settings allow. One that waits for a decision
    is not."""
    days = settings.inactive_after_days
    if days is None or header.status != "active" or header.pending:
        return False
    return now_ms >= header.active_ms + days * DAY_MS


def keys_of(item: Item) -> SessionKeys:
    """Whose session an item on the index is: its entry in the list, or the tombstone in its first slot."""
    parts = str(item["pk"]).split("#")
    owner: Owner = owner_of_ids(parts[1], parts[3])
    return SessionKeys(owner, parts[5] if len(parts) > 5 else item_name(item)[2:])
