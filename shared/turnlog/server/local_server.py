"""The HTTP server of `turnlog serve`: the API of the Lambda functions on this machine, behind waitress."""

from __future__ import annotations

import errno
import secrets
import select
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from http.client import responses
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias
from urllib.parse import parse_qsl

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import ErrorTask
from waitress.utilities import BadRequest

from turnlog import __version__
from turnlog.app import Application
from turnlog.client.over_http import header_value
from turnlog.core.errors import (
    ForbiddenError,
    InvalidInputError,
    MethodNotAllowedError,
    TurnlogError,
    UnauthorizedError,
    UnavailableError,
)
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.limits import MAX_UPLOAD_BYTES
from turnlog.http.api import Answering, Api, ApiAnswer, ApiRequest, Caller, decoded_path, problem, problem_document
from turnlog.http.lambda_workers import make_worker
from turnlog.ports import JOB_KINDS, Clock
from turnlog.routing import ROUTES, RouteTable
from turnlog.server.admission import Callers, ContentBudget, is_authorized
from turnlog.server.lambda_calls import Poller
from turnlog.server.pages import ABOUT, page_at
from turnlog.settings import LOCAL_OPERATOR

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


_TABLE = RouteTable(ROUTES)
_owner_of = lru_cache(maxsize=1024)(Owner.of)
HttpAnswer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_REQUEST_BYTES = MAX_UPLOAD_BYTES + 1024 * 1024
READS = frozenset(
    route.name
    for route in ROUTES
    if (route.method == "GET" and route.name != "export_everything")
    or route.name in ("build_context", "build_window", "lint_messages", "get_documents")
)
"""Routes that change nothing: all that a read-only server answers."""
_THREADS = 8
_CONTENT_BYTES, _WAITING, _WAIT_SECONDS = 4 * 1024 * 1024, 4, 10.0
"""Content bytes of all requests beside one larger request; how many threads may wait for their share, and how long."""
_BODY_BUFFER_BYTES, _ANSWER_BUFFER_BYTES, _HEADER_BYTES = 64 * 1024, 128 * 1024, 32 * 1024
"""Bytes that a connection holds in memory. The rest of a body or an answer is in a temporary file."""
_CONNECTIONS, _OTHER_FILES = 1_000, 128
"""Maximum connections, as far as the process's limit of open files allows beside those of the engine.

waitress's default of 100 is too low: with 100 clients that keep connections open, another one waits until one of them leaves.
"""
_REQUEST_SECONDS = 27.0
TENANT_HEADER, USER_HEADER = "HTTP_X_TURNLOG_TENANT", "HTTP_X_TURNLOG_USER"
_HEADERS = {
    "content-type": "CONTENT_TYPE",
    "content-encoding": "HTTP_CONTENT_ENCODING",
    "idempotency-key": "HTTP_IDEMPOTENCY_KEY",
    "x-correlation-id": "HTTP_X_CORRELATION_ID",
}
"""Headers that the API reads, and where WSGI has them."""
DEFAULT_TENANT, DEFAULT_USER = "local", "me"
_STOP_SECONDS, _FLUSH_STEP_SECONDS = 5.0, 0.05


