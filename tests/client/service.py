"""A service behind a gate that sees each request as its bytes are, and may do with it what a network does."""

from __future__ import annotations

import contextlib
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from turnlog.app import Application, make_application
from turnlog.engines import SystemClock
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings


@dataclass(frozen=True)
class Received:
    """A request: its target and its headers (names lower, values trimmed) are the bytes that came."""

    method: str
    target: bytes
    headers: dict[str, bytes]
    body: bytes

    def text(self, name: str) -> str:
        return self.headers[name].decode("utf-8")


Fault = Callable[[Any], bool]
"""Does something with the handler in place of an answer; true: the answer is given all the same, afterwards."""


def status(code: int, *headers: str, body: bytes = b"{}") -> Fault:
    """An answer of its own."""

    def answer(handler: Any) -> bool:
        lines = [f"HTTP/1.1 {code} x", f"Content-Length: {len(body)}", *headers, "", ""]
        handler.wfile.write("\r\n".join(lines).encode() + body)
        return False

    return answer


class Gate:
    """In front of a service at ``url``. ``plan`` holds the faults of the next requests; after it, all pass."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        self.plan: list[Fault] = []
        self.received: list[Received] = []
        self.stopping = threading.Event()
        self.inner = url
        self.connections = 0
        gate, address = self, url.removeprefix("http://")

        class Handler(socketserver.StreamRequestHandler):
            server_gate = gate

            def handle(self) -> None:
                gate.connections += 1
                while (received := _read(self.rfile)) is not None:
                    gate.received.append(received)
                    if gate.plan and not gate.plan.pop(0)(self):
                        continue
                    inner = HTTPConnection(address, timeout=10)
                    headers = {name: value.decode("latin-1") for name, value in received.headers.items()}
                    inner.request(received.method, received.target.decode(), received.body, headers)
                    answer = inner.getresponse()
                    data = answer.read()
                    inner.close()
                    kept = [
                        f"{name}: {answer.headers[name]}"
                        for name in ("Content-Type", "Retry-After")
                        if name in answer.headers
                    ]
                    status(answer.status, *kept, body=data)(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that has gone is one of the faults."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        if context is not None:
            # Hands are shaken at the first read: in the thread of the connection, not in the one that accepts.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _read(file: Any) -> Received | None:
    first = file.readline()
    if not first:
        return None
    method, target, _ = first.split(b" ")
    headers = {}
    while (line := file.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        assert name.lower().decode() not in headers
        headers[name.lower().decode()] = value.strip(b" \r\n")
    return Received(method.decode(), target, headers, file.read(int(headers.get("content-length", b"0"))))


@contextlib.contextmanager
def gated(context: ssl.SSLContext | None = None) -> Iterator[tuple[Application, Gate]]:
    """A service in memory, and the gate in front of it; https with a server's ``context``."""
    app = make_application(Settings(engine="memory://", identity="jwt"))
    server = LocalServer(app, SystemClock(), port=0).start()
    gate = Gate(server.url, context)
    try:
        yield app, gate
    finally:
        gate.stop()
        server.stop()
        app.close()
