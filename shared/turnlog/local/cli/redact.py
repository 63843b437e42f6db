"""`turnlog redact`: what one message says, for good."""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog.domain.errors import InvalidInputError
from turnlog.local.cli.erase import followed, told
from turnlog.local.cli.options import Connection, Json, connected, opened
from turnlog.local.cli.screen import console, print_json


@connected
def redact(
    connection: Connection,
    session: Annotated[str, typer.Argument(help="The session's id.")],
    position: Annotated[int, typer.Argument(help="The message's position.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Redact one message for good: what it says, and what was made of it."""
    with opened(connection) as log:
        what = f"message {position} of session {session}"
        if not yes and not typer.confirm(f"Redact {what} for good?", err=True):
            raise InvalidInputError("nothing was redacted", code="not_confirmed")
        job = followed(log, connection, log.sessions.get(session).redact(position))
    if json:
        print_json(job.model_dump(mode="json"))
        return
    console().print(told(job, what), soft_wrap=True)
