"""Erase a session or a person for good: the request fences sessions, so that nothing answers afterwards; a job erases them.

The job checks a session again later. It erases a person session by session, and then everything else of the owner. No session
can be created meanwhile: a creating request first writes its entry in the list, and then checks whether the owner is being
erased. So a pass that begins after the mark sees every session that may still appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, cast

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.jobs.models import Job
from turnlog.jobs.worker import TTL_SECONDS, Later, StartJobs, job_answer
from turnlog.log.caches import session_id_of
from turnlog.log.headers import item_name, short_hash
from turnlog.log.keys import DIRECTORY_FROM, DIRECTORY_TO, OwnerKeys, SessionKeys, item_at, owner_blobs
from turnlog.log.payloads import in_parallel
from turnlog.log.records import Record, Records
from turnlog.log.request_keys import raw_request_key
from turnlog.log.tombstones import (
    BARE,
    FREE,
    IDLE,
    MATERIALISING,
    SlotLease,
    id_claimed,
    is_being_erased,
    is_cache_tombstone,
    is_empty_slot,
    keeps_snapshots,
    since_of,
    standing_mark,
    still_erased,
)
from turnlog.ports import Absent, BlobStore, Equal, Item, JobKind, Key, MemoryEngine, Signals, get_item
from turnlog.privacy.fence_and_delete import Erased, Erasure, RetainedItems
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.full import kept_by

if TYPE_CHECKING:
    from turnlog.privacy.redact import Redaction

FENCED_SESSIONS = 100
"""Sessions that a request to erase a person fences: 4 requests each, which takes about a second."""
_THREADS = 10
WORK_MS = 10_000
"""A job begins nothing after this time, so that it ends before its worker's time-out. The next part continues."""
SECOND_PASS_SECONDS = 900
"""Delay of the second pass: longer than any request that was under way at the fence, and the longest delay of a queue."""
_EARLY_MS = 60_000
"""Tolerance for differing clocks. A message that arrives earlier than this was delivered twice."""
_ROOM_MS = 10_000
"""Time that a worker takes to clear an expired session's id for a restore."""
_JOBS_FROM, _JOBS_TO = "J#", "J~"
_KIND: JobKind = "erase_user"


def retained_items(records: Records, blobs: BlobStore, keys: SessionKeys) -> RetainedItems:
    """Return the items and blobs of a session that stay for its full snapshots.

    These are their records and names, the stubs of deleted snapshots that are still to be swept, and the blobs that they
    need.
    """
    record_keys, alive = keys.snapshots, list(records.every(keys.snapshots))
    stubs = records.every(keys.snapshots, deleted=True)
    full_records = [record for record in (*alive, *stubs) if record.content.get("kind") == "full"]
    if not full_records:
        return RetainedItems()
    needed = kept_by(alive)
    snapshot_names = [name for record in full_records if isinstance(name := record.content.get("name"), str)]
    sort_keys = [record_keys.record(record.id).sk for record in full_records] + [
        record_keys.name(name).sk for name in snapshot_names
    ]
    names = [name for name in blobs.names(keys.blob_prefix) if needed.needs(name.removeprefix(keys.blob_prefix))]
    return RetainedItems(frozenset(sort_keys), frozenset(names))


