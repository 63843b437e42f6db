"""`turnlog recall`, `turnlog search` and `turnlog memory`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from turnlog.cli.options import Connection, Json, Session, open_client, with_connection
from turnlog.cli.screen import Column, console, format_number, one_line, plain, print_answer, print_listing
from turnlog.client.finding import recall_place, recalled_text, search_text, sessions_search_text
from turnlog.memory.routes import StoredMemory

Line = Annotated[int | None, typer.Option("--from-line", metavar="N", min=1, help="First line of the result.")]
LastLine = Annotated[int | None, typer.Option("--to-line", metavar="N", min=1, help="Last line of the result.")]

Moment = Annotated[
    str | None, typer.Option(metavar="AT", help="Only messages after, or before, this position or time (RFC 3339).")
]


@with_connection
def recall(  # noqa: PLR0913
    connection: Connection,
    session: Session,
    ref: Annotated[
        str, typer.Argument(metavar="REF", help="The ref of a call, such as 12.0, its call id, or a position.")
    ],
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="RE", help="Only lines that match this regular expression.")
    ] = None,
    from_line: Line = None,
    to_line: LastLine = None,
    pointer: Annotated[str | None, typer.Option("--pointer", metavar="P", help="JSON pointer into the result.")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", help="Cut the result after this many tokens (default: 2000)."),
    ] = None,
    json: Json = False,
) -> None:
    """Print a tool call and its result, or a message; exit 1 when there is none. --json has its images."""
    with open_client(connection) as log:
        part = {"pattern": pattern, "pointer": pointer, "from_line": from_line, "to_line": to_line}
        answer = recall_place(log.sessions.get(session), ref, {**part, "max_tokens": max_tokens})
    print_answer(answer, plain(recalled_text(answer)), json=json)
    if not answer.found:
        raise typer.Exit(1)


@with_connection
def search(  # noqa: PLR0913
    connection: Connection,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="The session's id. With --all, the query stands here.")
    ],
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="Words, or a question.")] = None,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Search titles, summaries and messages of all sessions.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=50, help="Maximum number of results.")] = 10,
    role: Annotated[str | None, typer.Option("--role", metavar="R", help="Only messages of this role.")] = None,
    loop: Annotated[int | None, typer.Option("--loop", metavar="N", min=1, help="Only messages of this loop.")] = None,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="T", help="Only calls of this tool and their results.")
    ] = None,
    after: Moment = None,
    before: Moment = None,
    json: Json = False,
) -> None:
    """Search messages of a session by words, best match first; with --all in all sessions."""
    if everywhere == (query is not None):
        raise typer.BadParameter("turnlog search SESSION QUERY, or turnlog search --all QUERY")
    if everywhere and loop is not None:
        raise typer.BadParameter("--loop is of one session")
    options: dict[str, Any] = {"limit": limit, "role": role, "tool": tool, "after": after, "before": before}
    with open_client(connection) as log:
        if query is None:
            everything = log.search(session, **options)
            if everything.unindexed:  # the search has queued jobs that index them
                log.run_jobs()
                everything = log.search(session, **options)
            print_answer(everything, plain(sessions_search_text(everything)), json=json)
        else:
            answer = log.sessions.get(session).search(query, loop=loop, **options)
            print_answer(answer, plain(search_text(answer)), json=json)


_MAX_TEXT = 80
_COLUMNS = (
    Column("memory"),
    Column("kind", rank=1),
    Column("said", "right", rank=2),
    Column("where", rank=3),
    Column("what", is_text=True),
)

memory = typer.Typer(help="List the owner's memories, newest first.", invoke_without_command=True, add_completion=False)


@memory.callback(invoke_without_command=True)
@with_connection
def listed(
    connection: Connection,
    ctx: typer.Context,
    replaced: Annotated[bool, typer.Option("--all", help="Also list memories that newer ones have replaced.")] = False,
    find: Annotated[
        str | None, typer.Option("--find", metavar="WORDS", help="Only those that fit, best first.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of memories.")] = 50,
    json: Json = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    with open_client(connection) as log:
        first = log.memory_page(limit=min(limit, 100), q=find)
        engine, all_memories = first.engine, log.memory() if find is None else iter(first.memories)
        memories = (memory for memory in all_memories if replaced or memory.replaced_by is None)
        stored = list(itertools.islice(memories, limit + 1))
    if engine is None and not json:
        console().print("long-term memory is off")
    else:
        print_listing("memories", stored, _COLUMNS, _row, limit=limit, json=json, also={"engine": engine})


@memory.command()
@with_connection
def forget(
    connection: Connection,
    memory_id: Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")],
    json: Json = False,
) -> None:
    """Delete a memory permanently: it is not extracted again from the same messages."""
    with open_client(connection) as log:
        forgotten = log.forget(memory_id)
    print_answer(forgotten, f"{plain(memory_id, lines=False)} is forgotten", json=json)


def _row(stored: StoredMemory) -> Sequence[str | Text]:
    where = f"{stored.session_id}:{stored.position}" if stored.session_id is not None else ""
    text = Text(one_line(stored.text, _MAX_TEXT), style="dim strike" if stored.replaced_by else "")
    return stored.memory_id, stored.kind, format_number(stored.confirmations), where, text
