"""The resources of template.yaml in a moto server on this machine, for `sam local` (docs/how-to/sam-local.md).

    python tools/local_stack.py serve [--host H] [--port N]    # makes them, serves until Ctrl-C; then they are gone
    python tools/local_stack.py template FROM TO               # a built template in which the endpoint can be set
    python tools/local_stack.py env                            # what events/env.json holds
    python tools/local_stack.py check [--host H] [--port N]    # exits 1 when nothing serves there

It listens on 127.0.0.1 unless told otherwise, and anybody who reaches it may read and write all that is in it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from turnlog.core.errors import InvalidInputError, TurnlogError, UnavailableError
from turnlog.engines.aws_clients import Clients
from turnlog.server.moto_engine import no_real_credentials, quick_answers
from turnlog.server.stack import REGION, Stack, deploy, expand, template_path
from turnlog.testing.aws import real_item_limit

PORT = 5555
FROM_CONTAINERS = f"http://host.docker.internal:{PORT}"
ENDPOINT = "TURNLOG_ENDPOINT_URL"
_QUEUE_URL = re.compile(r"https?://[^&]+/([\w-]+)")


def serve(host: str, port: int) -> None:
    """Serves until the process is told to end."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        raise InvalidInputError(f"{error.name} is missing: pip install 'turnlog[moto]'", code="extra_needed") from error
    _ask_for_free_port(host, port)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would print every request
    with ExitStack() as until_end:
        until_end.enter_context(no_real_credentials())
        until_end.enter_context(real_item_limit())
        until_end.enter_context(quick_answers())
        server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)
        server.start()
        until_end.callback(server.stop)
        stack = deploy(expand(template_path()), Clients(REGION, f"http://{host}:{port}"))
        _say(f"moto serves http://{host}:{port}; Ctrl-C stops it, and what is in it is gone")
        for resource in stack.resources:
            _say(f"{resource.logical_id:<20} {resource.kind:<22} {resource.name}")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def write_local_template(built: Path, local: Path) -> None:
    """Write a copy beside the built template. `sam local` passes on no variable that the template does not declare."""
    from samtranslator.yaml_helper import yaml_parse

    if built.parent.resolve() != local.parent.resolve():
        raise InvalidInputError("the copy must stand beside the template: its paths are relative", code="invalid_path")
    document: dict[str, Any] = yaml_parse(built.read_text(encoding="utf-8"))
    part = document
    for name in ("Globals", "Function", "Environment", "Variables"):
        part = part.setdefault(name, {})
    part.setdefault(ENDPOINT, "")
    local.write_text(json.dumps(document, indent=1), encoding="utf-8")


def container_environments(stack: Stack) -> dict[str, dict[str, str]]:
    """Return the engine of each function and its address, as a container sees them."""
    return {
        name: {
            # The names that `serve` gives are always the same; a queue's URL depends on who asks.
            "TURNLOG_ENGINE": _QUEUE_URL.sub(r"\1", function.environment["TURNLOG_ENGINE"]),
            ENDPOINT: FROM_CONTAINERS,
        }
        for name, function in stack.functions.items()
    }


def environments() -> Mapping[str, Mapping[str, str]]:
    """Return the content of events/env.json."""
    from moto import mock_aws

    with no_real_credentials(), mock_aws():
        return container_environments(deploy(expand(template_path()), Clients(REGION)))


def check(host: str, port: int) -> None:
    """Raise `UnavailableError` when nothing listens there."""
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError as error:
        raise UnavailableError(f"nothing serves {host}:{port}: run `make sam-resources` beside this") from error


def _ask_for_free_port(host: str, port: int) -> None:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UnavailableError(f"can't listen on {host}:{port}: {reason}", code="cannot_listen") from error


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="local_stack.py", description="template.yaml's resources in a moto server")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("serve", "check"):
        command = commands.add_parser(name)
        command.add_argument("--host", default="127.0.0.1")
        command.add_argument("--port", type=int, default=PORT)
    template = commands.add_parser("template")
    template.add_argument("built", type=Path)
    template.add_argument("local", type=Path)
    commands.add_parser("env")
    result = parser.parse_args(arguments)
    try:
        if result.command == "serve":
            # Waited for, not handled: no request is cut off by an exception in the middle.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            serve(result.host, result.port)
        elif result.command == "check":
            check(result.host, result.port)
        elif result.command == "template":
            write_local_template(result.built, result.local)
        else:
            _say(json.dumps(environments(), indent=2))
    except TurnlogError as error:
        sys.stderr.write(f"local_stack: {error.detail}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"local_stack: {error.filename}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
