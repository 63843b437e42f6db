"""`turnlog sessions`, `loops`, `show`, `end` and `reset`."""

from __future__ import annotations

import itertools
import json as json_module
import time
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from turnlog.cli.context import At, moment
from turnlog.cli.options import Connection, Json, Session, connected, opened
from turnlog.cli.screen import MAX_CHARS, console, cut, message_text, number, plain, print_json, table
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.jobs.models import Job

_STATUS = {"open": "yellow", "closed": "green", "interrupted": "red"}


@connected
def sessions(
    connection: Connection,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 20,
    status: Annotated[
        str | None, typer.Option("--status", metavar="S", help="Only active, inactive or ended ones.")
    ] = None,
    json: Json = False,
) -> None:
    """List the sessions, newest activity first."""
    with opened(connection) as log:
        found = list(itertools.islice(log.sessions.list(status=cast("Any", status)), limit + 1))
        # The list itself is brought up to date now and then only: its totals may be minutes old.
        shown = [log.sessions.get(one.session_id).info() for one in found[:limit]]
    if json:
        print_json({"sessions": [one.model_dump(mode="json") for one in shown], "more": len(found) > limit})
        return
    headings = [("session", "left"), ("title", "left"), ("status", "left"), ("messages", "right"), ("loops", "right")]
    expires = [("expires", "left")] if any(one.expires_at for one in shown) else []
    made = table(None, [*headings, ("tokens", "right"), ("policy", "left"), ("updated", "left"), *expires])
    for one in shown:
        policy = one.policy if isinstance(one.policy, str) else "custom"
        totals = (number(one.messages), number(one.loops), number(one.tokens))
        last = (one.expires_at or "never",) if expires else ()
        made.add_row(one.session_id, cut(one.title or "", 40), one.status, *totals, policy, one.updated_at, *last)
    screen = console()
    screen.print(made if shown else "no sessions")
    if len(found) > limit:
        screen.print(f"more than {limit}: --limit", style="dim")


@connected
def end(
    connection: Connection,
    session: Session,
    json: Json = False,
) -> None:
    """End a session: nothing more is said in it."""
    with opened(connection) as log:
        found = log.sessions.get(session).end()
    if json:
        print_json(found.model_dump(mode="json"))
        return
    console().print(f"{found.session_id} has ended")


@connected
def reset(
    connection: Connection,
    session: Session,
    json: Json = False,
) -> None:
    """End a session and begin a fresh one with its settings."""
    with opened(connection) as log:
        fresh = log.sessions.get(session).reset()
        found = fresh.info()
    if json:
        print_json(found.model_dump(mode="json"))
        return
    console().print(f"{found.reset_of} has ended; {found.session_id} is in its place")


@connected
def loops(
    connection: Connection,
    session: Session,
    json: Json = False,
) -> None:
    """List a session's run loops, newest first."""
    with opened(connection) as log:
        found = list(log.sessions.get(session).loops())
    if json:
        print_json({"loops": [one.model_dump(mode="json") for one in found]})
        return
    headings = [("loop", "right"), ("status", "left"), ("positions", "left"), ("calls", "right"), ("tokens", "right")]
    made = table(None, [*headings, ("user", "left"), ("reply", "left")])
    for one in found:
        status = Text(one.status, style=_STATUS[one.status])
        numbers = (f"{one.first}–{one.last}", number(len(one.tool_calls)), number(one.tokens))
        made.add_row(str(one.loop), status, *numbers, cut(one.user_message or "", 48), cut(one.reply or "", 48))
    console().print(made if found else "no loops")


@connected
def show(
    connection: Connection,
    session: Session,
    after: Annotated[int, typer.Option("--after", metavar="P", min=0, help="Positions greater than this.")] = 0,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many messages.")] = 100,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long messages.")] = False,
    at: At = None,
    in_view: Annotated[bool, typer.Option("--in-view", help="Without what a rewind has taken out of view.")] = False,
    json: Json = False,
) -> None:
    """Print a session's messages."""
    with opened(connection) as log:
        found, next_position = list[Any](), after
        of_session = log.sessions.get(session)
        while len(found) < limit:
            wanted = min(100, limit - len(found))
            page = of_session.page(after=next_position, limit=wanted, at=moment(at), in_view=in_view)
            found += page.messages
            if page.next is None:
                next_position = 0
                break
            next_position = page.next
    if json:
        print_json({"messages": [one.model_dump(mode="json") for one in found], "next": next_position or None})
        return
    screen = console()
    for one in found:
        loop = f"loop {one.loop}  " if one.loop is not None else ""
        status = "interrupted  " if one.status == "interrupted" else ""
        heading = f"{one.position:>5}  {loop}{status}{one.tokens:,} tokens"
        screen.print(message_text(one.body, heading=heading, max_chars=None if full else MAX_CHARS), soft_wrap=True)
    if next_position:
        screen.print(f"more: --after {next_position}", style="dim")


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


_TIME_TRAVEL_VALUE_CHARS = 100
_SIGNS = {"add": ("+", "green"), "remove": ("-", "red")}


