"""`turnlog context`."""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog.local.cli.options import (
    Budget,
    Data,
    Format,
    Json,
    Policy,
    Session,
    Tenant,
    Token,
    Url,
    User,
    opened,
    policy_value,
    remember,
)
from turnlog.local.cli.picture import picture
from turnlog.local.cli.screen import console, plain, print_json

Model = Annotated[
    str | None, typer.Option("--model", metavar="M", help="The model's context is the budget, when none is given.")
]


def context(
    ctx: typer.Context,
    session: Session,
    policy: Policy = None,
    budget: Budget = None,
    format: Format = None,
    model: Model = None,
    messages: Annotated[bool, typer.Option("--messages", help="Print the messages themselves too.")] = False,
    url: Url = None,
    data: Data = None,
    tenant: Tenant = None,
    user: User = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Show the window for the next model call: a bar per part."""
    connection = remember(ctx, url=url, data=data, tenant=tenant, user=user, token=token)
    with opened(connection) as log:
        window = log.sessions.get(session).context(
            policy=policy_value(policy), budget=budget, format=format, model=model
        )
    if json:
        print_json(window.model_dump(mode="json"))
        return
    screen = console()
    screen.print(picture(window, title=f"Window of {session}"))
    if messages:
        from turnlog.local.cli.message import message_text

        screen.print()
        if window.system is not None:
            screen.print(plain(window.system), style="cyan")
        for at, body in enumerate(window.messages):
            screen.print(message_text(body, heading=f"{at + 1}"))
