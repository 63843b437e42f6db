"""Commands on sessions: list, show, end, reset, state, history, rewind, fork, diff, erase and redact."""

from __future__ import annotations

import itertools
import json as json_module
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from turnlog.cli.jobs import await_job
from turnlog.cli.options import (
    Connection,
    Format,
    Json,
    Policy,
    Session,
    open_client,
    open_or_make_client,
    policy_value,
    with_connection,
)
from turnlog.cli.screen import (
    MAX_CHARS,
    Column,
    console,
    format_number,
    message_text,
    one_line,
    plain,
    print_answer,
    print_json,
    print_listing,
    short_time,
    table,
)
from turnlog.cli.windows import At, parse_moment
from turnlog.client import parts_of
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import parse_strict_json
from turnlog.jobs.models import Job
from turnlog.sessions.history_routes import HistoryEntry
from turnlog.sessions.message_models import LoopAnswer
from turnlog.sessions.models import Session as SessionInfo

_COLUMNS = (
    Column("session"),
    Column("title", is_text=True),
    Column("status"),
    Column("messages", "right", rank=2),
    Column("loops", "right", rank=4),
    Column("tokens", "right", rank=3),
    Column("policy", rank=6),
    Column("updated", rank=1),
)
_STATUS = {"open": "yellow", "closed": "green", "interrupted": "red"}


@with_connection
def sessions(
    connection: Connection,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of sessions.")] = 20,
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="S", help="Only sessions with this status: active, inactive or ended."),
    ] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="NAME", help="Another user of the tenant, or '*' for every user.")
    ] = None,
    json: Json = False,
) -> None:
    """List sessions, newest activity first; an operator lists those of other users too."""
    with open_client(connection) as log:
        infos = list(itertools.islice(log.sessions.list(status=cast("Any", status), user=of), limit + 1))
        if of is None:
            # Totals in the list may be minutes old, because it is refreshed only now and then: read each session.
            infos = [log.sessions.of(info.session_id).info() for info in infos]
    users = (Column("user"),) if of is not None else ()
    expires = (Column("expires", rank=5),) if any(info.expires_at for info in infos) else ()

    def row(info: SessionInfo) -> Sequence[str]:
        policy = info.policy if isinstance(info.policy, str) else "custom"
        totals = map(format_number, (info.messages, info.loops, info.tokens))
        last = (short_time(info.expires_at or "never"),) if expires else ()
        title, updated = one_line(info.title or "", 40), short_time(info.updated_at)
        user = (one_line(info.user, 40),) if users else ()
        return info.session_id, title, info.status, *totals, policy, updated, *last, *user

    print_listing("sessions", infos, (*_COLUMNS, *expires, *users), row, limit=limit, json=json)


@with_connection
def create(
    connection: Connection,
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="Its id. By default generated.")] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="T", help="The session's title.")] = None,
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="The system text.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="M", help="The model that windows are for.")] = None,
    policy: Policy = None,
    json: Json = False,
) -> None:
    """Create a session and print its id."""
    with open_or_make_client(connection) as log:
        settings = {"title": title, "system": system, "model": model, "policy": policy_value(policy)}
        info = log.sessions.create(session, **cast("Any", settings)).info()
    print_answer(info, plain(info.session_id), json=json)


@with_connection
def append(
    connection: Connection,
    session: Session,
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="A text; JSON of a message or a list of messages; - reads stdin.")
    ],
    role: Annotated[str, typer.Option("--role", metavar="R", help="The role of a text.")] = "user",
    format: Format = None,
    lenient: Annotated[bool, typer.Option("--lenient", help="Also store roles that no provider has.")] = False,
    json: Json = False,
) -> None:
    """Append messages to a session. It must exist: turnlog create."""
    messages = _messages(sys.stdin.read() if message == "-" else message, role)
    with open_client(connection) as log:
        handle = log.sessions.get(session)
        answers = [handle.append(*messages[part], format=format, lenient=lenient) for part in parts_of(messages)]
    if json:
        print_json({"commits": [answer.model_dump(mode="json") for answer in answers]})
        return
    for answer in answers:
        place = f"positions {answer.first}–{answer.last}" if answer.last > answer.first else f"position {answer.first}"
        console().print(f"{place}, {format_number(answer.tokens)} tokens")


