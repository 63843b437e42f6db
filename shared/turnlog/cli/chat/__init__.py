"""`turnlog chat`: the options of a chat, and its session."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

from turnlog.cli.chat.models import KINDS, Model, model_of
from turnlog.cli.chat.talk import Options, Talk
from turnlog.cli.chat.tools import Tools, tools_of
from turnlog.cli.options import Budget, Connection, Json, Policy, open_or_make_client, policy_value, with_connection
from turnlog.cli.screen import ChatScreen, console
from turnlog.client.model import Session as OpenSession
from turnlog.client.model import Turnlog
from turnlog.core.errors import NotFoundError
from turnlog.core.recall_calls import tool_of


@with_connection
def chat(  # noqa: PLR0913
    connection: Connection,
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="The session to continue or create. By default a new one.")
    ] = None,
    model: Annotated[str, typer.Option("--model", metavar="M", help=f"{KINDS}.")] = "echo",
    last: Annotated[bool, typer.Option("--last", help="Continue the most recently active session.")] = False,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="Set the session's system text.")
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools", metavar="PLACE", help="Your functions as tools: MODULE:NAME or FILE.py:NAME; may be repeated."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run tool calls without asking.")] = False,
    ask: Annotated[
        list[str] | None,
        typer.Option("--ask", metavar="TOOL", help="Ask only before calls of this tool; may be repeated."),
    ] = None,
    policy: Policy = None,
    budget: Budget = None,
    max_iterations: Annotated[
        int, typer.Option("--max-iterations", metavar="N", min=1, help="Maximum model calls for one message.")
    ] = 20,
    json: Json = False,
) -> None:
    """Chat with a model in a session. Piped lines are messages too."""
    if last and session is not None:
        raise typer.BadParameter("a SESSION, or --last")
    chosen, user_tools = model_of(model), tools_of(tools or ())
    unknown = next((name for name in ask or () if name not in user_tools.functions), None)
    if unknown is not None:
        raise typer.BadParameter(f"--ask {unknown}: --tools has no such function")
    asks = frozenset(() if yes else ask or user_tools.functions)
    window: dict[str, Any] = {"policy": policy_value(policy), "budget": budget, "model_name": chosen.budget_name}
    options = Options(asks, max_iterations, {name: value for name, value in window.items() if value is not None})
    with open_or_make_client(connection) as log, _ended_by_signals():
        chat_session, is_new = _session(log, session, last=last, system=system, tools=user_tools)
        screen = ChatScreen(json=json)
        talk = Talk(chat_session, chosen, user_tools, options, screen)
        _greet(screen, talk, chosen, is_new=is_new)
        talk.go()


def _session(
    log: Turnlog, name: str | None, *, last: bool, system: str | None, tools: Tools
) -> tuple[OpenSession, bool]:
    """Open or create the session, apply the given settings, and return it with whether it is new."""
    if last:
        newest = log.sessions.page(limit=1).sessions
        if not newest:
            raise NotFoundError("there is no session yet", code="no_session")
        name = newest[0].session_id
    if name is None or not log.sessions.exists(name):
        return log.sessions.create(name, system=system, tools=tools.schemas or None), True
    session = log.sessions.get(name)
    changed: dict[str, Any] = {"system": system} if system is not None else {}
    if tools.schemas and _own_tools(session) != list(tools.schemas):
        changed["tools"] = tools.schemas
    if changed:
        session.update(**changed)
    return session, False


def _own_tools(session: OpenSession) -> list[Any]:
    """Return the tools of the session's windows without the recall tools."""
    return [tool for tool in session.context().tools if tool_of(str(tool.get("function", {}).get("name"))) is None]


def _greet(screen: ChatScreen, talk: Talk, model: Model, *, is_new: bool) -> None:
    if screen.is_person:
        begun = "a new session" if is_new else f"{talk.session.info().messages:,} messages"
        screen.note(f"{talk.session.id}: {begun}; {model.name}; /help lists the commands")
    elif is_new:
        console(stderr=True).print(f"turnlog: session {talk.session.id}", soft_wrap=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Exit cleanly on SIGTERM and SIGHUP within the block, so that a partial answer is stored."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
