"""Deleting snapshots. A record is gone at once for all who ask; the bytes that nothing else needs are swept by a job.

What is left of a deleted full snapshot names its parts until they are swept: nothing is forgotten when a sweep ends half-way.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice

from turnlog.core.errors import ConflictError, NotFoundError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.jobs.worker import StartJobs
from turnlog.log.idempotency import raw_request_key
from turnlog.log.keys import PAYLOAD_BLOBS, SNAPSHOT_BLOBS, SessionKeys, is_record_id
from turnlog.log.records import DELETED, Record
from turnlog.log.tombstones import MATERIALISING, SlotLeases, keeps_snapshots
from turnlog.ports import BlobStore
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.full import FullSnapshots, parts_of
from turnlog.snapshots.models import SnapshotDeleted

_LOOKED_AT = 200


class SnapshotCleaner:
    """Takes snapshots out of sight, and asks for the sweep of what they leave."""

    def __init__(self, log: SessionLog, start_job: StartJobs) -> None:
        self._log = log
        self._start_job = start_job

    def delete(self, keys: SessionKeys, record: Record) -> None:
        """Again after a crash: the same."""
        if record.content.get("kind") != "full":
            self._log.records.delete(keys.snapshots, record)
            return
        left: JsonObject = {"kind": "full", "parts": [replace(part, inline=None).encode() for part in parts_of(record)]}
        self._log.records.delete(keys.snapshots, record, left=left)
        self.sweep(keys)

    def sweep(self, keys: SessionKeys) -> None:
        """Asks for a sweep. One that can't be asked for is done with the session's next."""
        with suppress(UnavailableError):
            self._start_job(keys.owner, "sweep", keys.session_id, {})

    def older(self, keys: SessionKeys, *, kind: str, agent: str | None, keep: int, automatic: bool = False) -> None:
        """Deletes the unnamed snapshots of a kind and an agent but for the newest ones; those that the session has made by itself
        and those that were asked for apart. Looks at so many records at a time that it stays cheap; what is older is done the
        next time.
        """
        wanted, seen = (None, kind, agent, automatic), 0
        for record in islice(self._log.records.every(keys.snapshots), keep + _LOOKED_AT):
            content = record.content
            told = (content.get("name"), content.get("kind"), content.get("agent"), content.get("auto", False))
            if told == wanted:
                seen += 1
                if seen > keep:
                    self.delete(keys, record)


class DeleteSnapshots:
    """The use case: one snapshot, by id or name."""

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
            found = records.get(shelf, snapshot) if is_record_id(snapshot) else None
            found = found if found is not None else records.named(shelf, snapshot)
            if found is None:
                raise NotFoundError(f"no snapshot {snapshot[:80]!r} in session {session_id!r}")
            if found.content.get("kind") != "full":
                self._log.commits.tail(keys)  # it is gone with its session
            # A name may stand for an older snapshot once this one is gone: the same request again must not take that one too.
            record_id = records.chosen(shelf, found.id, request)
        record = records.get_any(shelf, record_id)
        if record is not None and record.status != DELETED:
            self._clean.delete(keys, record)
        elif record is not None and record.content:
            self._clean.sweep(keys)
        return SnapshotDeleted(snapshot_id=record_id, status="deleted")


class SweepSnapshots:
    """The use case of the worker: removes the bytes that deleted full snapshots have left and nothing else needs."""

    def __init__(self, log: SessionLog, blobs: BlobStore, full: FullSnapshots) -> None:
        self._log = log
        self._blobs = blobs
        self._full = full

    def run(self, owner: Owner, session_id: str, _options: JsonObject) -> JsonObject:
        """A job's work: how many blobs it has removed. Again, or twice at once: the same."""
        keys = SessionKeys(owner, session_id)
        left = [record for record in self._log.records.every(keys.snapshots, deleted=True) if record.content]
        if not left:
            return {"blobs": 0}
        gone = {part.blob for record in left for part in parts_of(record) if part.blob.startswith(SNAPSHOT_BLOBS)}
        slots, held = SlotLeases(self._log.items, self._log.clock), None
        first = slots.read(keys)
        if not self._is_live(keys) and not (first is not None and MATERIALISING in first):
            if first is not None and keeps_snapshots(first):
                held = slots.take(keys, first)
                if held is None:
                    raise ConflictError("another one is at work there", retry_after_seconds=1)
            # Without the log, segments and payloads are there for snapshots alone; and nobody begins the session again meanwhile.
            kept = self._full.kept(keys)
            named = {part.blob for record in left for part in parts_of(record)}
            payloads = self._blobs.names(keys.blob_prefix + PAYLOAD_BLOBS)
            named |= {name[len(keys.blob_prefix) :] for name in payloads}
            gone |= {name for name in named if not kept.needs(name)}
        for name in sorted(gone):
            self._blobs.erase(keys.blob_prefix + name)
        for record in left:
            self._log.records.delete(keys.snapshots, record)
        if held is not None:
            slots.leave(held, free=held.before)
        return {"blobs": len(gone)}

    def _is_live(self, keys: SessionKeys) -> bool:
        try:
            self._log.commits.tail(keys)
        except NotFoundError:
            return False
        return True
