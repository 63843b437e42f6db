"""Commands that read and change sessions."""

from __future__ import annotations

import itertools
import json as json_module
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Any, cast

import typer
from rich.console import Group
from rich.text import Text

from turnlog.cli.options import (
    Format,
    Policy,
    Session,
    argument,
    open_client,
    open_or_make_client,
    option,
    policy_value,
    with_log,
)
from turnlog.cli.screen import (
    Column,
    Output,
    as_json,
    counted,
    decode_input,
    listing_output,
    message_text,
    one_line,
    plain,
    short_time,
    table,
)
from turnlog.cli.windows import At, parse_moment
from turnlog.client.model import Turnlog
from turnlog.client.states import await_job
from turnlog.core.errors import InvalidInputError, MalformedError, NotFoundError
from turnlog.core.json_values import parse_strict_json
from turnlog.jobs.models import Job
from turnlog.sessions.models import Session as SessionInfo

_COLUMNS = (
    Column("session", lambda info: info.session_id),
    Column("title", lambda info: one_line(info.title or "", 40), is_text=True),
    Column("status", lambda info: info.status),
    Column("messages", lambda info: info.messages, "right", rank=2),
    Column("loops", lambda info: info.loops, "right", rank=4),
    Column("tokens", lambda info: info.tokens, "right", rank=3),
    Column("policy", lambda info: info.policy if isinstance(info.policy, str) else "custom", rank=6),
    Column("updated", lambda info: short_time(info.updated_at), rank=1),
)
_EXPIRES = Column("expires", lambda info: short_time(info.expires_at or "never"), rank=5)
_USER = Column("user", lambda info: one_line(info.user, 40))
_STATUS = {"open": "yellow", "closed": "green", "interrupted": "red"}
_BEGINS_LIKE_A_MESSAGE = re.compile(r'\s*(\{\s*("|$)|\[\s*\{)')
_LOOP_COLUMNS = (
    Column("loop", lambda loop: str(loop.loop), "right"),
    Column("status", lambda loop: Text(loop.status, style=_STATUS[loop.status])),
    Column("positions", lambda loop: f"{loop.first}–{loop.last}"),
    Column("calls", lambda loop: len(loop.tool_calls), "right", rank=2),
    Column("tokens", lambda loop: loop.tokens, "right", rank=1),
    Column("user", lambda loop: one_line(loop.user_message or "", 48), is_text=True),
    Column("reply", lambda loop: one_line(loop.reply or "", 48), is_text=True),
)
_VALUE_CHARS = 100
_ENTRY_COLUMNS = (
    Column("id", lambda entry: entry.history_id, "right"),
    Column("time", lambda entry: entry.created_at),
    Column("action", lambda entry: entry.action),
    Column("agent", lambda entry: entry.agent_id or ""),
    Column("what", lambda entry: _short(entry.diff if entry.diff is not None else entry.metadata), is_text=True),
)
_SIGNS = {"add": ("+", "green"), "remove": ("-", "red")}
_FIRST_PASS_SECONDS = 60.0
Yes = Annotated[bool, option("--yes", "Do not ask.")]


@with_log(open_client)
def sessions(
    log: Turnlog,
    limit: Annotated[int, option("--limit", "Maximum number of sessions.", "N", min=1)] = 20,
    status: Annotated[
        str | None, option("--status", "Only sessions with this status: active, inactive or ended.", "S")
    ] = None,
    of: Annotated[str | None, option("--of", "Another user of the tenant, or '*' for every user.", "NAME")] = None,
) -> Output:
    """List sessions, newest activity first; an operator lists those of other users too."""
    listed: Iterable[SessionInfo] = log.sessions.list(status=cast("Any", status), user=of)
    infos = list(itertools.islice(listed if of is not None else _exact(log, listed, limit), limit + 1))
    expires = [_EXPIRES] if any(info.expires_at for info in infos) else []
    return listing_output("sessions", infos, [*_COLUMNS, *expires, *([_USER] if of is not None else [])], limit=limit)


