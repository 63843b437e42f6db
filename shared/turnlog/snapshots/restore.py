"""Restore a snapshot: its session goes back to it, or another session begins with it, also after the session has expired.

While the session is live, a snapshot points into its log. After the session's expiry, the history of a full snapshot makes a
new log with the same positions, times and hashes. The session appears when all of it is written. One more entry in its
history names the snapshot. Its own id can be used again once the rest of the expired session has been erased.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, cast

from turnlog.core.errors import ConflictError, CorruptError, InvalidInputError, SessionExistsError
from turnlog.core.events import RESTORE, NoteEvent
from turnlog.core.identity import Owner, check_session_id
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.jobs.models import Job
from turnlog.jobs.worker import StartJobs
from turnlog.log.commit import Commit
from turnlog.log.commits import Draft
from turnlog.log.headers import Header, following, short_hash
from turnlog.log.keys import SessionKeys
from turnlog.log.payloads import Payloads
from turnlog.log.records import Record
from turnlog.log.request_keys import RequestKey, raw_request_key
from turnlog.sessions.lifecycle import CreateSessions, derived_session_id
from turnlog.sessions.models import CreateSession, ForkPoint, Session
from turnlog.sessions.read import GetSession
from turnlog.sessions.rewind_and_fork import RewindSessions
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.full import FullSnapshots
from turnlog.snapshots.lifecycle import find_snapshot
from turnlog.snapshots.materialise import Materialiser
from turnlog.snapshots.read import SnapshotLogs
from turnlog.snapshots.routes import RestoreSnapshot
from turnlog.snapshots.segment_format import SealedCommit

if TYPE_CHECKING:
    from turnlog.privacy.erase import EraseSessions


def add_restore_note(
    log: SessionLog,
    keys: SessionKeys,
    last: Header,
    token: bytes,
    metadata: JsonObject,
    *,
    request: RequestKey | None = None,
) -> Header:
    """Add the history entry that names the snapshot or import behind the commit of ``last``; return its header.

    The session must not be visible yet. Repeated, it returns the same entry. The entry carries the request's key, so a
    repeated request finds its commit in the restored session.
    """
    existing = log.commits.get(keys, last.last + 1)
    if existing is not None:
        return existing.header
    if request is not None:
        log.commits.begin_request(keys, request, head=last.last)
    new = following(last, kind="h", events=1, now_ms=log.clock.now_ms())
    draft = Draft(new, (NoteEvent(new.first, RESTORE, None, metadata),))
    stamp = request.stamp if request is not None else b""
    commit = log.commits.put(keys, draft, nonce=token[:8], previous=last.hash, stamp=stamp)
    if commit is None:
        message = "another restore of this session is running; try again"
        raise ConflictError(message, code="id_claimed", retry_after_seconds=1)
    return commit.header


MAX_POSITIONS = 2_048
"""Longest history that a request restores itself; a longer one is restored by a job."""


@lazy_dataclass(frozen=True, slots=True)
class RestoreSnapshots:
    """Use case: restore a snapshot. A repeated request returns the same session, and no existing session is overwritten."""

    log: SessionLog
    payloads: Payloads
    logs: SnapshotLogs
    full: FullSnapshots
    materialiser: Materialiser
    rewind: RewindSessions
    create: CreateSessions
    erase: EraseSessions
    start_job: StartJobs

    def __call__(
        self, owner: Owner, session_id: str, snapshot: str, body: RestoreSnapshot, *, key: str | None = None
    ) -> Session | Job:
        keys = SessionKeys(owner, session_id)
        record = find_snapshot(self.log.records, keys, snapshot)
        payload: JsonObject = {"snapshot": snapshot, **body.model_dump()}
        request = raw_request_key(key, f"restore {session_id}", payload)
        is_live, position = self.logs.live_commit(keys, record) is not None, cast("int", record.content["position"])
        if body.as_ == "rewind":
            target = session_id
            if body.session_id not in (None, session_id):
                message = "a rewind restores the snapshot's own session: leave session_id out"
                raise InvalidInputError.at("/session_id", message, "not_its_session")
            if is_live:
                find_earlier = partial(self._restore_note, keys, record)
                self.rewind.to(keys, position, request=request, snapshot_id=record.id, find_earlier=find_earlier)
                return GetSession(self.log)(owner, session_id)
        elif is_live:
            point = ForkPoint(session_id=session_id, at=position)
            created = self.create(owner, CreateSession(session_id=body.session_id, fork=point), key=key)
            return created.session
        else:
            target = self._new_session_id(owner, body, request)
        if position > MAX_POSITIONS:
            options: JsonObject = {"snapshot_id": record.id, "target": target}
            if request is not None:
                options["request"] = [request.key_hash.hex(), request.payload_hash.hex()]
            if target == session_id and record.content["kind"] == "full":
                self.erase.make_way(keys, _token(keys, record))
            return self.start_job(owner, "restore", session_id, options, request)
        self._restore(keys, record, SessionKeys(owner, target), request)
        return GetSession(self.log)(owner, target)

    def _new_session_id(self, owner: Owner, body: RestoreSnapshot, request: RequestKey | None) -> str:
        """Return the id that the body names, or an id that follows from the request's key."""
        if body.session_id is not None:
            return check_session_id(body.session_id)
        seed = request.key_hash if request is not None else self.log.ids.new_id().encode()
        return derived_session_id(owner, b"restore#" + seed)

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """Restore the snapshot that a job was asked for."""
        keys = SessionKeys(owner, session_id)
        record = find_snapshot(self.log.records, keys, str(options.get("snapshot_id")))
        target = SessionKeys(owner, str(options["target"]))
        key = cast("list[str] | None", options.get("request"))
        request = RequestKey(*map(bytes.fromhex, key)) if key is not None else None
        header = self._restore(keys, record, target, request)
        return {"session_id": target.session_id, "position": header.last}

    def _restore(self, keys: SessionKeys, record: Record, target: SessionKeys, request: RequestKey | None) -> Header:
        """Write the session as it was at the snapshot, and an entry that names the snapshot; return its header.

        An interrupted run leaves nothing visible; a repeated one continues it.
        """
        archive = self.full.archive(keys, record)
        first = next(archive.commits(), None)
        if first is None:
            raise CorruptError("a snapshot without a history", item=record.id)
        token, is_own = _token(keys, record), target == keys
        if is_own:
            self.erase.make_way(keys, token)
        if not self.materialiser.begin(target, first, token, again=is_own):
            earlier = self._restore_note(target, record)
            if earlier is None:
                raise SessionExistsError(f"session {target.session_id!r} exists")
            return earlier.header
        last = first.commit.header

        def tracked_commits() -> Iterable[SealedCommit]:
            nonlocal last
            for sealed in archive.commits():
                last = sealed.commit.header
                yield sealed

        self.materialiser.add(target, tracked_commits(), partial(self.payloads.content, keys))
        metadata: JsonObject = {"snapshot_id": record.id, "position": last.last}
        note = add_restore_note(self.log, target, last, token, metadata, request=request)
        self.materialiser.finish(target, note, token)
        return note

    def _restore_note(self, target: SessionKeys, record: Record) -> Commit | None:
        """Return the restore note of a session that was made of the snapshot; None when it was not."""
        commit = self.log.commits.get(target, cast("int", record.content["position"]) + 1)
        note = next(iter(self.log.commits.events(target, [commit])), None) if commit is not None else None
        metadata = note.metadata if isinstance(note, NoteEvent) and note.action == RESTORE else None
        return commit if metadata is not None and metadata.get("snapshot_id") == record.id else None


def _token(keys: SessionKeys, record: Record) -> bytes:
    """Return the token that all requests to restore this snapshot share."""
    return short_hash(f"{RESTORE} {keys.session_id} {record.id} {record.content['hash']}")
