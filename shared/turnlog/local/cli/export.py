"""`turnlog export`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from turnlog.domain.errors import InvalidInputError
from turnlog.local.cli.options import Connection, Json, connected, opened
from turnlog.local.cli.screen import console, number, print_json


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
