"""Calls of Lambda handlers on this machine, as AWS makes them: WSGI requests as API Gateway events, jobs of a queue as SQS events.

An HTTP request becomes an event of API Gateway's HTTP API (payload 2.0), and the answer becomes WSGI's. A `Poller` polls a queue
and calls a worker's handler with its jobs, as an SQS event source mapping does.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from turnlog.core.errors import TurnlogError
from turnlog.core.times import rfc3339
from turnlog.ports import Clock, Delivery, JobQueue
from turnlog.routing import ROUTES
from turnlog.settings import LOCAL_OPERATOR

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


TENANT_HEADER, USER_HEADER = "x-turnlog-tenant", "x-turnlog-user"
DEFAULT_TENANT, DEFAULT_USER = "local", "me"
_PATTERNS = tuple(
    (route.method, route.path, re.compile("^" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.path) + "$"))
    for route in ROUTES
)


class LocalContext:
    """A Lambda context for handlers that run on this machine."""

    function_name = "turnlog-local"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:local:000000000000:function:turnlog-local"
    aws_request_id = "local"

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def get_remaining_time_in_millis(self) -> int:
        """Return the full time at every call, because nothing ends a handler on this machine."""
        return self._milliseconds


def sqs_event(deliveries: Sequence[Delivery], *, now_ms: int) -> dict[str, Any]:
    """Return the event of a batch of jobs, as an SQS event source mapping sends it."""
    return {
        "Records": [
            {
                "messageId": delivery.job_id,
                "receiptHandle": delivery.receipt,
                "body": delivery.body,
                "attributes": {"ApproximateReceiveCount": str(delivery.receives), "SentTimestamp": str(now_ms)},
                "messageAttributes": {},
                "md5OfBody": hashlib.md5(delivery.body.encode(), usedforsecurity=False).hexdigest(),
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:local:000000000000:turnlog",
                "awsRegion": "local",
            }
            for delivery in deliveries
        ]
    }


def proxy_event(environ: WSGIEnvironment, body: bytes, *, now_ms: int) -> dict[str, Any]:
    """Return the event of a request. ``X-Turnlog-Tenant`` and ``X-Turnlog-User`` become the claims of an authoriser."""
    headers = dict(_headers(environ))
    tenant = _text(headers.pop(TENANT_HEADER, DEFAULT_TENANT))
    user = _text(headers.pop(USER_HEADER, DEFAULT_USER))
    method, path = environ["REQUEST_METHOD"], _path(environ)
    route_key, path_parameters = _match(method, path)
    query = environ.get("QUERY_STRING", "")
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "local",
            "authorizer": {"jwt": {"claims": {"tenant": tenant, "sub": user, "scope": LOCAL_OPERATOR}, "scopes": None}},
            "domainName": headers.get("host", "127.0.0.1"),
            "http": {
                "method": method,
                "path": path,
                "protocol": environ.get("SERVER_PROTOCOL", "HTTP/1.1"),
                "sourceIp": environ.get("REMOTE_ADDR", ""),
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": secrets.token_hex(8),
            "routeKey": route_key,
            "stage": "$default",
            "time": rfc3339(now_ms),
            "timeEpoch": now_ms,
        },
        "isBase64Encoded": False,
    }
    if query:
        # API Gateway joins repeated parameters with commas.
        joined: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True, errors="replace"):
            joined[name] = f"{joined[name]},{value}" if name in joined else value
        event["queryStringParameters"] = joined
    if path_parameters:
        event["pathParameters"] = path_parameters
    if body:
        try:
            event["body"] = body.decode("utf-8")
        except UnicodeDecodeError:
            event |= {"body": base64.b64encode(body).decode("ascii"), "isBase64Encoded": True}
    return event


def http_answer(answer: Mapping[str, Any]) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body of a Lambda proxy answer."""
    text = answer.get("body") or ""
    data = base64.b64decode(text) if answer.get("isBase64Encoded") else text.encode("utf-8")
    headers = [(str(name), str(value)) for name, value in (answer.get("headers") or {}).items()]
    headers += [("Set-Cookie", str(cookie)) for cookie in answer.get("cookies") or ()]
    headers.append(("Content-Length", str(len(data))))
    return int(answer["statusCode"]), headers, data