def _exact(log: Turnlog, infos: Iterable[SessionInfo], limit: int) -> Iterator[SessionInfo]:
    """Read each session, because totals in the list may be minutes old, and skip those that were erased meanwhile.

    Sessions after ``limit`` ones are yielded as they are listed: they only tell that there are more.
    """
    count = 0
    for info in infos:
        with suppress(NotFoundError):
            yield log.sessions.of(info.session_id).info() if count < limit else info
            count += 1


@with_log(open_or_make_client)
def create(
    log: Turnlog,
    session: Annotated[str | None, argument("SESSION", "Its id. By default generated.")] = None,
    title: Annotated[str | None, option("--title", "The session's title.", "T")] = None,
    system: Annotated[str | None, option("--system", "The system text.", "TEXT")] = None,
    model: Annotated[str | None, option("--model", "The model that windows are for.", "M")] = None,
    policy: Policy = None,
) -> Output:
    """Create a session and print its id."""
    settings = {"title": title, "system": system, "model": model, "policy": policy_value(policy)}
    info = log.sessions.create(session, **cast("Any", settings)).info()
    return Output(info, plain(info.session_id))


@with_log(open_client)
def append(
    log: Turnlog,
    session: Session,
    message: Annotated[str, argument("MESSAGE", "A text; JSON of a message or a list of messages; - reads stdin.")],
    role: Annotated[str, option("--role", "The role of a text.", "R")] = "user",
    format: Format = None,
    lenient: Annotated[bool, option("--lenient", "Also store roles that no provider has.")] = False,
) -> Output:
    """Append messages to a session. It must exist: turnlog create."""
    messages = _messages(decode_input(sys.stdin.buffer.read(), "stdin") if message == "-" else message, role)
    answers, lines = log.sessions.of(session).extend(messages, format=format, lenient=lenient), list[str]()
    for answer in answers:
        place = f"positions {answer.first}–{answer.last}" if answer.last > answer.first else f"position {answer.first}"
        lines.append(f"{place}, {counted(answer.tokens, 'token')}")
    return Output({"commits": as_json(answers)}, Group(*lines))


def _messages(text: str, role: str) -> list[dict[str, Any]]:
    """Return the messages of an argument: those of its JSON, or its text as one message."""
    if not text.strip():
        raise InvalidInputError("the message is empty")
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


@with_log(open_client)
def end(log: Turnlog, session: Session) -> Output:
    """End a session: it takes no more messages."""
    ended = log.sessions.of(session).end()
    return Output(ended, f"{ended.session_id} has ended")


@with_log(open_client)
def reset(log: Turnlog, session: Session) -> Output:
    """End a session and create a new one with its settings."""
    info = log.sessions.of(session).reset().info()
    return Output(info, f"{info.reset_of} has ended; {info.session_id} is in its place")


@with_log(open_client)
def loops(log: Turnlog, session: Session) -> Output:
    """List a session's run loops, newest first."""
    return listing_output("loops", log.sessions.of(session).loops(), _LOOP_COLUMNS)


@with_log(open_client)
def show(
    log: Turnlog,
    session: Session,
    after: Annotated[int, option("--after", "Only messages after this position.", "P", min=0)] = 0,
    limit: Annotated[int, option("--limit", "Maximum number of messages.", "N", min=1)] = 100,
    full: Annotated[bool, option("--full", "Print long messages in full.")] = False,
    at: At = None,
    in_view: Annotated[bool, option("--in-view", "Leave out messages that a rewind has removed from view.")] = False,
) -> Output:
    """Print a session's messages."""
    stored, next_position = list[Any](), after
    of_session = log.sessions.of(session)
    while len(stored) < limit:
        page_limit = min(100, limit - len(stored))
        page = of_session.page(after=next_position, limit=page_limit, at=parse_moment(at), in_view=in_view)
        stored += page.messages
        next_position = page.next or 0
        if not next_position:
            break
    shown = list[Text]()
    for message in stored:
        loop = f"loop {message.loop}  " if message.loop is not None else ""
        status = "interrupted  " if message.status == "interrupted" else ""
        heading = f"{message.position:>5}  {loop}{status}{message.tokens:,} tokens"
        shown.append(message_text(message.body, heading=heading, is_full=full))
    if next_position:
        shown.append(Text(f"more: --after {next_position}", style="dim"))
    return Output({"messages": as_json(stored), "next": next_position or None}, Group(*shown))