class HttpServer:
    """An HTTP server over a function that answers requests of the API. `run` serves until `stop`, `start` in a thread.

    ``poller`` runs while it serves. ``about`` are further facts for the inspector's page.
    """

    def __init__(
        self,
        answer_of: Answering,
        *,
        poller: Poller | None = None,
        host: str = "127.0.0.1",
        port: int = 8787,
        token: str | None = None,
        allowed_hosts: Iterable[str] = (),
        read_only: bool = False,
        about: Mapping[str, str | None] | None = None,
    ) -> None:
        if host not in LOOPBACK and token is None:
            raise InvalidInputError(
                f"serving on {host!r} needs a token: without one, any client could act as any user", code="token_needed"
            )
        from waitress.server import create_server

        self._callers = Callers((host, *allowed_hosts))
        self._budget = ContentBudget(_CONTENT_BYTES, waiting=_WAITING, wait_seconds=_WAIT_SECONDS)
        self._answer_of = answer_of
        self._token = None if token is None else header_value("token", token)
        self._is_read_only = read_only
        self._about = {"version": __version__, "read_only": read_only, **(about or {})}
        listening = _listening(host, port)
        self._sockets: dict[int, Any] = {}
        server: Any = create_server(
            self._serve,
            map=self._sockets,
            sockets=[listening],
            threads=_THREADS,
            connection_limit=_most_connections(),
            asyncore_use_poll=hasattr(select, "poll"),  # select handles no file descriptor above 1,023
            max_request_body_size=MAX_REQUEST_BYTES,
            max_request_header_size=_HEADER_BYTES,
            inbuf_overflow=_BODY_BUFFER_BYTES,
            outbuf_overflow=_ANSWER_BUFFER_BYTES,
            ident="turnlog",
            clear_untrusted_proxy_headers=True,
        )
        server.channel_class = Channel
        self._server = server
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        self._poller = poller
        self._is_running = False
        self._finished = threading.Event()

    def run(self) -> None:
        """Serve until `stop` is called or the process gets Ctrl-C, and finish requests under way."""
        self._is_running = True
        try:
            if self._poller is not None:
                self._poller.start()  # inside the try, so that Ctrl-C right after it stops the poller too
            self._server.run()
            self._flush()
        finally:
            self._close()
            if self._poller is not None:
                self._poller.stop()
            self._finished.set()

    def start(self) -> Self:
        self._is_running = True
        threading.Thread(target=self.run, name="turnlog-serve", daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop listening and wait up to 5 seconds for requests under way."""
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=_STOP_SECONDS)
        if not self._is_running:
            self._close()
        elif not self._finished.is_set():
            # Sockets belong to the serving thread: it closes them, and its loop ends with the last one.
            with suppress(OSError):  # the serving thread may just have ended and closed its trigger
                self._server.trigger.pull_trigger(self._end)
            self._finished.wait(_STOP_SECONDS)

    def _end(self) -> None:
        self._flush()
        self._close()

    def _flush(self) -> None:
        """Send the buffered answers of finished requests."""
        from waitress import wasyncore

        for _ in range(int(_STOP_SECONDS / _FLUSH_STEP_SECONDS)):
            if not any(channel.total_outbufs_len for channel in self._server.active_channels.values()):
                return
            wasyncore.loop(timeout=_FLUSH_STEP_SECONDS, map=self._sockets, count=1)

    def _close(self) -> None:
        from waitress import wasyncore

        wasyncore.close_all(self._sockets, ignore_all=True)

    def _serve(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            status, headers, data = self._answer(environ)
        except TurnlogError as error:  # the request is refused before its route is looked for
            challenge = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthorizedError) else None
            status, headers, data = _http(problem(error, _new_id(), challenge))
        start_response(f"{status} {responses.get(status, 'Unknown')}", headers)
        return [data if environ["REQUEST_METHOD"] != "HEAD" else b""]

    def _answer(self, environ: WSGIEnvironment) -> HttpAnswer:
        self._callers.check(environ)
        path = environ["PATH_INFO"] if environ["REQUEST_METHOD"] in ("GET", "HEAD") else ""
        if (page := page_at(path)) is not None:
            return page
        if not is_authorized(environ, self._token):
            raise UnauthorizedError("this server needs its bearer token")
        if path == ABOUT:
            return _http(ApiAnswer(200, encode_json(self._about)))
        with self._budget.request() as take:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            take(length)
            body = environ["wsgi.input"].read(length) if length else b""
            request = request_of(environ, body)
            match = _TABLE.find(request.method, request.path) if self._is_read_only else None
            if match is not None and match[0].name not in READS:
                raise ForbiddenError("this server was started read-only", code="read_only")
            ends = time.monotonic() + _REQUEST_SECONDS
            answer = self._answer_of(request, lambda app: caller_of(environ, app), lambda: ends - time.monotonic())
            return _http(_with_methods(answer, request))


class LocalServer(HttpServer):
    """The HTTP server over one application, with a worker for its queue unless ``worker`` is False or it is read-only."""

    def __init__(self, app: Application, clock: Clock, *, worker: bool = True, **options: Any) -> None:
        queue = app.engine.queue if worker and not options.get("read_only") else None
        handler, chore = make_worker(JOB_KINDS, app), app.retain_sessions
        poller = Poller(queue, handler, clock=clock, chore=chore) if queue is not None else None
        super().__init__(Api(ROUTES, lambda: app).answer, poller=poller, **options)


def _with_methods(answer: ApiAnswer, request: ApiRequest) -> ApiAnswer:
    """Return the answer, or a problem that names the methods of a known path that was asked with another one."""
    if answer.status != HTTPStatus.NOT_FOUND or _TABLE.find(request.method, request.path) is not None:
        return answer
    methods = ", ".join(_TABLE.methods_of(request.path))
    if not methods:
        return answer
    return problem(MethodNotAllowedError(f"use {methods}"), request.request_id, {**answer.headers, "Allow": methods})


def _http(answer: ApiAnswer) -> HttpAnswer:
    headers = [("Content-Type", answer.content_type), *answer.headers.items()]
    return answer.status, [*headers, ("Content-Length", str(len(answer.body)))], answer.body


def caller_of(environ: WSGIEnvironment, app: Application) -> Caller:
    """Return the caller that the headers ``X-Turnlog-Tenant`` and ``X-Turnlog-User`` name."""
    tenant = _text("tenant", environ.get(TENANT_HEADER, DEFAULT_TENANT))
    user = _text("user", environ.get(USER_HEADER, DEFAULT_USER))
    if not tenant or not user:
        raise UnauthorizedError("the request does not name a tenant and a user")
    return Caller(_owner_of(tenant, user), app.settings.operator_scope == LOCAL_OPERATOR)


def request_of(environ: WSGIEnvironment, body: bytes) -> ApiRequest:
    """Return the request of a WSGI environment. A parameter that comes again is joined with a comma."""
    method, query = environ["REQUEST_METHOD"], dict[str, str]()
    for name, value in parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True, errors="replace"):
        query[name] = f"{query[name]},{value}" if name in query else value  # as API Gateway joins them
    return ApiRequest(
        "GET" if method == "HEAD" else method,
        _path(environ),
        {name: _text(name, environ[place]) for name, place in _HEADERS.items() if place in environ},
        query,
        body,
        _new_id(),
    )


def _new_id() -> str:
    return secrets.token_hex(8)


def _path(environ: WSGIEnvironment) -> str:
    raw = environ.get("REQUEST_URI", "").partition("?")[0]
    if "%2f" in raw.lower():
        return decoded_path(raw)
    return _text("path", environ.get("PATH_INFO", "")) or "/"


def _text(name: str, value: str) -> str:
    """Decode bytes that WSGI has as latin-1. Raises `InvalidInputError` unless they are UTF-8, so no two names become one."""
    try:
        return value.encode("latin-1", "replace").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"the {name} {value[:80]!r} of the request is not sent as UTF-8") from error


def _most_connections() -> int:
    try:
        import resource
    except ImportError:  # Windows, where select takes 512 sockets
        return 500
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _CONNECTIONS if limit == resource.RLIM_INFINITY else max(100, min(_CONNECTIONS, limit - _OTHER_FILES))


def _listening(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # `localhost` has an IPv4 and an IPv6 address; prefer 127.0.0.1, which clients use most.
        family, _, _, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
        return socket.create_server((str(address[0]), port), family=family)
    except OSError as error:
        code = "port_in_use" if error.errno == errno.EADDRINUSE else "cannot_listen"
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise UnavailableError(f"can't listen on {host}:{port}: {reason}", code=code) from error


_CODES = {413: "too_large", 431: "too_large", 500: "internal"}
_DETAILS = {
    413: "the body is too large",
    431: "the headers are too large",
    500: "unexpected error",
    501: "a transfer encoding that this server does not know",
}


class _Refused(ErrorTask):
    """Answers a malformed request with a problem document, which contains nothing of the request, and closes the connection."""

    def execute(self) -> None:
        request: Any = self.request
        error = request.error
        status = int(error.code)
        refusal = TurnlogError(_DETAILS.get(status, request.detail), code=_CODES.get(status, "malformed"))
        data = encode_json({**problem_document(refusal, _new_id()), "status": status})
        self.status = f"{status} {error.reason}"
        self.response_headers = [("Content-Type", "application/problem+json")]
        self.set_close_on_finish()
        self.content_length = len(data)
        self.write(data)


_ONCE = ("X-Turnlog-Tenant", "X-Turnlog-User", "Authorization", "Idempotency-Key")
"""Headers that say who calls and what: waitress joins those that are sent twice, and ``alice, mallory`` would be a third user."""


class _Parser(HTTPRequestParser):
    """The parser of waitress, which refuses more. ``detail`` says why.

    For targets such as ``http://[`` waitress raises `ValueError` and closes the connection without an answer. The header line of a
    chunk and the trailer have no limit there, and each piece that arrives costs what has arrived before.
    """

    detail = "not a request of HTTP"

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        receiver: Any = self.body_rcv
        if self.chunked and not self.completed and len(receiver.control_line) + len(receiver.trailer) > _HEADER_BYTES:
            self.detail = "the header line of a chunk, or the trailer, is too long"
            self.error, self.completed = BadRequest(self.detail), True
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError("Bad URI") from error
        names = [line.partition(b":")[0].lower().decode("latin-1") for line in header_plus.split(b"\r\n")]
        twice = next((name for name in _ONCE if names.count(name.lower()) > 1), None)
        if twice:
            self._refuse(f"the header {twice} is sent twice")
        if "TRANSFER_ENCODING" in self.headers or (self.chunked and "CONTENT_LENGTH" in self.headers):
            self._refuse("Transfer-Encoding beside Content-Length, or of HTTP/1.0")

    def _refuse(self, detail: str) -> NoReturn:
        self.detail = detail
        raise ParsingError(detail)


class Channel(HTTPChannel):
    """A connection whose refusals are problem documents, and which closes its temporary files when it ends.

    waitress leaves them to the garbage collector when the server stops, or when a client leaves within a body.
    """

    parser_class = _Parser
    error_task_class = _Refused

    def write_soon(self, data: bytes) -> int:
        """Send what the socket takes at once, and buffer only the rest.

        waitress buffers all of it first. While a thread then sends, the server's loop finds data to send and runs in circles.
        """
        sent = 0
        with self.outbuf_lock, suppress(OSError):  # the base class sends again, and handles the error
            if self.connected and not self.total_outbufs_len:
                sent = self.send(data, do_close=False)
                self.last_activity = time.time()
        return sent + super().write_soon(data[sent:])

    def handle_close(self) -> None:
        super().handle_close()
        if self.request is not None:
            self.request.close()

    def close(self) -> None:
        """Close the connection and its files. `wasyncore.close_all` calls this when the server stops."""
        self.handle_close()
