"""Delete snapshots: a deleted record disappears at once; a job erases the bytes that nothing else needs.

The stub of a deleted full snapshot names its parts until they are erased, so an interrupted sweep loses track of nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice

from turnlog.core.errors import ConflictError, NotFoundError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.jobs.worker import StartJobs
from turnlog.log.keys import PAYLOAD_BLOBS, SNAPSHOT_BLOBS, SessionKeys, is_record_id
from turnlog.log.records import DELETED, Record
from turnlog.log.request_keys import raw_request_key
from turnlog.log.tombstones import MATERIALISING, SlotLeases, keeps_snapshots
from turnlog.ports import BlobStore
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.full import FullSnapshots, parts_of
from turnlog.snapshots.models import SnapshotDeleted

_MAX_EXTRA_RECORDS = 200
"""Records that one clean-up reads beyond those that it keeps."""


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

    def older(self, keys: SessionKeys, *, kind: str, agent: str | None, keep: int, automatic: bool = False) -> None:
        """Delete the unnamed snapshots of a kind and an agent, except for the ``keep`` newest.

        Automatic snapshots and requested ones are counted separately. One call reads a bounded number of records; the next
        call deletes older ones.
        """
        wanted_group, seen = (None, kind, agent, automatic), 0
        for record in islice(self._log.records.every(keys.snapshots), keep + _MAX_EXTRA_RECORDS):
            content = record.content
            group = (content.get("name"), content.get("kind"), content.get("agent"), content.get("auto", False))
            if group == wanted_group:
                seen += 1
                if seen > keep:
                    self.delete(keys, record)


class DeleteSnapshots:
    """Delete one snapshot, by id or name."""

    def __init__(self, log: SessionLog, clean: SnapshotCleaner) -> None:
        self._log = log
        self._clean = clean

    def __call__(self, owner: Owner, session_id: str, snapshot: str, *, key: str | None = None) -> SnapshotDeleted:
        keys, records = SessionKeys(owner, session_id), self._log.records
        request = raw_request_key(key, f"delete snapshot {session_id}", {"snapshot": snapshot})
        shelf = keys.snapshots
        record_id = records.chosen_before(shelf, request)
        if record_id is None:
            records.check_there(keys)
            match = records.get(shelf, snapshot) if is_record_id(snapshot) else None
            match = match if match is not None else records.named(shelf, snapshot)
            if match is None:
                raise NotFoundError(f"no snapshot {snapshot[:80]!r} in session {session_id!r}")
            if match.content.get("kind") != "full":
                self._log.commits.tail(keys)  # raises NotFoundError: a ref expires with its session
            # After the deletion the name may stand for an older snapshot. A repeated request must not delete that one too.
            record_id = records.chosen(shelf, match.id, request)
        record = records.get_any(shelf, record_id)
        if record is not None and record.status != DELETED:
            self._clean.delete(keys, record)
        elif record is not None and record.content:
            self._clean.sweep(keys)
        return SnapshotDeleted(snapshot_id=record_id, status="deleted")


class SweepSnapshots:
    """Erase the bytes of deleted full snapshots that nothing else needs. The work of a job."""

    def __init__(self, log: SessionLog, blobs: BlobStore, full: FullSnapshots) -> None:
        self._log = log
        self._blobs = blobs
        self._full = full

    def run(self, owner: Owner, session_id: str, _options: JsonObject) -> JsonObject:
        """Erase the bytes and return the number of erased blobs. Safe to repeat and to run twice at once."""
        keys = SessionKeys(owner, session_id)
        stubs = [record for record in self._log.records.every(keys.snapshots, deleted=True) if record.content]
        if not stubs:
            return {"blobs": 0}
        unneeded = {part.blob for record in stubs for part in parts_of(record) if part.blob.startswith(SNAPSHOT_BLOBS)}
        slots, lease = SlotLeases(self._log.items, self._log.clock), None
        first = slots.read(keys)
        if not self._is_live(keys) and not (first is not None and MATERIALISING in first):
            if first is not None and keeps_snapshots(first):
                lease = slots.take(keys, first)
                if lease is None:
                    raise ConflictError(
                        "another process is erasing or restoring this session; try again", retry_after_seconds=1
                    )
            # Without the log, only snapshots need segments and payloads. The lease keeps the session from being restored meanwhile.
            retained = self._full.kept(keys)
            candidates = {part.blob for record in stubs for part in parts_of(record)}
            payloads = self._blobs.names(keys.blob_prefix + PAYLOAD_BLOBS)
            candidates |= {name[len(keys.blob_prefix) :] for name in payloads}
            unneeded |= {name for name in candidates if not retained.needs(name)}
        for name in sorted(unneeded):
            self._blobs.erase(keys.blob_prefix + name)
        for record in stubs:
            self._log.records.delete(keys.snapshots, record)
        if lease is not None:
            slots.leave(lease, free=lease.before)
        return {"blobs": len(unneeded)}

    def _is_live(self, keys: SessionKeys) -> bool:
        try:
            self._log.commits.tail(keys)
        except NotFoundError:
            return False
        return True