@with_log(open_client)
def state(log: Turnlog, session: Session, at: At = None) -> Output:
    """Print a session's state, current or at an earlier moment."""
    answer = log.sessions.of(session).state(at=parse_moment(at))
    grid = table(None, [("name", "left"), ("value", "left")])
    for name, value in answer.state.items():
        grid.add_row(one_line(name, 40), _short(value))
    version = [Text(f"version {answer.version}", style="dim")] if answer.version else []
    return Output(answer, Group(grid if answer.state else "no state", *version))


@with_log(open_client)
def history(
    log: Turnlog,
    session: Session,
    limit: Annotated[int, option("--limit", "Maximum number of entries.", "N", min=1)] = 20,
    action: Annotated[str | None, option("--action", "Only entries of this action.", "A")] = None,
    agent: Annotated[str | None, option("--agent", "Only entries of this agent.", "ID")] = None,
) -> Output:
    """List the history entries of a session, newest first."""
    entries = log.sessions.of(session).history(action=action, agent=agent)
    return listing_output("entries", entries, _ENTRY_COLUMNS, limit=limit)


def _short(value: Any) -> str:
    return one_line(json_module.dumps(value, ensure_ascii=False), _VALUE_CHARS)


@with_log(open_client)
def rewind(
    log: Turnlog,
    session: Session,
    to: Annotated[str, option("--to", "Position or time (RFC 3339) to go back to; it stays in view.", "P")],
    if_head: Annotated[
        int | None, option("--if-head", "Expected head; refuse when the session has another one.", "P", min=1)
    ] = None,
) -> Output:
    """Go back to an earlier moment: later messages and state changes leave the view but stay in the log."""
    info = log.sessions.of(session).rewind(parse_moment(to), if_head=if_head)
    totals = f"{counted(info.messages, 'message')} in {counted(info.loops, 'loop')} in view"
    return Output(info, f"{info.session_id} is as it was at {to}: {totals}; undo with --to {info.head - 1}")


@with_log(open_client)
def fork(
    log: Turnlog,
    session: Session,
    name: Annotated[str | None, option("--as", "The new session's id. By default generated.", "ID")] = None,
    at: At = None,
    title: Annotated[str | None, option("--title", "The new session's title.", "T")] = None,
) -> Output:
    """Create a session from another one's content, current or at an earlier moment."""
    settings = {"title": title} if title is not None else {}
    info = log.sessions.of(session).fork(name, at=parse_moment(at), **settings).info()
    totals = f"{counted(info.messages, 'message')}, {counted(info.loops, 'loop')}"
    return Output(info, f"{info.session_id} begins as {session} was at {info.forked_at}: {totals}")


