"""`turnlog serve`, `turnlog inspect` and `turnlog mcp`."""

from __future__ import annotations

import gc
import logging
import secrets
import signal
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import typer

from turnlog.app import make_application
from turnlog.cli.options import (
    DEFAULT_DATA,
    Connection,
    Json,
    Token,
    Where,
    argument,
    check_data,
    handled_signals,
    open_or_make_client,
    option,
    remember,
    served_settings,
    with_connection,
)
from turnlog.cli.screen import console, plain, print_json, table
from turnlog.client.over_http import HttpBackend, header_value
from turnlog.core.errors import InvalidInputError
from turnlog.engines import SystemClock, location_url, shown_url, sqlite_path
from turnlog.http.api import FILE, Admit, Answering, ApiAnswer, ApiRequest
from turnlog.server import local_server
from turnlog.server.admission import is_loopback
from turnlog.server.local_server import DEFAULT_TENANT, DEFAULT_USER
from turnlog.server.stack import TEMPLATE, Resource

_UNCOLLECTED = 100_000
"""Objects that a serving process makes before it looks for circles, as in Lambda. At Python's 700 half of the CPU of a large
request is that search, through objects that have no circles."""


Engine = Annotated[
    str,
    option(
        "--engine",
        "embedded (the data folder), memory (lost at the end), or moto (the AWS stack emulated, lost at the end).",
        "E",
    ),
]


Port = Annotated[int, option("--port", "Port to listen on; 0 picks a free one.", min=0, max=65535)]
ReadOnly = Annotated[bool, option("--read-only", "Refuse every request that changes something.")]


