"""Proxy events for tests, as API Gateway's HTTP API sends them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode


def event(
    method: str,
    path: str,
    *,
    body: Any = None,
    raw: str | None = None,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    authorizer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """``body`` is sent as JSON, ``raw`` as it is. Without ``authorizer`` the caller is an assumed role."""
    arn = "arn:aws:sts::111122223333:assumed-role/agent-backend/session"
    text = raw if raw is not None else (json.dumps(body) if body is not None else None)
    made: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": urlencode(query or {}),
        "headers": {"content-type": "application/json", **(headers or {})},
        "requestContext": {
            "authorizer": authorizer
            if authorizer is not None
            else {"iam": {"accountId": "111122223333", "userArn": arn}},
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "test",
            },
            "requestId": "request-1",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }
    if query:
        made["queryStringParameters"] = query
    if text is not None:
        made["body"] = text
    return made
