"""`turnlog memory`: what is known of the owner beyond a session, and what is to be forgotten."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer
from rich.text import Text

from turnlog.contracts.memories import StoredMemory
from turnlog.local.cli.options import Connection, Json, connected, opened
from turnlog.local.cli.screen import console, cut, number, plain, print_json, table

_MAX_TEXT = 80

memory = typer.Typer(help="List what is known, newest first.", invoke_without_command=True, add_completion=False)


@memory.callback(invoke_without_command=True)
@connected
def listed(
    connection: Connection,
    ctx: typer.Context,
    replaced: Annotated[bool, typer.Option("--all", help="What a newer one has replaced, too.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 50,
    json: Json = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    with opened(connection) as log:
        engine = log.memory_page(limit=1).engine
        known = (one for one in log.memory() if replaced or one.replaced_by is None)
        found = list(itertools.islice(known, limit + 1))
    shown, has_more = found[:limit], len(found) > limit
    if json:
        told = [one.model_dump(mode="json") for one in shown]
        print_json({"engine": engine, "memories": told, "more": has_more})
        return
    screen = console()
    screen.print(_table(shown) if shown else "nothing is known" if engine else "long-term memory is off")
    if has_more:
        screen.print(f"more than {limit}: --limit", style="dim")


@memory.command()
@connected
def forget(
    connection: Connection,
    memory_id: Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")],
    json: Json = False,
) -> None:
    """Forget one for good: it is not made again of what it came from."""
    with opened(connection) as log:
        found = log.forget(memory_id)
    if json:
        print_json(found.model_dump(mode="json"))
        return
    console().print(f"{plain(memory_id, lines=False)} is forgotten", soft_wrap=True)


def _table(memories: list[StoredMemory]) -> object:
    made = table(None, [("memory", "left"), ("kind", "left"), ("said", "right"), ("where", "left"), ("what", "left")])
    for one in memories:
        made.add_row(
            one.memory_id,
            one.kind,
            number(one.confirmations),
            f"{one.session_id}:{one.position}" if one.session_id is not None else "",
            Text(cut(plain(one.text, lines=False), _MAX_TEXT), style="dim strike" if one.replaced_by else ""),
        )
    return made