@lazy_dataclass(frozen=True, slots=True)
class EraseSessions:
    """Use case: erase a session. Every request gets 404 from the moment this returns. The receipt says how far the erasing is."""

    log: SessionLog
    blobs: BlobStore
    erasure: Erasure
    redaction: Redaction
    start_job: StartJobs
    memories: Sequence[MemoryEngine]
    signals: Signals

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Job:
        """Start the job and fence the session. The job is queued first: after a crash in between, the worker fences.

        A session that has expired is erased only if it has left full snapshots.
        """
        keys, request = SessionKeys(owner, session_id), raw_request_key(key, f"erase {session_id}", {})
        try:
            self.log.commits.tail(keys)
        except NotFoundError:
            earlier_job = self.log.records.claimed(OwnerKeys(owner).jobs, request)
            if earlier_job is None and not self.erasure.is_half_made(keys) and not self._has_expired_snapshots(keys):
                raise
            if earlier_job is not None:
                if earlier_job.status == "queued":
                    self.erasure.fence(keys)  # the first try may have been interrupted before the fence
                return job_answer(earlier_job)
        except CorruptError:
            pass  # a damaged session can still be erased
        job = self.start_job(owner, "erase", session_id, {"first": self.erasure.identity(keys)}, request)
        if job.status == "queued":
            self.erasure.fence(keys)
        return job

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        """Do a part of the job's work; return the receipt after the second pass.

        The job erases only the session that existed when it was requested. A later session of the same id is left alone.
        """
        keys, now = SessionKeys(owner, session_id), self.log.clock.now_ms()
        if self.erasure.identity(keys) != options["first"]:
            return receipt("erased", counts_of(options))
        if (early := until_due(self.erasure, options, receipt("erasing", counts_of(options)), now)) is not None:
            return early
        if options.get("release"):
            return receipt("released" if self._release(keys, now + WORK_MS) else "kept", {})
        kept: RetainedItems | None = None
        lease: SlotLease | bool = False
        if options.get("expired"):
            lease = self.erasure.expire(keys)
            if not lease:
                return receipt("alive", {})
            kept = self._kept(keys)
        run = self.erasure.erase(keys, kept=kept, deadline_ms=now + WORK_MS, hand_on=self._hand_on)
        if isinstance(lease, SlotLease):
            self.erasure.slots.leave(lease, free=IDLE)
        counts = added(counts_of(options), run)
        if not run.is_complete:
            return Later(receipt("erasing", counts), {**options, "counts": counts})
        return self._end_pass(keys, options, counts, now_ms=now, is_expired=kept is not None)

    def _end_pass(
        self, keys: SessionKeys, options: JsonObject, counts: JsonObject, *, now_ms: int, is_expired: bool
    ) -> JsonObject | Later:
        """Erase what lies outside the session; then return the receipt, or after the first pass schedule the second one."""
        forget_options(self.log, keys.owner, keys.session_id)
        if not is_expired:
            # Memories of the person outlive an expired session. They are erased with the person, or one by one.
            erased = sum(engine.erase(keys.owner, keys.session_id) for engine in self.memories)
            counts = plus(counts, {"memories": erased})
        if "not_before" in options:
            purge_after_last_pass(self.erasure, options, counts)
            return receipt("erased", counts)
        return second_pass(self.erasure, "erasing", options, counts, now_ms, purges_now=not is_expired)

    def _hand_on(self, forks: Sequence[SessionKeys]) -> None:
        """Start unfinished redactions again in the forks that have the message: an erased log no longer leads to its forks."""
        for record in self.log.records.every(OwnerKeys(forks[0].owner).jobs) if forks else ():
            position = cast("JsonObject", record.content["options"]).get("position")
            if record.content["kind"] != "redact" or record.status == "done" or not isinstance(position, int):
                continue
            for fork in forks:
                if self.redaction.is_shared(fork, position):
                    options: JsonObject = {"first": self.erasure.identity(fork), "home": fork.session_id}
                    job_id = f"{record.created_ms:013d}-{short_hash(f'{record.id} {fork.session_id}').hex()}"
                    options |= {"position": position, "told": False}
                    self.start_job(fork.owner, "redact", fork.session_id, options, job_id=job_id)

    def make_way(self, keys: SessionKeys, token: bytes) -> None:
        """Check that an expired session may be restored under its own id: everything but its full snapshots must be erased.

        Starts the erasing if nobody has. Raises `ConflictError` with a waiting time while the erasing is under way.
        ``token`` is the restoring request's: a restore that it has begun already may continue. Without an expired session,
        nothing happens.
        """
        first = self.erasure.slots.read(keys)
        if first is None or first.get(MATERIALISING) == token:
            return
        if keeps_snapshots(first):
            self._check_bare(keys, first)
            return
        due_ms = self.erasure.expired_ms(keys) if MATERIALISING not in first else None
        if due_ms is not None:
            start_due(self.start_job, self.erasure, keys, keys.directory.sk, f"{due_ms:013d}", "expired")
        if due_ms is not None or self.erasure.is_expiring(keys):
            raise still_erased(SECOND_PASS_SECONDS * 1000)

    def _check_bare(self, keys: SessionKeys, first: Item) -> None:
        """Start the job that clears the id, and raise `ConflictError`, unless the id is clear. Only workers delete."""
        if first.get(FREE) == BARE:
            return
        wait_ms = self.erasure.slots.wait_ms(first)
        if wait_ms and MATERIALISING in first:
            raise id_claimed(wait_ms)
        if not wait_ms:
            start_due(self.start_job, self.erasure, keys, item_name(first), f"{since_of(first):013d}", "release")
        raise still_erased(wait_ms or _ROOM_MS)

    def _release(self, keys: SessionKeys, deadline_ms: int) -> bool:
        """Free the id of an erased session; False while it is taken. Retained snapshots of an expired session keep it taken."""
        first = self.erasure.slots.read(keys)
        if first is not None and keeps_snapshots(first):
            kept = self.erasure.clear(keys, first, lambda: self._kept(keys), deadline_ms=deadline_ms)
            if kept is None or kept:
                return False
            self.erasure.slots.disown(keys)
            return self.erasure.release(keys)
        is_free = self.erasure.release(keys)
        if not is_free and first is not None and is_empty_slot(first):
            self.signals.count("erasure_overdue")  # something is left a day after the second pass
        return is_free

    def _has_expired_snapshots(self, keys: SessionKeys) -> bool:
        """Return whether full snapshots are left of a session that has expired. Raises `NotFoundError` for an erased one."""
        self.log.records.check_there(keys)
        return any(record.content.get("kind") == "full" for record in self.log.records.every(keys.snapshots))

    def _kept(self, keys: SessionKeys) -> RetainedItems:
        return retained_items(self.log.records, self.blobs, keys)


