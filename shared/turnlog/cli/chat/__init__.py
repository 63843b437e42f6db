"""`turnlog chat`: the options of a chat, its session, and a user's functions as its tools."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Annotated, Any

import typer
from pydantic import PydanticUserError, TypeAdapter, validate_call

from turnlog.cli.chat.models import KINDS, Model, model_of
from turnlog.cli.chat.talk import ChatScreen, Function, Options, Talk, Tools
from turnlog.cli.options import (
    Budget,
    Connection,
    Json,
    Policy,
    argument,
    handled_signals,
    open_or_make_client,
    option,
    policy_value,
    with_connection,
)
from turnlog.cli.screen import console, counted
from turnlog.client.model import Session as OpenSession
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.json_values import JsonObject, without_none
from turnlog.core.recall_calls import tool_of


@with_connection
def chat(  # noqa: PLR0913
    connection: Connection,
    session: Annotated[
        str | None, argument("SESSION", "The session to continue or create. By default a new one.")
    ] = None,
    model: Annotated[str, option("--model", f"{KINDS}.", "M")] = "echo",
    last: Annotated[bool, option("--last", "Continue the most recently active session.")] = False,
    system: Annotated[str | None, option("--system", "Set the session's system text.", "TEXT")] = None,
    tools: Annotated[
        list[str] | None,
        option("--tools", "Your functions as tools: MODULE:NAME or FILE.py:NAME; may be repeated.", "PLACE"),
    ] = None,
    yes: Annotated[bool, option("--yes", "Run tool calls without asking.")] = False,
    ask: Annotated[
        list[str] | None, option("--ask", "Ask only before calls of this tool; may be repeated.", "TOOL")
    ] = None,
    policy: Policy = None,
    budget: Budget = None,
    max_iterations: Annotated[int, option("--max-iterations", "Maximum model calls for one message.", "N", min=1)] = 20,
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
    window = without_none({"policy": policy_value(policy), "budget": budget, "model_name": chosen.budget_name})
    options = Options(asks, max_iterations, window)
    with open_or_make_client(connection) as log, handled_signals(_end, "SIGTERM", "SIGHUP"):
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
    session = log.sessions.of(name)
    changed: dict[str, Any] = {"system": system} if system is not None else {}
    if tools.schemas:
        own = [tool for tool in session.context().tools if tool_of(str(tool.get("function", {}).get("name"))) is None]
        changed |= {"tools": tools.schemas} if own != list(tools.schemas) else {}
    if changed:
        session.update(**changed)
    return session, False


def _greet(screen: ChatScreen, talk: Talk, model: Model, *, is_new: bool) -> None:
    if screen.is_person:
        begun = "a new session" if is_new else counted(talk.session.info().messages, "message")
        screen.note(f"{talk.session.id}: {begun}; {model.name}; /help lists the commands")
    elif is_new:
        console(stderr=True).print(f"turnlog: session {talk.session.id}", soft_wrap=True)


def _end(number: int, frame: FrameType | None) -> None:
    """Exit cleanly, so that a partial answer is stored."""
    raise SystemExit(128 + number)


def tools_of(places: Sequence[str]) -> Tools:
    """Load the functions at places ``module:name`` or ``file.py:name``; the name may be that of a list of functions.

    Raises `InvalidInputError` for a missing name, a value that is no function, or arguments without a JSON Schema.
    """
    functions = [function for place in places for function in _functions(place)]
    names = [function.__name__ for function in functions]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _wrong(f"two tools are called {twice!r}")
    checked = {name: validate_call(function) for name, function in zip(names, functions, strict=True)}
    return Tools(checked, [_schema(function) for function in functions])


def _functions(place: str) -> Iterator[Function]:
    where, colon, name = place.rpartition(":")
    if not colon or not name.isidentifier():
        raise _wrong(f"{place!r} is not MODULE:NAME or FILE.py:NAME")
    module = _module(where)
    value = getattr(module, name, None)
    several = list(value.values()) if isinstance(value, Mapping) else value
    for function in several if isinstance(several, list | tuple) else [several]:
        if not inspect.isfunction(function):
            raise _wrong(f"{name!r} of {where!r} is no function" if value is not None else f"{where!r} has no {name!r}")
        if inspect.iscoroutinefunction(function):
            raise _wrong(f"{function.__name__!r} is async: a chat's tools are plain functions")
        yield function


def _module(where: str) -> ModuleType:
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(f"turnlog_chat_{Path(where).stem}", where)
            if spec is None or spec.loader is None:
                raise _wrong(f"{where!r} can't be imported")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # annotations that are strings are resolved there
            spec.loader.exec_module(module)
            return module
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(where)
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        raise _wrong(f"{where!r} can't be imported: {error}") from error


def _schema(function: Function) -> JsonObject:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(function)  # type: ignore[arg-type] # pydantic's reading of a signature
        parameters: JsonObject = adapter.json_schema()
    except (PydanticUserError, NameError) as error:
        raise _wrong(f"the arguments of {function.__name__!r} have no JSON Schema: {str(error)[:200]}") from error
    if parameters.get("type") != "object":
        raise _wrong(f"the arguments of {function.__name__!r} must be given by name")
    text = inspect.getdoc(function) or ""
    return {"type": "function", "function": {"name": function.__name__, "description": text, "parameters": parameters}}


def _wrong(detail: str) -> InvalidInputError:
    return InvalidInputError(f"--tools: {detail}", code="bad_tool")
