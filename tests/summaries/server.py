"""A model's endpoint on loopback that speaks OpenAI's chat completions and Bedrock's Converse over real HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import unquote


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def is_converse(self) -> bool:
        return self.path.endswith("/converse")

    @property
    def system(self) -> str:
        text = self.body["system"][0]["text"] if self.is_converse else self.body["messages"][0]["content"]
        return str(text)

    @property
    def record(self) -> str:
        """The user's message, which is one text."""
        (message,) = self.body["messages"] if self.is_converse else self.body["messages"][1:]
        assert message["role"] == "user"
        content = message["content"]
        return str(content[0]["text"] if self.is_converse else content)


@dataclass(frozen=True)
class Reply:
    """What the endpoint does: says a text, or answers a status; waits before, or sends a byte now and then (``trickle``)."""

    text: str = ""
    status: int = 200
    error: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: str = ""
    raw: bytes | None = None
    wait_seconds: float = 0
    trickle: bool = False
    parameter: str = ""


Plan: TypeAlias = "Sequence[Reply] | Callable[[Asked], Reply]"


class ModelServer:
    """Answers by its plan, one reply for each request, the last one again and again. ``asked`` is what came."""

    def __init__(self, plan: Plan = ()) -> None:
        self.plan: Plan = plan
        self.asked: list[Asked] = []
        self._end = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked = Asked(unquote(self.path), dict(self.headers), body)
                reply = outer.take(asked)
                outer.pause(reply.wait_seconds)
                content = _content(asked, reply)
                try:
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    if asked.is_converse and reply.error:
                        self.send_header("x-amzn-ErrorType", reply.error)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    for at in range(len(content)) if reply.trickle else ():
                        self.wfile.write(content[at : at + 1])
                        self.wfile.flush()
                        outer.pause(0.05)
                    if not reply.trickle:
                        self.wfile.write(content)
                except OSError:
                    self.close_connection = True  # the caller has given up

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if callable(self.plan):
            return self.plan(asked)
        return self.plan[min(len(self.asked), len(self.plan)) - 1]

    def pause(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at and not self._end.wait(0.01):
            pass

    def close(self) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _content(asked: Asked, reply: Reply) -> bytes:
    if reply.raw is not None:
        return reply.raw
    value: dict[str, Any]
    if reply.status != 200:
        # Providers repeat what was sent in what they say of it.
        said = f"{reply.error}: {asked.record}"
        value = {"message": said} if asked.is_converse else {"error": {"message": said, "param": reply.parameter}}
    elif asked.is_converse:
        value = {
            "output": {"message": {"role": "assistant", "content": [{"text": reply.text}]}},
            "stopReason": reply.ending or "end_turn",
            "usage": {"inputTokens": 321, "outputTokens": 45, "totalTokens": 366},
            "metrics": {"latencyMs": 5},
        }
    else:
        value = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_763_683_200,
            "model": asked.body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": reply.text},
                    "finish_reason": reply.ending or "stop",
                }
            ],
            "usage": {"prompt_tokens": 321, "completion_tokens": 45, "total_tokens": 366},
        }
    return json.dumps(value).encode()
