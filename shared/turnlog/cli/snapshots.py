"""`turnlog snapshot`: take, list, show, delete and restore."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, cast

import typer

from turnlog.cli.options import Connection, Json, Session, connected, opened
from turnlog.cli.screen import MAX_CHARS, console, cut, message_text, number, print_json, table
from turnlog.jobs.models import Job

snapshots = typer.Typer(help="Take, list, show, delete and restore snapshots of a session.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its id, or its name (the newest of that name).")]


@snapshots.command("create")
@connected
def create(
    connection: Connection,
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="What to call it.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Copy the history, so that it outlives the session's expiry.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="Delete unnamed ones of its kind but the newest N."),
    ] = None,
    json: Json = False,
) -> None:
    """Name a point of a session: its head."""
    with opened(connection) as log:
        made = log.sessions.get(session).create_snapshot(name, kind="full" if full else "ref", keep=keep)
    if json:
        print_json(made.model_dump(mode="json"))
    elif isinstance(made, Job):
        console().print(f"a long history: job {made.job_id} takes the snapshot (turnlog jobs)")
    else:
        console().print(f"{made.snapshot_id}  {made.kind}, position {made.position}, {number(made.size_bytes)} bytes")


@snapshots.command("list")
@connected
def list_(
    connection: Connection,
    session: Session,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only those of this name.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 50,
    json: Json = False,
) -> None:
    """List a session's snapshots, newest first; also when the session has expired."""
    with opened(connection) as log:
        found = list(itertools.islice(log.sessions.of(session).snapshots(name=name), limit + 1))
    if json:
        shown = [one.model_dump(mode="json") for one in found[:limit]]
        print_json({"snapshots": shown, "more": len(found) > limit})
        return
    headings = [("snapshot", "left"), ("name", "left"), ("kind", "left"), ("position", "right"), ("bytes", "right")]
    made = table(None, [*headings, ("created", "left")])
    for one in found[:limit]:
        numbers = (number(one.position), number(one.size_bytes))
        made.add_row(one.snapshot_id, cut(one.name or "", 40), one.kind, *numbers, one.created_at)
    screen = console()
    screen.print(made if found else "no snapshots")
    if len(found) > limit:
        screen.print(f"more than {limit}: --limit", style="dim")


@snapshots.command("show")
@connected
def show(connection: Connection, session: Session, snapshot: Name, json: Json = False) -> None:
    """Print what the session was at a snapshot: totals, parts, and the first messages."""
    with opened(connection) as log:
        found = log.sessions.of(session).snapshot(snapshot)
    if json:
        print_json(found.model_dump(mode="json"))
        return
    screen, content = console(), found.content
    screen.print(f"{found.snapshot_id}  {cut(found.name or '', 60)}", style="bold")
    screen.print(f"{found.kind}, position {found.position}, {number(found.size_bytes)} bytes, {found.created_at}")
    screen.print(f"sha256 {found.sha256}", style="dim")
    if found.parts:
        made = table(None, [("positions", "left"), ("bytes", "right"), ("sha256", "left")])
        for part in found.parts:
            made.add_row(f"{part.first}–{part.last}", number(part.size_bytes), part.sha256)
        screen.print(made)
    if content is not None:
        screen.print(f"{content.message_count:,} messages, {content.loops:,} loops, {content.tokens:,} tokens\n")
        for one in content.messages:
            heading = f"{one.position:>5}  {one.tokens:,} tokens"
            screen.print(message_text(one.body, heading=heading, max_chars=MAX_CHARS), soft_wrap=True)
        if content.next is not None:
            screen.print("more: --json, or the API with `after`", style="dim")


@snapshots.command("delete")
@connected
def delete(connection: Connection, session: Session, snapshot: Name, json: Json = False) -> None:
    """Delete a snapshot, and what only it needs."""
    with opened(connection) as log:
        gone = log.sessions.of(session).delete_snapshot(snapshot)
    if json:
        print_json(gone.model_dump(mode="json"))
        return
    console().print(f"{gone.snapshot_id} is deleted")


@snapshots.command("restore")
@connected
def restore(
    connection: Connection,
    session: Session,
    snapshot: Name,
    as_: Annotated[
        str,
        typer.Option("--as", metavar="HOW", help="fork: another session begins with it. rewind: this one goes back."),
    ] = "fork",
    session_id: Annotated[
        str | None, typer.Option("--session-id", metavar="ID", help="Of the other session; made if left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Restore a snapshot; a full one also when the session has expired."""
    with opened(connection) as log:
        of_session = log.sessions.of(session)
        made = of_session.restore_snapshot(snapshot, as_=cast("Any", as_), session_id=session_id)
    if json:
        print_json(made.model_dump(mode="json"))
    elif isinstance(made, Job):
        console().print(f"a long history: job {made.job_id} restores it (turnlog jobs)")
    else:
        console().print(f"{made.session_id} is as it was: {made.messages:,} messages, head {made.head}")
