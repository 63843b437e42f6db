"""`turnlog recall` and `turnlog search`."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import typer
from rich.text import Text

from turnlog.cli.options import Connection, Json, Session, connected, opened
from turnlog.cli.screen import console, cut, number, plain, print_json, table
from turnlog.client.finding import found_everywhere_text, found_text, recalled_text
from turnlog.core.refs import is_ref
from turnlog.memory.models import StoredMemory

Line = Annotated[int | None, typer.Option("--from-line", metavar="N", min=1, help="First line of the result.")]
LastLine = Annotated[int | None, typer.Option("--to-line", metavar="N", min=1, help="Last line of the result.")]

Moment = Annotated[
    str | None, typer.Option(metavar="AT", help="Only messages behind, or before, a position or a time (RFC 3339).")
]


@connected
def recall(
    connection: Connection,
    session: Session,
    ref: Annotated[str, typer.Argument(metavar="REF", help="A call's ref, as in 12.0, or its call id.")],
    pattern: Annotated[str | None, typer.Option("--pattern", metavar="RE", help="Only lines that match.")] = None,
    from_line: Line = None,
    to_line: LastLine = None,
    pointer: Annotated[str | None, typer.Option("--pointer", metavar="P", help="JSON pointer into the result.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Cut at so many (2000).")] = None,
    json: Json = False,
) -> None:
    """Print a tool call and its result. Exit 1 when there is none."""
    with opened(connection) as log:
        answer = log.sessions.get(session).recall(
            ref if is_ref(ref) else None,
            call_id=None if is_ref(ref) else ref,
            pattern=pattern,
            from_line=from_line,
            to_line=to_line,
            pointer=pointer,
            max_tokens=max_tokens,
        )
    if json:
        print_json(answer.model_dump(mode="json"))
    else:
        console().print(plain(recalled_text(answer)), soft_wrap=True)
    if not answer.found:
        raise typer.Exit(1)


@connected
def search(
    connection: Connection,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id; with --all left out.")],
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="Words, or a question.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="In all sessions: titles, summaries, messages.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=50, help="At most so many.")] = 10,
    role: Annotated[str | None, typer.Option("--role", metavar="R", help="Only messages of this role.")] = None,
    loop: Annotated[int | None, typer.Option("--loop", metavar="N", min=1, help="Only messages of this loop.")] = None,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="T", help="Only calls of this tool and results.")
    ] = None,
    after: Moment = None,
    before: Moment = None,
    json: Json = False,
) -> None:
    """Find messages of a session by words, best first; with --all in all sessions."""
    if everywhere == (query is not None):
        raise typer.BadParameter("turnlog search SESSION QUERY, or turnlog search --all QUERY")
    if everywhere and loop is not None:
        raise typer.BadParameter("--loop is of one session")
    options: dict[str, Any] = {"limit": limit, "role": role, "tool": tool, "after": after, "before": before}
    with opened(connection) as log:
        if query is None:
            everything = log.search(session, **options)
            # In a folder that is opened here nobody else makes what the search has just asked for.
            if everything.unindexed and log.run_jobs():
                everything = log.search(session, **options)
            shown, text = everything.model_dump(mode="json"), found_everywhere_text(everything)
        else:
            answer = log.sessions.get(session).search(query, loop=loop, **options)
            shown, text = answer.model_dump(mode="json"), found_text(answer)
    if json:
        print_json(shown)
        return
    console().print(plain(text), soft_wrap=True)


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
