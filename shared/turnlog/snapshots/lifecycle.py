"""Create, list and delete snapshots: named positions of a session.

A ``ref`` snapshot points into the log, which is never rewritten, so a ``ref`` copies nothing. A ``full`` snapshot keeps the
history itself, in the log's segments and a tail of its own, and outlives the log.

A deleted record disappears at once; a job erases the bytes that nothing else needs. The stub of a deleted full snapshot names
its parts until they are erased, so an interrupted sweep loses track of nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from turnlog.core.errors import ConflictError, NotFoundError, UnavailableError
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_values import JsonObject, encode_json, without_none
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import DAY_MS, rfc3339
from turnlog.jobs.models import Job
from turnlog.jobs.worker import StartJobs
from turnlog.log.commits import Tail
from turnlog.log.headers import Header, short_hash
from turnlog.log.keys import PAYLOAD_BLOBS, SNAPSHOT_BLOBS, SessionKeys, is_record_id
from turnlog.log.records import DELETED, Record, Records
from turnlog.log.request_keys import raw_request_key, request_key
from turnlog.log.tombstones import MATERIALISING, SlotLeases, keeps_snapshots
from turnlog.ports import BlobStore
from turnlog.sessions.documents import exported_ms
from turnlog.sessions.models import SnapshotPolicy
from turnlog.sessions.session_log import LogUseCase, SessionLog
from turnlog.snapshots.export_routes import ExportedSnapshot
from turnlog.snapshots.full import FullSnapshots, kept_by, parts_content, parts_of
from turnlog.snapshots.routes import CreateSnapshot, Snapshot, SnapshotDeleted, SnapshotPage

_MAX_EXTRA_RECORDS = 200
"""Records that one clean-up reads beyond those that it keeps."""
_MAX_RECORDS = 4_000
"""Records that one clean-up of named snapshots reads."""
MAX_UNSEALED = 8
"""Most unsealed stretches that a request seals itself; with more of them, the snapshot becomes a job."""
_REQUEST_MS, _JOB_MS = 10_000, 120_000
_READY = "ready"
_AUTOMATIC: JsonObject = {"automatic": True}
"""Metadata of an automatic snapshot."""


class SnapshotCleaner:
    """Deletes records of snapshots, and starts the job that erases their bytes."""

    def __init__(self, log: SessionLog, start_job: StartJobs) -> None:
        self._log = log
        self._start_job = start_job

    def delete(self, keys: SessionKeys, record: Record) -> None:
        """Delete a snapshot's record. Repeated after a crash, it finishes the deletion."""
        if record.content.get("kind") != "full":
            self._log.records.delete(keys.snapshots, record)
            return
        stub: JsonObject = {"kind": "full", "parts": [replace(part, inline=None).encode() for part in parts_of(record)]}
        self._log.records.delete(keys.snapshots, record, left=stub)
        self.sweep(keys)

    def sweep(self, keys: SessionKeys) -> None:
        """Start the job that erases unneeded bytes. When the queue is down, the session's next sweep erases them."""
        with suppress(UnavailableError):
            self._start_job(keys.owner, "sweep", keys.session_id, {})

    def older(self, keys: SessionKeys, newest: Record, *, keep: int) -> None:
        """Delete the snapshots with the name, kind and agent of this one, except for the ``keep`` newest and pinned ones.

        Automatic snapshots and requested ones are counted separately. One call reads a bounded number of records; the next
        call deletes older ones.
        """
        count = 0
        for record in islice(self._log.records.every(keys.snapshots), keep + _MAX_EXTRA_RECORDS):
            if _group(record) == _group(newest) and not record.content.get("pinned"):
                count += 1
                if count > keep:
                    self.delete(keys, record)

    def named(self, keys: SessionKeys, policy: SnapshotPolicy) -> None:
        """Delete the named snapshots that are over the policy's number or age, the oldest first; pinned ones stay."""
        if policy.keep_named is None and policy.named_days is None:
            return
        records = islice(self._log.records.every(keys.snapshots), _MAX_RECORDS)
        named = [record for record in records if record.content.get("name") and not record.content.get("pinned")]
        count = policy.keep_named or len(named)
        oldest_ms = self._log.clock.now_ms() - policy.named_days * DAY_MS if policy.named_days else 0
        for index, record in reversed(list(enumerate(named))):
            if index >= count or record.created_ms < oldest_ms:
                self.delete(keys, record)


