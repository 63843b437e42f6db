"""Snapshots: named points of a session. A ``ref`` points into the log, which is never rewritten, so it copies nothing. A ``full``
one has the history itself, in the segments of the log and a tail of its own, and outlives the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from turnlog.core.errors import ConflictError, NotFoundError, UnavailableError
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.models import Cursors
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import rfc3339
from turnlog.jobs.models import Job
from turnlog.jobs.worker import StartJobs
from turnlog.log.headers import Header, short_hash
from turnlog.log.idempotency import request_key
from turnlog.log.keys import SessionKeys, is_record_id
from turnlog.log.records import DELETED, Record, Records
from turnlog.sessions.models import SnapshotPolicy
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.delete import SnapshotCleaner
from turnlog.snapshots.full import FullSnapshots, parts_content
from turnlog.snapshots.models import CreateSnapshot, Snapshot, SnapshotPage

MAX_LIMIT = 100
MAX_UNSEALED = 8
"""A request seals no more stretches than that itself; more are a job."""
_REQUEST_MS, _JOB_MS = 10_000, 120_000
_READY = "ready"
_PAGES = 10


class CreateSnapshots:
    """The use case. A ``ref`` is one conditional put that names the head (a second one for the name); a ``full`` one stores what no
    snapshot before it has stored, then its record."""

    def __init__(self, log: SessionLog, full: FullSnapshots, start_job: StartJobs, clean: SnapshotCleaner) -> None:
        self._log = log
        self._full = full
        self._start_job = start_job
        self._clean = clean

    def __call__(
        self, owner: Owner, session_id: str, body: CreateSnapshot, *, key: str | None = None
    ) -> Snapshot | Job:
        keys = SessionKeys(owner, session_id)
        if body.agent_id is not None:
            check_agent_id(body.agent_id)
        request = request_key(key, f"snapshot {session_id}", body)
        header = self._log.commits.tail(keys).header
        record_id = self._log.records.claim(keys.snapshots, request)
        is_large = body.kind == "full" and self._full.unsealed(keys, header.last) > MAX_UNSEALED
        if is_large and request is not None and self._log.records.get(keys.snapshots, record_id) is not None:
            is_large = False  # made by an earlier try of the same request, when there was less of it
        if body.mode == "sync" and not is_large:
            made = self._create(keys, body, record_id, header, deadline_ms=self._log.clock.now_ms() + _REQUEST_MS)
            if made is not None:
                return made
        # The job's id is the snapshot's: the same request again is the same job.
        options = {**body.model_dump(exclude={"mode"}), "snapshot_id": record_id}
        return self._start_job(owner, "snapshot", session_id, options, job_id=record_id)

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """A job's work. Delivered twice, it makes one snapshot."""
        keys, given = SessionKeys(owner, session_id), dict(options)
        record_id = given.pop("snapshot_id", None) or self._log.records.claim(keys.snapshots, None)
        body, header = CreateSnapshot.model_validate(given), self._log.commits.tail(keys).header
        deadline_ms = self._log.clock.now_ms() + _JOB_MS
        made = self._create(keys, body, str(record_id), header, deadline_ms=deadline_ms)
        if made is None:
            raise UnavailableError("the history takes longer to be sealed; the next try goes on")
        return {"snapshot_id": made.snapshot_id, "position": made.position}

    def _create(
        self, keys: SessionKeys, body: CreateSnapshot, record_id: str, header: Header, *, deadline_ms: int
    ) -> Snapshot | None:
        """None: there was no time for all of it."""
        shelf, records = keys.snapshots, self._log.records
        content = ref_content(header) | {"name": body.name, "agent": body.agent_id, "metadata": body.metadata}
        record = Record(record_id, self._log.clock.now_ms(), _READY, content)
        if body.kind == "full":
            # Made by an earlier try, it stays as it was made: its tail is its own.
            existing = records.get_any(shelf, record_id)
            if existing is None:
                parts = self._full.make(keys, record_id, header.last, deadline_ms=deadline_ms)
                if parts is None:
                    return None
                record = replace(record, content={**content, "kind": "full", **parts_content(parts)})
        if body.if_name_absent and body.name is not None and not records.take_name(shelf, body.name, record):
            raise ConflictError(f"a snapshot has the name {body.name!r}", code="snapshot_exists")
        record = records.create(shelf, record)
        if record.status == DELETED:
            raise ConflictError("the snapshot of this request has been deleted", code="snapshot_deleted")
        if body.name is not None and not body.if_name_absent:
            records.point_name(shelf, body.name, record)
        if body.keep is not None:
            # The snapshot is durable already: what can't be cleaned up now is left to the next.
            with suppress(UnavailableError):
                self._clean.older(keys, kind=body.kind, agent=body.agent_id, keep=body.keep)
        return Snapshot(**snapshot_fields(record))


