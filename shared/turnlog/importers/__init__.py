"""Import sessions from other stores: one module for each shape of a source, and one that writes what they read.

`import_files` recognises the shape of each file, compares it with the log, writes what is missing, and returns a report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from turnlog.client.exports import OnBytes
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, InvalidInputError, MalformedError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.engines import SystemClock
from turnlog.importers import coding_agents, conversations, documents, exported, flat, openai_agents
from turnlog.importers.models import (
    NewerSourceError,
    Report,
    SessionReport,
    SourceChangedError,
    SourceFile,
    SourceMessage,
    SourceRemark,
    SourceSession,
    UnknownSourceError,
)
from turnlog.importers.writing import import_session, write_session
from turnlog.ports import Clock

__all__ = [
    "NewerSourceError",
    "Report",
    "SessionReport",
    "SourceChangedError",
    "SourceMessage",
    "SourceSession",
    "UnknownSourceError",
    "import_files",
    "import_session",
]

Importer: TypeAlias = Callable[[Turnlog, SourceFile, bool], Iterator[SessionReport]]
"""Imports the sessions of a file, with a report for each: (log, file, dry_run)."""


@lazy_dataclass(frozen=True, slots=True)
class Shape:
    """A kind of source file. ``label`` is shown to people."""

    name: str
    label: str
    recognises: Callable[[SourceFile], bool]
    run: Importer


def _session_shape(reader: ModuleType, label: str) -> Shape:
    """Return the shape of a module whose sessions `write_session` writes. A refused session does not stop the others."""

    def run(log: Turnlog, file: SourceFile, dry_run: bool) -> Iterator[SessionReport]:
        for source in reader.read(file):
            row = SessionReport.of(source, file.name)
            try:
                write_session(log, source, row, dry_run=dry_run)
            except (InvalidInputError, ConflictError) as error:
                row.status, row.error = "refused", error
            yield row

    return Shape(reader.SHAPE, label, reader.recognises, run)


SHAPES: tuple[Shape, ...] = (
    Shape(exported.SHAPE, "exports of Turnlog", exported.recognises, exported.run),
    _session_shape(openai_agents, "SQLite sessions of the OpenAI Agents SDK"),
    _session_shape(documents, "session documents"),
    _session_shape(flat, "flat message lists"),
    _session_shape(coding_agents, "logs of coding agents"),
    _session_shape(conversations, "messages for OpenAI, Anthropic or Bedrock"),
)


def shape_of(file: SourceFile, shapes: Iterable[Shape] = SHAPES) -> Shape | None:
    """Return the first of the shapes that recognises the file, or None."""
    return next((shape for shape in shapes if shape.recognises(file)), None)


@lazy_dataclass(frozen=True, slots=True)
class SourceCandidate:
    """A file with its shape. The shape is None for a file of a folder that no shape recognises.

    ``error`` says why such a file is refused: it can't be read, or it has the name of a JSON file and is none. Others are skipped.
    """

    file: SourceFile
    shape: Shape | None
    error: InvalidInputError | None = None
    is_named: bool = False


def find(paths: Iterable[Path], *, shape: str | None = None, documents: bool = True) -> list[SourceCandidate]:
    """List the files of paths and folders with their shapes, before anything is imported.

    Raises `UnknownSourceError` for an unknown shape, and for a file that the caller named and that has no known shape, or not the
    requested one.
    """
    shapes = [known for known in SHAPES if shape in (None, known.name)]
    if shape is not None and not shapes:
        raise UnknownSourceError(f"no shape {shape[:40]!r}; there are {', '.join(known.name for known in SHAPES)}")
    return [_candidate(file, shapes, is_named) for path in paths for file, is_named in _files(path, documents)]


def import_files(
    log: Turnlog,
    paths: Path | str | Iterable[Path | str],
    *,
    shape: str | None = None,
    dry_run: bool = False,
    documents: bool = True,
    on_bytes: OnBytes | None = None,
    clock: Clock | None = None,
) -> Report:
    """Import the sessions of a file or folder, or of several, and return a report.

    Without ``shape``, the shape of each file is recognised. ``documents`` is as in `Sessions.import_`. A repeated import writes
    nothing, an interrupted one continues, and a source that has grown adds its new messages; an export is never added to a
    session. A refused session, or a refused file of a folder, is a row of the report and does not stop the others; `Report.check`
    raises its error. The error of a file that the caller named is raised at once.
    ``on_bytes`` is called after each file, with the bytes of the files that are done and those of all files.
    """
    names = (paths,) if isinstance(paths, Path | str) else paths
    candidates = find(map(Path, names), shape=shape, documents=documents)
    return run(log, candidates, dry_run=dry_run, on_bytes=on_bytes, clock=clock)


def run(
    log: Turnlog,
    candidates: Iterable[SourceCandidate],
    *,
    dry_run: bool = False,
    on_bytes: OnBytes | None = None,
    clock: Clock | None = None,
) -> Report:
    """Import files that `find` has listed. See `import_files`."""
    clock = clock if clock is not None else SystemClock()
    started, rows, candidates = clock.now_ms(), list[SessionReport](), list(candidates)
    sizes = [candidate.file.path.stat().st_size if on_bytes is not None else 0 for candidate in candidates]
    total = sum(sizes)
    for candidate, done in zip(candidates, accumulate(sizes), strict=True):
        rows += _rows(log, candidate, dry_run)
        if on_bytes is not None:
            on_bytes(done, total)
    return Report(rows, dry_run=dry_run, seconds=(clock.now_ms() - started) / 1000)


def _rows(log: Turnlog, candidate: SourceCandidate, dry_run: bool) -> Iterator[SessionReport]:
    """Import a file, and yield a report for each session. An error that ends it is one too; that of a named file is raised."""
    file, shape, error = candidate.file, candidate.shape, candidate.error
    try:
        if shape is not None:
            yield from shape.run(log, file, dry_run)
            return
    except InvalidInputError as refusal:
        if candidate.is_named:
            raise
        error = refusal
    skipped = [] if error is not None else [SourceRemark("file", UnknownSourceError.code)]
    name, status = shape.name if shape is not None else "", "skipped" if skipped else "refused"
    yield SessionReport(file.name, name, "", file.path.stem, status, skipped=skipped, error=error)


def _files(path: Path, documents: bool) -> Iterator[tuple[SourceFile, bool]]:
    """Yield the path itself, or the files below it that are not hidden, and whether the caller named the file."""
    if not path.exists():
        raise InvalidInputError(f"no file {str(path)!r}", code="no_file")
    if not path.is_dir():
        yield SourceFile(path, documents=documents), True
        return
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
        if not any(name.startswith(".") for name in file.relative_to(path).parts):
            yield SourceFile(file, documents=documents), False


def _candidate(file: SourceFile, shapes: Sequence[Shape], is_named: bool) -> SourceCandidate:
    """Recognise a file. Raises `InvalidInputError` when the caller named it, and it can't be read or has none of the shapes."""
    try:
        shape = shape_of(file, shapes)
        reason = file.why_not_json if shape is None else ""
    except MalformedError as error:
        shape, reason = None, error.detail
    except InvalidInputError as error:
        if is_named:
            raise
        return SourceCandidate(file, None, error)
    known = ", ".join(known_shape.label for known_shape in shapes)
    unknown = UnknownSourceError(f"{file.name!r} is none of: {known}{f' ({reason})' if reason else ''}")
    if shape is None and is_named:
        raise unknown
    is_refused = shape is None and reason and file.path.suffix in (".json", ".jsonl")
    return SourceCandidate(file, shape, unknown if is_refused else None, is_named)
