"""`turnlog sessions`, `loops`, `show`, `end` and `reset`."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from turnlog.local.cli.context import At, moment
from turnlog.local.cli.message import MAX_CHARS, message_text
from turnlog.local.cli.options import Connection, Json, Session, connected, opened
from turnlog.local.cli.screen import console, cut, number, print_json, table

_STATUS = {"open": "yellow", "closed": "green", "interrupted": "red"}


@connected
def sessions(
    connection: Connection,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 20,
    status: Annotated[
        str | None, typer.Option("--status", metavar="S", help="Only active, inactive or ended ones.")
    ] = None,
    json: Json = False,
) -> None:
    """List the sessions, newest activity first."""
    with opened(connection) as log:
        found = list(itertools.islice(log.sessions.list(status=cast("Any", status)), limit + 1))
        # The list itself is brought up to date now and then only: its totals may be minutes old.
        shown = [log.sessions.get(one.session_id).info() for one in found[:limit]]
    if json:
        print_json({"sessions": [one.model_dump(mode="json") for one in shown], "more": len(found) > limit})
        return
    headings = [("session", "left"), ("title", "left"), ("status", "left"), ("messages", "right"), ("loops", "right")]
    expires = [("expires", "left")] if any(one.expires_at for one in shown) else []
    made = table(None, [*headings, ("tokens", "right"), ("policy", "left"), ("updated", "left"), *expires])
    for one in shown:
        policy = one.policy if isinstance(one.policy, str) else "custom"
        totals = (number(one.messages), number(one.loops), number(one.tokens))
        last = (one.expires_at or "never",) if expires else ()
        made.add_row(one.session_id, cut(one.title or "", 40), one.status, *totals, policy, one.updated_at, *last)
    screen = console()
    screen.print(made if shown else "no sessions")
    if len(found) > limit:
        screen.print(f"more than {limit}: --limit", style="dim")


@connected
def end(
    connection: Connection,
    session: Session,
    json: Json = False,
) -> None:
    """End a session: nothing more is said in it."""
    with opened(connection) as log:
        found = log.sessions.get(session).end()
    if json:
        print_json(found.model_dump(mode="json"))
        return
    console().print(f"{found.session_id} has ended")


@connected
def reset(
    connection: Connection,
    session: Session,
    json: Json = False,
) -> None:
    """End a session and begin a fresh one with its settings."""
    with opened(connection) as log:
        fresh = log.sessions.get(session).reset()
        found = fresh.info()
    if json:
        print_json(found.model_dump(mode="json"))
        return
    console().print(f"{found.reset_of} has ended; {found.session_id} is in its place")


@connected
def loops(
    connection: Connection,
    session: Session,
    json: Json = False,
) -> None:
    """List a session's run loops, newest first."""
    with opened(connection) as log:
        found = list(log.sessions.get(session).loops())
    if json:
        print_json({"loops": [one.model_dump(mode="json") for one in found]})
        return
    headings = [("loop", "right"), ("status", "left"), ("positions", "left"), ("calls", "right"), ("tokens", "right")]
    made = table(None, [*headings, ("user", "left"), ("reply", "left")])
    for one in found:
        status = Text(one.status, style=_STATUS[one.status])
        numbers = (f"{one.first}–{one.last}", number(len(one.tool_calls)), number(one.tokens))
        made.add_row(str(one.loop), status, *numbers, cut(one.user_message or "", 48), cut(one.reply or "", 48))
    console().print(made if found else "no loops")


@connected
def show(
    connection: Connection,
    session: Session,
    after: Annotated[int, typer.Option("--after", metavar="P", min=0, help="Positions greater than this.")] = 0,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many messages.")] = 100,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long messages.")] = False,
    at: At = None,
    in_view: Annotated[bool, typer.Option("--in-view", help="Without what a rewind has taken out of view.")] = False,
    json: Json = False,
) -> None:
    """Print a session's messages."""
    with opened(connection) as log:
        found, next_position = list[Any](), after
        of_session = log.sessions.get(session)
        while len(found) < limit:
            wanted = min(100, limit - len(found))
            page = of_session.page(after=next_position, limit=wanted, at=moment(at), in_view=in_view)
            found += page.messages
            if page.next is None:
                next_position = 0
                break
            next_position = page.next
    if json:
        print_json({"messages": [one.model_dump(mode="json") for one in found], "next": next_position or None})
        return
    screen = console()
    for one in found:
        loop = f"loop {one.loop}  " if one.loop is not None else ""
        status = "interrupted  " if one.status == "interrupted" else ""
        heading = f"{one.position:>5}  {loop}{status}{one.tokens:,} tokens"
        screen.print(message_text(one.body, heading=heading, max_chars=None if full else MAX_CHARS), soft_wrap=True)
    if next_position:
        screen.print(f"more: --after {next_position}", style="dim")
