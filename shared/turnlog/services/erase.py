"""Erasing a session for good: the request fences it, so that nothing answers from then on; a job erases, and looks again later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from turnlog.contracts.jobs import Job
from turnlog.domain.errors import CorruptError, NotFoundError
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject
from turnlog.log.erasure import Erased, Erasure, Kept
from turnlog.log.kept import kept_of
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.records import Record
from turnlog.log.sessions import SessionLog
from turnlog.ports import BlobStore, MemoryEngine
from turnlog.services.idempotency import raw_request_key, stamped
from turnlog.services.jobs import TTL_SECONDS, Later, StartJobs, job_answer

WORK_MS = 10_000
"""A job begins nothing after that time, so that it ends before its worker does. The next part goes on from there."""
SECOND_PASS_SECONDS = 900
"""No request that was under way when the session was fenced lives that long. As long as a queue can wait."""
_EARLY_MS = 60_000
"""Clocks differ. A message that comes earlier than that is one that was delivered twice."""
_PAGE = 1_000


class EraseSessions:
    """The use case: 404 for every request from the moment this returns, and a receipt that says how far the erasing is."""

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

    def __call__(self, owner: Owner, session_id: str, *, key: str | None = None) -> Job:
        """The job. It is in the queue before the session is fenced: ended in between, the worker fences it."""
        keys, request = SessionKeys(owner, session_id), raw_request_key(key, f"erase {session_id}", {})
        try:
            self._log.commits.tail(keys)
        except NotFoundError:
            before = self._log.records.claimed(OwnerKeys(owner).jobs, **stamped(request))
            if before is None:
                raise
            if before.status == "queued":
                self._erasure.fence(keys)  # its first try may have ended inside
            return job_answer(before)
        except CorruptError:
            pass  # what can't be read can be erased
        job = self._start_job(owner, "erase", session_id, {"first": self._erasure.identity(keys)}, request)
        if job.status == "queued":
            self._erasure.fence(keys)
        return job

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        """A part of a job's work; the receipt at the end of the second pass.

        It is for the session that was there when it was asked for: another one that has the id since is left alone.
        """
        keys, now = SessionKeys(owner, session_id), self._log.clock.now_ms()
        if self._erasure.identity(keys) != options["first"]:
            return receipt("erased", counts_of(options))
        wait_ms = cast("int", options.get("not_before", 0)) - now
        if wait_ms > 0:
            return Later(receipt("erasing", counts_of(options)), options, -(-wait_ms // 1000))
        if options.get("release"):
            return receipt("released" if self._erasure.release(keys) else "kept", {})
        kept: Kept | None = None
        if options.get("expired"):
            if not self._erasure.fence(keys, if_expired=True):
                return receipt("alive", {})
            kept = kept_of(self._log.records, self._blobs, keys)
        run = self._erasure.erase(keys, kept=kept, deadline_ms=now + WORK_MS)
        counts = added(counts_of(options), run)
        if not run.is_whole:
            return Later(receipt("erasing", counts), {**options, "counts": counts})
        forget_options(self._log, owner, session_id)
        if kept is None:
            # What is known of a person stays when a session expires: it goes with the person, or one by one.
            counts = more_memories(counts, sum(engine.erase(owner, session_id) for engine in self._memories))
        if "not_before" in options:
            return receipt("erased", counts)
        return Later(receipt("erasing", counts), due_options(options, counts, now), SECOND_PASS_SECONDS)


def forget_options(log: SessionLog, owner: Owner, session_id: str) -> None:
    """What jobs of a session were asked for with: of a snapshot its name and metadata."""
    shelf = OwnerKeys(owner).jobs
    after: Mapping[str, str] | None = None
    while True:
        records, after = log.records.page(shelf, limit=_PAGE, after=after)
        for record in records:
            content = record.content
            if content["session"] == session_id and content["options"] and content["kind"] != "erase":
                bare = Record(record.id, record.created_ms, record.status, {**content, "options": {}})
                log.records.replace(shelf, bare, while_status=record.status, ttl_seconds=TTL_SECONDS)
        if after is None:
            return


def due_options(options: JsonObject, counts: JsonObject, now_ms: int) -> JsonObject:
    """The options of the second pass."""
    return {**options, "counts": counts, "not_before": now_ms + SECOND_PASS_SECONDS * 1000 - _EARLY_MS}


def counts_of(options: JsonObject) -> JsonObject:
    return cast(
        "JsonObject", options.get("counts", {"commits": 0, "items": 0, "blobs": 0, "requests": 0, "memories": 0})
    )


def added(counts: JsonObject, run: Erased) -> JsonObject:
    more = {"commits": run.commits, "items": run.items, "blobs": run.blobs, "requests": run.requests}
    return {**counts, **{name: cast("int", counts[name]) + count for name, count in more.items()}}


def more_memories(counts: JsonObject, count: int) -> JsonObject:
    return {**counts, "memories": cast("int", counts.get("memories", 0)) + count}


def receipt(status: str, counts: JsonObject) -> JsonObject:
    return {"status": status, **counts}