_BEGINS_LIKE_A_MESSAGE = re.compile(r'\s*(\{\s*("|$)|\[\s*\{)')


def _messages(text: str, role: str) -> list[dict[str, Any]]:
    """Return the messages of an argument: those of its JSON, or its text as one message."""
    value: Any = text
    if text.lstrip().startswith(("{", "[")):
        try:
            value = parse_strict_json(text)
        except MalformedError as error:
            if _BEGINS_LIKE_A_MESSAGE.match(text):
                way = 'send such a text as JSON: {"role": "user", "content": TEXT}'
                raise MalformedError(f"{error.detail}; {way}") from error
    if isinstance(value, str):
        return [{"role": role, "content": text.removesuffix("\n")}]
    messages = value if isinstance(value, list) else [value]
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise InvalidInputError("give JSON of a message or of a list of messages")
    return cast("list[dict[str, Any]]", messages)


@with_connection
def end(connection: Connection, session: Session, json: Json = False) -> None:
    """End a session: it takes no more messages."""
    with open_client(connection) as log:
        ended = log.sessions.get(session).end()
    print_answer(ended, f"{ended.session_id} has ended", json=json)


@with_connection
def reset(connection: Connection, session: Session, json: Json = False) -> None:
    """End a session and create a new one with its settings."""
    with open_client(connection) as log:
        info = log.sessions.get(session).reset().info()
    print_answer(info, f"{info.reset_of} has ended; {info.session_id} is in its place", json=json)


@with_connection
def loops(connection: Connection, session: Session, json: Json = False) -> None:
    """List a session's run loops, newest first."""
    with open_client(connection) as log:
        run_loops = list(log.sessions.get(session).loops())
    columns = (
        Column("loop", "right"),
        Column("status"),
        Column("positions"),
        Column("calls", "right", rank=2),
        Column("tokens", "right", rank=1),
        Column("user", is_text=True),
        Column("reply", is_text=True),
    )

    def row(loop: LoopAnswer) -> Sequence[str | Text]:
        status = Text(loop.status, style=_STATUS[loop.status])
        numbers = (f"{loop.first}–{loop.last}", format_number(len(loop.tool_calls)), format_number(loop.tokens))
        return str(loop.loop), status, *numbers, one_line(loop.user_message or "", 48), one_line(loop.reply or "", 48)

    print_listing("loops", run_loops, columns, row, limit=None, json=json)


