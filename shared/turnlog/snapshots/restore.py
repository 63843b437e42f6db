"""Restoring a snapshot: its session goes back to it, or another session begins with it; also when the session has expired.

While the session is live, its log is what a snapshot points to. After its expiry a session is made of the full snapshot's history:
the same positions, times and hashes, seen when all of it is there, and one entry in its history that tells where it came from.
Under its own id too, as soon as all else of it has been erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from turnlog.core.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    Problem,
    SessionExistsError,
)
from turnlog.core.events import Event, NoteEvent, Payload
from turnlog.core.identity import Owner, check_session_id
from turnlog.core.json_values import JsonObject
from turnlog.jobs.models import Job
from turnlog.jobs.worker import StartJobs
from turnlog.log.commits import Commit, Draft
from turnlog.log.headers import Header, following
from turnlog.log.idempotency import raw_request_key
from turnlog.log.keys import SessionKeys
from turnlog.log.payloads import Payloads
from turnlog.log.records import Record
from turnlog.log.request_keys import RequestKey
from turnlog.sessions.create import CreateSessions, made_id
from turnlog.sessions.models import CreateSession, ForkPoint, Session
from turnlog.sessions.read import GetSession
from turnlog.sessions.session_log import SessionLog
from turnlog.sessions.time_travel import RewindSessions
from turnlog.snapshots.create import find_snapshot
from turnlog.snapshots.full import FullSnapshots
from turnlog.snapshots.materialise import Materialiser
from turnlog.snapshots.models import RestoreSnapshot
from turnlog.snapshots.read import SnapshotLogs
from turnlog.snapshots.segment_format import SealedCommit

if TYPE_CHECKING:
    from turnlog.privacy.erase_session import EraseSessions

RESTORE = "restore"


def told(
    log: SessionLog,
    keys: SessionKeys,
    last: Header,
    token: bytes,
    metadata: JsonObject,
    *,
    request: RequestKey | None = None,
) -> Header:
    """Adds the entry behind the commit of a header, while nobody sees the session. Again, it is the same entry.

    It carries the request's key, so that the same request finds its commit when the session is there again.
    """
    existing = log.commits.get(keys, last.last + 1)
    if existing is not None:
        return existing.header
    if request is not None:
        log.commits.request_keys.put(keys, request, head=last.last)
    new = following(last, kind="h", events=1, now_ms=log.clock.now_ms())
    new = replace(new, nonce=token[:8], idempotency=request.stamp if request is not None else b"")
    draft = Draft(new, (NoteEvent(new.first, RESTORE, None, metadata),))
    made = log.commits.put(keys, draft, nonce=token[:8], previous=last.hash)
    if made is None:
        raise ConflictError("another restore goes on in this session", code="id_claimed")
    return made.header


def tells_of(commit: Commit | None, events: Sequence[Event], snapshot_id: str) -> bool:
    """Whether a commit is the entry of a session that was made of this snapshot."""
    note = events[0] if commit is not None and events else None
    metadata = note.metadata if isinstance(note, NoteEvent) and note.action == RESTORE else None
    return metadata is not None and metadata.get("snapshot_id") == snapshot_id


MAX_POSITIONS = 2_048
"""A request restores a history of at most so many positions itself; a longer one is a job."""


class RestoreSnapshots:
    """The use case. The same request again is the same session; it never writes over one."""

    def __init__(
        self,
        log: SessionLog,
        payloads: Payloads,
        logs: SnapshotLogs,
        full: FullSnapshots,
        materialiser: Materialiser,
        rewind: RewindSessions,
        create: CreateSessions,
        erase: EraseSessions,
        start_job: StartJobs,
    ) -> None:
        self._log = log
        self._payloads = payloads
        self._logs = logs
        self._full = full
        self._materialiser = materialiser
        self._rewind = rewind
        self._create = create
        self._erase = erase
        self._start_job = start_job

    def __call__(
        self, owner: Owner, session_id: str, snapshot: str, body: RestoreSnapshot, *, key: str | None = None
    ) -> Session | Job:
        keys = SessionKeys(owner, session_id)
        record = find_snapshot(self._log.records, keys, snapshot)
        payload: JsonObject = {"snapshot": snapshot, **body.model_dump()}
        request = raw_request_key(key, f"restore {session_id}", payload)
        is_live, position = self._logs.live(keys, record) is not None, cast("int", record.content["position"])
        if body.as_ == "rewind":
            target = session_id
            if body.session_id not in (None, session_id):
                message = "a rewind is of the snapshot's own session"
                raise InvalidInputError(message, problems=[Problem("not_its_session", "/session_id", message)])
            if is_live:
                self._rewind.to(
                    keys, position, request=request, snapshot_id=record.id, made=self._made_by(keys, record)
                )
                return GetSession(self._log)(owner, session_id)
        elif is_live:
            point = ForkPoint(session_id=session_id, at=position)
            made = self._create(owner, CreateSession(session_id=body.session_id, fork=point), key=key)
            return made.session
        elif body.session_id is not None:
            target = check_session_id(body.session_id)
        else:
            seed = request.key_hash if request is not None else self._log.ids.new_id().encode()
            target = made_id(owner, b"restore#" + seed)
        if position > MAX_POSITIONS:
            options: JsonObject = {"snapshot_id": record.id, "target": target}
            if request is not None:
                options["request"] = [request.key_hash.hex(), request.payload_hash.hex()]
            if target == session_id and record.content["kind"] == "full":
                self._erase.make_way(keys, _token(keys, record))
            return self._start_job(owner, "restore", session_id, options, request)
        self._restore(keys, record, SessionKeys(owner, target), request)
        return GetSession(self._log)(owner, target)

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """A job's work."""
        keys, target = SessionKeys(owner, session_id), SessionKeys(owner, str(options["target"]))
        record = find_snapshot(self._log.records, keys, str(options["snapshot_id"]))
        key = cast("list[str] | None", options.get("request"))
        request = RequestKey(*map(bytes.fromhex, key)) if key is not None else None
        header = self._restore(keys, record, target, request)
        return {"session_id": target.session_id, "position": header.last}

    def _restore(self, keys: SessionKeys, record: Record, target: SessionKeys, request: RequestKey | None) -> Header:
        """The session at the snapshot, and one entry that tells of it. Ended in between, nobody sees it; again, it goes on."""
        commits = self._commits(keys, record)
        first = next(iter(commits), None)
        if first is None:
            raise CorruptError("a snapshot without a history", item=record.id)
        digest, token, is_own = str(record.content["hash"]), _token(keys, record), target == keys
        if is_own:
            self._erase.make_way(keys, token)
        if not self._materialiser.begin(target, first, token, again=is_own):
            return self._made_before(target, record)
        last = first.commit.header

        def counted() -> Iterable[SealedCommit]:
            nonlocal last
            for sealed in self._commits(keys, record):
                last = sealed.commit.header
                yield sealed

        self._materialiser.add(target, counted(), self._blob_of(keys))
        if last.hash.hex() != digest:
            raise CorruptError("a snapshot does not end with the commit that it was made at", item=record.id)
        metadata: JsonObject = {"snapshot_id": record.id, "position": last.last}
        noted = told(self._log, target, last, token, metadata, request=request)
        self._materialiser.finish(target, noted, token)
        return noted

    def _commits(self, keys: SessionKeys, record: Record) -> Iterable[SealedCommit]:
        """What the snapshot has, one after the other."""
        if record.content["kind"] != "full":
            raise NotFoundError(
                f"session {keys.session_id!r} is not there any more, and the snapshot is only a pointer to it"
            )
        return self._full.archive(keys, record).commits()

    def _blob_of(self, keys: SessionKeys) -> Callable[[Payload], bytes]:
        return lambda payload: self._payloads.fetch(keys, [payload])[payload.place]

    def _made_before(self, target: SessionKeys, record: Record) -> Header:
        """The entry of an earlier try; without one it is another session that began so: `SessionExistsError`."""
        commit = self._made_by(target, record)()
        if commit is None:
            raise SessionExistsError(f"session {target.session_id!r} exists")
        return commit.header

    def _made_by(self, target: SessionKeys, record: Record) -> Callable[[], Commit | None]:
        """Asks for the entry of a session that was made of the snapshot."""

        def made() -> Commit | None:
            commit = self._log.commits.get(target, cast("int", record.content["position"]) + 1)
            events = self._log.commits.events(target, [commit]) if commit is not None else []
            return commit if tells_of(commit, events, record.id) else None

        return made


def _token(keys: SessionKeys, record: Record) -> bytes:
    """Of all requests that restore this snapshot."""
    return sha256(f"{RESTORE} {keys.session_id} {record.id} {record.content['hash']}".encode()).digest()[:16]
