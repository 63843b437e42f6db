"""Options that commands share, before or after the command's name, and the connections they open."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Annotated, Any, cast

import typer

from turnlog.cli.screen import Output, print_output
from turnlog.client.model import Turnlog
from turnlog.core.errors import MalformedError, NotFoundError
from turnlog.core.json_values import parse_strict_json
from turnlog.core.models import FORMATS
from turnlog.engines import location_url, shown_url, sqlite_path
from turnlog.settings import LOCAL_OPERATOR, PREFIX, Settings

DEFAULT_DATA = ".turnlog"
_OURS = frozenset({"URL", "DATA", "TENANT", "USER", "TOKEN", "ENGINE", "IDENTITY"})


def option(flag: str, text: str, metavar: str | None = None, **details: Any) -> Any:
    """Return an option of a command: its flag and help, the name of its value, and more of what typer takes."""
    return typer.Option(flag, metavar=metavar, help=text, **details)


def argument(metavar: str, text: str) -> Any:
    """Return an argument of a command: the name of its value, and its help."""
    return typer.Argument(metavar=metavar, help=text)


def _shared(flag: str, metavar: str, text: str, default: str | bool) -> Any:
    """Return an option that the environment can set, too: ``TURNLOG_`` and the flag's name."""
    return option(flag, text, metavar, envvar=f"{PREFIX}{flag[2:].upper()}", show_default=default)


Where = Annotated[
    str | None,
    typer.Option(
        "--url",
        "--data",
        metavar="WHERE",
        envvar=["TURNLOG_URL", "TURNLOG_DATA"],
        help="Where the sessions are: a path (SQLite), the URL of an engine, or the URL of a service.",
        show_default=".turnlog",
    ),
]
Tenant = Annotated[str | None, _shared("--tenant", "NAME", "Tenant (organisation) that owns the sessions.", "local")]
User = Annotated[
    str | None, _shared("--user", "NAME", "User within the tenant; each user sees only their own sessions.", "me")
]
Token = Annotated[str | None, _shared("--token", "T", "The service's bearer token.", False)]
Json = Annotated[bool, option("--json", "Print only JSON on stdout, for scripts.")]
Session = Annotated[str, argument("SESSION", "The session's id.")]
Policy = Annotated[
    str | None,
    option(
        "--policy",
        "Window policy: default, run_loops, classic, full, turns(n), messages(n), tokens(n), or its JSON.",
        "P",
    ),
]
Budget = Annotated[int | None, option("--budget", "Maximum size of the window, in tokens.", "N", min=1)]
Format = Annotated[str | None, option("--format", f"Provider format of the messages: {', '.join(FORMATS)}.", "F")]

_SHARED = {"where": Where, "tenant": Tenant, "user": User, "token": Token}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the sessions are and who owns them, as given on the command line; None for what is not given."""

    where: str | None = None
    tenant: str | None = None
    user: str | None = None
    token: str | None = None


def remember(ctx: typer.Context, **options: Any) -> Connection:
    """Merge shared options, store and return them: those after the command's name, else those before it, else the environment."""
    connection = ctx.obj if isinstance(ctx.obj, Connection) else Connection()
    for name, value in options.items():
        if getattr(connection, name) is None or getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE":
            connection = replace(connection, **{name: value})
    ctx.obj = connection
    return connection


def with_connection(function: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the shared options, passed to it as ``connection``."""
    return _with_shared_options(function, function)


def with_log(
    open_log: Callable[[Connection], Turnlog], *, check: Callable[..., object] = lambda **_options: None
) -> Callable[[Callable[..., Output]], Callable[..., None]]:
    """Make a command, with the shared options and ``--json``, of a function that takes an open log and returns its output.

    ``check`` raises for options that do not fit each other, before anything is opened.
    """

    def decorate(function: Callable[..., Output]) -> Callable[..., None]:
        def run(*, connection: Connection, json: bool, **options: Any) -> None:
            check(**options)
            with open_log(connection) as log:
                output = function(log, **options)
            print_output(output, json=json)

        return _with_shared_options(function, run, [_option("json", Json, False)])

    return decorate


def _with_shared_options(
    function: Callable[..., Any], call: Callable[..., None], last: Sequence[inspect.Parameter] = ()
) -> Callable[..., None]:
    """Return a command that calls ``call`` with a connection and the options of ``function``, unless a subcommand follows.

    In its help, the shared options follow the command's own ones, before ``--json``.
    """
    own = inspect.signature(function, eval_str=True).parameters.values()
    options = [_option(parameter.name, parameter.annotation, parameter.default) for parameter in list(own)[1:]]
    shared = [_option(name, annotation, None) for name, annotation in _SHARED.items()]

    @functools.wraps(function)
    def run(ctx: typer.Context, **values: Any) -> None:
        connection = remember(ctx, **{name: values.pop(name) for name in _SHARED})
        if ctx.invoked_subcommand is None:
            call(connection=connection, **values)

    context = _option("ctx", typer.Context, inspect.Parameter.empty)
    in_order = sorted([context, *options, *shared, *last], key=lambda option: option.name == "json")
    run.__signature__ = inspect.Signature(in_order)  # type: ignore[attr-defined]
    return run


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def open_client(connection: Connection, *, worker: bool | None = None) -> Turnlog:
    """Open the service, or the engine in this process. Raises `NotFoundError` for a place without data."""
    check_data(connection)
    return open_or_make_client(connection, worker=worker)


open_without_worker = functools.partial(open_client, worker=False)
"""Open as `open_client` does, without a worker: the engine's jobs stay as they are."""


def check_data(connection: Connection) -> None:
    """Raise `NotFoundError` for a place without data."""
    if not has_data(connection):
        place = connection.where or DEFAULT_DATA
        message = f"no data in {place!r}: `turnlog create` or `turnlog serve` begins one, --url names another"
        raise NotFoundError(message, code="no_data")


def open_or_make_client(connection: Connection, *, worker: bool | None = None) -> Turnlog:
    """Open the service or the engine, which is created when it is missing: for commands that write first."""
    url = location_url(connection.where or DEFAULT_DATA)
    is_service = url.startswith(("http://", "https://"))
    if sys.stderr.isatty():
        sys.stderr.write(f"turnlog: {shown_url(url)}\n")
    return Turnlog.open(
        url,
        tenant=connection.tenant,
        user=connection.user,
        token=connection.token if is_service else None,
        worker=None if is_service else worker,
    )


def has_data(connection: Connection) -> bool:
    """Return whether there is a database file at the place; True for other engines and for services."""
    path = sqlite_path(location_url(connection.where or DEFAULT_DATA))
    return path is None or path.is_file()


def served_settings(engine: str) -> Settings:
    """Return the settings of a local service: the environment's with this engine. Headers tell the caller's identity."""
    environment = {name: value for name, value in os.environ.items() if name.removeprefix(PREFIX) not in _OURS}
    local = {"TURNLOG_ENGINE": engine, "TURNLOG_IDENTITY": "jwt", "TURNLOG_OPERATOR_SCOPE": LOCAL_OPERATOR}
    return Settings.from_environment({**environment, **local})


@contextmanager
def handled_signals(handler: Callable[[int, FrameType | None], None], *names: str) -> Iterator[None]:
    """Handle signals by a function within the block, those that the system has. In another thread, nothing is changed."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def policy_value(text: str | None) -> str | dict[str, Any] | None:
    """Return a policy's name, or its body when the text is a JSON object."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return cast("dict[str, Any]", parse_strict_json(text))
    except MalformedError as error:
        raise MalformedError(f"--policy: {error.detail}") from error