@with_connection
def show(
    connection: Connection,
    session: Session,
    after: Annotated[int, typer.Option("--after", metavar="P", min=0, help="Only messages after this position.")] = 0,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of messages.")] = 100,
    full: Annotated[bool, typer.Option("--full", help="Print long messages in full.")] = False,
    at: At = None,
    in_view: Annotated[
        bool, typer.Option("--in-view", help="Leave out messages that a rewind has removed from view.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a session's messages."""
    with open_client(connection) as log:
        stored, next_position = list[Any](), after
        of_session = log.sessions.get(session)
        while len(stored) < limit:
            page_limit = min(100, limit - len(stored))
            page = of_session.page(after=next_position, limit=page_limit, at=parse_moment(at), in_view=in_view)
            stored += page.messages
            next_position = page.next or 0
            if not next_position:
                break
    if json:
        print_json({"messages": [message.model_dump(mode="json") for message in stored], "next": next_position or None})
        return
    screen = console()
    for message in stored:
        loop = f"loop {message.loop}  " if message.loop is not None else ""
        status = "interrupted  " if message.status == "interrupted" else ""
        heading = f"{message.position:>5}  {loop}{status}{message.tokens:,} tokens"
        screen.print(message_text(message.body, heading=heading, max_chars=None if full else MAX_CHARS), soft_wrap=True)
    if next_position:
        screen.print(f"more: --after {next_position}", style="dim")


_VALUE_CHARS = 100


@with_connection
def state(connection: Connection, session: Session, at: At = None, json: Json = False) -> None:
    """Print a session's state, current or at an earlier moment."""
    with open_client(connection) as log:
        answer = log.sessions.get(session).state(at=parse_moment(at))
    if json:
        print_json(answer.model_dump(mode="json"))
        return
    grid = table(None, [("name", "left"), ("value", "left")])
    for name, value in answer.state.items():
        grid.add_row(one_line(name, 40), _short(value))
    screen = console()
    screen.print(grid if answer.state else "no state")
    if answer.version:
        screen.print(f"version {answer.version}", style="dim")


@with_connection
def history(
    connection: Connection,
    session: Session,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of entries.")] = 20,
    action: Annotated[str | None, typer.Option("--action", metavar="A", help="Only entries of this action.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="ID", help="Only entries of this agent.")] = None,
    json: Json = False,
) -> None:
    """List the history entries of a session, newest first."""
    with open_client(connection) as log:
        history = log.sessions.get(session).history(action=action, agent=agent)
        entries = list(itertools.islice(history, limit + 1))
    columns = (Column("id", "right"), Column("time"), Column("action"), Column("agent"), Column("what", is_text=True))

    def row(entry: HistoryEntry) -> Sequence[str]:
        what = entry.diff if entry.diff is not None else entry.metadata
        return entry.history_id, entry.created_at, entry.action, entry.agent_id or "", _short(what)

    print_listing("entries", entries, columns, row, limit=limit, json=json)


def _short(value: Any) -> str:
    return one_line(json_module.dumps(value, ensure_ascii=False), _VALUE_CHARS)


_SIGNS = {"add": ("+", "green"), "remove": ("-", "red")}


@with_connection
def rewind(
    connection: Connection,
    session: Session,
    to: Annotated[
        str, typer.Option("--to", metavar="P", help="Position or time (RFC 3339) to go back to; it stays in view.")
    ],
    if_head: Annotated[
        int | None,
        typer.Option("--if-head", metavar="P", min=1, help="Expected head; refuse when the session has another one."),
    ] = None,
    json: Json = False,
) -> None:
    """Go back to an earlier moment: later messages and state changes leave the view but stay in the log."""
    with open_client(connection) as log:
        info = log.sessions.get(session).rewind(parse_moment(to) or to, if_head=if_head)
    totals = f"{format_number(info.messages)} messages in {format_number(info.loops)} loops in view"
    print_answer(info, f"{info.session_id} is as it was at {to}: {totals}; undo with --to {info.head - 1}", json=json)


@with_connection
def fork(
    connection: Connection,
    session: Session,
    name: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="The new session's id. By default generated.")
    ] = None,
    at: At = None,
    title: Annotated[str | None, typer.Option("--title", metavar="T", help="The new session's title.")] = None,
    json: Json = False,
) -> None:
    """Create a session from another one's content, current or at an earlier moment."""
    settings = {"title": title} if title is not None else {}
    with open_client(connection) as log:
        info = log.sessions.get(session).fork(name, at=parse_moment(at), **settings).info()
    totals = f"{format_number(info.messages)} messages, {format_number(info.loops)} loops"
    print_answer(info, f"{info.session_id} is what {session} was at {info.forked_at}: {totals}", json=json)


@with_connection
def diff(
    connection: Connection,
    session: Session,
    begin: Annotated[str, typer.Option("--from", metavar="P", help="Start position or time (RFC 3339).")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="P", help="End position or time (RFC 3339). By default the head.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100, help="Maximum number of messages.")
    ] = 20,
    json: Json = False,
) -> None:
    """Compare two moments of a session: messages, state, settings, summary."""
    with open_client(connection) as log:
        difference = log.sessions.get(session).diff(parse_moment(begin) or begin, parse_moment(to), limit=limit)
    if json:
        print_json(difference.model_dump(mode="json"))
        return
    screen = console()
    screen.print(f"from {difference.from_position} to {difference.to_position}", style="bold")
    for span in difference.left:
        screen.print(Text(f"- positions {span.first}–{span.last} left the view", style="red"))
    for message in difference.messages:
        heading = f"+ {message.position:>4}  loop {message.loop}  {message.tokens:,} tokens"
        screen.print(message_text(message.body, heading=heading, max_chars=MAX_CHARS), soft_wrap=True)
    if difference.next is not None:
        screen.print("more messages: --limit, or --from a later moment", style="dim")
    for step in difference.state:
        sign, style = _SIGNS.get(step["op"], ("~", "yellow"))
        value = f": {step['value']!r}" if "value" in step else ""
        screen.print(Text(one_line(f"{sign} state {step['path'] or '/'}{value}", _VALUE_CHARS), style=style))
    if difference.settings:
        screen.print(f"~ settings: {', '.join(difference.settings)}", style="yellow")
    if difference.summary_from != difference.summary_to:
        places = f"{difference.summary_from or 'none'} -> {difference.summary_to or 'none'}"
        screen.print(f"~ current summary: {places}", style="yellow")


_FIRST_PASS_SECONDS = 60.0


@with_connection
def erase(
    connection: Connection,
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="The session's id.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Erase everything of the owner in place of one session.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Erase a session and its snapshots permanently; with --me everything of the owner."""
    if (session is None) != me:
        raise InvalidInputError("name a session, or everything of the owner with --me")
    with open_client(connection) as log:
        handle = log.sessions.get(session) if session is not None else None
        what = f"session {session}" if session is not None else "every session and everything else of the owner"
        if not yes and not typer.confirm(f"Erase {what} for good?", err=True):
            raise InvalidInputError("nothing was erased", code="not_confirmed")
        job = handle.erase() if handle is not None else log.erase_me()
        job = _after_first_pass(log, job)
    print_answer(job, erasure_line(job, what), json=json)


def _after_first_pass(log: Turnlog, job: Job) -> Job:
    """Wait up to a minute for the first pass of an erasure job, and return its latest state."""
    return await_job(log, job, seconds=_FIRST_PASS_SECONDS, is_over=_has_first_pass)


def _has_first_pass(job: Job) -> bool:
    return job.status != "queued" or job.result is not None or job.error is not None


_NOUNS = {"memories": "memory"} | {name: name[:-1] for name in ("commits", "items", "parts", "blobs", "requests")}


def erasure_line(job: Job, what: str) -> str:
    """Describe an erasure job in one line, such as ``session s: 12 commits, ...``."""
    if job.error is not None:
        return plain(f"{what}: no longer readable; {job.error.detail} ({job.error.code}); job {job.job_id} continues")
    result = job.result or {}
    counts = ", ".join(
        f"{format_number(count)} {_NOUNS.get(name, name) if count == 1 else name}"
        for name, count in result.items()
        if isinstance(count, int)
    )
    again = "" if job.status == "done" else f"; job {job.job_id} looks again 15 minutes later"
    return f"{what}: {counts or 'in progress'}{again}"


@with_connection
def redact(
    connection: Connection,
    session: Annotated[str, typer.Argument(help="The session's id.")],
    position: Annotated[int, typer.Argument(help="The message's position.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Redact one message permanently: its content and everything derived from it."""
    with open_client(connection) as log:
        what = f"message {position} of session {session}"
        if not yes and not typer.confirm(f"Redact {what} for good?", err=True):
            raise InvalidInputError("nothing was redacted", code="not_confirmed")
        job = _after_first_pass(log, log.sessions.get(session).redact(position))
    print_answer(job, erasure_line(job, what), json=json)
