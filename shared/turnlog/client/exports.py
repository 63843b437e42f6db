"""Exports to a file, and sessions back out of one."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import IO, Any, BinaryIO, TypeAlias, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from turnlog.client.backend import Backend, OwnerResource, SessionResource
from turnlog.client.documents import document_batches
from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.jobs.models import Job
from turnlog.snapshots.export_models import FORMAT, READ_VERSIONS, Export, Imported

MAX_BATCH_BYTES, MAX_BATCH_COMMITS = 4 * 1024 * 1024, 500
"""What a request of an import has at most, as texts, unless one commit is larger."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 5.0

Into: TypeAlias = "str | Path | BinaryIO"
OnPositions: TypeAlias = Callable[[int], None]


class SessionExport(SessionResource):
    """The export of one session."""

    def export(self, into: Into, *, timeout_seconds: float = 600.0) -> Export:
        """Writes the session to a zip of JSON Lines, from which `Sessions.import_` makes an equal one. A file is written whole or
        not at all; a device or a pipe is written to."""
        answer: Export | Job = self._backend.call("export_session", path=self._path)
        return _saved(self._backend, answer, into, timeout_seconds)


class PersonExport(OwnerResource):
    """The export of all that an owner has."""

    def export(self, into: Into, *, timeout_seconds: float = 3600.0) -> Export:
        """Writes all sessions of the owner to one zip. Asked for again within an hour, it is the same one."""
        return _saved(self._backend, self._backend.call("export_everything"), into, timeout_seconds)


class SessionImports(OwnerResource):
    """Imports of exported sessions."""

    def import_(
        self,
        file: Into,
        *,
        session_id: str | None = None,
        session: str | None = None,
        documents: bool = True,
        on_positions: OnPositions | None = None,
    ) -> list[Imported]:
        """Makes the sessions of an exported file again: equal, with their times, envelopes, history and documents.

        ``session`` is the one of the file that is wanted (all of them); ``session_id`` gives it another id. The whole file is
        checked before anything is written; `InvalidInputError` says what is wrong. Again, it goes on where another try ended.

        Documents are bytes that a framework reads later, and some frameworks make objects of any class out of them: with
        ``documents=False`` those of a file that is not your own are left out.
        """

        with ExportFile(file) as export:
            wanted = export.sessions(session, is_single=session_id is not None)
            export.check()
            return [
                import_checked(
                    self._backend,
                    export,
                    one.session_id,
                    session_id=session_id,
                    documents=documents,
                    on_positions=on_positions,
                )
                for one in wanted
            ]


def import_checked(
    backend: Backend,
    export: ExportFile,
    name: str,
    *,
    session_id: str | None = None,
    documents: bool = True,
    on_positions: OnPositions | None = None,
) -> Imported:
    """As `Sessions.import_`, one session of a file that is open and has been checked: a file of many is checked once."""
    found = export.session(name)
    path = {"session_id": session_id if session_id is not None else name}
    parts = _parts(export, name, documents)
    part = next(parts, None)
    while part is not None:
        following = next(parts, None)
        body = {"head": found.head, "hash": found.hash, **part}
        if following is not None and "documents" in following:
            body["more"] = True
        answer: Imported = backend.call("import_session", path=path, body=body)
        if on_positions is not None:
            on_positions(answer.position)
        if answer.status != "partial":
            return answer
        part = following
    raise UnavailableError("the log of the export ends before its head", code="bad_export")


def _parts(export: ExportFile, name: str, documents: bool) -> Iterator[dict[str, Any]]:
    """What a request has each: commits first."""
    for batch in export.batches(name, max_bytes=MAX_BATCH_BYTES, max_commits=MAX_BATCH_COMMITS):
        yield {"commits": batch}
    for entries in document_batches(export.documents(name)) if documents else ():
        yield {"documents": entries}


def _saved(backend: Backend, answer: Export | Job, into: Into, timeout_seconds: float) -> Export:
    export = answer if isinstance(answer, Export) else _awaited(backend, answer, timeout_seconds)
    with _opened(into) as file:
        backend.download(export.url, file)
    return export


