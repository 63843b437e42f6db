"""Erase a person for good: every session, until a full pass finds none, and then everything else of the owner.

No session can be created meanwhile. A creating request first writes its entry in the list, and then checks whether the owner
is being erased. So a pass that begins after the mark sees every session that may still appear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.jobs.models import Job
from turnlog.jobs.worker import Later, StartJobs
from turnlog.log.caches import session_id_of
from turnlog.log.headers import item_name
from turnlog.log.keys import DIRECTORY_FROM, DIRECTORY_TO, OwnerKeys, SessionKeys, owner_blobs
from turnlog.log.request_keys import raw_request_key
from turnlog.log.tombstones import is_cache_tombstone, keeps_snapshots
from turnlog.ports import BlobStore, Item, JobKind, Key, MemoryEngine
from turnlog.privacy.erase_session import (
    SECOND_PASS_SECONDS,
    WORK_MS,
    added,
    counts_of,
    due_options,
    mark_of,
    more_memories,
    purge_mark,
    receipt,
)
from turnlog.privacy.erasure import Erasure
from turnlog.sessions.session_log import SessionLog

_JOBS_FROM, _JOBS_TO = "J#", "J~"
_KIND: JobKind = "erase_user"


class EraseUsers:
    """Erase all data of an owner. Only the receipt stays, and tombstones until they expire."""

    def __init__(
        self,
        log: SessionLog,
        blobs: BlobStore,
        erasure: Erasure,
        start_job: StartJobs,
        memories: Sequence[MemoryEngine],
    ) -> None:
        self._log = log
        self._blobs = blobs
        self._erasure = erasure
        self._start_job = start_job
        self._memories = memories

    def __call__(self, owner: Owner, *, key: str | None = None) -> Job:
        """Start the job. Until it has finished, no session of the owner can be created."""
        job = self._start_job(owner, _KIND, "", {}, raw_request_key(key, "erase user", {}))
        if job.status == "queued":
            self._mark(owner)
        return job

    def run(self, owner: Owner, _session_id: str, options: JsonObject) -> JsonObject | Later:
        """Do a part of the job's work. After an error the receipt reports nothing as erased, and the next try continues."""
        now, counts = self._log.clock.now_ms(), counts_of(options)
        wait_ms = cast("int", options.get("not_before", 0)) - now
        if wait_ms > 0:
            return Later(receipt("erasing", counts), options, -(-wait_ms // 1000))
        self._mark(owner)
        is_second = "not_before" in options
        done_to = cast("str", options.get("done_to", ""))
        while entries := self._pass(owner, done_to, with_erased=is_second):
            for item in entries:
                keys = SessionKeys(owner, session_id_of(item))
                run = self._erasure.erase(keys, deadline_ms=now + WORK_MS)
                counts = added(counts, run)
                done_to = item_name(item) if run.is_whole and is_second else done_to
                if not run.is_whole or self._log.clock.now_ms() >= now + WORK_MS:
                    return Later(receipt("erasing", counts), {**options, "counts": counts, "done_to": done_to})
        counts = {**counts, "blobs": cast("int", counts["blobs"]) + self._erase_blobs(owner)}
        counts = more_memories(counts, sum(engine.erase(owner) for engine in self._memories))
        if not is_second:
            due = due_options({"purge": purge_mark(self._erasure, counts)}, counts, now)
            return Later(receipt("erasing", counts), due, SECOND_PASS_SECONDS)
        counts = {**counts, "items": cast("int", counts["items"]) + self._erase_own(owner)}
        self._log.items.delete_many([OwnerKeys(owner).erasing])
        self._erasure.purging.after_last_pass(mark_of(options, counts))
        return receipt("erased", counts)

    def _mark(self, owner: Owner) -> None:
        key = OwnerKeys(owner).erasing
        self._log.items.put({"pk": key.pk, "sk": key.sk, "c": self._log.clock.now_ms()})

    def _pass(self, owner: Owner, done_to: str, *, with_erased: bool) -> list[Item]:
        """Return the next entries of the session list behind ``done_to``, by a consistent query; empty at the end.

        They are sessions that exist, or have expired and left snapshots; ``with_erased`` includes sessions that are erased
        already.
        """
        low = done_to + "\x00" if done_to else DIRECTORY_FROM
        for items in self._erasure.pages(OwnerKeys(owner), low, DIRECTORY_TO):
            entries = [item for item in items if with_erased or not is_cache_tombstone(item) or keeps_snapshots(item)]
            if entries:
                return entries
        return []

    def _erase_blobs(self, owner: Owner) -> int:
        return sum(self._blobs.erase(prefix) for prefix in owner_blobs(owner))

    def _erase_own(self, owner: Owner) -> int:
        """Erase the owner's jobs with their idempotency claims, except for the receipts of this kind; return their number."""
        erased, receipts = 0, set[str]()
        after: Mapping[str, str] | None = None
        while True:
            records, after = self._log.records.page(OwnerKeys(owner).jobs, limit=1_000, after=after)
            receipts |= {record.id for record in records if record.content["kind"] == _KIND}
            if after is None:
                break
        for items in self._erasure.pages(OwnerKeys(owner), _JOBS_FROM, _JOBS_TO):
            jobs = [item for item in items if not {item_name(item)[2:], str(item.get("id", ""))} & receipts]
            self._log.items.delete_many([Key(str(item["pk"]), item_name(item)) for item in jobs])
            erased += len(jobs)
        return erased
