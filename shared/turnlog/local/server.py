"""`turnlog serve`: the route table on this machine, behind the same events that API Gateway sends."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from turnlog.bootstrap import Application
from turnlog.domain.errors import InvalidInputError, UnauthorizedError, UnavailableError
from turnlog.domain.jsonvalue import encode_json
from turnlog.entrypoints.http import make_handler, problem_document
from turnlog.entrypoints.routes import ROUTES
from turnlog.local.events import http_answer, is_authorized, proxy_event
from turnlog.ports import Clock

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_REQUEST_BYTES = 10 * 1024 * 1024
_THREADS = 8


class LocalServer:
    """An HTTP server over one application. `run` serves until `stop`; `start` does so in a thread."""

    def __init__(
        self, app: Application, clock: Clock, *, host: str = "127.0.0.1", port: int = 8787, token: str | None = None
    ) -> None:
        if host not in LOOPBACK and token is None:
            raise InvalidInputError(
                f"serving on {host!r} needs a token: anyone who reaches it would be anyone", code="token_needed"
            )
        from waitress.server import create_server

        self._handler = make_handler(ROUTES, app)
        self._clock = clock
        self._token = token
        self._stopped = threading.Event()
        try:
            self._server: Any = create_server(
                self._serve,
                host=host,
                port=port,
                threads=_THREADS,
                max_request_body_size=MAX_REQUEST_BYTES,
                ident="turnlog",
                clear_untrusted_proxy_headers=True,
            )
        except OSError as error:
            raise UnavailableError(f"can't listen on {host}:{port}: {error.strerror}", code="port_in_use") from error
        self.url = f"http://{host}:{self._server.effective_port}"
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serves until `stop` is called or the process gets Ctrl-C; requests under way are finished."""
        try:
            self._server.run()
        except (OSError, ValueError):
            if not self._stopped.is_set():
                raise

    def start(self) -> LocalServer:
        self._thread = threading.Thread(target=self.run, name="turnlog-serve", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops listening and waits for requests under way."""
        self._stopped.set()
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=5)
        self._server.close()
        if self._thread is not None:
            self._server.trigger.pull_trigger()
            self._thread.join(timeout=5)

    def _serve(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        if is_authorized(environ, self._token):
            event = proxy_event(environ, body, now_ms=self._clock.now_ms())
            status, headers, data = http_answer(self._handler(event, _Context()))
        else:
            error = UnauthorizedError("this server needs its bearer token")
            status, headers = 401, [("Content-Type", "application/problem+json"), ("WWW-Authenticate", "Bearer")]
            data = encode_json(problem_document(error, ""))
        if environ["REQUEST_METHOD"] == "HEAD":
            data = b""
        start_response(f"{status} {_phrase(status)}", headers)
        return [data]


class _Context:
    """What a handler may ask of its Lambda context."""

    function_name = "turnlog-local"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:local:000000000000:function:turnlog-local"
    aws_request_id = "local"

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
