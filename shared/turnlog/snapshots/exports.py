"""Export one session, or all of a person's data, as a zip of JSON Lines with a manifest; and import sessions from it.

An export is streamed: at most a page is in memory. Each session has readable files (``session.json``, ``messages.jsonl``,
``state.json``, ``history.jsonl``). ``log.jsonl``, ``documents.jsonl`` and ``snapshots.jsonl`` are what an import makes an
equal session from. The file does not name the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from hashlib import file_digest, sha256
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from turnlog import __version__
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError
from turnlog.core.events import REDACT, CreateEvent, Payload
from turnlog.core.identity import Owner, safe_id
from turnlog.core.json_values import JsonObject, JsonValue, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_POSITION
from turnlog.core.memory import Memory, MemoryFact, Offloaded
from turnlog.core.times import HOUR_MS, MINUTE_MS
from turnlog.jobs.models import Job
from turnlog.jobs.worker import StartJobs, is_outdated, job_answer, recent_jobs
from turnlog.log.caches import session_id_of
from turnlog.log.headers import GENESIS, Header, short_hash
from turnlog.log.keys import DIRECTORY_FROM, DIRECTORY_TO, OwnerKeys, SessionKeys, export_blob
from turnlog.log.lines import Redacted, settings_object
from turnlog.log.links import Link, Links
from turnlog.log.payloads import Payloads
from turnlog.log.records import Record
from turnlog.log.request_keys import raw_request_key, request_key
from turnlog.log.tombstones import MATERIALISING, id_taken
from turnlog.memory.read import memory_answer
from turnlog.ports import BlobStore, MemoryEngine, Query, get_item, pages
from turnlog.sessions.document_models import DocumentWrite
from turnlog.sessions.documents import DocumentStore, check_distinct, document_line, exported_writing
from turnlog.sessions.history import ReadHistory
from turnlog.sessions.messages import ReadMessages
from turnlog.sessions.read import session_answer
from turnlog.sessions.session_log import SessionLog
from turnlog.sessions.state_store import state_at
from turnlog.snapshots.exchange import commit_line, commit_of, position_in
from turnlog.snapshots.export_routes import (
    FORMAT,
    FORMAT_VERSION,
    Export,
    ExportedSnapshot,
    ExportSession,
    ImportCommits,
    Imported,
    never_added,
)
from turnlog.snapshots.lifecycle import exported_record, ref_content, snapshot_fields
from turnlog.snapshots.materialise import Materialiser
from turnlog.snapshots.restore import add_restore_note
from turnlog.snapshots.segment_format import SealedCommit
from turnlog.snapshots.segments import stored_commits

if TYPE_CHECKING:
    from turnlog.memory.embedded import EmbeddedMemory
    from turnlog.snapshots.read import SnapshotLogs

MAX_POSITIONS = 1_024
"""Longest history that a request exports itself; a longer one is exported by a job."""
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_PAGE_MEMORIES = 100


@lazy_dataclass(frozen=True, slots=True)
class ExportSessions:
    """Use case: export a session or a person. The newest export of a session, and of a person, replaces the one before."""

    log: SessionLog
    payloads: Payloads
    blobs: BlobStore
    links: Links
    start_job: StartJobs
    memory: Callable[[], MemoryEngine | None]
    documents: DocumentStore
    logs: SnapshotLogs

    def __call__(self, owner: Owner, session_id: str, body: ExportSession, *, key: str | None = None) -> Export | Job:
        keys = SessionKeys(owner, session_id)
        header = self.log.commits.tail(keys).header
        if body.mode == "async" or header.last > MAX_POSITIONS:
            request = request_key(key, f"export {session_id}", body)
            return self.start_job(owner, "export", session_id, {}, request)
        result: dict[str, Any] = self.run(owner, session_id, {})
        link = self.link(owner, session_id)
        return Export(url=link.url, expires_at=link.expires_at, **result)

    def everything(self, owner: Owner, *, key: str | None = None) -> Job:
        """Start the job that exports all of a person's data. Raises `ConflictError` while the data is being erased.

        Without a key, the newest such job of the past hour is returned, if its file is not outdated.
        """
        self.log.check_not_erasing(owner, get_item(self.log.items, OwnerKeys(owner).erasing))
        if key is None:
            records = self.log.records
            for record in recent_jobs(records, owner, self.log.clock.now_ms() - HOUR_MS):
                is_alike = record.content["kind"] == "export" and not record.content["session"]
                if is_alike and record.status != "failed" and not is_outdated(records, owner, record):
                    return job_answer(record)
        return self.start_job(owner, "export", "", {}, raw_request_key(key, "export everything", {}))

    def link(self, owner: Owner, session_id: str) -> Link:
        """Return the link to the newest export of a session; of the person with an empty ``session_id``."""
        filename = f"{safe_id(session_id or 'turnlog')}.zip"
        return self.links.make(owner, export_blob(owner, session_id), filename=filename)

    def run(self, owner: Owner, session_id: str, _options: JsonObject) -> JsonObject:
        """Store the file and return its size, hash and counts. The work of a job."""
        with TemporaryFile() as file:
            result = self._write(file, owner, [session_id] if session_id else None)
            file.seek(0)
            self.blobs.put(export_blob(owner, session_id), cast("BinaryIO", file))
        return result

    def _write(self, file: Any, owner: Owner, session_ids: Iterable[str] | None) -> JsonObject:
        sessions = list[JsonObject]()
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for session_id in session_ids if session_ids is not None else self._all_of(owner):
                keys = SessionKeys(owner, session_id)
                try:
                    sessions.append(self._session(archive, keys, self.log.records.every(keys.snapshots)))
                except NotFoundError:
                    # A listed session that has expired, is being created, or was deleted since.
                    if session_ids is not None:
                        raise
                    sessions += self._expired(archive, keys)
            manifest: JsonObject = {"format": FORMAT, "version": FORMAT_VERSION, "made_by": f"turnlog {__version__}"}
            manifest["sessions"] = cast("JsonValue", sessions)
            if session_ids is None:
                manifest["memory"] = _member(archive, "memory.jsonl", self._memories(owner))
            _member(archive, "manifest.json", [encode_json(manifest)])
        positions = sum(cast("int", session["head"]) for session in sessions)
        file.seek(0)
        digest = file_digest(file, "sha256").hexdigest()
        return {"size_bytes": file.tell(), "sha256": digest, "sessions": len(sessions), "positions": positions}

    def _all_of(self, owner: Owner) -> Iterator[str]:
        """Yield the ids of an owner's sessions, by consistent reads."""
        for items in pages(self.log.items, Query(OwnerKeys(owner).partition, DIRECTORY_FROM, DIRECTORY_TO)):
            yield from map(session_id_of, items)

    def _expired(self, archive: ZipFile, keys: SessionKeys) -> Iterator[JsonObject]:
        """Write an expired session as its last full snapshot has it, if it left one."""
        with suppress(NotFoundError):
            self.log.records.check_there(keys)
            records = list(self.log.records.every(keys.snapshots))
            full = [record for record in records if record.content["kind"] == "full"]
            if full:
                newest = max(full, key=lambda record: cast("int", record.content["position"]))
                log, _ = self.logs.log_of(keys, newest)
                yield replace(self, log=log, payloads=Payloads(log.items, self.blobs))._session(archive, keys, records)

    def _session(self, archive: ZipFile, keys: SessionKeys, records: Iterable[Record]) -> JsonObject:
        """Write the files of one session and return its entry in the manifest.

        They show the session at its current head. Documents are those that exist when they are read.
        """
        tail = self.log.commits.tail(keys)
        header = tail.header
        current = self.log.full_settings(keys, tail)
        state = state_at(self.log, keys, header.last_state)
        answer = session_answer(keys, current, header)
        description = {**answer.model_dump(exclude={"user"}), "settings": settings_object(current.settings)}
        redacted = dict[int, int]()
        members = {
            "session.json": [encode_json(description)],
            "messages.jsonl": self._messages(keys, header, redacted),
            "state.json": [encode_json({"state": state.value, "version": state.version})],
            "history.jsonl": self._history(keys, header, redacted),
            "snapshots.jsonl": (
                encode_json({**snapshot_fields(record), "hash": record.content["hash"]}) for record in records
            ),
            "log.jsonl": self._commits(keys, header.last, redacted),
            "documents.jsonl": (encode_json(document_line(document)) for document in self.documents.every(keys)),
        }
        folder = f"sessions/{safe_id(keys.session_id)}/"
        return {
            "session_id": keys.session_id,
            "head": header.last,
            "hash": header.hash.hex(),
            "messages": header.flow.messages,
            "members": {name: _member(archive, folder + name, lines) for name, lines in members.items()},
        }

    def _commits(self, keys: SessionKeys, last: int, redacted: dict[int, int]) -> Iterator[bytes]:
        """Yield the commits, without the texts of summaries of a message that was redacted later."""
        for sealed in stored_commits(self.log.commits, self.payloads, keys, last):
            lines = sealed.lines
            for position, noted in redacted.items() if sealed.commit.header.kind == "y" else ():
                message = Redacted(position, b"", b"", noted=noted)
                lines = tuple(message.redact_lines(lines, sealed.commit.header.first))
            yield encode_json(commit_line(replace(sealed, lines=lines), partial(self.payloads.content, keys)))

    def _messages(self, keys: SessionKeys, header: Header, redacted: dict[int, int]) -> Iterator[bytes]:
        """Yield the messages, and add the redacted ones to ``redacted``."""
        after: int | None = 0
        while after is not None:
            page = ReadMessages(self.log)(keys.owner, keys.session_id, after=after, before=header.last + 1)
            yield from (encode_json(message.model_dump()) for message in page.messages)
            redacted |= {message.position: MAX_POSITION for message in page.messages if message.redacted}
            after = page.next

    def _history(self, keys: SessionKeys, header: Header, redacted: dict[int, int]) -> Iterator[bytes]:
        """Yield the entries of the history, newest first, and add those of redactions to ``redacted``."""
        before: int | None = header.last + 1
        while before is not None:
            page = ReadHistory(self.log)(keys.owner, keys.session_id, before=before, limit=1_000)
            yield from (encode_json(entry.model_dump()) for entry in page.entries)
            redacted |= {entry.metadata["position"]: entry.first for entry in page.entries if entry.action == REDACT}
            before = page.next

    def _memories(self, owner: Owner) -> Iterator[bytes]:
        """Yield the person's memories of the current engine, newest first."""
        engine, after = self.memory(), None
        while engine is not None:
            page = engine.page(owner, limit=_PAGE_MEMORIES, after=after)
            yield from map(_memory_line, page.memories)
            after = page.next
            if after is None:
                return


