"""`turnlog serve`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from turnlog.adapters.system import SystemClock
from turnlog.bootstrap import make_application
from turnlog.domain.errors import InvalidInputError
from turnlog.domain.identity import Owner
from turnlog.local.cli.options import DEFAULT_DATA, Data, Json, Token, remember, served_settings, sqlite_url
from turnlog.local.cli.screen import console, plain, print_json

Engine = Annotated[
    str, typer.Option("--engine", metavar="E", help="embedded (the data folder) or memory (gone when it stops).")
]


def serve(
    ctx: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 8787,
    host: Annotated[str, typer.Option("--host", help="Other than loopback only with --token.")] = "127.0.0.1",
    data: Data = None,
    engine: Engine = "embedded",
    token: Token = None,
    json: Json = False,
) -> None:
    """Serve the API on this machine. Prints its URL; Ctrl-C stops it."""
    from turnlog.local.server import LocalServer

    connection = remember(ctx, data=data, token=token)
    folder = connection.data or DEFAULT_DATA
    # The queue of a server that has 8 threads is not worth a warning per request.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    engine_address = engine_url(engine, folder)
    with _stopped_by_sigterm():
        app = make_application(served_settings(engine_address))
        try:
            # Engines open at first use: a folder that can't be one's data is an error now, not of each request.
            app.list_sessions(Owner.of("local", "me"), limit=1)
            server = LocalServer(app, SystemClock(), host=host, port=port, token=connection.token)
            _announce(server.url, engine, folder, json=json)
            server.run()
        except KeyboardInterrupt:
            pass
        finally:
            app.close()
    if not json:
        sys.stdout.write("turnlog stopped\n")


def engine_url(engine: str, folder: Path) -> str:
    """The engine's address; `InvalidInputError` for one that there is not."""
    if engine == "embedded":
        return sqlite_url(folder)
    if engine == "memory":
        return "memory://"
    raise InvalidInputError(f"engine {engine!r} is not one of embedded, memory", code="unknown_engine")


def _announce(url: str, engine: str, folder: Path, *, json: bool) -> None:
    place = str(folder.absolute()) if engine == "embedded" else None
    if json:
        print_json({"url": url, "engine": engine, "data": place}, indent=None)
        return
    kept = f"sessions are kept in {plain(place)}" if place is not None else "sessions are gone when it stops"
    console().print(f"turnlog serves {url}\n{kept}; Ctrl-C stops it", soft_wrap=True)
    sys.stdout.flush()


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM is Ctrl-C: what service managers and containers send."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
