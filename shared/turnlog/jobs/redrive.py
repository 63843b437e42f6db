"""Redrive: an operator returns failed jobs and dead letters to their queues after fixing the cause.

A redrive needs the engine's own rights, so it has no route. Repeating it is harmless, because a finished job is not done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.times import MINUTE_MS
from turnlog.jobs.models import Redriven
from turnlog.jobs.worker import TTL_SECONDS, QueueOf, find_job, read_message, send_job
from turnlog.log.keys import OwnerKeys
from turnlog.log.records import Record
from turnlog.ports import JOB_KINDS, JobKind, JobQueue, Redrivable

if TYPE_CHECKING:
    from turnlog.sessions.session_log import SessionLog


_STALLED_MS = 60 * MINUTE_MS
"""A queued job whose record nobody has written for so long is redriven with the failed ones."""


class RedriveJobs:
    """Use case: redrive the dead letters of all owners, the failed jobs of an owner, or a single job."""

    def __init__(self, log: SessionLog, queue_of: QueueOf) -> None:
        self._log = log
        self._queue_of = queue_of

    def __call__(self, owner: Owner, job_id: str | None = None, *, failed: bool = False) -> Redriven:
        """Redrive a job of the owner, or without ``job_id`` the dead letters of all owners.

        With ``failed`` and without ``job_id``, the owner's failed jobs are redriven too, and queued ones that no worker has taken
        for an hour: their message may be lost. A job without a dead letter gets a new message. Raises `InvalidInputError` for a
        job that is done.
        """
        queues = self._queues()
        if job_id is not None:
            return self._redrive_job(owner, find_job(self._log.records, owner, job_id), queues)
        letters = _DeadLetters(queues)
        # Kinds share queues: each is redriven once.
        once_each = {id(queue): (queue, kind) for kind, queue in reversed(queues.items())}.values()
        dead_letters = sum(_redrive(queue, letters, kind) for queue, kind in once_each)
        jobs = list[str]()
        records = self._log.records.every(OwnerKeys(owner).jobs) if failed else ()
        stalled_ms = self._log.clock.now_ms() - _STALLED_MS
        for record in records:
            is_stalled = record.status == "queued" and cast("int", record.content["updated"]) <= stalled_ms
            if record.status == "failed" or is_stalled:
                self._queue_again(owner, record, _queue_for(record, queues))
                jobs.append(record.id)
        return Redriven(dead_letters=dead_letters, jobs=jobs, left=letters.left)

    def _redrive_job(self, owner: Owner, record: Record, queues: Mapping[JobKind, JobQueue]) -> Redriven:
        if record.status == "done":
            raise InvalidInputError(f"the job {record.id!r} is done: there is nothing to do again")
        queue = _queue_for(record, queues)
        letters = _DeadLetters(queues, only=(record.id, owner))
        dead_letters = (
            _redrive(queue, letters, cast("JobKind", record.content["kind"])) if record.status == "queued" else 0
        )
        if not dead_letters:
            self._queue_again(owner, record, queue)
        return Redriven(dead_letters=dead_letters, jobs=[record.id], left=0)

    def _queue_again(self, owner: Owner, record: Record, queue: JobQueue) -> None:
        """Send a new message for a job; a failed one is queued before."""
        if record.status == "failed":
            content = {name: value for name, value in record.content.items() if name != "error"}
            content["updated"] = self._log.clock.now_ms()
            queued = Record(record.id, record.created_ms, "queued", content)
            record_keys = OwnerKeys(owner).jobs
            self._log.records.replace(record_keys, queued, while_status="failed", ttl_seconds=TTL_SECONDS)
        send_job(queue, owner, record)

    def _queues(self) -> dict[JobKind, JobQueue]:
        queues = {kind: queue for kind in JOB_KINDS if (queue := self._queue_of(kind)) is not None}
        if not queues:
            raise UnavailableError("this engine has no queue: name it in the engine's URL", code="no_queue")
        return queues


def _queue_for(record: Record, queues: Mapping[JobKind, JobQueue]) -> JobQueue:
    kind = cast("JobKind", record.content["kind"])  # or one of a later version, for which there is no queue
    queue = queues.get(kind)
    if queue is None:
        raise UnavailableError(f"this engine has no queue for {kind!r} jobs", code="no_queue")
    return queue


class _DeadLetters:
    """The choice of dead letters to redrive: valid jobs in the queue of their kind. ``left`` counts the others.

    ``only`` limits the choice to a job of an owner.
    """

    def __init__(self, queues: Mapping[JobKind, JobQueue], *, only: tuple[str, Owner] | None = None) -> None:
        self._queues = queues
        self._only = (only[0], only[1].tenant_id, only[1].user_id) if only is not None else None
        self.left = 0

    def group_of(self, body: str, queue: JobQueue) -> str | None:
        try:
            message = read_message(body)
        except InvalidInputError:
            self.left += 1
            return None
        if self._only is not None and (message.job_id, message.tenant, message.user) != self._only:
            return None
        if self._queues.get(message.kind) is not queue:
            self.left += 1
            return None
        return message.tenant


def _redrive(queue: JobQueue, letters: _DeadLetters, kind: JobKind) -> int:
    if not isinstance(queue, Redrivable):
        raise UnavailableError(f"the queue of {kind!r} jobs can't return dead letters", code="no_queue")
    return queue.redrive(lambda body: letters.group_of(body, queue))
