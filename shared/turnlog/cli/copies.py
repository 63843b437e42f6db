"""Copies of sessions: `turnlog snapshot`, `turnlog export` and `turnlog import`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Group, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from turnlog.cli.options import (
    Connection,
    Json,
    Session,
    argument,
    has_data,
    open_client,
    open_or_make_client,
    option,
    with_connection,
    with_log,
)
from turnlog.cli.screen import (
    Column,
    Output,
    console,
    counted,
    format_number,
    listing,
    listing_output,
    message_text,
    one_line,
    print_output,
    short_time,
    table,
)
from turnlog.client.exports import OnBytes
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.importers import SHAPES, find, run
from turnlog.importers.models import Report
from turnlog.jobs.models import Job

snapshot = typer.Typer(help="Take, list, show, delete and restore snapshots of a session.")
Name = Annotated[str, argument("SNAPSHOT", "The snapshot's id, or a name (its newest snapshot).")]
_COLUMNS = (
    Column("snapshot", lambda snapshot: snapshot.snapshot_id),
    Column("name", lambda snapshot: one_line(snapshot.name or "", 40), is_text=True),
    Column("kind", lambda snapshot: snapshot.kind, rank=1),
    Column("position", lambda snapshot: snapshot.position, "right"),
    Column("bytes", lambda snapshot: snapshot.size_bytes, "right", rank=3),
    Column("created", lambda snapshot: short_time(snapshot.created_at), rank=2),
)
Paths = Annotated[list[Path], argument("FILE_OR_FOLDER", "Files and folders to import.")]
_STATUS = {"new": "green", "grown": "green", "settings": "green", "same": "dim", "skipped": "yellow", "refused": "red"}
_REASONS = 5
_IMPORTED = (
    Column("file", lambda row: one_line(Path(row.file).name, 40), is_text=True),
    Column("from", lambda row: row.shape, rank=7),
    Column("session", lambda row: one_line(row.session_id, 64)),
    Column("status", lambda row: Text(row.status, style=_STATUS[row.status])),
    Column("messages", lambda row: row.messages, "right", rank=2),
    Column("there", lambda row: row.present, "right", rank=6),
    Column("written", lambda row: row.written, "right", rank=1),
    Column("changed", lambda row: len(row.changed), "right", rank=4),
    Column("skipped", lambda row: len(row.skipped), "right", rank=3),
    Column("warnings", lambda row: len(row.warnings), "right", rank=5),
    Column("first", lambda row: short_time(row.first_at or "–"), rank=8),
    Column("last", lambda row: short_time(row.last_at or "–"), rank=9),
)


@snapshot.command("create")
@with_log(open_client)
def create(
    log: Turnlog,
    session: Session,
    name: Annotated[str | None, argument("NAME", "A name for the snapshot.")] = None,
    full: Annotated[
        bool, option("--full", "Copy the history, so that the snapshot stays usable after the session expires.")
    ] = False,
    keep: Annotated[
        int | None,
        option("--keep", "Keep the newest N unnamed snapshots of this kind and delete older ones.", "N", min=1),
    ] = None,
    pin: Annotated[bool, option("--pin", "Keep it: the session's policy does not delete it.")] = False,
) -> Output:
    """Take a snapshot of a session at its head."""
    answer = log.sessions.of(session).create_snapshot(name, kind="full" if full else "ref", keep=keep, pinned=pin)
    if isinstance(answer, Job):
        return Output(answer, f"a long history: job {answer.job_id} takes the snapshot (turnlog jobs)")
    size = f"{format_number(answer.size_bytes)} bytes"
    return Output(answer, f"{answer.snapshot_id}  {answer.kind}, position {answer.position}, {size}")


@snapshot.command("list")
@with_log(open_client)
def list_(
    log: Turnlog,
    session: Session,
    name: Annotated[str | None, option("--name", "Only snapshots with this name.", "NAME")] = None,
    limit: Annotated[int, option("--limit", "Maximum number of snapshots.", "N", min=1)] = 50,
) -> Output:
    """List a session's snapshots, newest first, also after the session has expired."""
    return listing_output("snapshots", log.sessions.of(session).snapshots(name=name), _COLUMNS, limit=limit)


@snapshot.command("show")
@with_log(open_client)
def show(log: Turnlog, session: Session, snapshot: Name) -> Output:
    """Print a snapshot: totals, parts and the first messages."""
    detail = log.sessions.of(session).snapshot(snapshot)
    content, size = detail.content, f"{format_number(detail.size_bytes)} bytes"
    shown: list[RenderableType] = [
        Text(f"{detail.snapshot_id}  {one_line(detail.name or '', 60)}", style="bold"),
        f"{detail.kind}, position {detail.position}, {size}, {detail.created_at}",
        Text(f"sha256 {detail.sha256}", style="dim"),
    ]
    if detail.parts:
        grid = table(None, [("positions", "left"), ("bytes", "right"), ("sha256", "left")])
        for part in detail.parts:
            grid.add_row(f"{part.first}–{part.last}", format_number(part.size_bytes), part.sha256)
        shown.append(grid)
    if content is not None:
        totals = (counted(content.message_count, "message"), counted(content.loops, "loop"))
        shown.append(f"{', '.join(totals)}, {counted(content.tokens, 'token')}\n")
        for message in content.messages:
            heading = f"{message.position:>5}  {message.tokens:,} tokens"
            shown.append(message_text(message.body, heading=heading))
        if content.next is not None:
            shown.append(Text("more: --json, or the API with `after`", style="dim"))
    return Output(detail, Group(*shown))


