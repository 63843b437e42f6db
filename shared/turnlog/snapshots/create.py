"""Create and list snapshots: named positions of a session.

A ``ref`` snapshot points into the log, which is never rewritten, so a ``ref`` copies nothing. A ``full`` snapshot keeps the
history itself, in the log's segments and a tail of its own, and outlives the log.
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
from turnlog.log.keys import SessionKeys, is_record_id
from turnlog.log.records import DELETED, Record, Records
from turnlog.log.request_keys import request_key
from turnlog.sessions.models import SnapshotPolicy
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.delete import SnapshotCleaner
from turnlog.snapshots.full import FullSnapshots, parts_content
from turnlog.snapshots.models import CreateSnapshot, Snapshot, SnapshotPage

MAX_LIMIT = 100
MAX_UNSEALED = 8
"""Most unsealed stretches that a request seals itself; with more of them, the snapshot becomes a job."""
_REQUEST_MS, _JOB_MS = 10_000, 120_000
_READY = "ready"
_PAGES = 10


class CreateSnapshots:
    """Create a snapshot at the head of a session.

    A ``ref`` costs one conditional put, and a second one for the name. A ``full`` snapshot first stores the history that no
    earlier snapshot has stored, then its record.
    """

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
            is_large = False  # an earlier try of this request made it, when the history was shorter
        if body.mode == "sync" and not is_large:
            snapshot = self._create(keys, body, record_id, header, deadline_ms=self._log.clock.now_ms() + _REQUEST_MS)
            if snapshot is not None:
                return snapshot
        # The snapshot's id is also the job's: a repeated request gets the same job.
        options = {**body.model_dump(exclude={"mode"}), "snapshot_id": record_id}
        return self._start_job(owner, "snapshot", session_id, options, job_id=record_id)

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """Create the snapshot that a job was asked for. A job that is delivered twice creates one snapshot."""
        keys, fields = SessionKeys(owner, session_id), dict(options)
        record_id = fields.pop("snapshot_id", None) or self._log.records.claim(keys.snapshots, None)
        body, header = CreateSnapshot.model_validate(fields), self._log.commits.tail(keys).header
        deadline_ms = self._log.clock.now_ms() + _JOB_MS
        snapshot = self._create(keys, body, str(record_id), header, deadline_ms=deadline_ms)
        if snapshot is None:
            raise UnavailableError("the history is not sealed yet; the next try continues")
        return {"snapshot_id": snapshot.snapshot_id, "position": snapshot.position}

    def _create(
        self, keys: SessionKeys, body: CreateSnapshot, record_id: str, header: Header, *, deadline_ms: int
    ) -> Snapshot | None:
        """Store the snapshot's record; None when the deadline passed before its history was stored."""
        shelf, records = keys.snapshots, self._log.records
        content = ref_content(header) | {"name": body.name, "agent": body.agent_id, "metadata": body.metadata}
        record = Record(record_id, self._log.clock.now_ms(), _READY, content)
        if body.kind == "full":
            # An earlier try may have made this record. It stays as it is: its tail belongs to it alone.
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
            # The snapshot is durable already: the next one cleans up what this one can't.
            with suppress(UnavailableError):
                self._clean.older(keys, kind=body.kind, agent=body.agent_id, keep=body.keep)
        return Snapshot(**snapshot_fields(record))


class ListSnapshots:
    """List a session's snapshots, newest first. After the session has expired, its full snapshots remain."""

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
        matches = list[Record]()
        for _ in range(_PAGES):
            page_records, after = self._log.records.page(keys.snapshots, limit=limit - len(matches), after=after)
            candidates = [
                record for record in page_records if _matches(record, "name", name) and _matches(record, "agent", agent)
            ]
            matches += [record for record in candidates if _matches(record, "kind", kind)]
            if len(matches) >= limit or after is None:
                break
        if not matches and kind is not None:
            raise NotFoundError(f"no session {session_id!r}")
        return SnapshotPage(
            snapshots=[Snapshot(**snapshot_fields(record)) for record in matches],
            next_cursor=cursors.write(after, scope=scope) if after is not None else None,
        )

    def _kind(self, keys: SessionKeys) -> str | None:
        """Return the kind of snapshots to list: only full ones of an expired session, else None for all."""
        try:
            self._log.commits.tail(keys)
        except NotFoundError:
            self._log.records.check_there(keys)
            return "full"
        return None


def _matches(record: Record, field: str, value: str | None) -> bool:
    return value is None or record.content[field] == value


def ref_content(header: Header) -> JsonObject:
    """Return the fields of a ``ref`` record that say where it points to."""
    return {"kind": "ref", "position": header.last, "commit": header.first, "hash": header.hash.hex()}


def find_snapshot(records: Records, keys: SessionKeys, snapshot: str) -> Record:
    """Return a snapshot by id or name. Raises `NotFoundError` for an unknown one."""
    records.check_there(keys)
    record = records.get(keys.snapshots, snapshot) if is_record_id(snapshot) else None
    record = record if record is not None else records.named(keys.snapshots, snapshot)
    if record is None:
        raise NotFoundError(f"no snapshot {snapshot[:80]!r} in session {keys.session_id!r}")
    return record


def snapshot_fields(record: Record) -> dict[str, Any]:
    """Return the fields of the answer `Snapshot` for a record."""
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
    """Creates snapshots as a session's `SnapshotPolicy` says, from the headers of an append and of the commit before it."""

    def __init__(self, log: SessionLog, clean: SnapshotCleaner) -> None:
        self._log = log
        self._clean = clean

    def __call__(
        self, owner: Owner, session_id: str, header: Header, before: Header, settings: SessionSettings
    ) -> None:
        """Create a snapshot of the commit before ``header`` if enough loops have ended since the last one.

        Repeated for the same append, it creates the same snapshot.
        """
        keys = SessionKeys(owner, session_id)
        if before.last + 1 != header.first:
            # A repeated append: the caller passes the log's end, which is not the commit before this one.
            commit = self._log.commits.containing(keys, header.first - 1)
            before = commit.header if commit is not None else header
        policy = SnapshotPolicy.model_validate_json(encode_json(settings.snapshots))
        if _ended(header) // policy.every_loops <= _ended(before) // policy.every_loops:
            return
        record_id = f"{header.time_ms:013d}-{short_hash(f'automatic {session_id} {header.first}').hex()}"
        content = ref_content(before) | {"name": None, "agent": None, "metadata": {"automatic": True}, "auto": True}
        with suppress(UnavailableError):
            self._log.records.create(keys.snapshots, Record(record_id, header.time_ms, "ready", content))
            self._clean.older(keys, kind="ref", agent=None, keep=policy.keep, automatic=True)


def _ended(header: Header) -> int:
    """Return the number of loops that have certainly ended: all but the newest."""
    return max(0, header.flow.loop.number - 1)