@with_log(open_client)
def diff(
    log: Turnlog,
    session: Session,
    begin: Annotated[str, option("--from", "Start position or time (RFC 3339).", "P")],
    to: Annotated[str | None, option("--to", "End position or time (RFC 3339). By default the head.", "P")] = None,
    limit: Annotated[int, option("--limit", "Maximum number of messages.", "N", min=1, max=100)] = 20,
) -> Output:
    """Compare two moments of a session: messages, state, settings, summary."""
    difference = log.sessions.of(session).diff(parse_moment(begin), parse_moment(to), limit=limit)
    shown = [Text(f"from {difference.from_position} to {difference.to_position}", style="bold")]
    for span in difference.left:
        shown.append(Text(f"- positions {span.first}–{span.last} left the view", style="red"))
    for message in difference.messages:
        heading = f"+ {message.position:>4}  loop {message.loop}  {message.tokens:,} tokens"
        shown.append(message_text(message.body, heading=heading))
    if difference.next is not None:
        shown.append(Text("more messages: --limit, or --from a later moment", style="dim"))
    for step in difference.state:
        sign, style = _SIGNS.get(step["op"], ("~", "yellow"))
        value = f": {step['value']!r}" if "value" in step else ""
        shown.append(Text(one_line(f"{sign} state {step['path'] or '/'}{value}", _VALUE_CHARS), style=style))
    if difference.settings:
        shown.append(Text(f"~ settings: {', '.join(difference.settings)}", style="yellow"))
    if difference.summary_from != difference.summary_to:
        places = f"{difference.summary_from or 'none'} -> {difference.summary_to or 'none'}"
        shown.append(Text(f"~ current summary: {places}", style="yellow"))
    return Output(difference, Group(*shown))


def _check_erase(*, session: str | None, me: bool, **_others: Any) -> None:
    if (session is None) != me:
        raise InvalidInputError("name a session, or everything of the owner with --me")


@with_log(open_client, check=_check_erase)
def erase(
    log: Turnlog,
    session: Annotated[str | None, argument("SESSION", "The session's id.")] = None,
    me: Annotated[bool, option("--me", "Erase everything of the owner in place of one session.")] = False,
    yes: Yes = False,
) -> Output:
    """Erase a session and its snapshots permanently; with --me everything of the owner."""
    handle = log.sessions.get(session) if session is not None else None
    what = f"session {session}" if session is not None else "every session and everything else of the owner"
    _confirm(f"Erase {what}", "erased", yes)
    return _erasure_output(log, handle.erase() if handle is not None else log.erase_me(), what)


def _confirm(action: str, participle: str, yes: bool) -> None:
    """Ask on stderr whether to erase, unless ``yes``. Raises `InvalidInputError` when stdin has another answer, or none."""
    if not yes:
        sys.stderr.write(f"{action} for good? [y/N]\n")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise InvalidInputError(f"nothing was {participle}; answer y, or give --yes", code="not_confirmed")


def _erasure_output(log: Turnlog, job: Job, what: str) -> Output:
    """Wait up to a minute for the first pass of an erasure job, and return its latest state."""

    def has_passed(job: Job) -> bool:
        return job.status != "queued" or job.result is not None or job.error is not None

    job = await_job(log.backend, job, seconds=_FIRST_PASS_SECONDS, is_over=has_passed)
    return Output(job, erasure_line(job, what))


def erasure_line(job: Job, what: str) -> str:
    """Describe an erasure job in one line, such as ``session s: 12 commits, ...``."""
    if job.error is not None:
        return plain(f"{what}: no longer readable; {job.error.detail} ({job.error.code}); job {job.job_id} continues")
    result = job.result or {}
    counts = ", ".join(
        counted(count, "memory" if name == "memories" else name.removesuffix("s"), name)
        for name, count in result.items()
        if isinstance(count, int)
    )
    again = "" if job.status == "done" else f"; job {job.job_id} looks again 15 minutes later"
    return f"{what}: {counts or 'in progress'}{again}"


@with_log(open_client)
def redact(
    log: Turnlog,
    session: Annotated[str, typer.Argument(help="The session's id.")],
    position: Annotated[int, typer.Argument(help="The message's position.")],
    yes: Yes = False,
) -> Output:
    """Redact one message permanently: its content and everything derived from it."""
    what = f"message {position} of session {session}"
    _confirm(f"Redact {what}", "redacted", yes)
    return _erasure_output(log, log.sessions.get(session).redact(position), what)
