"""Options that commands share, and what they open. They may stand before the command or after it."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from turnlog.client.model import Turnlog
from turnlog.core.errors import MalformedError, NotFoundError
from turnlog.core.json_values import parse_strict_json
from turnlog.core.models import FORMATS
from turnlog.settings import PREFIX, Settings

DEFAULT_DATA = Path(".turnlog")
DATABASE = "turnlog.db"
_OURS = frozenset({"URL", "DATA", "TENANT", "USER", "TOKEN", "ENGINE", "IDENTITY"})

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", envvar="TURNLOG_URL", help="A service. Left out: the data folder, opened here."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", envvar="TURNLOG_DATA", help="The data folder.", show_default=".turnlog"),
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", envvar="TURNLOG_TENANT", help="Whose sessions.", show_default="local"),
]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", envvar="TURNLOG_USER", help="Whose sessions.", show_default="me")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="T", envvar="TURNLOG_TOKEN", help="The service's bearer token.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout and nothing else, for scripts.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="P",
        help="default, run_loops, classic, full, turns(n), messages(n), tokens(n), or a policy's JSON.",
    ),
]
Budget = Annotated[int | None, typer.Option("--budget", metavar="N", min=1, help="The most that is sent, in tokens.")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="F", help=f"The provider's format: {', '.join(FORMATS)}.")
]

_SHARED = {"url": Url, "data": Data, "tenant": Tenant, "user": User, "token": Token}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where sessions are and whose they are, as far as the command line says."""

    url: str | None = None
    data: Path | None = None
    tenant: str | None = None
    user: str | None = None
    token: str | None = None


def remember(ctx: typer.Context, **given: Any) -> Connection:
    """What stands before the command, completed by what stands after it (which wins)."""
    before = ctx.obj if isinstance(ctx.obj, Connection) else Connection()
    connection = replace(before, **{name: value for name, value in given.items() if value is not None})
    ctx.obj = connection
    return connection


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """A command that is given its ``connection``: the options that say where sessions are and whose stand behind its own
    options, before ``--json``."""
    own = inspect.signature(command, eval_str=True).parameters
    parameters = [one for name, one in own.items() if name not in ("connection", "ctx", "json")]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _SHARED.items()
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        ctx = given["ctx"] if "ctx" in own else given.pop("ctx")
        connection = remember(ctx, **{name: given.pop(name) for name in _SHARED})
        command(connection=connection, **given)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    every = [context, *parameters, *shared, *([own["json"]] if "json" in own else [])]
    made = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in every]
    run.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    return run


def opened(connection: Connection) -> Turnlog:
    """The service, or the data folder's engine in this process. A folder without data is `NotFoundError`."""
    if connection.url is not None:
        return Turnlog.open(connection.url, tenant=connection.tenant, user=connection.user, token=connection.token)
    folder = connection.data or DEFAULT_DATA
    if not (folder / DATABASE).is_file():
        message = f"no data in {str(folder)!r}: start `turnlog serve` first, or give --data or --url"
        raise NotFoundError(message, code="no_data")
    return Turnlog.open(sqlite_url(folder), tenant=connection.tenant, user=connection.user)


def opened_or_made(connection: Connection) -> Turnlog:
    """The same for a command that may be the first to write: a data folder that is not there is made."""
    folder = connection.data or DEFAULT_DATA
    if connection.url is not None or (folder / DATABASE).is_file():
        return opened(connection)
    folder.mkdir(parents=True, exist_ok=True)
    return Turnlog.open(sqlite_url(folder), tenant=connection.tenant, user=connection.user)


def sqlite_url(folder: Path) -> str:
    """The engine's address of a data folder."""
    return "sqlite:///" + quote(str(folder / DATABASE))


def served_settings(engine: str) -> Settings:
    """Settings of a service on this machine: the environment's, with this engine; who calls comes from headers."""
    found = {name: value for name, value in os.environ.items() if name.removeprefix(PREFIX) not in _OURS}
    return Settings.from_environment({**found, "TURNLOG_ENGINE": engine, "TURNLOG_IDENTITY": "jwt"})


def policy_value(text: str | None) -> str | dict[str, Any] | None:
    """A policy's name, or its body when the text is a JSON object."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        value = parse_strict_json(text)
    except MalformedError as error:
        raise MalformedError(f"--policy: {error.detail}") from error
    return value if isinstance(value, dict) else text
