"""Importing files and folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, InvalidInputError, MalformedError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.engines.system import SystemClock
from turnlog.importers import coding_agents, conversations, documents, exported, flat, openai_agents
from turnlog.importers.files import SourceFile
from turnlog.importers.report import Report, SessionReport
from turnlog.importers.source_sessions import Noted, SourceSession, UnknownSourceError
from turnlog.importers.writing import import_session
from turnlog.ports import Clock

Tick: TypeAlias = Callable[[int], None]
Importer: TypeAlias = Callable[[Turnlog, SourceFile, bool, Tick], Iterator[SessionReport]]
"""Imports a file's sessions, one report each: (log, file, dry run, what to call after so many messages)."""


@lazy_dataclass(frozen=True, slots=True)
class Shape:
    """``label`` is for people. ``count`` tells how many messages there will be, for a progress bar."""

    name: str
    label: str
    recognises: Callable[[SourceFile], bool]
    run: Importer
    count: Callable[[SourceFile], int]


def _of_sessions(
    name: str,
    label: str,
    recognises: Callable[[SourceFile], bool],
    read: Callable[[SourceFile], Iterator[SourceSession]],
) -> Shape:
    """A shape whose sessions are written by `import_session`. One that is refused does not stop the others."""

    def run(log: Turnlog, file: SourceFile, dry_run: bool, tick: Tick) -> Iterator[SessionReport]:
        for source in read(file):
            try:
                yield import_session(log, source, file=file.name, dry_run=dry_run, on_messages=tick)
            except (InvalidInputError, ConflictError) as error:
                yield SessionReport(
                    file.name,
                    source.shape,
                    source.id,
                    source.source_id,
                    "refused",
                    messages=len(source.messages),
                    skipped=list(source.skipped),
                    warnings=list(source.warnings),
                    error=error,
                )

    def count(file: SourceFile) -> int:
        return sum(len(source.messages) for source in read(file))

    return Shape(name, label, recognises, run, count)


SHAPES: tuple[Shape, ...] = (
    Shape(exported.SHAPE, "exports of Turnlog", exported.recognises, exported.run, exported.count),
    _of_sessions(
        openai_agents.SHAPE, "SQLite sessions of the OpenAI Agents SDK", openai_agents.recognises, openai_agents.read
    ),
    _of_sessions(documents.SHAPE, "session documents", documents.recognises, documents.read),
    _of_sessions(flat.SHAPE, "flat message lists", flat.recognises, flat.read),
    _of_sessions(coding_agents.SHAPE, "logs of coding agents", coding_agents.recognises, coding_agents.read),
    _of_sessions(conversations.SHAPE, "messages of a provider's format", conversations.recognises, conversations.read),
)


def shape_named(name: str) -> Shape:
    for shape in SHAPES:
        if shape.name == name:
            return shape
    raise UnknownSourceError(f"no shape {name[:40]!r}; there are {', '.join(shape.name for shape in SHAPES)}")


def shape_of(file: SourceFile) -> Shape | None:
    """The file's shape, by what only files of it have; None when it has none that we know."""
    return next((shape for shape in SHAPES if shape.recognises(file)), None)


@lazy_dataclass(frozen=True, slots=True)
class SourceCandidate:
    """A file with the shape that it has; None when it is in a folder and has none."""

    file: SourceFile
    shape: Shape | None


def find(paths: Iterable[Path], *, shape: str | None = None, documents: bool = True) -> list[SourceCandidate]:
    """The files of paths and folders, recognised, before anything is read further.

    Raises `UnknownSourceError` for a file that was named and has no shape, or not the given one.
    """
    wanted = shape_named(shape) if shape is not None else None
    return [_found(file, wanted, is_named) for path in paths for file, is_named in _files(path, documents)]


def import_files(
    log: Turnlog,
    paths: Iterable[Path | str],
    *,
    shape: str | None = None,
    dry_run: bool = False,
    documents: bool = True,
    on_messages: Callable[[int], None] | None = None,
    clock: Clock | None = None,
) -> Report:
    """Imports the sessions of files and folders, whose shape is recognised when it is left out. ``documents`` is as of
    `Sessions.import_`.

    A second run writes nothing, one after a stop goes on, and a source that has grown gives what is new. A session that is
    refused is a row of the report, and the others go on; `Report.check` raises.
    """
    found = find(map(Path, paths), shape=shape, documents=documents)
    return run(log, found, dry_run=dry_run, on_messages=on_messages, clock=clock)


def run(
    log: Turnlog,
    found: Iterable[SourceCandidate],
    *,
    dry_run: bool = False,
    on_messages: Callable[[int], None] | None = None,
    clock: Clock | None = None,
) -> Report:
    """As `import_files`, of files that were found."""
    clock = clock if clock is not None else SystemClock()
    started, tick = clock.now_ms(), on_messages or (lambda count: None)
    rows = list[SessionReport]()
    for one in found:
        if one.shape is None:
            skipped = [Noted("file", "unknown_source")]
            rows.append(SessionReport(one.file.name, "", "", one.file.path.stem, "skipped", skipped=skipped))
        else:
            rows += one.shape.run(log, one.file, dry_run, tick)
    return Report(rows, dry_run=dry_run, seconds=(clock.now_ms() - started) / 1000)


def _files(path: Path, documents: bool) -> Iterator[tuple[SourceFile, bool]]:
    """The path, or the files below it that don't begin with a dot; and whether it was named itself."""
    if not path.exists():
        raise InvalidInputError(f"no file {str(path)!r}", code="no_file")
    if not path.is_dir():
        yield SourceFile(path, documents=documents), True
        return
    for file in sorted(one for one in path.rglob("*") if one.is_file() and not one.name.startswith(".")):
        yield SourceFile(file, documents=documents), False


def _found(file: SourceFile, wanted: Shape | None, is_named: bool) -> SourceCandidate:
    try:
        shape = shape_of(file) if wanted is None else wanted if wanted.recognises(file) else None
        why = file.why_not_json if shape is None else ""
    except MalformedError as error:
        shape, why = None, error.detail
    if shape is None and is_named:
        known = wanted.label if wanted is not None else ", ".join(one.label for one in SHAPES)
        raise UnknownSourceError(f"{file.name!r} is none of: {known}{f' ({why})' if why else ''}")
    return SourceCandidate(file, shape)
