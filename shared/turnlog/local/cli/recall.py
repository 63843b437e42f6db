"""`turnlog recall` and `turnlog search`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from turnlog.client.recall_tools import found_everywhere_text, found_text, recalled_text
from turnlog.domain.refs import is_ref
from turnlog.local.cli.options import Connection, Json, Session, connected, opened
from turnlog.local.cli.screen import console, plain, print_json

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