@snapshot.command("delete")
@with_log(open_client)
def delete(log: Turnlog, session: Session, snapshot: Name) -> Output:
    """Delete a snapshot and the data that only it needs."""
    deleted = log.sessions.of(session).delete_snapshot(snapshot)
    return Output(deleted, f"{deleted.snapshot_id} is deleted")


@snapshot.command("restore")
@with_log(open_client)
def restore(
    log: Turnlog,
    session: Session,
    snapshot: Name,
    as_: Annotated[str, option("--as", "fork: into a new session. rewind: take this session back.", "HOW")] = "fork",
    session_id: Annotated[
        str | None, option("--session-id", "Id of the new session. By default generated.", "ID")
    ] = None,
) -> Output:
    """Restore a snapshot; a full one also after the session has expired."""
    of_session = log.sessions.of(session)
    answer = of_session.restore_snapshot(snapshot, as_=cast("Any", as_), session_id=session_id)
    if isinstance(answer, Job):
        return Output(answer, f"a long history: job {answer.job_id} restores it (turnlog jobs)")
    return Output(
        answer, f"{answer.session_id} is as it was: {counted(answer.messages, 'message')}, head {answer.head}"
    )


@with_connection
def import_(
    connection: Connection,
    files: Paths,
    shape: Annotated[
        str | None,
        option("--from", f"{', '.join(source_shape.name for source_shape in SHAPES)}. By default recognised.", "SHAPE"),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", "Print what would be imported, and write nothing.")] = False,
    no_documents: Annotated[
        bool, option("--no-documents", "Leave documents out; use it for exports of other people.")
    ] = False,
    json: Json = False,
) -> None:
    """Import sessions from files; exit 1 when a session is refused.

    Repeating an import writes nothing twice: a run after an interruption continues, and a source that has grown adds only its
    new messages. An export of a session that was imported before and has grown is refused.
    """
    candidates = find(files, shape=shape, documents=not no_documents)
    # A missing data folder is created, but a dry run uses memory in its place.
    uses_memory = dry_run and not has_data(connection)
    target = Turnlog.open("memory://") if uses_memory else open_or_make_client(connection)
    with target as log, progress_bar("importing", quiet=json) as on_bytes:
        report = run(log, candidates, dry_run=dry_run, on_bytes=on_bytes)
    print_output(Output(report.as_json(), _shown(report), exit_code=0 if report.ok else 1), json=json)


@contextmanager
def progress_bar(doing: str, *, quiet: bool) -> Iterator[OnBytes | None]:
    """Show a bar of bytes on a terminal, and yield the function that moves it; None where nothing is shown."""
    screen = console(stderr=True)
    if quiet or not screen.is_terminal:
        yield None
        return
    spinner = SpinnerColumn()  # moves also while a long file is imported
    columns = (spinner, TextColumn(doing), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _shown(report: Report) -> RenderableType:
    grid = listing(_IMPORTED, report.sessions, console().width)
    shown: list[RenderableType] = [grid if report.sessions else "no files"]
    for name in ("changed", "skipped", "warnings"):
        reasons = sorted(report.reasons(name).items(), key=lambda item: (-item[1], item[0]))
        if reasons:
            more = f", and {len(reasons) - _REASONS} more kinds" if len(reasons) > _REASONS else ""
            summary = ", ".join(f"{one_line(reason, 60)} {count:,}" for reason, count in reasons[:_REASONS])
            shown.append(Text(f"{name}: {summary}{more}", style="dim"))
    for row in report.sessions:
        if row.error is not None:
            shown.append(Text(f"{one_line(row.error.detail, 300)} ({row.error.error_code})", style="red"))
    done = "would be written (dry run)" if report.dry_run else "written"
    sessions = sum(1 for row in report.sessions if row.written or row.status in ("new", "settings"))
    counts = f"{counted(report.written, 'message')} of {counted(sessions, 'session')} {done}"
    if memories := sum(row.memories for row in report.sessions):
        counts += f", {counted(memories, 'memory', 'memories')}"
    shown.append(Text(f"\n{counts}, {report.seconds:.1f} s", style="bold green" if report.ok else "bold red"))
    return Group(*shown)


@with_connection
def export(
    connection: Connection,
    session: Annotated[str | None, argument("SESSION", "The session's id.")] = None,
    me: Annotated[bool, option("--me", "Export all sessions of the user into one file.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The file to write.", show_default="SESSION.zip"),
    ] = None,
    json: Json = False,
) -> None:
    """Export a session, or all sessions of a user, as a zip of JSON Lines that turnlog import reads."""
    if (session is None) == (not me):
        raise InvalidInputError("name a session, or give --me")
    target = output if output is not None else Path((session or "turnlog").replace("/", "%2F") + ".zip")
    with open_client(connection) as log, progress_bar("exporting", quiet=json) as on_bytes:
        source = log if session is None else log.sessions.of(session)
        export_info = source.export(target, on_bytes=on_bytes)
    fields = export_info.model_dump(mode="json", exclude={"url", "expires_at"})
    sizes = f"{counted(export_info.positions, 'position')}, {counted(export_info.size_bytes, 'byte')}"
    line = f"{target}: {counted(export_info.sessions, 'session')}, {sizes}\nsha256 {export_info.sha256}"
    print_output(Output({"file": str(target), **fields}, line), json=json)
