"""Importing files and folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from turnlog.adapters.system import SystemClock
from turnlog.client.imports.errors import UnknownSourceError
from turnlog.client.imports.files import SourceFile
from turnlog.client.imports.registry import SHAPES, Shape, shape_named, shape_of
from turnlog.client.imports.report import Report, SessionReport
from turnlog.client.imports.sessions import Noted
from turnlog.client.model import Turnlog
from turnlog.domain.errors import InvalidInputError, MalformedError
from turnlog.domain.values import dataclass
from turnlog.ports import Clock


@dataclass(frozen=True, slots=True)
class Found:
    """A file with the shape that it has; None when it is in a folder and has none."""

    file: SourceFile
    shape: Shape | None


def find(paths: Iterable[Path], *, shape: str | None = None, documents: bool = True) -> list[Found]:
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
    found: Iterable[Found],
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


def _found(file: SourceFile, wanted: Shape | None, is_named: bool) -> Found:
    try:
        shape = shape_of(file) if wanted is None else wanted if wanted.recognises(file) else None
        why = file.why_not_json if shape is None else ""
    except MalformedError as error:
        shape, why = None, error.detail
    if shape is None and is_named:
        known = wanted.label if wanted is not None else ", ".join(one.label for one in SHAPES)
        raise UnknownSourceError(f"{file.name!r} is none of: {known}{f' ({why})' if why else ''}")
    return Found(file, shape)