def serve(  # noqa: PLR0913
    ctx: typer.Context,
    port: Port = 8787,
    host: Annotated[str, option("--host", "Address to listen on. Needs --token unless it is loopback.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, option("--allow-host", "Another host name that clients use; may be repeated.", "NAME")
    ] = None,
    read_only: ReadOnly = False,
    where: Where = None,
    engine: Engine = "embedded",
    token: Token = None,
    json: Json = False,
) -> None:
    """Serve the API on this machine and print its URL. Ctrl-C stops it."""
    connection = remember(ctx, where=where, token=token)
    where = connection.where or DEFAULT_DATA
    listening = {"host": host, "port": port, "token": connection.token, "allowed_hosts": tuple(allow_host or ())}
    listening |= {"read_only": read_only, "about": {"where": engine, "tenant": DEFAULT_TENANT, "user": DEFAULT_USER}}
    place = where if "://" in where else str(Path(where).absolute())
    with _collecting_seldom(), _until_stopped(), _engine_server(engine, where, listening) as (server, resources):
        _announce(server.url, engine, place if engine == "embedded" else None, resources, json=json)
        server.run()
    if not json:
        sys.stdout.write("turnlog stopped\n")


@contextmanager
def _engine_server(
    engine: str, where: str, listening: Mapping[str, Any]
) -> Iterator[tuple[local_server.HttpServer, Sequence[Resource]]]:
    """Yield the server of an engine, not started yet, and the resources of the stack that moto emulates."""
    if engine == "moto":
        from turnlog.server.moto_engine import moto_service

        with moto_service(SystemClock()) as service:
            yield local_server.HttpServer(service.answer, **listening), service.stack.resources
    else:
        with closing(make_application(served_settings(_engine_url(engine, where)))) as app:
            yield local_server.LocalServer(app, SystemClock(), **listening), ()


def _engine_url(engine: str, where: str) -> str:
    """Return the URL of an engine. Raises `InvalidInputError` for an unknown one."""
    if engine == "embedded":
        url = location_url(where)
        if sqlite_path(url) is None:
            raise InvalidInputError(f"serve takes a path, not {shown_url(where)!r}", code="unknown_engine")
        return url
    if engine == "memory":
        return "memory://"
    message = f"engine {engine!r} is not one of embedded, memory, moto; name a file or a folder with --data"
    raise InvalidInputError(message, code="unknown_engine")


def _announce(url: str, engine: str, place: str | None, resources: Sequence[Resource], *, json: bool) -> None:
    if json:
        extra = {"resources": [asdict(resource) for resource in resources]} if resources else {}
        print_json({"url": url, "engine": engine, "data": place, **extra}, indent=None)
        return
    kept = f"sessions are kept in {plain(place)}" if place is not None else "sessions are gone when it stops"
    console().print(f"turnlog serves {url}, its inspector {url}/inspector\n{kept}; Ctrl-C stops it", soft_wrap=True)
    if resources:
        listed = table(f"made from {TEMPLATE}, in moto", [("id", "left"), ("kind", "left"), ("name", "left")])
        for resource in resources:
            listed.add_row(resource.logical_id, resource.kind, resource.name)
        console().print(listed)
    sys.stdout.flush()


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_UNCOLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _until_stopped() -> Iterator[None]:
    """End the block quietly at Ctrl-C, and at SIGTERM, which service managers and containers send."""
    # waitress warns about requests that wait for a thread and about those dropped at a stop; both are expected.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    # SIGINT has a handler too, because a shell ignores it for a process that it starts in the background.
    with handled_signals(signal.default_int_handler, "SIGINT", "SIGTERM"), suppress(KeyboardInterrupt):
        yield


@with_connection
def inspect(
    connection: Connection,
    place: Annotated[
        str | None, argument("WHERE", "What to look at: a path, the URL of an engine, or the URL of a service.")
    ] = None,
    read_only: ReadOnly = False,
    port: Port = 0,
    no_browser: Annotated[bool, option("--no-browser", "Only print the address.")] = False,
    json: Json = False,
) -> None:
    """Look at sessions and windows in the browser. Ctrl-C stops it."""
    connection = replace(connection, where=place or connection.where or DEFAULT_DATA)
    # Any program of this machine can reach the port; only who has the address with its token gets an answer.
    token = secrets.token_urlsafe(24)
    options = {"port": port, "token": token, "read_only": read_only}
    with _until_stopped(), _server(connection, options) as server:
        address = f"{server.url}/inspector#token={token}"
        if json:
            print_json({"url": address, "where": connection.where, "read_only": read_only}, indent=None)
        else:
            console().print(f"turnlog shows {connection.where} at\n{address}\nCtrl-C stops it", soft_wrap=True)
        sys.stdout.flush()
        if not no_browser and not json:
            webbrowser.open(address)
        server.run()


@contextmanager
def _server(connection: Connection, options: dict[str, Any]) -> Iterator[local_server.HttpServer]:
    """Yield the server of the page for an engine or a service, not started yet."""
    url = location_url(connection.where or DEFAULT_DATA)
    if url.startswith(("http://", "https://")):
        backend = HttpBackend(url, tenant=connection.tenant, user=connection.user, token=connection.token)
        with closing(backend):
            about = {"where": urlsplit(url).netloc, "tenant": None, "user": None}
            yield local_server.HttpServer(forwarding(backend), about=about, **options)
        return
    check_data(connection)
    with closing(make_application(served_settings(url))) as app:
        # The jobs of a file wait for whoever has it open; those of other engines have workers of their own.
        tenant, user = connection.tenant or DEFAULT_TENANT, connection.user or DEFAULT_USER
        about = {"where": url.partition("?")[0], "tenant": tenant, "user": user}
        yield local_server.LocalServer(app, SystemClock(), worker=sqlite_path(url) is not None, about=about, **options)


def forwarding(backend: HttpBackend) -> Answering:
    """Return a function that sends each request to a service, as the owner and with the credentials of the backend."""

    def forward(request: ApiRequest, admit: Admit, seconds_left: Callable[[], float] | None) -> ApiAnswer:
        query = urlencode(request.query, quote_via=quote)
        target = quote(request.path) + (f"?{query}" if query else "")
        answer = backend.forward(request.method, target, request.body, request.headers)
        return ApiAnswer(answer.status, answer.data, answer.headers.get("Content-Type", FILE))

    return forward


@with_connection
def mcp(
    connection: Connection,
    session: Annotated[
        str | None, option("--session", "Serve only this session; its tools take no session id.", "SESSION")
    ] = None,
    http: Annotated[bool, option("--http", "Serve streamable HTTP in place of stdio.")] = False,
    host: Annotated[str, option("--host", "Address for --http. Needs --bearer unless it is loopback.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "Port for --http.", "N", min=1, max=65535)] = 8788,
    bearer: Annotated[
        str | None, option("--bearer", "Token that each request over HTTP needs.", "T", envvar="TURNLOG_MCP_TOKEN")
    ] = None,
) -> None:
    """Serve sessions to MCP hosts: tools, resources and prompts for sessions, windows, recall, search and memories."""
    if bearer is not None:
        header_value("bearer", bearer)
    if http and bearer is None and not is_loopback(host):
        raise InvalidInputError(
            f"{host} can be reached from elsewhere: give a token with --bearer", code="bearer_needed"
        )
    try:
        from turnlog.integrations.mcp import make_server, serve_http
    except ImportError as error:
        raise InvalidInputError("MCP needs its SDK: pip install 'turnlog[mcp]'", code="extra_missing") from error
    with open_or_make_client(connection) as log:
        if session is not None:
            log.sessions.get(session)
        server = make_server(log, session)
        if not http:
            server.run("stdio")
            return
        console(stderr=True).print(f"Turnlog serves MCP on http://{host}:{port}/mcp", soft_wrap=True)
        serve_http(server, host=host, port=port, token=bearer)