def _awaited(backend: Backend, job: Job, timeout_seconds: float) -> Export:
    """What a job has made; an engine in this process does it here."""
    deadline, pause_seconds = time.monotonic() + timeout_seconds, _FIRST_PAUSE_SECONDS
    while job.status == "queued" and not (backend.run_jobs() and job.attempts):
        job = backend.call("get_job", path={"job_id": job.job_id})
        if job.status != "queued":
            break
        if time.monotonic() > deadline:
            raise UnavailableError(f"job {job.job_id} is not done yet", code="job_queued")
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, _MAX_PAUSE_SECONDS)
    job = backend.call("get_job", path={"job_id": job.job_id})
    if job.status == "failed" or job.result is None:
        error = job.error
        raise UnavailableError(error.detail if error is not None else "the export failed", code="export_failed")
    return Export.model_validate(job.result)


@contextmanager
def _opened(into: Into) -> Iterator[BinaryIO]:
    if not isinstance(into, str | Path):
        yield into
        return
    given = Path(into)
    if given.exists() and not given.is_file() and not given.is_dir():
        with given.open("wb") as device:  # or a pipe: to put a file in its place would take it away
            yield device
        return
    target = given.resolve()  # a link stays
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
"""Of all members, unpacked."""
MAX_MANIFEST_BYTES = 64 * 1024**2
MAX_LINE_BYTES = 32 * 1024**2
_ID = r"(?!h_)[A-Za-z0-9_-]{1,64}"
_NAME = re.compile(rf"sessions/{_ID}/(session\.json|state\.json|(messages|history|snapshots|log|documents)\.jsonl)")
_HASH = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 64 * 1024


@lazy_dataclass(frozen=True, slots=True)
class ExportedSession:
    """A session as the manifest tells of it."""

    session_id: str
    head: int
    hash: str
    messages: int