def _path(environ: WSGIEnvironment) -> str:
    """Return the decoded path. A slash that is encoded stays encoded: it is part of an id."""
    raw = environ.get("REQUEST_URI", "").partition("?")[0]
    if "%2f" in raw.lower():
        return unquote(re.sub("%2f", "%252F", raw, flags=re.IGNORECASE), errors="replace")
    return _text(environ.get("PATH_INFO", "")) or "/"


def _headers(environ: WSGIEnvironment) -> Iterable[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-").lower(), str(value)
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield name.replace("_", "-").lower(), str(value)


def _match(method: str, path: str) -> tuple[str, dict[str, str]]:
    for route_method, template, pattern in _PATTERNS:
        match = pattern.match(path)
        if match and route_method == method:
            return f"{method} {template}", match.groupdict()
    return NO_ROUTE, {}


NO_ROUTE = "$default"
"""The route key of a request that no route takes."""


def methods_of(path: str) -> list[str]:
    """Return the methods that a path takes, sorted; none for an unknown path."""
    methods = {method for method, _, pattern in _PATTERNS if pattern.match(path)}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _text(value: str) -> str:
    # WSGI passes paths and headers decoded as latin-1.
    return value.encode("latin-1", "replace").decode("utf-8", "replace")


Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
_BATCH, _IDLE_SECONDS, _TROUBLE_SECONDS = 1, 0.2, 2.0
"""Batch of 1: a job that waits behind another in a batch may become visible again before it starts, which wastes a receive."""
_STOP_SECONDS = 60
_WORKER_MS = 24 * 3_600_000
"""The remaining time that a worker sees; on this machine nothing ends it."""
_CHORE_MS = 60_000
_log = logging.getLogger("turnlog")


class Poller:
    """Polls one queue in a thread between `start` and `stop`. Jobs that a handler reports as failed become visible again."""

    def __init__(
        self,
        queue: JobQueue,
        handler: Handler,
        *,
        clock: Clock,
        batch: int = _BATCH,
        idle_seconds: float = _IDLE_SECONDS,
        chore: Callable[[], object] | None = None,
    ) -> None:
        """``chore`` runs at the start and then every minute, as a schedule does in AWS."""
        self._queue = queue
        self._handler = handler
        self._clock = clock
        self._batch = batch
        self._idle_seconds = idle_seconds
        self._chore = chore
        self._chore_ms = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Poller:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="turnlog-poller", daemon=True)
        self._thread.start()  # Ctrl-C may interrupt this call while the thread runs; `stop` then needs ``_thread``
        return self

    def stop(self) -> None:
        """Take no new batch and wait up to a minute for the one under way."""
        self._stopping.set()
        # A thread that is not alive has ended, or will see the stop flag before it does anything.
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._thread = None

    def run_once(self) -> int:
        """Handle one batch and return the number of jobs received, 0 when the queue is empty."""
        deliveries = self._queue.receive(limit=self._batch)
        if deliveries:
            answer = self._handler(sqs_event(deliveries, now_ms=self._clock.now_ms()), LocalContext(_WORKER_MS))
            failed = {failure["itemIdentifier"] for failure in answer.get("batchItemFailures", ())}
            self._acknowledge([delivery for delivery in deliveries if delivery.job_id not in failed])
        return len(deliveries)

    def run_chore(self) -> None:
        """Run the chore when a minute has passed since the last run."""
        now = self._clock.now_ms()
        if self._chore is not None and now >= self._chore_ms:
            self._chore_ms = now + _CHORE_MS
            self._chore()

    def _acknowledge(self, done: Sequence[Delivery]) -> None:
        for delivery in done:
            self._queue.acknowledge(delivery.receipt)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run_chore()
                pause = 0.0 if self.run_once() else self._idle_seconds
            except TurnlogError as error:
                _log.warning("the queue can't be polled: %s", error.error_code)
                pause = _TROUBLE_SECONDS
            except Exception as error:  # noqa: BLE001 - the thread must go on; nothing is acknowledged
                _log.error("the poller met %s", type(error).__name__)
                pause = _TROUBLE_SECONDS
            self._stopping.wait(pause)