class DeleteSnapshots:
    """Use case: delete one snapshot, by id or name."""

    def __init__(self, log: SessionLog, clean: SnapshotCleaner) -> None:
        self._log = log
        self._clean = clean

    def __call__(self, owner: Owner, session_id: str, snapshot: str, *, key: str | None = None) -> SnapshotDeleted:
        keys, records = SessionKeys(owner, session_id), self._log.records
        request = raw_request_key(key, f"delete snapshot {session_id}", {"snapshot": snapshot})
        record_keys = keys.snapshots
        record_id = records.earlier_choice(record_keys, request)
        if record_id is None:
            match = find_snapshot(records, keys, snapshot)
            if match.content.get("kind") != "full":
                self._log.commits.tail(keys)  # raises NotFoundError: a ref expires with its session
            # After the deletion the name may stand for an older snapshot. A repeated request must not delete that one too.
            record_id = records.choose(record_keys, match.id, request)
        record = records.get_any(record_keys, record_id)
        if record is not None and record.status != DELETED:
            self._clean.delete(keys, record)
        elif record is not None and record.content:
            self._clean.sweep(keys)
        return SnapshotDeleted(snapshot_id=record_id, status="deleted")


class SweepSnapshots:
    """Work of a job: erase the bytes of deleted full snapshots that nothing else needs."""

    def __init__(self, log: SessionLog, blobs: BlobStore) -> None:
        self._log = log
        self._blobs = blobs

    def run(self, owner: Owner, session_id: str, _options: JsonObject) -> JsonObject:
        """Erase the bytes and return the number of erased blobs. Safe to repeat and to run twice at once."""
        keys = SessionKeys(owner, session_id)
        stubs = [record for record in self._log.records.every(keys.snapshots, deleted=True) if record.content]
        if not stubs:
            return {"blobs": 0}
        parts = {part.blob for record in stubs for part in parts_of(record)}
        unneeded = {name for name in parts if name.startswith(SNAPSHOT_BLOBS)}
        slots, lease = SlotLeases(self._log.items, self._log.clock), None
        first = slots.read(keys)
        if self._log.commits.find_tail(keys) is None and not (first is not None and MATERIALISING in first):
            if first is not None and keeps_snapshots(first):
                lease = slots.take(keys, first)
                if lease is None:
                    raise ConflictError(
                        "another process is erasing or restoring this session; try again", retry_after_seconds=1
                    )
            # Without the log, only snapshots need segments and payloads. The lease keeps the session from being restored meanwhile.
            retained = kept_by(self._log.records.every(keys.snapshots))
            payloads = self._blobs.names(keys.blob_prefix + PAYLOAD_BLOBS)
            candidates = parts | {name.removeprefix(keys.blob_prefix) for name in payloads}
            unneeded |= {name for name in candidates if not retained.needs(name)}
        for name in sorted(unneeded):
            self._blobs.erase(keys.blob_prefix + name)
        for record in stubs:
            self._log.records.delete(keys.snapshots, record)
        if lease is not None:
            slots.leave(lease, free=lease.before)
        return {"blobs": len(unneeded)}


class CreateSnapshots:
    """Use case: create a snapshot at the head of a session.

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
        tail = self._log.commits.tail(keys)
        header = tail.header
        record_id = self._log.records.claim(keys.snapshots, request)
        is_large = body.kind == "full" and self._full.unsealed(keys, header.last) > MAX_UNSEALED
        if is_large and request is not None and self._log.records.get(keys.snapshots, record_id) is not None:
            is_large = False  # an earlier try of this request made it, when the history was shorter
        if body.mode == "sync" and not is_large:
            snapshot = self._create(keys, body, record_id, tail, deadline_ms=self._log.clock.now_ms() + _REQUEST_MS)
            if snapshot is not None:
                return snapshot
        # The snapshot's id is also the job's: a repeated request gets the same job.
        options = {**body.model_dump(exclude={"mode"}), "snapshot_id": record_id}
        return self._start_job(owner, "snapshot", session_id, options, job_id=record_id)

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """Create the snapshot that a job was asked for. A job that is delivered twice creates one snapshot."""
        keys, fields = SessionKeys(owner, session_id), dict(options)
        record_id = fields.pop("snapshot_id", None) or self._log.records.claim(keys.snapshots, None)
        body, tail = CreateSnapshot.model_validate(fields), self._log.commits.tail(keys)
        deadline_ms = self._log.clock.now_ms() + _JOB_MS
        snapshot = self._create(keys, body, str(record_id), tail, deadline_ms=deadline_ms)
        if snapshot is None:
            raise UnavailableError("the history is not sealed yet; the next try continues")
        return {"snapshot_id": snapshot.snapshot_id, "position": snapshot.position}

    def _create(
        self, keys: SessionKeys, body: CreateSnapshot, record_id: str, tail: Tail, *, deadline_ms: int
    ) -> Snapshot | None:
        """Store the snapshot's record; None when the deadline passed before its history was stored."""
        record_keys, records, header = keys.snapshots, self._log.records, tail.header
        content = ref_content(header) | {"name": body.name, "agent": body.agent_id, "metadata": body.metadata}
        if body.pinned:
            content["pinned"] = True
        record = Record(record_id, self._log.clock.now_ms(), _READY, content)
        if body.kind == "full":
            # An earlier try may have made this record. It stays as it is: its tail belongs to it alone.
            existing = records.get_any(record_keys, record_id)
            if existing is None:
                parts = self._full.make(keys, record_id, header.last, deadline_ms=deadline_ms)
                if parts is None:
                    return None
                record = replace(record, content={**content, "kind": "full", **parts_content(parts)})
        if body.if_name_absent and body.name is not None and not records.take_name(record_keys, body.name, record):
            raise ConflictError(f"a snapshot has the name {body.name!r}", code="snapshot_exists")
        record = records.create(record_keys, record)
        if record.status == DELETED:
            raise ConflictError("the snapshot of this request has been deleted", code="snapshot_deleted")
        if body.name is not None and not body.if_name_absent:
            records.point_name(record_keys, body.name, record)
        # The snapshot is durable already: the next one cleans up what this one can't.
        with suppress(UnavailableError):
            self._clean_up(keys, body, tail, record)
        return Snapshot(**snapshot_fields(record))

    def _clean_up(self, keys: SessionKeys, body: CreateSnapshot, tail: Tail, record: Record) -> None:
        if body.keep is not None:
            self._clean.older(keys, record, keep=body.keep)
        policy = self._log.short_settings(keys, tail).settings.snapshots if body.name is not None else None
        if policy is not None:
            self._clean.named(keys, _policy(policy))


