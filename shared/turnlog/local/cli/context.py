"""`turnlog context`."""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog.local.cli.difference import difference
from turnlog.local.cli.options import Budget, Connection, Format, Json, Policy, Session, connected, opened, policy_value
from turnlog.local.cli.picture import picture
from turnlog.local.cli.screen import console, plain, print_json

Model = Annotated[
    str | None, typer.Option("--model", metavar="M", help="The model's context is the budget, when none is given.")
]

At = Annotated[
    str | None,
    typer.Option("--at", metavar="P", help="As if the log ended at this position, or time (RFC 3339)."),
]
Against = Annotated[
    str | None,
    typer.Option("--against", metavar="Q", help="What differs from the window at this position, or time."),
]


@connected
def context(
    connection: Connection,
    session: Session,
    policy: Policy = None,
    budget: Budget = None,
    format: Format = None,
    model: Model = None,
    at: At = None,
    against: Against = None,
    messages: Annotated[bool, typer.Option("--messages", help="Print the messages themselves too.")] = False,
    json: Json = False,
) -> None:
    """Show the window for the next model call: a bar per part."""
    with opened(connection) as log:
        asked = {"policy": policy_value(policy), "budget": budget, "format": format, "model": model}
        found = log.sessions.get(session)
        window = found.context(at=moment(at), **asked)  # type: ignore[arg-type]
        other = found.context(at=moment(against), **asked) if against is not None else None  # type: ignore[arg-type]
    if json:
        shown = window.model_dump(mode="json")
        print_json(shown if other is None else {"window": shown, "against": other.model_dump(mode="json")})
        return
    screen = console()
    if other is not None:
        screen.print(difference(other, window, title=f"Window of {session}"))
        return
    screen.print(picture(window, title=f"Window of {session}"))
    if messages:
        from turnlog.local.cli.message import message_text

        screen.print()
        if isinstance(window.system, str):
            screen.print(plain(window.system), style="cyan")
        for number, body in enumerate(window.messages, start=1):
            screen.print(message_text(body, heading=f"{number}"))


def moment(text: str | None) -> int | str | None:
    """A position, or else a time."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text
