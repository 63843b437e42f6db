"""The example's receiver of the memory webhook, on loopback, which can also answer otherwise."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.conftest import ROOT

SECRET = "a-secret-of-the-tests"


def example() -> ModuleType:
    """examples/memory_receiver.py."""
    spec = importlib.util.spec_from_file_location("memory_receiver", ROOT / "examples" / "memory_receiver.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class WebhookServer:
    """The example's server. ``asked`` are the headers and bodies that came."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.asked: list[tuple[dict[str, str], bytes]] = []
        receiver = example()
        self.receiver = receiver.Receiver(SECRET.encode(), now=now)
        answer = self.receiver.answer

        def noted(headers: Any, body: bytes) -> Any:
            self.asked.append((dict(headers), body))
            return answer(headers, body)

        self.receiver.answer = noted
        self._server = receiver.make_server(self.receiver, 0)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/memory"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.receiver.close()


@dataclass(frozen=True)
class Says:
    """An answer byte by byte as given, or one that never ends: ``drip`` is sent again and again."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    drip: bytes = b""
    raw: bytes | None = None


class OddServer:
    """Answers every request by its plan, the last answer again and again. ``requests`` counts them."""

    def __init__(self, plan: Sequence[Says]) -> None:
        self._plan = plan
        self.requests = 0
        self._end = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.02)
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/memory"

    def _serve(self) -> None:
        while not self._end.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            says = self._plan[min(self.requests, len(self._plan) - 1)]
            self.requests += 1
            with connection:
                connection.settimeout(5)
                try:
                    _read_request(connection)
                    self._say(connection, says)
                except OSError:
                    pass  # the caller has given up

    def _say(self, connection: socket.socket, says: Says) -> None:
        if says.raw is not None:
            connection.sendall(says.raw)
        else:
            head = [f"HTTP/1.1 {says.status} Odd", *(f"{name}: {value}" for name, value in says.headers.items())]
            length = [] if says.drip else [f"Content-Length: {len(says.body)}"]
            connection.sendall("\r\n".join([*head, *length, "", ""]).encode() + (b"" if says.drip else says.body))
        while says.drip and not self._end.wait(0.02):
            connection.sendall(says.drip)

    def close(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._socket.close()


def _read_request(connection: socket.socket) -> None:
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(65_536)
        if not more:
            raise OSError
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65_536)
