"""`turnlog serve` with 32 clients that write at once: appends a second, each on the disk before it is answered, and windows.

Beside it: waitress with one INSERT a request. A client has a session and a connection of its own, and asks again as soon as it
has its answer.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load.serving import serving
from benchmarks.peers.embedded import order_message
from benchmarks.peers.table import Table
from turnlog import Turnlog

CLIENTS, _SECONDS, _RUNS, _BUDGET = 32, 5.0, 3, 8_000


def table() -> Table:
    """Measure both servers, the best of three runs of five seconds."""
    with tempfile.TemporaryDirectory() as folder:
        with serving("embedded", Path(folder) / "turnlog") as (server,):
            with Turnlog.open(server.url) as log:
                for number in range(CLIENTS):
                    log.sessions.create(f"s{number}")
            appends = _rate(server.url, _append)
            windows = _rate(server.url, lambda number, _: (f"s{number}/context", {"budget": _BUDGET}))
        with _inserting(Path(folder) / "peer.db") as url:
            inserts = _rate(url, _append)
    rows = [("Turnlog", f"{appends:,.0f}", f"{windows:,.0f}", "at least 1,000"), ("INSERT", f"{inserts:,.0f}", "", "")]
    return Table(f"{CLIENTS} clients of one server", ("", "appends a second", "windows a second", "goal"), rows)


def _append(number: int, count: int) -> tuple[str, dict[str, Any]]:
    return f"s{number}/messages", {"messages": [order_message(count)]}


def _rate(url: str, request_of: Callable[[int, int], tuple[str, dict[str, Any]]]) -> float:
    return max(_answers(url, request_of) for _ in range(_RUNS)) / _SECONDS


@dataclass(slots=True)
class _Client:
    """A client's connection, the number of its requests, and what has arrived of an answer."""

    number: int
    connection: socket.socket
    requests: int = 0
    received: bytes = b""

    def ask(self, path: str, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        head = f"POST /v1/sessions/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self.connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        self.requests, self.received = self.requests + 1, b""

    def is_answered(self) -> bool:
        """Receive more of the answer, and return whether it is whole. Raises `RuntimeError` for an answer of an error."""
        self.received += self.connection.recv(256 * 1024)
        head, _, body = self.received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(self.received.decode(errors="replace")[:500])
        _, _, length = head.lower().partition(b"content-length: ")
        return bool(length) and len(body) >= int(length.split()[0])


def _answers(url: str, request_of: Callable[[int, int], tuple[str, dict[str, Any]]]) -> int:
    """Return the number of requests that a server answers within `_SECONDS`."""
    address, answers = urlsplit(url), 0
    with selectors.DefaultSelector() as selector:
        for number in range(CLIENTS):
            client = _Client(number, socket.create_connection((address.hostname, address.port)))
            selector.register(client.connection, selectors.EVENT_READ, client)
            client.ask(*request_of(number, 0))
        ends = time.monotonic() + _SECONDS
        while time.monotonic() < ends:
            for key, _ in selector.select(timeout=_SECONDS):
                if key.data.is_answered():
                    answers += 1
                    key.data.ask(*request_of(key.data.number, key.data.requests))
        for key in list(selector.get_map().values()):
            key.data.connection.close()
    return answers


@contextmanager
def _inserting(path: Path) -> Iterator[str]:
    """Yield the URL of a server that stores each request's body as a row."""
    with subprocess.Popen([sys.executable, "-c", _PEER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


_PEER = """
import logging, sqlite3, sys, threading
from waitress.server import create_server
logging.getLogger('waitress.queue').setLevel(logging.ERROR)
local = threading.local()
def database():
    if not hasattr(local, 'database'):
        local.database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
        local.database.execute('PRAGMA synchronous=FULL')
    return local.database
def serve(environ, start_response):
    body = environ['wsgi.input'].read()
    database().execute('INSERT INTO rows VALUES (?, ?)', (environ['PATH_INFO'], body))
    start_response('201 Created', [('Content-Type', 'application/json'), ('Content-Length', '2')])
    return [b'{}']
database().execute('PRAGMA journal_mode=WAL')
database().execute('CREATE TABLE rows (session TEXT, body BLOB)')
server = create_server(serve, host='127.0.0.1', port=0, threads=8)
print(f'http://127.0.0.1:{server.effective_port}', flush=True)
server.run()
"""
