"""`turnlog diff`, `rewind` and `fork`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from turnlog.local.cli.context import At, moment
from turnlog.local.cli.message import MAX_CHARS, message_text
from turnlog.local.cli.options import Connection, Json, Session, connected, opened
from turnlog.local.cli.screen import console, cut, number, print_json

_VALUE_CHARS = 100
_SIGNS = {"add": ("+", "green"), "remove": ("-", "red")}


@connected
def rewind(
    connection: Connection,
    session: Session,
    to: Annotated[str, typer.Option("--to", metavar="P", help="The last position in view, or a time (RFC 3339).")],
    if_head: Annotated[int | None, typer.Option("--if-head", metavar="P", min=1, help="Only at this head.")] = None,
    json: Json = False,
) -> None:
    """Go back to a moment: what came after leaves window and state; the log keeps it."""
    with opened(connection) as log:
        found = log.sessions.get(session).rewind(moment(to) or to, if_head=if_head)
    if json:
        print_json(found.model_dump(mode="json"))
        return
    totals = f"{number(found.messages)} messages in {number(found.loops)} loops in view"
    console().print(
        f"{found.session_id} is as it was at {to}: {totals}; undo with --to {found.head - 1}", soft_wrap=True
    )


@connected
def fork(
    connection: Connection,
    session: Session,
    name: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="The new session's id; made if left out.")
    ] = None,
    at: At = None,
    title: Annotated[str | None, typer.Option("--title", metavar="T", help="The new session's title.")] = None,
    json: Json = False,
) -> None:
    """Begin a session as another is, or was at any moment."""
    settings = {"title": title} if title is not None else {}
    with opened(connection) as log:
        found = log.sessions.get(session).fork(name, at=moment(at), **settings).info()
    if json:
        print_json(found.model_dump(mode="json"))
        return
    totals = f"{number(found.messages)} messages, {number(found.loops)} loops"
    console().print(f"{found.session_id} is what {session} was at {found.forked_at}: {totals}", soft_wrap=True)


@connected
def diff(
    connection: Connection,
    session: Session,
    begin: Annotated[str, typer.Option("--from", metavar="P", help="This position, or a time (RFC 3339).")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="P", help="This position or time; the head if left out.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="At most so many messages.")] = 20,
    json: Json = False,
) -> None:
    """Compare two moments of a session: messages, state, settings, summary."""
    with opened(connection) as log:
        found = log.sessions.get(session).diff(moment(begin) or begin, moment(to), limit=limit)
    if json:
        print_json(found.model_dump(mode="json"))
        return
    screen = console()
    screen.print(f"from {found.from_position} to {found.to_position}", style="bold")
    for one in found.left:
        screen.print(Text(f"- positions {one.first}–{one.last} left the view", style="red"))
    for message in found.messages:
        heading = f"+ {message.position:>4}  loop {message.loop}  {message.tokens:,} tokens"
        screen.print(message_text(message.body, heading=heading, max_chars=MAX_CHARS), soft_wrap=True)
    if found.next is not None:
        screen.print("more messages: --limit, or --from a later moment", style="dim")
    for step in found.state:
        sign, style = _SIGNS.get(step["op"], ("~", "yellow"))
        value = f": {step['value']!r}" if "value" in step else ""
        screen.print(Text(cut(f"{sign} state {step['path'] or '/'}{value}", _VALUE_CHARS), style=style))
    if found.settings:
        screen.print(f"~ settings: {', '.join(found.settings)}", style="yellow")
    if found.summary_from != found.summary_to:
        screen.print(
            f"~ summary in force: {found.summary_from or 'none'} -> {found.summary_to or 'none'}", style="yellow"
        )
