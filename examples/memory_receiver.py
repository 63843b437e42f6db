"""The other side of Turnlog's memory webhook: a small engine that keeps what a person has said, in SQLite.

    TURNLOG_MEMORY_WEBHOOK_SECRET=... python examples/memory_receiver.py [--port 8790] [--data memory.db]

It shows what the protocol asks for (docs/how-to/memory-engines.md): the check of the signature, no request twice, a message twice
is one memory, what was forgotten stays so, and an erasure that leaves nothing. What is worth keeping is up to you: this one
takes every message of the user. Put a server with TLS in front of it.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_AGE_SECONDS = 300
MAX_BODY_BYTES = 16 * 1024 * 1024
TABLES = """
create table if not exists memories (
    tenant text, user text, id text, text text, created_at text, unique (tenant, user, id));
create table if not exists sources (
    tenant text, user text, id text, session text, position integer, unique (tenant, user, id, session, position));
create table if not exists forgotten (tenant text, user text, id text, unique (tenant, user, id));
create table if not exists gone (
    tenant text, user text, session text, position integer, unique (tenant, user, session, position));
create table if not exists seen (request text primary key, at integer);
"""


class RefusedError(Exception):
    """An answer that is not 200."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Receiver:
    """The actions of the protocol. ``now`` gives seconds since 1970."""

    def __init__(self, secret: bytes, data: str = ":memory:", now: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._now = now
        self._lock = threading.Lock()
        self._base = sqlite3.connect(data, check_same_thread=False)
        self._base.executescript(TABLES)

    def answer(self, headers: Any, body: bytes) -> dict[str, Any]:
        """Return the answer to a request, or raise `RefusedError`."""
        timestamp, request = headers.get("Turnlog-Timestamp", ""), headers.get("Turnlog-Request-Id", "")
        signed = b"\n".join(
            [b"v1", timestamp.encode(), request.encode(), headers.get("Idempotency-Key", "").encode(), body]
        )
        wanted = "v1=" + hmac.new(self._secret, signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(wanted.encode(), headers.get("Turnlog-Signature", "").encode()):
            raise RefusedError(401, "the signature is wrong")
        if not timestamp.isdigit() or abs(self._now() - int(timestamp)) > MAX_AGE_SECONDS:
            raise RefusedError(401, "the request is too old")
        asked = json.loads(body)
        actions = {
            "remember": self._remember,
            "known": self._known,
            "page": self._page,
            "forget": self._forget,
            "erase": self._erase,
        }
        if asked.get("version") != 1 or asked.get("action") not in actions:
            raise RefusedError(422, "unknown version or action")
        with self._lock, self._base:  # one transaction
            self._base.execute("delete from seen where at < ?", [self._now() - 2 * MAX_AGE_SECONDS])
            try:
                self._base.execute("insert into seen values (?, ?)", [request, int(self._now())])
            except sqlite3.IntegrityError:
                raise RefusedError(401, "the request came before") from None
            return actions[asked["action"]](asked, (asked["tenant"], asked["user"]))

    def close(self) -> None:
        self._base.close()

    def _remember(self, asked: dict[str, Any], owner: tuple[str, str]) -> dict[str, Any]:
        count = 0
        for message in asked["messages"]:
            if message["role"] != "user":
                continue
            # The same text is the same memory; the same message is never another source.
            memory_id = hashlib.sha256(f"{owner} {message['text']}".encode()).hexdigest()[:24]
            is_gone = self._base.execute(
                "select 1 from forgotten where tenant = ? and user = ? and id = ?"
                " union select 1 from gone where tenant = ? and user = ? and session = ? and position = ?",
                [*owner, memory_id, *owner, asked["session_id"], message["position"]],
            )
            if is_gone.fetchone():
                continue
            self._base.execute(
                "insert or ignore into memories values (?, ?, ?, ?, ?)",
                [*owner, memory_id, message["text"], message["created_at"]],
            )
            self._base.execute(
                "insert or ignore into sources values (?, ?, ?, ?, ?)",
                [*owner, memory_id, asked["session_id"], message["position"]],
            )
            count += 1
        return {"memories": count}

    def _known(self, asked: dict[str, Any], owner: tuple[str, str]) -> dict[str, Any]:
        words = set(asked["question"].lower().split())
        memories = self._memories(owner)
        for memory in memories:
            memory["score"] = float(len(words & set(memory["text"].lower().split())))
        memories.sort(key=lambda memory: -memory["score"])  # of equals the newest first
        return {"memories": memories[: asked["limit"]]}

    def _page(self, asked: dict[str, Any], owner: tuple[str, str]) -> dict[str, Any]:
        memorys = [memory for memory in self._memories(owner) if not asked["after"] or _place(memory) < asked["after"]]
        page = memorys[: asked["limit"]]
        return {"memories": page, "next": _place(page[-1]) if len(memorys) > len(page) else None}

    def _forget(self, asked: dict[str, Any], owner: tuple[str, str]) -> dict[str, Any]:
        for memory_id in asked["memory_ids"]:
            self._base.execute("insert or ignore into forgotten values (?, ?, ?)", [*owner, memory_id])
            for table in ("memories", "sources"):
                self._base.execute(f"delete from {table} where tenant = ? and user = ? and id = ?", [*owner, memory_id])  # noqa: S608
        return {}

    def _erase(self, asked: dict[str, Any], owner: tuple[str, str]) -> dict[str, Any]:
        before, session, position = len(self._memories(owner)), asked["session_id"], asked["position"]
        if session is None:
            for table in ("memories", "sources", "forgotten", "gone"):
                self._base.execute(f"delete from {table} where tenant = ? and user = ?", owner)  # noqa: S608
            return {"memories": before}
        if position is None:
            self._base.execute("delete from gone where tenant = ? and user = ? and session = ?", [*owner, session])
        else:
            self._base.execute("insert or ignore into gone values (?, ?, ?, ?)", [*owner, session, position])
        self._base.execute(
            "delete from sources where tenant = ? and user = ? and session = ? and (? is null or position = ?)",
            [*owner, session, position, position],
        )
        self._base.execute(
            "delete from memories where tenant = ? and user = ? and id not in"
            " (select id from sources where tenant = ? and user = ?)",
            [*owner, *owner],
        )
        return {"memories": before - len(self._memories(owner))}

    def _memories(self, owner: tuple[str, str]) -> list[dict[str, Any]]:
        """Newest first, each with the message that said it first."""
        rows = self._base.execute(
            "select m.id, text, created_at, session, min(position), count(*) from memories m join sources s"
            " on m.tenant = s.tenant and m.user = s.user and m.id = s.id"
            " where m.tenant = ? and m.user = ? group by m.id order by created_at desc, m.id desc",
            owner,
        )
        names = ("id", "text", "created_at", "session_id", "position", "confirmations")
        return [dict(zip(names, row, strict=True)) for row in rows]


def _place(memory: dict[str, Any]) -> str:
    """Return where a memory is in the list."""
    return f"{memory['created_at']} {memory['id']}"


def make_server(receiver: Receiver, port: int) -> ThreadingHTTPServer:
    """Return a server of the receiver on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            """Contents reach no log."""

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            try:
                if size > MAX_BODY_BYTES:
                    raise RefusedError(413, "the body is too long")
                status, answer = 200, receiver.answer(self.headers, self.rfile.read(size))
            except RefusedError as refused:
                status, answer = refused.status, {"error": str(refused)}
                self.close_connection = True
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8790)
    parser.add_argument("--data", default="memory.db")
    arguments = parser.parse_args()
    receiver = Receiver(os.environ["TURNLOG_MEMORY_WEBHOOK_SECRET"].encode(), arguments.data)
    server = make_server(receiver, arguments.port)
    print(f"listening on http://127.0.0.1:{arguments.port}")
    server.serve_forever()


if __name__ == "__main__":
    main()
