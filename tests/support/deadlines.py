"""A service whose answers take their time."""

from __future__ import annotations

from typing import Any

from tests.client.service import Fault


def silent(handler: Any) -> bool:
    handler.server_gate.stopping.wait(10)
    return False


def in_drops(head: bytes, drop: bytes) -> Fault:
    """An answer that never ends, though something of it always comes in time for a wait."""

    def answer(handler: Any) -> bool:
        handler.wfile.write(head)
        while not handler.server_gate.stopping.wait(0.02):
            handler.wfile.write(drop)
        return False

    return answer


HANGS: dict[str, Fault] = {
    "nothing": silent,
    "head": in_drops(b"HTTP/1.1 200 OK\r\n", b"X-More: x\r\n"),
    "body": in_drops(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "chunks": in_drops(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}