class ListSnapshots:
    """The use case: a session's snapshots, newest first."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def __call__(
        self,
        owner: Owner,
        session_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        name: str | None = None,
        agent: str | None = None,
    ) -> SnapshotPage:
        keys = SessionKeys(owner, session_id)
        cursors = Cursors(self._log.cursor_secret())
        scope = f"snapshots {keys.partition} {encode_json([name, agent]).decode()}"
        after: Mapping[str, str] | None = cursors.read(cursor, scope=scope) if cursor is not None else None
        kind = self._kind(keys)
        found = list[Record]()
        for _ in range(_PAGES):
            records, after = self._log.records.page(keys.snapshots, limit=limit - len(found), after=after)
            fitting = [one for one in records if _matches(one, "name", name) and _matches(one, "agent", agent)]
            found += [one for one in fitting if _matches(one, "kind", kind)]
            if len(found) >= limit or after is None:
                break
        if not found and kind is not None:
            raise NotFoundError(f"no session {session_id!r}")
        return SnapshotPage(
            snapshots=[Snapshot(**snapshot_fields(record)) for record in found],
            next_cursor=cursors.write(after, scope=scope) if after is not None else None,
        )

    def _kind(self, keys: SessionKeys) -> str | None:
        """Which snapshots there are: of a session that has expired the full ones."""
        try:
            self._log.commits.tail(keys)
        except NotFoundError:
            self._log.records.check_there(keys)
            return "full"
        return None


def _matches(record: Record, field: str, wanted: str | None) -> bool:
    return wanted is None or record.content[field] == wanted


def ref_content(header: Header) -> JsonObject:
    """What the record of a ``ref`` has: where it points to."""
    return {"kind": "ref", "position": header.last, "commit": header.first, "hash": header.hash.hex()}


def find_snapshot(records: Records, keys: SessionKeys, snapshot: str) -> Record:
    """A snapshot by id or name, or `NotFoundError`."""
    records.check_there(keys)
    record = records.get(keys.snapshots, snapshot) if is_record_id(snapshot) else None
    record = record if record is not None else records.named(keys.snapshots, snapshot)
    if record is None:
        raise NotFoundError(f"no snapshot {snapshot[:80]!r} in session {keys.session_id!r}")
    return record


def snapshot_fields(record: Record) -> dict[str, Any]:
    content: dict[str, Any] = record.content
    is_full = content["kind"] == "full"
    return {
        "snapshot_id": record.id,
        "name": content["name"],
        "agent_id": content["agent"],
        "kind": content["kind"],
        "position": content["position"],
        "created_at": rfc3339(record.created_ms),
        "size_bytes": content["size"] if is_full else len(encode_json(record.content)),
        "sha256": content["digest"] if is_full else content["hash"],
        "status": record.status,
        "metadata": content["metadata"],
    }


class AutomaticSnapshots:
    """Decides from the headers of an append and of the commit before it."""

    def __init__(self, log: SessionLog, clean: SnapshotCleaner) -> None:
        self._log = log
        self._clean = clean

    def __call__(
        self, owner: Owner, session_id: str, header: Header, before: Header, settings: SessionSettings
    ) -> None:
        """Again for the same append: the same snapshot. It points to the commit before the loop that begins."""
        keys = SessionKeys(owner, session_id)
        if before.last + 1 != header.first:
            # Said again: what followed is the log's end now, and not what went before.
            found = self._log.commits.containing(keys, header.first - 1)
            before = found.header if found is not None else header
        policy = SnapshotPolicy.model_validate_json(encode_json(settings.snapshots))
        if _ended(header) // policy.every_loops <= _ended(before) // policy.every_loops:
            return
        record_id = f"{header.time_ms:013d}-{short_hash(f'automatic {session_id} {header.first}').hex()}"
        content = ref_content(before) | {"name": None, "agent": None, "metadata": {"automatic": True}, "auto": True}
        with suppress(UnavailableError):
            self._log.records.create(keys.snapshots, Record(record_id, header.time_ms, "ready", content))
            self._clean.older(keys, kind="ref", agent=None, keep=policy.keep, automatic=True)


def _ended(header: Header) -> int:
    """How many loops have ended for certain: those before the newest."""
    return max(0, header.flow.loop.number - 1)