class ExportFile:
    """A zip that `Session.export` wrote, or that says so. `InvalidInputError` with what is wrong (``bad_export``), or that it is of
    a newer version (``newer_export``)."""

    def __init__(self, file: str | Path | BinaryIO) -> None:
        try:
            self._zip = ZipFile(file)
        except (BadZipFile, NotImplementedError, ValueError) as error:
            raise _bad("it is no zip file") from error
        try:
            self._members = self._listed()
            self._sessions = self._manifest()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> ExportFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    # ------------------------------------------------------------ what it has

    def sessions(self, session: str | None = None, *, is_single: bool = False) -> list[ExportedSession]:
        """All of its sessions, or that one."""
        if session is not None:
            return [self.session(session)]
        if is_single and len(self._sessions) != 1:
            raise InvalidInputError(f"the file has {len(self._sessions)} sessions: say which one", code="which_session")
        return list(self._sessions.values())

    def session(self, session_id: str) -> ExportedSession:
        if session_id not in self._sessions:
            raise InvalidInputError(f"the file has no session {session_id[:80]!r}", code="which_session")
        return self._sessions[session_id]

    def batches(
        self, session_id: str, *, max_bytes: int, max_commits: int
    ) -> Iterator[list[str] | list[dict[str, Any]]]:
        """The lines of a session's log, so many at a time, as texts that have ``max_bytes`` in the event of a function, where a
        quote of theirs takes four. One that is longer alone is given as what it says: its quotes are escaped once less."""
        batch, size = list[str](), 0
        for line in self._lines(f"sessions/{session_id}/log.jsonl"):
            length = len(line) + 3 * (line.count(b'"') + line.count(b"\\"))
            if batch and (size + length > max_bytes or len(batch) == max_commits):
                yield batch
                batch, size = [], 0
            if length > max_bytes:
                yield [_object(line)]
                continue
            try:
                batch.append(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise _bad("a line is not UTF-8") from error
            size += length
        if batch:
            yield batch

    def documents(self, session_id: str) -> Iterator[dict[str, Any]]:
        """The lines of a session's documents. Version 1 has none."""
        name = f"sessions/{session_id}/documents.jsonl"
        for line in self._lines(name) if name in self._members else ():
            try:
                document = json.loads(line)
                if not isinstance(document["data"], str):
                    raise TypeError("data")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise _bad("a line is no document") from error
            yield document

    def check(self) -> None:
        """Every member against its hash and its counts. Nothing is kept."""
        for name, (told, _) in self._members.items():
            digest, size, lines = sha256(), 0, 0
            for chunk in self._chunks(name):
                digest.update(chunk)
                size += len(chunk)
                lines += chunk.count(b"\n")
            if (digest.hexdigest(), size, lines) != (told["sha256"], told["size_bytes"], told["lines"]):
                raise _bad(f"{name} is not what the manifest says")

    # ------------------------------------------------------------ reading

    def _listed(self) -> dict[str, tuple[dict[str, Any], ZipInfo]]:
        found = dict[str, tuple[dict[str, Any], ZipInfo]]()
        for info in self._zip.infolist():
            if info.filename in found:
                raise _bad(f"it has {info.filename[:80]!r} twice")
            if info.filename not in (MANIFEST, MEMORY) and not _NAME.fullmatch(info.filename):
                raise _bad(f"{info.filename[:80]!r} is no member of an export")
            if info.flag_bits & 1 or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise _bad(f"{info.filename} is encrypted, or packed in another way than ours")
            found[info.filename] = ({}, info)
        if MANIFEST not in found:
            raise _bad("it has no manifest")
        if sum(info.file_size for _, info in found.values()) > MAX_BYTES:
            raise InvalidInputError(f"the export unpacks to more than {MAX_BYTES} bytes", code="too_large")
        return found

    def _manifest(self) -> dict[str, ExportedSession]:
        _, info = self._members[MANIFEST]
        if info.file_size > MAX_MANIFEST_BYTES:
            raise InvalidInputError(f"the manifest has more than {MAX_MANIFEST_BYTES} bytes", code="too_large")
        try:
            manifest = json.loads(b"".join(self._chunks(MANIFEST)))
            if manifest["format"] != FORMAT:
                raise _bad(f"it is {str(manifest['format'])[:80]!r}, not {FORMAT!r}")
            if manifest["version"] not in READ_VERSIONS:
                by = str(manifest.get("made_by"))[:80]
                message = f"the export is version {manifest['version']!r} (made by {by}); this is {READ_VERSIONS[-1]}"
                raise InvalidInputError(message, code="newer_export")
            sessions = {one["session_id"]: self._session(one) for one in manifest["sessions"]}
            if "memory" in manifest:
                self._tell(MEMORY, manifest["memory"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _bad("its manifest is none of ours") from error
        del self._members[MANIFEST]
        if len(sessions) != len(manifest["sessions"]) or any(not told for told, _ in self._members.values()):
            raise _bad("it has members that its manifest does not tell of")
        return sessions

    def _session(self, told: dict[str, Any]) -> ExportedSession:
        head, messages = told["head"], told["messages"]
        if not isinstance(head, int) or not isinstance(messages, int) or not _HASH.fullmatch(told["hash"]):
            raise TypeError("head")
        folder = f"sessions/{told['session_id']}/"
        if "log.jsonl" not in told["members"]:
            raise KeyError("log.jsonl")
        for name, member in told["members"].items():
            self._tell(folder + name, member)
        return ExportedSession(told["session_id"], head, told["hash"], messages)

    def _tell(self, name: str, told: dict[str, Any]) -> None:
        _, info = self._members[name]
        if not _DIGEST.fullmatch(told["sha256"]) or info.file_size != told["size_bytes"]:
            raise _bad(f"{name} has not the size that the manifest says")
        self._members[name] = (told, info)

    def _chunks(self, name: str) -> Iterator[bytes]:
        """A member in pieces; never more of it than its declared size, which has been added up."""
        info, size = self._members[name][1], 0
        try:
            with self._zip.open(info) as member:
                while chunk := member.read(_CHUNK_BYTES):
                    size += len(chunk)
                    if size > info.file_size:
                        raise _bad(f"{name} is larger than it says")
                    yield chunk
        except (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
            raise _bad(f"{name} is damaged") from error

    def _lines(self, name: str) -> Iterator[bytes]:
        rest = bytearray()
        for chunk in self._chunks(name):
            *whole, tail = chunk.split(b"\n")
            for line in whole:
                yield bytes(rest) + line
                rest.clear()
            rest += tail
            if len(rest) > MAX_LINE_BYTES:
                raise _bad(f"{name} has a line of more than {MAX_LINE_BYTES} bytes")
        if rest:
            raise _bad(f"{name} is cut short")


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad("a line is no JSON") from error
    if not isinstance(found, dict):
        raise _bad("a line is no commit")
    return found


def _bad(detail: str) -> InvalidInputError:
    return InvalidInputError(f"no export of ours: {detail}", code="bad_export")
