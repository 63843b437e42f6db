"""Export sessions to a file, and import them from one."""

from __future__ import annotations

import json
import logging
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, BinaryIO, TypeAlias, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from turnlog.client import Backend, OwnerResource, SessionResource
from turnlog.client.documents import document_batches
from turnlog.client.states import await_job
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from turnlog.core.identity import is_session_id, safe_id
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import batches
from turnlog.core.times import milliseconds_of
from turnlog.jobs.models import Job
from turnlog.sessions.document_models import MAX_WRITTEN
from turnlog.snapshots.export_routes import FORMAT, FORMAT_VERSION, Export, Imported

MAX_BATCH_BYTES, MAX_BATCH_COMMITS = 4 * 1024 * 1024, 500
"""Most bytes and commits in one import request. A commit larger than that is sent alone."""
READ_VERSIONS = (1, FORMAT_VERSION)
"""Version 1 has no documents."""

_MAX_FACTS, _FACT_CHARS = 100, 4_000
"""Facts in one import request, and characters of one."""
_log = logging.getLogger("turnlog")

Into: TypeAlias = "str | Path | BinaryIO"
OnPositions: TypeAlias = Callable[[int], None]
OnBytes: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes are done, and how many there are."""


class SessionExport(SessionResource):
    """Call that exports one session."""

    def export(self, into: Into, *, timeout_seconds: float = 600.0, on_bytes: OnBytes | None = None) -> Export:
        """Write the session to a zip of JSON Lines, from which `Sessions.import_` makes an equal session.

        A file is replaced only when the export is complete; a device or a pipe is written to directly. ``on_bytes`` is
        called with the bytes that are downloaded, and those of the whole export.
        """
        answer: Export | Job = self.backend.call("export_session", path=self._path)
        return _saved(self.backend, answer, into, timeout_seconds, on_bytes)


class PersonExport(OwnerResource):
    """Call that exports everything of one owner."""

    def export(self, into: Into, *, timeout_seconds: float = 3600.0, on_bytes: OnBytes | None = None) -> Export:
        """Write all sessions of the owner to one zip, as they are now."""
        job = self.backend.call("export_everything", idempotency_key=secrets.token_hex(16))
        return _saved(self.backend, job, into, timeout_seconds, on_bytes)


class SessionImports(OwnerResource):
    """Call that imports exported sessions."""

    def import_(
        self,
        file: Into,
        *,
        session_id: str | None = None,
        session: str | None = None,
        documents: bool = True,
        on_positions: OnPositions | None = None,
    ) -> list[Imported]:
        """Create the sessions of an exported file: equal, with their times, envelopes, history and documents.

        ``session`` selects one session of the file (by default all); ``session_id`` gives it another id. The whole file is
        checked before anything is written; `InvalidInputError` says what is wrong. A repeated import continues where the last
        one stopped.

        A ``full`` snapshot comes back as a ``ref``; ``snapshots_left_out`` of the answer counts those that don't come back.
        Memories come back with their session, and an answer of head 0 is of a session that has only memories. They are not
        added to an existing session. A warning says how many the memory engine has not taken.

        Documents are bytes that a framework reads later, and some frameworks build objects of any class from them. Pass
        ``documents=False`` for a file that you do not trust.
        """

        with ExportFile(file) as export:
            wanted = export.sessions(session, is_single=session_id is not None)
            export.check()
            remembered = export.only_remembered()
            wanted += remembered if session is None and session_id is None else []
            import_one = partial(import_checked, self.backend, export, documents=documents, on_positions=on_positions)
            answers = [import_one(exported, session_id=session_id) for exported in wanted]
            for exported, answer in zip(wanted, answers, strict=True):
                _warn_of_memories(exported.session_id, export.left_out(exported, answer))
            _warn_of_memories("(unknown)", len(export.memories.get("", ())))
        return answers


def import_checked(
    backend: Backend,
    export: ExportFile,
    exported: ExportedSession,
    *,
    session_id: str | None = None,
    documents: bool = True,
    on_positions: OnPositions | None = None,
) -> Imported:
    """Import one session of a file that is open and checked, so that a file of many sessions is checked once.

    See `Sessions.import_`. Returns the answer of the last request; raises `UnavailableError` when the file's log ends early.
    """
    path = {"session_id": session_id if session_id is not None else exported.session_id}
    parts = _parts(export, exported.session_id, documents)
    part, left_out, memories = next(parts, None), 0, 0
    while part is not None:
        following = next(parts, None)
        body = {"head": exported.head, "hash": exported.hash, **part}
        if following is not None and "commits" not in following:
            body["more"] = True
        try:
            answer: Imported = backend.call("import_session", path=path, body=body)
        except InvalidInputError as error:
            unknown = (problem.pointer for problem in error.problems if problem.code == "extra_forbidden")
            if all(pointer.count("/") > 1 for pointer in unknown):
                raise
            detail = f"the service is older than this client and cannot import the export: upgrade it ({error.detail})"
            raise InvalidInputError(detail, code="newer_export", problems=error.problems) from error
        if on_positions is not None:
            on_positions(answer.position)
        left_out, memories = left_out + answer.snapshots_left_out, memories + answer.memories
        if answer.status != "partial":
            return answer.model_copy(update={"snapshots_left_out": left_out, "memories": memories})
        part = following
    raise UnavailableError("the log of the export ends before its head", code="bad_export")


def _parts(export: ExportFile, name: str, documents: bool) -> Iterator[dict[str, Any]]:
    """Yield the bodies of the import requests: commits first, then documents, snapshots and memories."""
    for batch in export.batches(name, max_bytes=MAX_BATCH_BYTES, max_commits=MAX_BATCH_COMMITS):
        yield {"commits": batch}
    for entries in document_batches(export.documents(name)) if documents else ():
        yield {"documents": entries}
    for lines in batches(
        export.snapshots(name), lambda line: len(json.dumps(line)), max_size=MAX_BATCH_BYTES, max_count=MAX_WRITTEN
    ):
        yield {"snapshots": lines}
    for facts in batches(export.memories.get(name, ()), lambda _: 1, max_size=_MAX_FACTS):
        yield {"memories": facts}


def _warn_of_memories(session_id: str, count: int) -> None:
    if count:
        _log.warning("%d memories of session %s are not imported: the memory engine took none", count, session_id)


def _saved(
    backend: Backend, answer: Export | Job, into: Into, timeout_seconds: float, on_bytes: OnBytes | None
) -> Export:
    export = answer if isinstance(answer, Export) else _awaited(backend, answer, timeout_seconds)
    with _opened(into) as file:
        download = _Download(file, export.size_bytes, on_bytes)
        try:
            backend.download(export.url, cast("BinaryIO", download))
        except NotFoundError as error:
            raise _outdated() from error
        if download.digest.hexdigest() != export.sha256:
            raise UnavailableError("the download differs from the export; try again", code="download_failed")
    return export


class _Download:
    """A file to write to that reports its progress, and has the SHA-256 of what was written."""

    def __init__(self, file: BinaryIO, size: int, on_bytes: OnBytes | None) -> None:
        self._file, self._size, self._on_bytes, self._done = file, size, on_bytes, 0
        self.digest = sha256()

    def write(self, data: bytes) -> int:
        written = self._file.write(data)
        self.digest.update(data)
        self._done += len(data)
        if self._on_bytes is not None:
            self._on_bytes(self._done, self._size)
        return written


def _awaited(backend: Backend, job: Job, timeout_seconds: float) -> Export:
    """Wait for an export job and return its result; run the job here when the engine is in this process."""
    job = await_job(backend, job, seconds=timeout_seconds, meanwhile=lambda job, _: backend.run_job(job.job_id))
    if job.status == "queued":
        raise UnavailableError(f"job {job.job_id} is not done yet", code="job_queued")
    if job.status == "failed" or job.result is None:
        error = job.error
        raise UnavailableError(error.detail if error is not None else "the export failed", code="export_failed")
    if "url" not in job.result:
        raise _outdated()
    return Export.model_validate(job.result)


def _outdated() -> ConflictError:
    return ConflictError("data was erased or redacted during the export: export again", code="export_outdated")


@contextmanager
def _opened(into: Into) -> Iterator[BinaryIO]:
    """Open the target of an export: a file object as it is, a device or pipe directly, a file by a temporary one beside it."""
    if not isinstance(into, str | Path):
        yield into
        return
    path = Path(into)
    if path.exists() and not path.is_file():
        with path.open("wb") as device:  # or a pipe, which a file must not replace; a folder is refused
            yield device
        return
    target = path.resolve()  # a symbolic link stays
    file: IO[bytes] = NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
    try:
        with file:
            yield cast("BinaryIO", file)
        Path(file.name).replace(target)
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise


MANIFEST, MEMORY = "manifest.json", "memory.jsonl"
MAX_BYTES = 4 * 1024**3
"""Limit of the unpacked size of all members together."""
MAX_MANIFEST_BYTES = 64 * 1024**2
MAX_LINE_BYTES = 64 * 1024**2
_NAME = re.compile(
    r"sessions/[A-Za-z0-9_-]{1,64}/(session\.json|state\.json|(messages|history|snapshots|log|documents)\.jsonl)"
)
_HASH = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 64 * 1024


@lazy_dataclass(frozen=True, slots=True)
class ExportedSession:
    """An entry of the manifest: a session of the file, its head, the hash of that commit, and its number of messages."""

    session_id: str
    head: int
    hash: str
    messages: int


class ExportFile:
    """A zip that `Session.export` wrote. Use it as a context manager.

    Raises `InvalidInputError` for a file that is not an export (code ``bad_export``) or has a newer version (``newer_export``).
    """

    def __init__(self, file: str | Path | BinaryIO) -> None:
        try:
            self._zip = ZipFile(file)
        except (BadZipFile, NotImplementedError, ValueError) as error:
            raise _bad("it is cut short, or no zip file") from error
        try:
            self._members = self._listed()
            self._sessions, self._entries = self._manifest()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> ExportFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    # ------------------------------------------------------------ sessions and members

    def sessions(self, session: str | None = None, *, is_single: bool = False) -> list[ExportedSession]:
        """Return all sessions, or the selected one.

        Raises `InvalidInputError` when the selected one is missing, and with ``is_single`` when none of several is selected.
        """
        if session is not None:
            if session not in self._sessions:
                raise InvalidInputError(f"the file has no session {session[:80]!r}", code="which_session")
            return [self._sessions[session]]
        if is_single and len(self._sessions) != 1:
            message = f"the file has {len(self._sessions)} sessions: choose one with session="
            raise InvalidInputError(message, code="which_session")
        return list(self._sessions.values())

    def only_remembered(self) -> list[ExportedSession]:
        """Return the sessions of which the file has memories and no log, because they have expired."""
        return [ExportedSession(name, 0, "0" * 32, 0) for name in self.memories if name and name not in self._sessions]

    def left_out(self, exported: ExportedSession, answer: Imported) -> int:
        """Return how many memories an import has not stored. None are added to a session that exists."""
        is_new = answer.status == "imported"
        return len(self.memories.get(exported.session_id, ())) - answer.memories if is_new else 0

    def batches(
        self, session_id: str, *, max_bytes: int, max_commits: int
    ) -> Iterator[list[str] | list[dict[str, Any]]]:
        """Yield the lines of a session's log in batches of at most ``max_bytes`` and ``max_commits``.

        Bytes are counted as in the event of a Lambda function, where a quote inside a text takes four. A line that is longer
        alone is yielded as an object, whose quotes are escaped once less.
        """
        name = f"{_folder(session_id)}log.jsonl"
        lines = self._lines(name) if session_id in self._sessions else ()
        for batch in batches(lines, _line_bytes, max_size=max_bytes, max_count=max_commits):
            yield [_object(batch[0])] if _line_bytes(batch[0]) > max_bytes else list(map(_text, batch))

    @cached_property
    def memories(self) -> dict[str, list[dict[str, Any]]]:
        """The facts of all memories by session (empty: unknown). Raises `InvalidInputError` when they take over 64 MB.

        An export of version 0.1, or of another engine, has no facts: each memory is one.
        """
        if MEMORY in self._members and self._members[MEMORY].file_size > MAX_MANIFEST_BYTES:
            raise InvalidInputError(f"{MEMORY} has more than {MAX_MANIFEST_BYTES} bytes", code="too_large")
        facts = dict[str, list[dict[str, Any]]]()
        for line in self._objects(MEMORY, "text"):
            try:
                for fact in line.get("facts") or [_as_fact(line)]:
                    name = fact.pop("session_id")
                    is_placed = name and fact["position"] and is_session_id(name)
                    facts.setdefault(name if is_placed else "", []).append(fact)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise _bad(f"a line of {MEMORY} is not valid") from error
        return facts

    def documents(self, session_id: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of a session's documents. Exports of version 1 have none."""
        return self._objects(f"{_folder(session_id)}documents.jsonl", "data")

    def snapshots(self, session_id: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of a session's snapshots, newest first."""
        return self._objects(f"{_folder(session_id)}snapshots.jsonl", "kind")

    def _objects(self, name: str, field: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of a member. Raises `InvalidInputError` for one that is no object with a text ``field``."""
        for line in self._lines(name) if name in self._members else ():
            try:
                value = json.loads(line)
                if not isinstance(value[field], str):
                    raise TypeError(field)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise _bad(f"a line of {name} is not valid") from error
            yield value

    def check(self) -> None:
        """Compare every member with its hash, size and line count in the manifest; raise `InvalidInputError` when they differ."""
        for name, entry in self._entries.items():
            digest, size, lines = sha256(), 0, 0
            for chunk in self._chunks(name):
                digest.update(chunk)
                size += len(chunk)
                lines += chunk.count(b"\n")
            if (digest.hexdigest(), size, lines) != (entry["sha256"], entry["size_bytes"], entry["lines"]):
                raise _bad(f"{name} does not match the manifest")

    # ------------------------------------------------------------ reading

    def _listed(self) -> dict[str, ZipInfo]:
        """Return the members of the zip. Raises `InvalidInputError` for unknown ones, or if together they are too large."""
        members = dict[str, ZipInfo]()
        for info in self._zip.infolist():
            if info.filename in members:
                raise _bad(f"it has {info.filename[:80]!r} twice")
            if info.filename not in (MANIFEST, MEMORY) and not _NAME.fullmatch(info.filename):
                raise _bad(f"{info.filename[:80]!r} is no member of an export")
            if info.flag_bits & 1 or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise _bad(f"{info.filename} is encrypted, or compressed by an unsupported method")
            members[info.filename] = info
        if MANIFEST not in members:
            raise _bad("it has no manifest")
        if sum(info.file_size for info in members.values()) > MAX_BYTES:
            raise InvalidInputError(f"the export unpacks to more than {MAX_BYTES} bytes", code="too_large")
        return members

    def _manifest(self) -> tuple[dict[str, ExportedSession], dict[str, dict[str, Any]]]:
        """Read the manifest, and return its sessions by id and its entries by member.

        Raises `InvalidInputError` for another format, a newer version, and entries that do not fit the members of the zip.
        """
        if self._members[MANIFEST].file_size > MAX_MANIFEST_BYTES:
            raise InvalidInputError(f"the manifest has more than {MAX_MANIFEST_BYTES} bytes", code="too_large")
        try:
            manifest = json.loads(b"".join(self._chunks(MANIFEST)))
            _check_format(manifest)
            sessions = {session["session_id"]: _exported(session) for session in manifest["sessions"]}
            entries = {
                _folder(session["session_id"]) + name: entry
                for session in manifest["sessions"]
                for name, entry in session["members"].items()
            }
            if "memory" in manifest:
                entries[MEMORY] = manifest["memory"]
            for name, entry in entries.items():
                if not _DIGEST.fullmatch(entry["sha256"]) or self._members[name].file_size != entry["size_bytes"]:
                    raise _bad(f"{name} has another size than the manifest says")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _bad("its manifest is not valid") from error
        if len(sessions) != len(manifest["sessions"]) or {MANIFEST, *entries} != self._members.keys():
            raise _bad("it has members that its manifest does not list")
        return sessions, entries

    def _chunks(self, name: str) -> Iterator[bytes]:
        """Yield a member in pieces. Raises `InvalidInputError` when it is damaged, or larger than its declared size."""
        try:
            with self._zip.open(self._members[name]) as member:
                while chunk := member.read(_CHUNK_BYTES):
                    yield chunk
        except (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
            raise _bad(f"{name} is damaged") from error

    def _lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a member, without their line breaks."""
        rest = bytearray()
        for chunk in self._chunks(name):
            *complete, tail = chunk.split(b"\n")
            for line in complete:
                yield bytes(rest) + line
                rest.clear()
            rest += tail
            if len(rest) > MAX_LINE_BYTES:
                raise _bad(f"{name} has a line of more than {MAX_LINE_BYTES} bytes")
        if rest:
            raise _bad(f"{name} is cut short")


def _as_fact(memory: dict[str, Any]) -> dict[str, Any]:
    """Return a memory as a fact. A replaced memory shares its subject with the newer one."""
    fact = {name: memory[name] for name in ("session_id", "kind", "position")}
    subject = memory["replaced_by"] or memory["memory_id"]
    text, time_ms = memory["text"][:_FACT_CHARS], milliseconds_of(memory["created_at"])
    return {**fact, "text": text, "subject": subject, "time_ms": time_ms}


def _exported(entry: dict[str, Any]) -> ExportedSession:
    """Return the session of a manifest's entry. Raises `TypeError` or `KeyError` for an entry that is not valid."""
    head, messages = entry["head"], entry["messages"]
    if not isinstance(head, int) or not isinstance(messages, int) or not _HASH.fullmatch(entry["hash"]):
        raise TypeError("head")
    if not is_session_id(entry["session_id"]):
        raise TypeError("session_id")
    if "log.jsonl" not in entry["members"]:
        raise KeyError("log.jsonl")
    return ExportedSession(entry["session_id"], head, entry["hash"], messages)


def _folder(session_id: str) -> str:
    return f"sessions/{safe_id(session_id)}/"


def _line_bytes(line: bytes) -> int:
    return len(line) + 3 * (line.count(b'"') + line.count(b"\\"))


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad("a line is not UTF-8") from error


def _object(line: bytes) -> dict[str, Any]:
    try:
        commit = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad("a line is not JSON") from error
    if not isinstance(commit, dict):
        raise _bad("a line is not a commit")
    return commit


def _check_format(manifest: Mapping[str, Any]) -> None:
    if manifest["format"] != FORMAT:
        raise _bad(f"it is {str(manifest['format'])[:80]!r}, not {FORMAT!r}")
    if manifest["version"] not in READ_VERSIONS:
        by = str(manifest.get("made_by"))[:80]
        message = f"the export is version {manifest['version']!r} (made by {by}), and this Turnlog reads versions up to"
        raise InvalidInputError(f"{message} {READ_VERSIONS[-1]}: upgrade it", code="newer_export")


def _bad(detail: str) -> InvalidInputError:
    return InvalidInputError(f"not a valid export: {detail}", code="bad_export")
