"""Snapshots: named points of a session. A ``ref`` points into the log, which is never rewritten, so it copies nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from turnlog.contracts.cursors import Cursors
from turnlog.contracts.jobs import Job
from turnlog.contracts.snapshots import CreateSnapshot, Snapshot, SnapshotContent, SnapshotPage, WholeSnapshot
from turnlog.domain.errors import ConflictError, CorruptError, NotFoundError
from turnlog.domain.identity import Owner, check_agent_id
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.domain.times import rfc3339
from turnlog.log.commits import Commit
from turnlog.log.keys import SessionKeys, commit_sort_key, is_record_id
from turnlog.log.records import Record
from turnlog.log.sessions import SessionLog
from turnlog.services.idempotency import RequestKey, request_key, stamped
from turnlog.services.jobs import StartJobs
from turnlog.services.read_messages import ReadMessages

MAX_LIMIT = 100
_READY = "ready"
_PAGES = 10


class CreateSnapshots:
    """The use case: one conditional put that names the head (a second one for the name)."""

    def __init__(self, log: SessionLog, start_job: StartJobs) -> None:
        self._log = log
        self._start_job = start_job

    def __call__(
        self, owner: Owner, session_id: str, body: CreateSnapshot, *, key: str | None = None
    ) -> Snapshot | Job:
        keys = SessionKeys(owner, session_id)
        if body.agent_id is not None:
            check_agent_id(body.agent_id)
        request = request_key(key, f"snapshot {session_id}", body)
        if body.mode == "async":
            self._log.commits.tail(keys)
            return self._start_job(owner, "snapshot", session_id, body.model_dump(exclude={"mode"}), request)
        return self._create(keys, body, request)

    def run(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        """A job's work."""
        made = self._create(SessionKeys(owner, session_id), CreateSnapshot.model_validate(options), None)
        return {"snapshot_id": made.snapshot_id, "position": made.position}

    def _create(self, keys: SessionKeys, body: CreateSnapshot, request: RequestKey | None) -> Snapshot:
        header = self._log.commits.tail(keys).header
        shelf, records = keys.snapshots, self._log.records
        record_id = records.claim(shelf, **stamped(request))
        content: JsonObject = {
            "kind": body.kind,
            "position": header.last,
            "commit": header.first,
            "hash": header.hash.hex(),
            "name": body.name,
            "agent": body.agent_id,
            "metadata": body.metadata,
        }
        record = Record(record_id, self._log.clock.now_ms(), _READY, content)
        if body.if_name_absent and body.name is not None and not records.take_name(shelf, body.name, record):
            raise ConflictError(f"a snapshot has the name {body.name!r}", code="snapshot_exists")
        record = records.create(shelf, record)
        if body.name is not None and not body.if_name_absent:
            records.point_name(shelf, body.name, record)
        return Snapshot(**_fields(record))


class GetSnapshot:
    """The use case: a snapshot by id or name, with what the session was at its position."""

    def __init__(self, log: SessionLog, read_messages: ReadMessages) -> None:
        self._log = log
        self._read_messages = read_messages

    def __call__(self, owner: Owner, session_id: str, snapshot: str) -> WholeSnapshot:
        keys = SessionKeys(owner, session_id)
        self._log.commits.tail(keys)
        record = self._find(keys, snapshot)
        position = cast("int", record.content["position"])
        commit = self._commit(keys, record)
        settings = self._log.settings_at(keys, commit.header).settings
        state = self._log.states.at(keys, commit.header.last_state)
        page = self._read_messages(owner, session_id, before=position + 1)
        flow = commit.header.flow
        content = SnapshotContent(
            system=settings.system,
            model=settings.model,
            tools=list(settings.tools),
            policy=settings.policy,
            metadata=settings.metadata,
            state=state.value,
            message_count=flow.messages,
            loops=flow.loop.number,
            tokens=flow.tokens,
            messages=page.messages,
            next=page.next,
        )
        return WholeSnapshot(**_fields(record), content=content)

    def _find(self, keys: SessionKeys, snapshot: str) -> Record:
        shelf, records = keys.snapshots, self._log.records
        record = records.get(shelf, snapshot) if is_record_id(snapshot) else None
        record = record if record is not None else records.named(shelf, snapshot)
        if record is None:
            raise NotFoundError(f"no snapshot {snapshot[:80]!r} in session {keys.session_id!r}")
        return record

    def _commit(self, keys: SessionKeys, record: Record) -> Commit:
        """The commit that the snapshot points to, which must be the one that it was made at."""
        first = cast("int", record.content["commit"])
        commit = self._log.commits.get(keys, first)
        if commit is None or commit.header.hash.hex() != record.content["hash"]:
            raise CorruptError("the log is not the one that the snapshot was made of", item=commit_sort_key(first))
        return commit


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
        self._log.commits.tail(keys)
        found = list[Record]()
        for _ in range(_PAGES):
            records, after = self._log.records.page(keys.snapshots, limit=limit - len(found), after=after)
            found += [one for one in records if _matches(one, "name", name) and _matches(one, "agent", agent)]
            if len(found) >= limit or after is None:
                break
        return SnapshotPage(
            snapshots=[Snapshot(**_fields(record)) for record in found],
            next_cursor=cursors.write(after, scope=scope) if after is not None else None,
        )


def _matches(record: Record, field: str, wanted: str | None) -> bool:
    return wanted is None or record.content[field] == wanted


def _fields(record: Record) -> dict[str, Any]:
    content: dict[str, Any] = record.content
    return {
        "snapshot_id": record.id,
        "name": content["name"],
        "agent_id": content["agent"],
        "kind": content["kind"],
        "position": content["position"],
        "created_at": rfc3339(record.created_ms),
        "size_bytes": len(encode_json(record.content)),
        "sha256": content["hash"],
        "status": record.status,
        "metadata": content["metadata"],
    }