def start_due(
    start_job: StartJobs,
    erasure: Erasure,
    keys: SessionKeys,
    sort_key: str,
    due: str,
    part: Literal["expired", "release"],
) -> None:
    """Start the job that erases an expired session, or frees an erased one's id. Started again with ``due``, it is the same job."""
    options: JsonObject = {"first": erasure.identity(keys), part: True}
    job_id = f"{due}-{short_hash(f'retention {sort_key} {keys.session_id} {due}').hex()}"
    start_job(keys.owner, "erase", keys.session_id, options, job_id=job_id)


def forget_options(log: SessionLog, owner: Owner, session_id: str) -> None:
    """Empty the options of a session's snapshot jobs: they hold names and metadata. Those of other jobs hold no contents."""
    record_keys = OwnerKeys(owner).jobs
    for record in log.records.every(record_keys):
        content = record.content
        if content["session"] == session_id and content["options"] and content["kind"] == "snapshot":
            bare = Record(record.id, record.created_ms, record.status, {**content, "options": {}})
            log.records.replace(record_keys, bare, while_status=record.status, ttl_seconds=TTL_SECONDS)


def until_due(erasure: Erasure, options: JsonObject, result: JsonObject, now_ms: int) -> Later | None:
    """Return the unchanged job, delayed until its second pass is due; None when it is due now, and in the first pass.

    When the first pass fell into the pause after another purge, purge now what it erased.
    """
    wait_ms = cast("int", options.get("not_before", 0)) - now_ms
    if wait_ms <= 0:
        return None
    mark = str(cast("JsonObject", options.get("purge", {})).get("mark", ""))
    return Later(result, options, erasure.purging.after_first_pass(mark, -(-wait_ms // 1000)))


def second_pass(
    erasure: Erasure, status: str, options: JsonObject, counts: JsonObject, now_ms: int, *, purges_now: bool = True
) -> Later:
    """Return the second pass of a job, delayed until it is due, which ends with a purge.

    With ``purges_now``, purge what the first pass has erased. The many sessions that expire wait, and share the later purge.
    """
    due: JsonObject = {**options, "counts": counts, "not_before": now_ms + SECOND_PASS_SECONDS * 1000 - _EARLY_MS}
    mark, delay = erasure.purging.mark(), SECOND_PASS_SECONDS
    due["purge"] = {"mark": mark, "erased": _without_requests(counts)}
    if purges_now:
        delay = erasure.purging.after_first_pass(mark, delay)
    return Later(receipt(status, counts), due, delay)


def purge_after_last_pass(erasure: Erasure, options: JsonObject, counts: JsonObject) -> None:
    """Purge what was erased since the purge that `second_pass` noted in the options."""
    first_purge = cast("JsonObject", options.get("purge", {}))
    is_same = first_purge.get("erased") == _without_requests(counts)
    erasure.purging.after_last_pass(str(first_purge["mark"]) if is_same else "")


def _without_requests(counts: JsonObject) -> JsonObject:
    return {name: count for name, count in counts.items() if name != "requests"}


def counts_of(options: JsonObject) -> JsonObject:
    """Return the counts that a job's options carry; zeros for a new job."""
    return cast(
        "JsonObject", options.get("counts", {"commits": 0, "items": 0, "blobs": 0, "requests": 0, "memories": 0})
    )


def added(counts: JsonObject, run: Erased) -> JsonObject:
    """Return counts with those of another run added."""
    return plus(counts, {"commits": run.commits, "items": run.items, "blobs": run.blobs, "requests": run.requests})


def plus(counts: JsonObject, more: JsonObject) -> JsonObject:
    """Return counts with ``more`` added, by name."""
    return counts | {name: cast("int", counts.get(name, 0)) + cast("int", count) for name, count in more.items()}


def receipt(status: str, counts: JsonObject) -> JsonObject:
    """Return the result of an erasing job: a status and counts."""
    return {"status": status, **counts}


@lazy_dataclass(frozen=True, slots=True)
class EraseUsers:
    """Use case: erase all data of an owner. Only the receipt stays, and tombstones until they expire."""

    log: SessionLog
    blobs: BlobStore
    erasure: Erasure
    start_job: StartJobs
    memories: Sequence[MemoryEngine]

    def __call__(self, owner: Owner, *, key: str | None = None) -> Job:
        """Mark the owner, start the job or join the one that is under way, and fence sessions.

        Until the job has finished, no session can be created. A job that is joined gets another message: its first one may have
        become a dead letter.
        """
        self.start_job.check(_KIND)
        records, record_keys = self.log.records, OwnerKeys(owner).jobs
        job_id = self._pending(owner) or records.claim(record_keys, None)
        request = raw_request_key(key, "erase user", {})
        job_id = records.choose(record_keys, job_id, request, ttl_seconds=TTL_SECONDS)
        is_new = records.get(record_keys, job_id) is None
        options: JsonObject = {"mark": self._mark(owner, job_id)} if is_new else {}
        job = self.start_job(owner, _KIND, "", options, job_id=job_id)
        if job.status == "queued":
            self._fence(owner)
        return job

    def _fence(self, owner: Owner) -> None:
        """Fence the first sessions of the list that exist, so that nothing of them answers. The job fences those beyond."""
        entries = chain.from_iterable(self.erasure.pages(OwnerKeys(owner), DIRECTORY_FROM, DIRECTORY_TO))
        alive = (item for item in entries if not is_cache_tombstone(item) or keeps_snapshots(item))
        keys = [SessionKeys(owner, session_id_of(item)) for item in islice(alive, FENCED_SESSIONS)]
        in_parallel(self.erasure.fence, keys, threads=_THREADS)

    def run(self, owner: Owner, _session_id: str, options: JsonObject) -> JsonObject | Later:
        """Do a part of the job's work. After an error the receipt reports nothing as erased, and the next try continues.

        The work is done only under the mark of the job's request. Once that mark is lifted, another job has erased everything from
        before the request, and what exists was stored after it: the job is over. No clocks are compared.
        """
        now, counts = self.log.clock.now_ms(), counts_of(options)
        if (early := until_due(self.erasure, options, receipt("erasing", counts), now)) is not None:
            return early
        mark = cast("int | None", options.get("mark", self._standing(owner)))
        if mark is None and "not_before" not in options:
            mark = self._mark(owner, "")  # a job of 0.1.0, whose request may not have marked the owner
        options = {**options, "mark": mark}
        while entries := self._entries(owner, mark, cast("str", options.get("done_to", ""))):
            for item in entries:
                run = self.erasure.erase(SessionKeys(owner, session_id_of(item)), deadline_ms=now + WORK_MS)
                counts = added(counts, run)
                options = {**options, "counts": counts} | ({"done_to": item_name(item)} if run.is_complete else {})
                if not run.is_complete or self.log.clock.now_ms() >= now + WORK_MS:
                    return Later(receipt("erasing", counts), options)
        if mark is None or mark != self._standing(owner):
            return receipt("erased", counts)
        return self._end_pass(owner, mark, options, counts, now)

    def _end_pass(
        self, owner: Owner, mark: int, options: JsonObject, counts: JsonObject, now_ms: int
    ) -> JsonObject | Later:
        """Erase what lies outside sessions; then schedule the second pass, or after it lift the mark and return the receipt."""
        blobs = sum(self.blobs.erase(prefix) for prefix in owner_blobs(owner))
        counts = plus(counts, {"blobs": blobs, "memories": sum(engine.erase(owner) for engine in self.memories)})
        if "not_before" not in options:
            return second_pass(self.erasure, "erasing", {"mark": mark}, counts, now_ms)
        counts = plus(counts, {"items": self._erase_own(owner)})
        self.log.items.delete_many([OwnerKeys(owner).user])
        purge_after_last_pass(self.erasure, options, counts)
        # Replaced on a condition, not deleted: a newer mark is never lifted. The ttl has passed already.
        self.log.items.put(
            item_at(OwnerKeys(owner).erasing, {"c": mark, "ttl": now_ms // 1000}), condition=Equal("c", mark)
        )
        return receipt("erased", counts)

    def _marker(self, owner: Owner) -> Item | None:
        return get_item(self.log.items, OwnerKeys(owner).erasing)

    def _standing(self, owner: Owner) -> int | None:
        return standing_mark(self._marker(owner))

    def _pending(self, owner: Owner) -> str | None:
        """Return the id of the job that works under the standing mark, or was about to be started; None when it has failed."""
        marker = self._marker(owner)
        if marker is None or standing_mark(marker) is None or not isinstance(job_id := marker.get("id"), str):
            return None
        record = self.log.records.get(OwnerKeys(owner).jobs, job_id)
        return job_id if record is None or record.status == "queued" else None

    def _mark(self, owner: Owner, job_id: str) -> int:
        """Mark the owner as being erased by a job, and return the mark. A standing mark stays: the job works under it too."""
        while True:
            marker = self._marker(owner)
            standing, before = standing_mark(marker), cast("int", marker["c"]) if marker is not None else 0
            if standing is not None and is_being_erased(self.log.items, owner, marker):
                return standing
            mark = standing if standing is not None else max(self.log.clock.now_ms(), before + 1)
            item = item_at(OwnerKeys(owner).erasing, {"c": mark, **({"id": job_id} if job_id else {})})
            if self.log.items.put(item, condition=Equal("c", before) if marker is not None else Absent()) is None:
                return mark

    def _entries(self, owner: Owner, mark: int | None, done_to: str) -> Sequence[Item]:
        """Return the next entries of the session list behind ``done_to``, by a consistent query.

        Empty at the end, and when the mark is lifted. The mark is read last: while it stands, all entries are from before it.
        """
        low = done_to + "\x00" if done_to else DIRECTORY_FROM
        pages = self.erasure.pages(OwnerKeys(owner), low, DIRECTORY_TO)
        entries = next(filter(None, pages), ())
        return entries if mark is not None and mark == self._standing(owner) else ()

    def _erase_own(self, owner: Owner) -> int:
        """Erase the owner's jobs with their idempotency claims, except for the receipts of this kind; return their number."""
        erased, records = 0, self.log.records.every(OwnerKeys(owner).jobs)
        receipts = {record.id for record in records if record.content["kind"] == _KIND}
        for items in self.erasure.pages(OwnerKeys(owner), _JOBS_FROM, _JOBS_TO):
            jobs = [item for item in items if not {item_name(item)[2:], str(item.get("id", ""))} & receipts]
            self.log.items.delete_many([Key(str(item["pk"]), item_name(item)) for item in jobs])
            erased += len(jobs)
        return erased
