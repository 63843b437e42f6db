"""`turnlog state` and `turnlog history`."""

from __future__ import annotations

import itertools
import json as json_module
from typing import Annotated, Any

import typer

from turnlog.local.cli.context import At, moment
from turnlog.local.cli.options import Connection, Json, Session, connected, opened
from turnlog.local.cli.screen import console, cut, print_json, table

_VALUE_CHARS = 100


@connected
def state(
    connection: Connection,
    session: Session,
    at: At = None,
    json: Json = False,
) -> None:
    """Print a session's state, now or at any moment."""
    with opened(connection) as log:
        found = log.sessions.get(session).state(at=moment(at))
    if json:
        print_json(found.model_dump(mode="json"))
        return
    made = table(None, [("name", "left"), ("value", "left")])
    for name, value in found.state.items():
        made.add_row(cut(name, 40), _short(value))
    screen = console()
    screen.print(made if found.state else "no state")
    if found.version:
        screen.print(f"version {found.version}", style="dim")


@connected
def history(
    connection: Connection,
    session: Session,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 20,
    action: Annotated[str | None, typer.Option("--action", metavar="A", help="Only entries of this action.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="ID", help="Only entries of this agent.")] = None,
    json: Json = False,
) -> None:
    """List what was done in a session, newest first."""
    with opened(connection) as log:
        entries = log.sessions.get(session).history(action=action, agent=agent)
        found = list(itertools.islice(entries, limit + 1))
    shown = found[:limit]
    if json:
        print_json({"entries": [one.model_dump(mode="json") for one in shown], "more": len(found) > limit})
        return
    made = table(None, [("id", "right"), ("time", "left"), ("action", "left"), ("agent", "left"), ("what", "left")])
    for one in shown:
        what = one.diff if one.diff is not None else one.metadata
        made.add_row(one.history_id, one.created_at, one.action, one.agent_id or "", _short(what))
    screen = console()
    screen.print(made if shown else "no entries")
    if len(found) > limit:
        screen.print(f"more than {limit}: --limit", style="dim")


def _short(value: Any) -> str:
    return cut(json_module.dumps(value, ensure_ascii=False), _VALUE_CHARS)
