"""A model's endpoint on loopback that streams as OpenAI, Anthropic and Bedrock do, over real HTTP."""

from __future__ import annotations

import binascii
import json
import struct
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agents import events


class StreamingServer:
    """Says one reply after the other: a message, a status with an error (its own one in a pair), or a message that is ``held``
    after some events until the caller has gone. ``asked`` are the bodies, ``headers`` those of the newest request."""

    def __init__(self, *replies: Any, held_after: int | None = None) -> None:
        self.replies = list(replies)
        self.held_after = held_after
        self.asked: list[Any] = []
        self.headers: dict[str, str] = {}
        self.holds, self.ended = threading.Event(), threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.whole(200, {"data": [{"id": "first-model"}]})

            def do_POST(self) -> None:
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                outer.headers = {name.lower(): value for name, value in self.headers.items()}
                reply = outer.replies.pop(0)
                if isinstance(reply, int):
                    reply = reply, {"error": {"message": "the server's words"}}
                if isinstance(reply, tuple):
                    self.whole(*reply)
                    return
                self.send_response(200)
                is_bedrock = self.path.endswith("/converse-stream")
                kind = "application/vnd.amazon.eventstream" if is_bedrock else "text/event-stream"
                self.send_header("Content-Type", kind)
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                for at, data in enumerate(_sent(self.path, reply)):
                    if at == outer.held_after:
                        outer.held_after = None
                        outer.holds.set()
                        outer.ended.wait(60)
                        return
                    self.wfile.write(data)
                    self.wfile.flush()

            def whole(self, status: int, value: Any) -> None:
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _sent(path: str, message: Any) -> Iterator[bytes]:
    if path.endswith("/converse-stream"):
        for event in events.converse(message, list):
            ((kind, result),) = event.items()
            yield framed(kind, json.dumps(result).encode())
        return
    result = events.anthropic(message, list) if path.endswith("/messages") else events.chat(message, list)
    for event in result:
        yield b"event: message\r\n: a comment\r\ndata: " + json.dumps(event).encode() + b"\r\nid: 1\r\n\r\n"
    yield b"data: [DONE]\n\n"


def framed(kind: str, payload: bytes) -> bytes:
    """An event as AWS frames it: lengths, their checksum, headers, payload, checksum."""
    headers = _header(":message-type", "event") + _header(":event-type", kind)
    headers += _header(":content-type", "application/json")
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    start = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + payload
    return start + struct.pack("!I", binascii.crc32(start))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()


def texts(body: Any) -> Sequence[str]:
    """What a request of OpenAI's form says, message by message."""
    return [str(message.get("content")) for message in body["messages"]]
