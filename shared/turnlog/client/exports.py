"""Exports to a file, and sessions back out of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

from turnlog.client.backend import Backend, OfOwner, OfSession
from turnlog.client.documents import document_batches
from turnlog.contracts.exports import Export, Imported
from turnlog.contracts.jobs import Job
from turnlog.domain.errors import UnavailableError

if TYPE_CHECKING:
    from turnlog.client.export_files import ExportFile

MAX_BATCH_BYTES, MAX_BATCH_COMMITS = 4 * 1024 * 1024, 500
"""What a request of an import has at most, as texts, unless one commit is larger."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 5.0

Into: TypeAlias = "str | Path | BinaryIO"
OnPositions: TypeAlias = Callable[[int], None]


class SessionExport(OfSession):
    """The export of one session."""

    def export(self, into: Into, *, timeout_seconds: float = 600.0) -> Export:
        """Writes the session to a zip of JSON Lines, from which `Sessions.import_` makes an equal one. A file is written whole or
        not at all; a device or a pipe is written to."""
        answer: Export | Job = self._backend.call("export_session", path=self._path)
        return _saved(self._backend, answer, into, timeout_seconds)


class PersonExport(OfOwner):
    """The export of all that an owner has."""

    def export(self, into: Into, *, timeout_seconds: float = 3600.0) -> Export:
        """Writes all sessions of the owner to one zip. Asked for again within an hour, it is the same one."""
        return _saved(self._backend, self._backend.call("export_everything"), into, timeout_seconds)


class SessionImports(OfOwner):
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
        from turnlog.client.export_files import ExportFile

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
