"""Starting, reading and running jobs. A job is a record for its owner, and a message in a queue with ids only.

The record is stored before the message is sent. It is replaced only while the job is queued, so a message that is delivered
twice or late changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from turnlog.core.errors import InvalidInputError, MalformedError, NotFoundError, TurnlogError, UnavailableError
from turnlog.core.identity import Owner, correlation_id, owner_of_ids, serving
from turnlog.core.json_values import JsonObject, parse_strict_json, without_none
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import HOUR_MS, rfc3339
from turnlog.jobs.models import Job, JobError, JobMessage, JobPage
from turnlog.log.keys import OwnerKeys
from turnlog.log.links import Link
from turnlog.log.records import Record, Records
from turnlog.log.request_keys import RequestKey
from turnlog.ports import JobKind, JobQueue, JobStatus

if TYPE_CHECKING:
    from turnlog.sessions.session_log import SessionLog

TTL_SECONDS = 30 * 24 * 3600

QueueOf: TypeAlias = Callable[[str], "JobQueue | None"]
"""Function from a kind of job to its queue; None when the engine has none."""


@lazy_dataclass(frozen=True, slots=True)
class Later:
    """The outcome of a part of a job: the result so far, and the options and delay of the next part."""

    result: JsonObject
    options: JsonObject
    delay_seconds: int = 0


Work: TypeAlias = Callable[[Owner, str, JsonObject], "JsonObject | Later"]
"""Function that does a job: takes owner, session id and options, and returns a result without contents. It must be idempotent."""


class OutageError(Exception):
    """An outage of what a job asks, such as a model. It wraps the ``error``, which is then not taken for one of the log."""

    def __init__(self, error: UnavailableError) -> None:
        super().__init__(error.error_code)
        self.error = error


class StartJobs:
    """Use case: start a job. Its record is stored, then its message is sent."""

    def __init__(self, log: SessionLog, queue_of: QueueOf) -> None:
        self._log = log
        self._queue_of = queue_of

    def __call__(
        self,
        owner: Owner,
        kind: JobKind,
        session_id: str,
        options: JsonObject,
        request: RequestKey | None = None,
        *,
        job_id: str | None = None,
    ) -> Job:
        """Start a job and return it. The same request again returns the same job.

        ``job_id`` sets the job's id, for callers that derive it from something else than an idempotency key.
        """
        queue = self.check(kind)
        record_keys = OwnerKeys(owner).jobs
        if job_id is None:
            job_id = self._log.records.claim(record_keys, request, ttl_seconds=TTL_SECONDS)
        now = self._log.clock.now_ms()
        content: JsonObject = {"kind": kind, "session": session_id, "options": options, "updated": now, "attempts": 0}
        content |= without_none({"correlation": correlation_id()})
        record = self._log.records.create(record_keys, Record(job_id, now, "queued", content), ttl_seconds=TTL_SECONDS)
        if record.status == "queued":
            send_job(queue, owner, record)
        return job_answer(record)

    def check(self, kind: JobKind) -> JobQueue:
        """Return the queue of a kind of job. Raises `UnavailableError` when the engine has none."""
        queue = self._queue_of(kind)
        if queue is None:
            raise UnavailableError(f"this engine has no queue for {kind!r} jobs; use mode 'sync'", code="no_queue")
        return queue


class GetJob:
    """Use case: return a job of the caller. The result of an export has a new short-lived address of its file.

    It has none when something that may be in the file was erased or redacted since.
    """

    def __init__(self, log: SessionLog, link_of: Callable[[Owner, str], Link]) -> None:
        self._log = log
        self._link_of = link_of

    def __call__(self, owner: Owner, job_id: str) -> Job:
        record = find_job(self._log.records, owner, job_id)
        job = job_answer(record)
        if job.kind != "export" or job.result is None or is_outdated(self._log.records, owner, record):
            return job
        link = self._link_of(owner, job.session_id)
        return job.model_copy(update={"result": {**job.result, "url": link.url, "expires_at": link.expires_at}})


class ListJobs:
    """Use case: list the caller's jobs, newest first."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(
        self, owner: Owner, *, limit: int = 20, cursor: str | None = None, status: JobStatus | None = None
    ) -> JobPage:
        scope = f"jobs {owner.tenant_id} {owner.user_id} {status or ''}"
        records, following = self._log.page_of_records(
            OwnerKeys(owner).jobs,
            lambda record: status in (None, record.status),
            limit=limit,
            cursor=cursor,
            scope=scope,
        )
        return JobPage(jobs=list(map(job_answer, records)), next_cursor=following)


