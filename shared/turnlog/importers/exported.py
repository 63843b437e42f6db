"""Files that `turnlog export` wrote: sessions come back equal, with their positions and times, not appended anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zipfile import BadZipFile, ZipFile

from turnlog.client.exports import MANIFEST, ExportedSession, ExportFile, import_checked
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, InvalidInputError, SessionExistsError
from turnlog.importers.files import SourceFile
from turnlog.importers.report import SessionReport

SHAPE = "turnlog"


def recognises(file: SourceFile) -> bool:
    try:
        with ZipFile(file.path) as found:
            return MANIFEST in found.namelist()
    except (BadZipFile, OSError, NotImplementedError, ValueError):
        return False


def count(file: SourceFile) -> int:
    with ExportFile(file.path) as export:
        return sum(one.messages for one in export.sessions())


def run(log: Turnlog, file: SourceFile, dry_run: bool, tick: Callable[[int], None]) -> Iterator[SessionReport]:
    """A file that is not what its manifest says is refused whole; a session that is another's is refused alone."""
    with ExportFile(file.path) as export:
        sessions = export.sessions()
        export.check()
        for one in sessions:
            try:
                status = _compared(log, one) if dry_run else _imported(log, export, one, documents=file.documents)
            except (InvalidInputError, ConflictError) as error:
                yield _report(file, one, "refused", error=error)
                continue
            tick(one.messages)
            yield _report(file, one, status, written=one.messages if status == "new" and not dry_run else 0)


def _imported(log: Turnlog, export: ExportFile, one: ExportedSession, *, documents: bool) -> str:
    made = import_checked(log._backend, export, one.session_id, documents=documents)
    return "new" if made.status == "imported" else "same"


def _compared(log: Turnlog, one: ExportedSession) -> str:
    """What an import would find, as far as the session's own answer tells."""
    if not log.sessions.exists(one.session_id):
        return "new"
    if log.sessions.get(one.session_id).info().head < one.head:
        raise SessionExistsError(f"there is another session {one.session_id!r}")
    return "same"


def _report(
    file: SourceFile,
    one: ExportedSession,
    status: str,
    *,
    written: int = 0,
    error: InvalidInputError | ConflictError | None = None,
) -> SessionReport:
    return SessionReport(
        file.name,
        SHAPE,
        one.session_id,
        one.session_id,
        status,
        messages=one.messages,
        present=one.messages if status == "same" else 0,
        written=written,
        error=error,
    )
