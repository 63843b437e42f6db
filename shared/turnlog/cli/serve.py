"""`turnlog serve`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from turnlog.app import make_application
from turnlog.cli.options import (
    DEFAULT_DATA,
    Connection,
    Data,
    Json,
    Token,
    connected,
    opened,
    remember,
    served_settings,
    sqlite_url,
)
from turnlog.cli.screen import console, plain, print_json, table
from turnlog.core.errors import InvalidInputError
from turnlog.core.identity import Owner
from turnlog.engines.system import SystemClock
from turnlog.server.stack import TEMPLATE, Resource

Engine = Annotated[
    str, typer.Option("--engine", metavar="E", help="embedded (the data folder) or memory (gone when it stops).")
]
AnyEngine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="E",
        help="embedded (the data folder), memory (gone when it stops), or moto (the AWS stack, emulated; gone too).",
    ),
]


def serve(
    ctx: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 8787,
    host: Annotated[str, typer.Option("--host", help="Other than loopback only with --token.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A further name it is reached by; may be repeated."),
    ] = None,
    data: Data = None,
    engine: AnyEngine = "embedded",
    token: Token = None,
    json: Json = False,
) -> None:
    """Serve the API on this machine. Prints its URL; Ctrl-C stops it."""
    connection = remember(ctx, data=data, token=token)
    folder = connection.data or DEFAULT_DATA
    listening = {"host": host, "port": port, "token": connection.token, "allowed_hosts": tuple(allow_host or ())}
    # Its warnings are of requests that wait for one of 8 threads, and of those that are given up when it stops.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    with _stopped_by_signals(), suppress(KeyboardInterrupt):
        if engine == "moto":
            _serve_moto(listening, json=json)
        else:
            _serve_embedded(engine, folder, listening, json=json)
    if not json:
        sys.stdout.write("turnlog stopped\n")


def _serve_embedded(engine: str, folder: Path, listening: Mapping[str, Any], *, json: bool) -> None:
    from turnlog.server.local_server import LocalServer

    app = make_application(served_settings(engine_url(engine, folder, others=("moto",))))
    try:
        # Engines open at first use: a folder that can't be one's data is an error now, not of each request.
        app.list_sessions(Owner.of("local", "me"), limit=1)
        server = LocalServer(app, SystemClock(), **listening)
        _announce(server.url, engine, folder, json=json)
        server.run()
    finally:
        app.close()


def _serve_moto(listening: Mapping[str, Any], *, json: bool) -> None:
    from turnlog.server.moto_engine import StackServer, moto_service

    clock = SystemClock()
    with moto_service(clock) as service:
        server = StackServer(service, clock, **listening)
        _announce(server.url, "moto", None, json=json, resources=service.stack.resources)
        server.run()


def engine_url(engine: str, folder: Path, *, others: tuple[str, ...] = ()) -> str:
    """The engine's address; `InvalidInputError` for one that there is not. ``others`` would do too, but have no address."""
    if engine == "embedded":
        return sqlite_url(folder)
    if engine == "memory":
        return "memory://"
    known = ", ".join(("embedded", "memory", *others))
    raise InvalidInputError(f"engine {engine!r} is not one of {known}", code="unknown_engine")


def _announce(
    url: str, engine: str, folder: Path | None, *, json: bool, resources: Sequence[Resource] | None = None
) -> None:
    place = str(folder.absolute()) if engine == "embedded" and folder is not None else None
    if json:
        made = {"resources": [asdict(one) for one in resources]} if resources is not None else {}
        print_json({"url": url, "engine": engine, "data": place, **made}, indent=None)
        return
    kept = f"sessions are kept in {plain(place)}" if place is not None else "sessions are gone when it stops"
    console().print(f"turnlog serves {url}\n{kept}; Ctrl-C stops it", soft_wrap=True)
    if resources is not None:
        listed = table(f"made from {TEMPLATE}, in moto", [("id", "left"), ("kind", "left"), ("name", "left")])
        for one in resources:
            listed.add_row(one.logical_id, one.kind, one.name)
        console().print(listed)
    sys.stdout.flush()


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM is Ctrl-C: what service managers and containers send. Ctrl-C's own signal counts too where a shell that starts
    the service in its background has it ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@connected
def mcp(
    connection: Connection,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Of this session alone; its tools name none.")
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP on 127.0.0.1, and not stdio.")] = False,
    port: Annotated[int, typer.Option("--port", metavar="N", min=1, max=65535, help="With --http.")] = 8788,
) -> None:
    """Serve recall, search, append, windows and the list of sessions as MCP tools."""
    try:
        from turnlog.integrations.mcp import make_server
    except ImportError as error:
        raise InvalidInputError("MCP needs its SDK: pip install 'turnlog[mcp]'", code="extra_missing") from error
    with opened(connection) as log:
        if session is not None:
            log.sessions.get(session)
        server = make_server(log, session)
        if not http:
            server.run("stdio")
            return
        console(stderr=True).print(f"Turnlog serves MCP on http://127.0.0.1:{port}/mcp", soft_wrap=True)
        server.run("streamable-http", host="127.0.0.1", port=port)
