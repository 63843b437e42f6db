"""`turnlog import`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from turnlog.cli.options import DATABASE, DEFAULT_DATA, Connection, Json, connected, opened, opened_or_made
from turnlog.cli.screen import console, cut, number, print_json, table
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.importers.report import Report
from turnlog.importers.running import SHAPES, SourceCandidate, find, run

Paths = Annotated[list[Path], typer.Argument(metavar="FILE_OR_FOLDER...", help="What to import.")]
_STATUS = {"new": "green", "grown": "green", "settings": "green", "same": "dim", "skipped": "yellow", "refused": "red"}
_REASONS = 5


@connected
def import_(
    connection: Connection,
    files: Paths,
    shape: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="SHAPE", help=f"{', '.join(one.name for one in SHAPES)}; recognised if left out."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and write nothing.")] = False,
    no_documents: Annotated[
        bool, typer.Option("--no-documents", help="Leave out the documents of an export that is not your own.")
    ] = False,
    json: Json = False,
) -> None:
    """Import sessions from elsewhere; exit 1 when one is refused.

    A second run writes nothing, one after a stop goes on, and a source that has grown gives what is new.
    """
    found = find(files, shape=shape, documents=not no_documents)
    with _target(connection, dry_run=dry_run) as log, _progress(found, quiet=json) as tick:
        report = run(log, found, dry_run=dry_run, on_messages=tick)
    if json:
        print_json(report.as_json())
    else:
        _print(report)
    if not report.ok:
        raise typer.Exit(1)


def _target(connection: Connection, *, dry_run: bool) -> Turnlog:
    """Where to: an import may be the first that is done with a data folder, and a dry run makes none."""
    is_there = connection.url is not None or ((connection.data or DEFAULT_DATA) / DATABASE).is_file()
    return Turnlog.open("memory://") if dry_run and not is_there else opened_or_made(connection)


@contextmanager
def _progress(found: Sequence[SourceCandidate], *, quiet: bool) -> Iterator[Callable[[int], None]]:
    screen = console(stderr=True)
    if quiet or not screen.is_terminal:
        yield lambda count: None
        return
    columns = (
        TextColumn("importing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("messages"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as progress:
        total = sum(one.shape.count(one.file) for one in found if one.shape is not None)
        task = progress.add_task("messages", total=total)
        yield lambda count: progress.advance(task, count)


def _print(report: Report) -> None:
    headings = [("file", "left"), ("from", "left"), ("session", "left"), ("status", "left"), ("messages", "right")]
    numbers = [("there", "right"), ("written", "right"), ("changed", "right"), ("skipped", "right")]
    made = table(None, [*headings, *numbers, ("warnings", "right"), ("first", "left"), ("last", "left")])
    for one in report.sessions:
        numbers_of = (one.messages, one.present, one.written, len(one.changed), len(one.skipped), len(one.warnings))
        made.add_row(
            cut(Path(one.file).name, 40),
            one.shape,
            cut(one.session_id, 64),
            Text(one.status, style=_STATUS[one.status]),
            *map(number, numbers_of),
            cut(one.first_at or "–", 24),
            cut(one.last_at or "–", 24),
        )
    screen = console()
    screen.print(made if report.sessions else "no files")
    for name in ("changed", "skipped", "warnings"):
        reasons = sorted(report.reasons(name).items(), key=lambda one: (-one[1], one[0]))
        if reasons:
            more = f", and {len(reasons) - _REASONS} more kinds" if len(reasons) > _REASONS else ""
            told = ", ".join(f"{cut(reason, 60)} {count:,}" for reason, count in reasons[:_REASONS])
            screen.print(f"{name}: {told}{more}", style="dim", soft_wrap=True)
    for one in report.sessions:
        if one.error is not None:
            screen.print(f"{cut(one.error.detail, 300)} ({one.error.error_code})", style="red", soft_wrap=True)
    done = "would be written (dry run)" if report.dry_run else "written"
    sessions = sum(1 for one in report.sessions if one.status in ("new", "grown", "settings"))
    counts = f"{report.written:,} messages of {sessions:,} sessions {done}"
    screen.print(f"\n{counts}, {report.seconds:.1f} s", style="bold green" if report.ok else "bold red")


@connected
def export(
    connection: Connection,
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="The session's id.")] = None,
    me: Annotated[bool, typer.Option("--me", help="All sessions of the user, as one file.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to.", show_default="SESSION.zip")
    ] = None,
    json: Json = False,
) -> None:
    """Write a session, or all of a user, to a zip of JSON Lines; turnlog import brings it back."""
    if (session is None) == (not me):
        raise InvalidInputError("name a session, or give --me")
    target = output if output is not None else Path(f"{session or 'turnlog'}.zip")
    screen = console(stderr=True)
    shows = screen.is_terminal and not json
    with opened(connection) as log, screen.status("exporting") if shows else nullcontext():
        made = log.export(target) if session is None else log.sessions.get(session).export(target)
    if json:
        told = made.model_dump(mode="json", exclude={"url", "expires_at"})
        print_json({"file": str(target), **told})
        return
    counts = f"{number(made.sessions)} sessions, {number(made.positions)} positions, {number(made.size_bytes)} bytes"
    console().print(f"{target}: {counts}\nsha256 {made.sha256}", soft_wrap=True)
