"""`turnlog mcp`: sessions for a model that speaks MCP."""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog.domain.errors import InvalidInputError
from turnlog.local.cli.options import Connection, connected, opened
from turnlog.local.cli.screen import console


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
        from turnlog.client.frameworks.mcp_server import make_server
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