@connected
def rewind(
    connection: Connection,
    session: Session,
    to: Annotated[str, typer.Option("--to", metavar="P", help="The last position in view, or a time (RFC 3339).")],
    if_head: Annotated[int | None, typer.Option("--if-head", metavar="P", min=1, help="Only at this head.")] = None,
    json: Json = False,
) -> None:
    """Go back to a moment: what came after leaves window and state; the log keeps it."""
    with opened(connection) as log:
        found = log.sessions.get(session).rewind(moment(to) or to, if_head=if_head)
    if json:
        print_json(found.model_dump(mode="json"))
        return
    totals = f"{number(found.messages)} messages in {number(found.loops)} loops in view"
    console().print(
        f"{found.session_id} is as it was at {to}: {totals}; undo with --to {found.head - 1}", soft_wrap=True
    )


@connected
def fork(
    connection: Connection,
    session: Session,
    name: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="The new session's id; made if left out.")
    ] = None,
    at: At = None,
    title: Annotated[str | None, typer.Option("--title", metavar="T", help="The new session's title.")] = None,
    json: Json = False,
) -> None:
    """Begin a session as another is, or was at any moment."""
    settings = {"title": title} if title is not None else {}
    with opened(connection) as log:
        found = log.sessions.get(session).fork(name, at=moment(at), **settings).info()
    if json:
        print_json(found.model_dump(mode="json"))
        return
    totals = f"{number(found.messages)} messages, {number(found.loops)} loops"
    console().print(f"{found.session_id} is what {session} was at {found.forked_at}: {totals}", soft_wrap=True)


@connected
def diff(
    connection: Connection,
    session: Session,
    begin: Annotated[str, typer.Option("--from", metavar="P", help="This position, or a time (RFC 3339).")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="P", help="This position or time; the head if left out.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="At most so many messages.")] = 20,
    json: Json = False,
) -> None:
    """Compare two moments of a session: messages, state, settings, summary."""
    with opened(connection) as log:
        found = log.sessions.get(session).diff(moment(begin) or begin, moment(to), limit=limit)
    if json:
        print_json(found.model_dump(mode="json"))
        return
    screen = console()
    screen.print(f"from {found.from_position} to {found.to_position}", style="bold")
    for one in found.left:
        screen.print(Text(f"- positions {one.first}–{one.last} left the view", style="red"))
    for message in found.messages:
        heading = f"+ {message.position:>4}  loop {message.loop}  {message.tokens:,} tokens"
        screen.print(message_text(message.body, heading=heading, max_chars=MAX_CHARS), soft_wrap=True)
    if found.next is not None:
        screen.print("more messages: --limit, or --from a later moment", style="dim")
    for step in found.state:
        sign, style = _SIGNS.get(step["op"], ("~", "yellow"))
        value = f": {step['value']!r}" if "value" in step else ""
        screen.print(Text(cut(f"{sign} state {step['path'] or '/'}{value}", _TIME_TRAVEL_VALUE_CHARS), style=style))
    if found.settings:
        screen.print(f"~ settings: {', '.join(found.settings)}", style="yellow")
    if found.summary_from != found.summary_to:
        screen.print(
            f"~ summary in force: {found.summary_from or 'none'} -> {found.summary_to or 'none'}", style="yellow"
        )


_POLL_SECONDS, _MOST_POLLS = 0.5, 120


@connected
def erase(
    connection: Connection,
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="The session's id.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Everything of the owner in place of one session.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Erase a session for good, with its snapshots; or with --me everything of the owner."""
    if (session is None) != me:
        raise InvalidInputError("name a session, or everything of the owner with --me")
    with opened(connection) as log:
        found = log.sessions.get(session) if session is not None else None
        what = f"session {session}" if session is not None else "every session and everything else of the owner"
        if not yes and not typer.confirm(f"Erase {what} for good?", err=True):
            raise InvalidInputError("nothing was erased", code="not_confirmed")
        job = found.erase() if found is not None else log.erase_me()
        job = followed(log, connection, job)
    if json:
        print_json(job.model_dump(mode="json"))
        return
    console().print(told(job, what), soft_wrap=True)


def followed(log: Turnlog, connection: Connection, job: Job) -> Job:
    """The job once its first pass is over, or it can't go on by itself."""
    for _ in range(_MOST_POLLS):
        # An engine in this process has nobody else to do it; a service does its own jobs.
        if not connection.url or not connection.url.startswith(("http://", "https://")):
            log.run_jobs()
        job = log.job(job.job_id)
        if job.result is not None or job.error is not None or job.status != "queued":
            break
        time.sleep(_POLL_SECONDS)
    return job


def told(job: Job, what: str) -> str:
    """``session s is erased: 12 commits, ...``"""
    if job.error is not None:
        return plain(f"{what} answers to nobody; {job.error.detail} ({job.error.code}): job {job.job_id} goes on")
    result = job.result or {}
    counts = ", ".join(f"{number(count)} {name}" for name, count in result.items() if isinstance(count, int))
    again = "" if job.status == "done" else f"; job {job.job_id} looks again 15 minutes later"
    return f"{what}: {counts or 'on its way'}{again}"


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
