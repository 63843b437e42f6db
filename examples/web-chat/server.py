"""A chat in the browser: a session per visitor, replies as server-sent events. See README.md beside it."""

from __future__ import annotations

import argparse
import json
import re
import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from models import Model, model_of_environment
from waitress.server import create_server

from turnlog import Turnlog
from turnlog.client.model import Session
from turnlog.core.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError, TurnlogError
from turnlog.server.admission import Callers

PAGE = Path(__file__).with_name("page.html")
COOKIE, HEADER = "chat_session", "X-Session-ID"
SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{21,63}")  # who knows an id has the session: none that can be guessed
MAX_BODY_BYTES, MAX_TEXT_CHARS = 64 * 1024, 8_000
SYSTEM = "You are a friendly assistant in a small demo. Answer in a few sentences."

Answer = tuple[str, list[tuple[str, str]], Iterable[bytes]]


class RefusedError(Exception):
    """A request that is the caller's fault: a status and a word for people."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Chat:
    """The WSGI application. `stop` ends the streams under way: what was said so far is kept."""

    def __init__(self, log: Turnlog, model: Model, allowed_hosts: Iterable[str] = ()) -> None:
        self._log = log
        self._callers = Callers(allowed_hosts)
        self._model = model
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        call = f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO') or '/'}"
        try:
            self._callers.check(environ)
            session_id, headers = _visitor(environ, is_new=call == "POST /session")
            status, more, body = self._answer(call, session_id, environ)
        except RefusedError as error:
            status, more, body = _json({"error": str(error)}, error.status)
            headers = []
        except TurnlogError as error:
            status, more, body = _json({"error": error.detail, "code": error.error_code}, _status_of(error))
            headers = []
        start_response(status, headers + more)
        return body

    def _answer(self, call: str, session_id: str, environ: dict[str, Any]) -> Answer:
        if call == "GET /":
            policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
            kind = [("Content-Type", "text/html; charset=utf-8"), ("Content-Security-Policy", policy)]
            return "200 OK", kind, [PAGE.read_bytes()]
        if call == "POST /session":
            return _json({"session_id": session_id}, "201 Created")
        if call == "GET /messages":
            return _json({"session_id": session_id, "messages": self._history(session_id)})
        if call == "POST /messages":
            text = _text(environ)
            session = self._log.sessions.get_or_create(session_id, system=SYSTEM, recall="never")
            session.append({"role": "user", "content": text})
            return self._streamed(session)
        if call == "POST /answer":
            session = self._log.sessions.get(session_id)
            newest = session.page(order="desc", limit=1).messages
            if not newest or (newest[0].body["role"] == "assistant" and newest[0].status == "complete"):
                raise RefusedError("409 Conflict", "there is nothing to answer")
            return self._streamed(session)
        raise RefusedError("404 Not Found", "there is no such page")

    def _history(self, session_id: str) -> list[dict[str, Any]]:
        if not self._log.sessions.exists(session_id):
            return []
        return [
            {
                "position": message.position,
                "role": message.body["role"],
                "text": message.body["content"],
                "status": message.status,
            }
            for message in self._log.sessions.get(session_id).messages()
        ]

    def _streamed(self, session: Session) -> Answer:
        headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
        return "200 OK", headers, self._events(session)

    def _events(self, session: Session) -> Iterator[bytes]:
        """The model's reply as it comes. However this ends - the visitor closes the tab, the model fails, the server is
        stopped - `session.stream` has appended what was said, and as what: complete, or interrupted."""
        stream = None
        try:
            window = session.context(model=self._model.name)
            sent = {"position": window.head, "tokens": window.tokens}
            with session.stream(self._model.ask(window), window=sent) as stream:
                shown = 0
                for _ in stream:
                    if self._stopping.is_set():
                        break
                    if len(stream.text) > shown:
                        yield _event("delta", {"text": stream.text[shown:]})
                        shown = len(stream.text)
        except Exception as error:  # noqa: BLE001 - the visitor is told that it failed, and what is printed names no contents
            print(f"a reply failed: {type(error).__name__}", flush=True)
            yield _event("failed", {"error": "the model has failed; what it had said is kept"})
            return
        is_whole = stream.is_complete and stream.appended is not None
        yield _event("done", {"status": "complete" if is_whole else "interrupted"})


# ---------------------------------------------------------------- requests and answers


def _visitor(environ: dict[str, Any], *, is_new: bool) -> tuple[str, list[tuple[str, str]]]:
    """Return the session's id, and the headers that give it back: of ``X-Session-ID``, else of the cookie, else a new one."""
    value = environ.get("HTTP_X_SESSION_ID")
    if value is not None and not SESSION_ID.fullmatch(value):
        raise RefusedError("400 Bad Request", f"{HEADER} is 22 to 64 of A-Z a-z 0-9 _ -, and begins with none of _ -")
    try:
        cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
    except CookieError:
        cookie = None
    known = cookie.value if cookie is not None and SESSION_ID.fullmatch(cookie.value) else None
    session_id = f"c{secrets.token_urlsafe(24)}" if is_new else value or known or f"c{secrets.token_urlsafe(24)}"
    headers = [(HEADER, session_id)]
    if value is None and session_id != known:
        headers.append(("Set-Cookie", f"{COOKIE}={session_id}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000"))
    return session_id, headers


def _text(environ: dict[str, Any]) -> str:
    """Return what the visitor says: ``{"text": ...}``."""
    if (environ.get("CONTENT_TYPE") or "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError("415 Unsupported Media Type", "the body is JSON")
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > MAX_BODY_BYTES:
        raise RefusedError("413 Content Too Large", f"the body has more than {MAX_BODY_BYTES} bytes")
    try:
        value = json.loads(environ["wsgi.input"].read(length))
    except (ValueError, RecursionError):
        value = None
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT_CHARS:
        raise RefusedError(
            "400 Bad Request", f'the body is {{"text": ...}}, a text of 1 to {MAX_TEXT_CHARS} characters'
        )
    return text


def _json(value: Any, status: str = "200 OK") -> Answer:
    headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
    return status, headers, [json.dumps(value).encode()]


def _event(name: str, value: Any) -> bytes:
    """JSON has no line breaks of its own, so an event is two lines whatever the text is."""
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()


def _status_of(error: TurnlogError) -> str:
    kinds: list[tuple[type[TurnlogError], str]] = [
        (ForbiddenError, "403 Forbidden"),
        (NotFoundError, "404 Not Found"),
        (ConflictError, "409 Conflict"),
        (InvalidInputError, "422 Unprocessable Content"),
    ]
    return next((status for kind, status in kinds if isinstance(error, kind)), "503 Service Unavailable")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=8000, help="0: any that is free (8000)")
    options.add_argument("--log", default="sqlite:///web-chat.db", help="any address that Turnlog.open takes")
    options.add_argument("--allow-host", action="append", default=[], help="a name it is reached by behind a proxy")
    arguments = options.parse_args()

    with Turnlog.open(arguments.log) as log:
        chat = Chat(log, model_of_environment(), arguments.allow_host)
        # A stream has a thread for as long as it lasts. The lookahead sees that a visitor has gone.
        server = create_server(
            chat, host="127.0.0.1", port=arguments.port, threads=32, channel_request_lookahead=1, ident="web-chat"
        )

        def end(number: int, frame: object) -> None:
            chat.stop()
            raise SystemExit

        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        print(f"web-chat on http://127.0.0.1:{server.effective_port}", flush=True)
        server.run()  # until a signal; then the streams under way end first


if __name__ == "__main__":
    main()