@lazy_dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a delivery of a job.

    ``status`` is "gone" when the job is over or its record has expired, and "later" when a message for the next part was sent.
    """

    job_id: str
    kind: str
    status: Literal["done", "failed", "gone", "later"]
    error: TurnlogError | None = None

    @property
    def code(self) -> str:
        return self.error.error_code if self.error is not None else ""


class RunJob:
    """Use case of workers: do the job of a queue message.

    It returns when the message is settled, also after a permanent failure, which the record names. It raises `MalformedError`
    or `InvalidInputError` for a message that can never be handled, and retryable errors.
    """

    def __init__(self, log: SessionLog, work: Mapping[str, Callable[[], Work]], queue_of: QueueOf) -> None:
        self._log = log
        self._work = work
        self._queue_of = queue_of

    def __call__(self, body: str, *, kinds: Collection[str]) -> JobOutcome:
        message = read_message(body)
        if message.kind not in kinds:
            raise InvalidInputError(f"a {message.kind!r} job is in a queue of other kinds")
        owner = owner_of_ids(message.tenant, message.user)
        with serving(owner.tenant_id):
            return self._run(message, owner)

    def run_now(self, owner: Owner, job_id: str) -> JobOutcome:
        """Do a job without waiting for its message, which then finds that the job is over."""
        with serving(owner.tenant_id):
            return self._run(_message(owner, find_job(self._log.records, owner, job_id)), owner)

    def _run(self, message: JobMessage, owner: Owner) -> JobOutcome:
        record = self._log.records.get(OwnerKeys(owner).jobs, message.job_id)
        if record is None or record.status != "queued":
            return JobOutcome(message.job_id, message.kind, "gone")
        if (record.content["kind"], record.content["session"]) != (message.kind, message.session_id):
            raise InvalidInputError("the message does not belong to its job")
        try:
            work, options = self._work[message.kind](), cast("JsonObject", record.content["options"])
            result = work(owner, message.session_id, options)
        except TurnlogError as error:
            if error.is_transient:
                self._settle(owner, record, "queued", error=error)
                raise
            self._settle(owner, record, "failed", error=error)
            return JobOutcome(message.job_id, message.kind, "failed", error)
        except Exception as error:
            unexpected = TurnlogError(f"an unexpected {type(error).__name__}", code="internal")
            self._settle(owner, record, "queued", error=unexpected)
            raise
        if isinstance(result, Later):
            self._send_on(owner, record, result)
            return JobOutcome(message.job_id, message.kind, "later")
        self._settle(owner, record, "done", result=result)
        return JobOutcome(message.job_id, message.kind, "done")

    def _send_on(self, owner: Owner, record: Record, later: Later) -> None:
        """Send the message for the next part, then update the record. A crash in between repeats this part."""
        queue = self._queue_of(cast("str", record.content["kind"]))
        if queue is None:
            raise UnavailableError("this engine has no queue for the rest of the job", code="no_queue")
        send_job(queue, owner, record, delay_seconds=later.delay_seconds)
        changed = Record(record.id, record.created_ms, record.status, {**record.content, "options": later.options})
        self._settle(owner, changed, "queued", result=later.result)

    def _settle(
        self,
        owner: Owner,
        record: Record,
        status: JobStatus,
        *,
        result: JsonObject | None = None,
        error: TurnlogError | None = None,
    ) -> None:
        attempts = cast("int", record.content["attempts"]) + 1
        content: JsonObject = {**record.content, "updated": self._log.clock.now_ms(), "attempts": attempts}
        content.pop("error", None)
        content |= without_none({"result": result})
        if error is not None:
            content["error"] = {"code": error.error_code, "detail": error.detail[:500]}
        after = Record(record.id, record.created_ms, status, content)
        try:
            self._log.records.replace(OwnerKeys(owner).jobs, after, while_status="queued", ttl_seconds=TTL_SECONDS)
        except UnavailableError:
            # The error being handled matters more than its note in the record.
            if error is None or status != "queued":
                raise


def find_job(records: Records, owner: Owner, job_id: str) -> Record:
    """Return the record of an owner's job. Raises `NotFoundError` for an unknown one."""
    record = records.get(OwnerKeys(owner).jobs, job_id)
    if record is None:
        raise NotFoundError(f"no job {job_id!r}")
    return record


def recent_jobs(records: Records, owner: Owner, since_ms: int) -> Iterator[Record]:
    """Yield the records of an owner's jobs that were started since a time, newest first."""
    return takewhile(lambda record: record.id >= f"{since_ms:013d}", records.every(OwnerKeys(owner).jobs))


def is_outdated(records: Records, owner: Owner, export: Record) -> bool:
    """Return whether an erasure or redaction was requested after an export began, or has deleted its file. Expiry is ignored."""
    return any(
        removal.created_ms >= export.created_ms
        or cast("int", removal.content["updated"]) >= cast("int", export.content["updated"])
        for removal in recent_jobs(records, owner, export.created_ms - HOUR_MS)
        if removal.content["kind"] in ("erase", "erase_user", "redact")
        and not {"expired", "release"}.intersection(cast("JsonObject", removal.content["options"]))
    )


def send_job(queue: JobQueue, owner: Owner, record: Record, *, delay_seconds: int = 0) -> None:
    """Send the message of a queued job. A second message finds the job finished and changes nothing."""
    body = _message(owner, record).model_dump_json(exclude_none=True)
    queue.send(body, group=owner.tenant_id, delay_seconds=delay_seconds)


def _message(owner: Owner, record: Record) -> JobMessage:
    return JobMessage(
        v=1,
        job_id=record.id,
        kind=cast("JobKind", record.content["kind"]),
        tenant=owner.tenant_id,
        user=owner.user_id,
        session_id=cast("str", record.content["session"]),
        correlation_id=cast("str | None", record.content.get("correlation")),
    )


def read_message(body: str) -> JobMessage:
    """Parse a message of the queue. Raises `MalformedError` or `InvalidInputError`, after which a retry is useless."""
    try:
        return JobMessage.model_validate(parse_strict_json(body))
    except ValueError as error:
        raise MalformedError("the message is not a job that this version knows") from error


def job_answer(record: Record) -> Job:
    """Return the public form of a job's record."""
    content: dict[str, Any] = record.content
    error = content.get("error")
    return Job(
        job_id=record.id,
        kind=content["kind"],
        session_id=content["session"],
        status=cast("JobStatus", record.status),
        created_at=rfc3339(record.created_ms),
        updated_at=rfc3339(content["updated"]),
        attempts=content["attempts"],
        result=content.get("result"),
        error=JobError(code=error["code"], detail=error["detail"]) if error else None,
        correlation_id=content.get("correlation"),
    )
