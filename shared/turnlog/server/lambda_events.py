"""Converts WSGI requests to API Gateway HTTP API events (payload 2.0), and answers back, so Lambda handlers run unchanged."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from turnlog.core.times import rfc3339
from turnlog.http.route_table import ROUTES
from turnlog.ports import Delivery

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


TENANT_HEADER, USER_HEADER = "x-turnlog-tenant", "x-turnlog-user"
DEFAULT_TENANT, DEFAULT_USER = "local", "me"
_PATTERNS = tuple(
    (route.method, route.path, re.compile("^" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.path) + "$"))
    for route in ROUTES
)


def is_authorized(environ: WSGIEnvironment, token: str | None) -> bool:
    """Return whether the request carries the server's bearer token; always True without a token."""
    if token is None:
        return True
    header = environ.get("HTTP_AUTHORIZATION", "")
    return hmac.compare_digest(header.encode("latin-1", "replace"), f"Bearer {token}".encode())


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
    method, path = environ["REQUEST_METHOD"], _text(environ.get("PATH_INFO", "")) or "/"
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
            "authorizer": {"jwt": {"claims": {"tenant": tenant, "sub": user}, "scopes": None}},
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
    return "$default", {}


def _text(value: str) -> str:
    # WSGI passes paths and headers decoded as latin-1.
    return value.encode("latin-1", "replace").decode("utf-8", "replace")