def _memory_line(memory: Memory) -> bytes:
    """Return a memory as the API shows it, with its facts."""
    facts = [{"session_id": session_id, **asdict(fact)} for session_id, fact in memory.facts]
    return encode_json({**memory_answer(memory).model_dump(), "facts": facts})


def _member(archive: ZipFile, name: str, lines: Iterable[bytes]) -> JsonObject:
    """Write a file of the zip line by line; return its entry in the manifest."""
    info = ZipInfo(name, date_time=_ZIP_TIME)
    info.compress_type = ZIP_DEFLATED
    digest, size, count = sha256(), 0, 0
    with archive.open(info, "w", force_zip64=True) as member:
        for line in lines:
            content = line + b"\n"
            member.write(content)
            digest.update(content)
            size, count = size + len(content), count + 1
    return {"sha256": digest.hexdigest(), "size_bytes": size, "lines": count}


class ImportSessions:
    """Use case: import one batch of a session's commits. The whole batch is checked before any of it is written."""

    def __init__(
        self,
        log: SessionLog,
        materialiser: Materialiser,
        documents: DocumentStore,
        get_memory: Callable[[], EmbeddedMemory | None],
    ) -> None:
        self._log = log
        self._materialiser = materialiser
        self._documents = documents
        self._get_memory = get_memory

    def __call__(self, owner: Owner, session_id: str, body: ImportCommits) -> Imported:
        keys = SessionKeys(owner, session_id)
        token = short_hash(f"import {body.head} {body.hash}")
        writings = [exported_writing(document, f"/documents/{index}") for index, document in enumerate(body.documents)]
        check_distinct([writing.key for writing in writings])
        snapshots = [exported_record(line, f"/snapshots/{index}") for index, line in enumerate(body.snapshots)]
        if body.memories and not (body.head or body.commits or writings or snapshots):
            count = self._remember(keys, body) if self._log.commits.find_tail(keys) is None else 0
            return Imported(
                session_id=session_id, status="partial" if body.more else "imported", position=0, memories=count
            )
        first = position_in(body.commits[0])[0] if body.commits else body.head + 1
        if first > 1 and self._log.items.get_many([keys.meta]).get(keys.meta, {}).get(MATERIALISING) != token:
            return self._existing(keys, body)
        if not body.commits:
            newest = self._materialiser.ending_at(keys, body.head)
            if newest is None or newest.hash.hex() != body.hash:
                raise ConflictError(f"the commit before position {body.head + 1} is not here yet", code="import_gap")
            return self._rest(keys, body, newest, writings, snapshots, token)
        commits = self._checked(keys, first, body)
        if first == 1:
            event = next(iter(commits[0].events), None)
            if commits[0].commit.header.kind != "c" or not isinstance(event, CreateEvent):
                raise InvalidInputError("a log begins with the creation of its session", code="bad_export")
            if not self._materialiser.begin(keys, commits[0], token):
                try:
                    return self._existing(keys, body)
                except NotFoundError as error:
                    raise id_taken(keys.session_id) from error
        self._materialiser.add(keys, commits, _no_blob)
        return self._rest(keys, body, commits[-1].commit.header, writings, snapshots, token)

    def _rest(
        self,
        keys: SessionKeys,
        body: ImportCommits,
        newest: Header,
        writings: Sequence[DocumentWrite],
        snapshots: Sequence[Record],
        token: bytes,
    ) -> Imported:
        """Write documents, snapshots and memories, and show the session when nothing more is to follow."""
        if (writings or snapshots or body.memories) and newest.last < body.head:
            raise InvalidInputError("documents and snapshots must not come before the last commit", code="bad_export")
        if writings:
            # Existing documents stay: another try wrote them, or somebody who has seen the session since.
            self._documents.write_many(keys, writings)
        pairs = zip(body.snapshots, snapshots, strict=True)
        left_out = sum(not self._put_snapshot(keys, line, record) for line, record in pairs)
        answer = Imported(
            session_id=keys.session_id,
            status="partial",
            position=newest.last,
            snapshots_left_out=left_out,
            memories=self._remember(keys, body),
        )
        if newest.last < body.head or body.more:
            return answer
        if newest.expires_ms is not None and self._log.clock.now_ms() >= newest.expires_ms:
            # A note renews the session's time: without it the session would be expired already.
            newest = add_restore_note(self._log, keys, newest, token, {"imported": True, "position": newest.last})
        self._materialiser.finish(keys, newest, token)
        return answer.model_copy(update={"status": "imported", "position": body.head})

    def _remember(self, keys: SessionKeys, body: ImportCommits) -> int:
        """Store the imported memories once, in the embedded engine; return their number, 0 with another engine."""
        memory = self._get_memory() if body.memories else None
        if memory is None:
            return 0
        facts = [MemoryFact(**line.model_dump()) for line in body.memories]
        part_id = short_hash(repr(facts)).hex()
        return memory.add(Offloaded(part_id, keys.owner, keys.session_id, 1, body.head, 0, "ended", tuple), facts)

    def _put_snapshot(self, keys: SessionKeys, line: ExportedSnapshot, record: Record) -> bool:
        """Store a snapshot as a ``ref``. Return False when the log has not the commit that it was made at.

        A full one of an early export has no hash; commits of another history are later than it.
        """
        header = self._materialiser.ending_at(keys, line.position)
        digest = line.hash or (line.sha256 if line.kind == "ref" else "")
        if header is None or (
            header.hash.hex() != digest if digest else header.time_ms > record.created_ms + MINUTE_MS
        ):
            return False
        record = replace(record, content={**ref_content(header), **record.content})
        self._log.records.create(keys.snapshots, record)
        if line.name is not None:
            self._log.records.point_name(keys.snapshots, line.name, record)
        return True

    def _checked(self, keys: SessionKeys, first: int, body: ImportCommits) -> list[SealedCommit]:
        """Return the commits of the batch; they must follow one another and the commits that are already stored."""
        previous: bytes | None = GENESIS
        if first > 1:
            predecessor = self._materialiser.ending_at(keys, first - 1)
            previous = predecessor.hash if predecessor is not None else None
        if previous is None:
            raise ConflictError(f"the commit before position {first} is not here yet", code="import_gap")
        commits, position, before_ms = list[SealedCommit](), first, 0
        for line in body.commits:
            sealed = commit_of(line, previous=previous)
            header = sealed.commit.header
            if header.first != position or header.last > body.head or header.time_ms <= before_ms:
                raise InvalidInputError(
                    f"commit {header.first} does not follow the commit before it", code="bad_export"
                )
            previous, position, before_ms = header.hash, header.last + 1, header.time_ms
            commits.append(sealed)
        newest: Header = commits[-1].commit.header
        if newest.last == body.head and newest.hash.hex() != body.hash:
            raise InvalidInputError("the log does not end with the hash of its manifest", code="bad_export")
        return commits

    def _existing(self, keys: SessionKeys, body: ImportCommits) -> Imported:
        """Return the answer for a session that has this very history; else raise `SessionExistsError`."""
        self._log.commits.tail(keys)
        commit = self._log.commits.find_holding(keys, body.head)
        if commit is None or commit.header.last != body.head or commit.header.hash.hex() != body.hash:
            raise never_added(keys.session_id)
        return Imported(session_id=keys.session_id, status="existing", position=body.head)


def _no_blob(payload: Payload) -> bytes:
    raise InvalidInputError(f"the export lacks the payload {payload.place}", code="bad_export")