class ListSnapshots(LogUseCase):
    """Use case: list a session's snapshots, newest first. After the session has expired, its full snapshots remain."""

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
        kind = None
        if self._log.commits.find_tail(keys) is None:
            self._log.records.check_there(keys)
            kind = "full"
        wanted = without_none({"name": name, "agent": agent, "kind": kind})
        records, following = self._log.page_of_records(
            keys.snapshots,
            lambda record: wanted.items() <= record.content.items(),
            limit=limit,
            cursor=cursor,
            scope=f"snapshots {keys.partition} {encode_json([name, agent]).decode()}",
        )
        if not records and kind is not None:
            raise NotFoundError(f"no session {session_id!r}")
        snapshots = [Snapshot(**snapshot_fields(record)) for record in records]
        return SnapshotPage(snapshots=snapshots, next_cursor=following)


def ref_content(header: Header) -> JsonObject:
    """Return the fields of a ``ref`` record that say where it points to."""
    return {"kind": "ref", "position": header.last, "commit": header.first, "hash": header.hash.hex()}


def exported_record(line: ExportedSnapshot, pointer: str) -> Record:
    """Return the record of an exported snapshot, as yet without the fields of `ref_content`."""
    if line.agent_id is not None:
        check_agent_id(line.agent_id, pointer=f"{pointer}/agent_id")
    content: JsonObject = {"name": line.name, "agent": line.agent_id, "metadata": line.metadata}
    flags = {"pinned": line.pinned, "auto": line.name is None and line.metadata == _AUTOMATIC}
    content |= {name: True for name, is_set in flags.items() if is_set}
    return Record(line.snapshot_id, exported_ms(line.created_at, f"{pointer}/created_at"), _READY, content)


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
        "pinned": content.get("pinned", False),
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

        The first append of a day also deletes old named snapshots. Repeated for the same append, it creates the same snapshot.
        """
        keys = SessionKeys(owner, session_id)
        if before.last + 1 != header.first:
            # A repeated append: the caller passes the log's end, which is not the commit before this one.
            commit = self._log.commits.find_holding(keys, header.first - 1)
            before = commit.header if commit is not None else header
        policy = _policy(settings.snapshots)
        if header.time_ms // DAY_MS != before.time_ms // DAY_MS:
            with suppress(UnavailableError):
                self._clean.named(keys, policy)
        if policy.every_loops is None or _ended(header) // policy.every_loops <= _ended(before) // policy.every_loops:
            return
        record_id = f"{header.time_ms:013d}-{short_hash(f'automatic {session_id} {header.first}').hex()}"
        content = ref_content(before) | {"name": None, "agent": None, "metadata": _AUTOMATIC, "auto": True}
        with suppress(UnavailableError):
            record = self._log.records.create(keys.snapshots, Record(record_id, header.time_ms, _READY, content))
            self._clean.older(keys, record, keep=policy.keep)


def _group(record: Record) -> tuple[object, ...]:
    content = record.content
    return content.get("name"), content.get("kind"), content.get("agent"), content.get("auto", False)


def _policy(stored: JsonObject | None) -> SnapshotPolicy:
    return SnapshotPolicy.model_validate_json(encode_json(stored))


def _ended(header: Header) -> int:
    """Return the number of loops that have certainly ended: all but the newest."""
    return max(0, header.flow.loop.number - 1)
