"""`turnlog snapshot`: take, list, show, delete and restore."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, cast

import typer

from turnlog.cli.options import Connection, Json, Session, connected, opened
from turnlog.cli.screen import MAX_CHARS, console, cut, message_text, number, print_json, table
from turnlog.jobs.models import Job

snapshots = typer.Typer(help="Take, list, show, delete and restore snapshots of a session.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's id, or a name (its newest snapshot).")]


@snapshots.command("create")
@connected
def create(
    connection: Connection,
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A name for the snapshot.")] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Copy the history, so that the snapshot stays usable after the session expires."),
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="N", min=1, help="Keep the newest N unnamed snapshots of this kind and delete older ones."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Take a snapshot of a session at its head."""
    with opened(connection) as log:
        answer = log.sessions.get(session).create_snapshot(name, kind="full" if full else "ref", keep=keep)
    if json:
        print_json(answer.model_dump(mode="json"))
    elif isinstance(answer, Job):
        console().print(f"a long history: job {answer.job_id} takes the snapshot (turnlog jobs)")
    else:
        console().print(
            f"{answer.snapshot_id}  {answer.kind}, position {answer.position}, {number(answer.size_bytes)} bytes"
        )


@snapshots.command("list")
@connected
def list_(
    connection: Connection,
    session: Session,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only snapshots with this name.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of snapshots.")] = 50,
    json: Json = False,
) -> None:
    """List a session's snapshots, newest first, also after the session has expired."""
    with opened(connection) as log:
        listing = list(itertools.islice(log.sessions.of(session).snapshots(name=name), limit + 1))
    if json:
        shown = [snapshot.model_dump(mode="json") for snapshot in listing[:limit]]
        print_json({"snapshots": shown, "more": len(listing) > limit})
        return
    headings = [("snapshot", "left"), ("name", "left"), ("kind", "left"), ("position", "right"), ("bytes", "right")]
    grid = table(None, [*headings, ("created", "left")])
    for snapshot in listing[:limit]:
        numbers = (number(snapshot.position), number(snapshot.size_bytes))
        grid.add_row(snapshot.snapshot_id, cut(snapshot.name or "", 40), snapshot.kind, *numbers, snapshot.created_at)
    screen = console()
    screen.print(grid if listing else "no snapshots")
    if len(listing) > limit:
        screen.print(f"more than {limit}: --limit", style="dim")


@snapshots.command("show")
@connected
def show(connection: Connection, session: Session, snapshot: Name, json: Json = False) -> None:
    """Print a snapshot: totals, parts and the first messages."""
    with opened(connection) as log:
        detail = log.sessions.of(session).snapshot(snapshot)
    if json:
        print_json(detail.model_dump(mode="json"))
        return
    screen, content = console(), detail.content
    screen.print(f"{detail.snapshot_id}  {cut(detail.name or '', 60)}", style="bold")
    screen.print(f"{detail.kind}, position {detail.position}, {number(detail.size_bytes)} bytes, {detail.created_at}")
    screen.print(f"sha256 {detail.sha256}", style="dim")
    if detail.parts:
        grid = table(None, [("positions", "left"), ("bytes", "right"), ("sha256", "left")])
        for part in detail.parts:
            grid.add_row(f"{part.first}–{part.last}", number(part.size_bytes), part.sha256)
        screen.print(grid)
    if content is not None:
        screen.print(f"{content.message_count:,} messages, {content.loops:,} loops, {content.tokens:,} tokens\n")
        for message in content.messages:
            heading = f"{message.position:>5}  {message.tokens:,} tokens"
            screen.print(message_text(message.body, heading=heading, max_chars=MAX_CHARS), soft_wrap=True)
        if content.next is not None:
            screen.print("more: --json, or the API with `after`", style="dim")


@snapshots.command("delete")
@connected
def delete(connection: Connection, session: Session, snapshot: Name, json: Json = False) -> None:
    """Delete a snapshot and the data that only it needs."""
    with opened(connection) as log:
        deleted = log.sessions.of(session).delete_snapshot(snapshot)
    if json:
        print_json(deleted.model_dump(mode="json"))
        return
    console().print(f"{deleted.snapshot_id} is deleted")


@snapshots.command("restore")
@connected
def restore(
    connection: Connection,
    session: Session,
    snapshot: Name,
    as_: Annotated[
        str,
        typer.Option("--as", metavar="HOW", help="fork: into a new session. rewind: take this session back."),
    ] = "fork",
    session_id: Annotated[
        str | None, typer.Option("--session-id", metavar="ID", help="Id of the new session. By default generated.")
    ] = None,
    json: Json = False,
) -> None:
    """Restore a snapshot; a full one also after the session has expired."""
    with opened(connection) as log:
        of_session = log.sessions.of(session)
        answer = of_session.restore_snapshot(snapshot, as_=cast("Any", as_), session_id=session_id)
    if json:
        print_json(answer.model_dump(mode="json"))
    elif isinstance(answer, Job):
        console().print(f"a long history: job {answer.job_id} restores it (turnlog jobs)")
    else:
        console().print(f"{answer.session_id} is as it was: {answer.messages:,} messages, head {answer.head}")
