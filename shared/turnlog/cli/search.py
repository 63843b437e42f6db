"""`turnlog recall`, `turnlog search` and `turnlog memory`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.text import Text

from turnlog.cli.options import Session, argument, open_client, option, with_log
from turnlog.cli.screen import Column, Output, listing_output, one_line, plain
from turnlog.client.finding import recall_place, recalled_text, search_text, sessions_search_text
from turnlog.client.model import Turnlog
from turnlog.memory.routes import MemoryList, StoredMemory

Line = Annotated[int | None, option("--from-line", "First line of the result.", "N", min=1)]
LastLine = Annotated[int | None, option("--to-line", "Last line of the result.", "N", min=1)]

Moment = Annotated[
    str | None, typer.Option(metavar="AT", help="Only messages after, or before, this position or time (RFC 3339).")
]
_COLUMNS = (
    Column("memory", lambda memory: memory.memory_id),
    Column("kind", lambda memory: memory.kind, rank=1),
    Column("said", lambda memory: memory.confirmations, "right", rank=2),
    Column("where", lambda memory: f"{memory.session_id}:{memory.position}" if memory.session_id else "", rank=3),
    Column("what", lambda row: Text(one_line(row.text, 80), "dim strike" if row.replaced_by else ""), is_text=True),
)
memory = typer.Typer(help="List the owner's memories, newest first.", invoke_without_command=True, add_completion=False)
_MAX_PAGE = 100


@with_log(open_client)
def recall(
    log: Turnlog,
    session: Session,
    ref: Annotated[str, argument("REF", "The ref of a call, such as 12.0, its call id, or a position.")],
    pattern: Annotated[str | None, option("--pattern", "Only lines that match this regular expression.", "RE")] = None,
    from_line: Line = None,
    to_line: LastLine = None,
    pointer: Annotated[str | None, option("--pointer", "JSON pointer into the result.", "P")] = None,
    max_tokens: Annotated[
        int | None, option("--max-tokens", "Cut the result after this many tokens (default: 2000).", "N")
    ] = None,
) -> Output:
    """Print a tool call and its result, or a message; exit 1 when there is none. --json has its images."""
    part = {"pattern": pattern, "pointer": pointer, "from_line": from_line, "to_line": to_line}
    answer = recall_place(log.sessions.of(session), ref, {**part, "max_tokens": max_tokens})
    return Output(answer, plain(recalled_text(answer)), exit_code=0 if answer.found else 1)


def _check_search(*, query: str | None, everywhere: bool, loop: int | None, **_others: Any) -> None:
    if everywhere == (query is not None):
        raise typer.BadParameter("turnlog search SESSION QUERY, or turnlog search --all QUERY")
    if everywhere and loop is not None:
        raise typer.BadParameter("--loop is of one session")


@with_log(open_client, check=_check_search)
def search(  # noqa: PLR0913
    log: Turnlog,
    session: Annotated[str, argument("SESSION", "The session's id. With --all, the query stands here.")],
    query: Annotated[str | None, argument("QUERY", "Words, or a question.")] = None,
    everywhere: Annotated[bool, option("--all", "Search titles, summaries and messages of all sessions.")] = False,
    limit: Annotated[int, option("--limit", "Maximum number of results.", "N", min=1, max=50)] = 10,
    role: Annotated[str | None, option("--role", "Only messages of this role.", "R")] = None,
    loop: Annotated[int | None, option("--loop", "Only messages of this loop.", "N", min=1)] = None,
    tool: Annotated[str | None, option("--tool", "Only calls of this tool and their results.", "T")] = None,
    after: Moment = None,
    before: Moment = None,
) -> Output:
    """Search messages of a session by words, best match first; with --all in all sessions."""
    options: dict[str, Any] = {"limit": limit, "role": role, "tool": tool, "after": after, "before": before}
    if query is not None:
        answer = log.sessions.of(session).search(query, loop=loop, **options)
        return Output(answer, plain(search_text(answer)))
    everything = log.search(session, **options)
    if everything.unindexed:  # the search has queued jobs that index them
        log.run_jobs()
        everything = log.search(session, **options)
    return Output(everything, plain(sessions_search_text(everything)))


def _check_find(*, find: str | None, limit: int, **_others: Any) -> None:
    if find is not None and limit > _MAX_PAGE:
        raise typer.BadParameter(f"--find lists at most {_MAX_PAGE} memories: lower --limit")


@memory.callback(invoke_without_command=True)
@with_log(open_client, check=_check_find)
def listed(
    log: Turnlog,
    replaced: Annotated[bool, option("--all", "Also list memories that newer ones have replaced.")] = False,
    find: Annotated[str | None, option("--find", "Only those that fit, best first.", "WORDS")] = None,
    limit: Annotated[int, option("--limit", "Maximum number of memories.", "N", min=1)] = 50,
) -> Output:
    first = log.memory_page(limit=min(limit + 1, _MAX_PAGE), q=find)
    memories = (memory for memory in _memories(log, first) if replaced or memory.replaced_by is None)
    output = listing_output("memories", memories, _COLUMNS, limit=limit, also={"engine": first.engine})
    return output if first.engine is not None else replace(output, shown="long-term memory is off")


def _memories(log: Turnlog, page: MemoryList) -> Iterator[StoredMemory]:
    """Yield the memories of a page and of those behind it."""
    yield from page.memories
    while page.next_cursor is not None:
        page = log.memory_page(limit=_MAX_PAGE, cursor=page.next_cursor)
        yield from page.memories


@memory.command()
@with_log(open_client)
def forget(log: Turnlog, memory_id: Annotated[str, argument("ID", "The memory's id.")]) -> Output:
    """Delete a memory permanently: it is not extracted again from the same messages."""
    return Output(log.forget(memory_id), f"{plain(memory_id, lines=False)} is forgotten")
