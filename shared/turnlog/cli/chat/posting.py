"""HTTP requests to model endpoints, with server-sent events, by the standard library only.

Redirects and proxies are not used, so key and conversation go only to the given address.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import SplitResult

from turnlog.core.errors import InvalidInputError, ThrottledError, TurnlogError, UnavailableError
from turnlog.core.json_values import encode_json
from turnlog.engines.http_post import web_address
from turnlog.version import __version__

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0
"""Longest pause that a model may take before or within its answer."""
MAX_BYTES = 16 * 1024 * 1024
_MAX_WORDS = 300


def address(url: str, path: str) -> SplitResult:
    """Return the address of a path below a base URL. Raises `InvalidInputError` for an invalid URL."""
    base = web_address(url)
    if base is None:
        raise InvalidInputError(f"{url!r} is no http or https address", code="unknown_model")
    return base._replace(path=base.path.rstrip("/") + path)


def post(
    url: SplitResult, body: Mapping[str, Any], headers: Mapping[str, str], *, name: str
) -> Iterator[dict[str, Any]] | dict[str, Any]:
    """Send a body as JSON and return the events of the answer as they arrive, or the whole answer without streaming.

    Raises `InvalidInputError`, `ThrottledError` or `UnavailableError` with the server's own message.
    """
    sent = {
        "Accept": "text/event-stream, application/json",
        "Content-Type": "application/json",
        "User-Agent": f"turnlog/{__version__}",
        **headers,
    }
    connection = _connection(url)
    try:
        connection.request("POST", url.path, encode_json(dict(body)), sent)
        if connection.sock is not None:
            connection.sock.settimeout(SILENCE_SECONDS)
        answer = connection.getresponse()
        if answer.status != 200:
            raise _refused(name, answer)
        if "text/event-stream" in (answer.getheader("Content-Type") or ""):
            return _events(connection, answer, name)
        with closing(connection):
            return _object(answer.read(MAX_BYTES + 1), name)
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise _unreachable(name, error) from error
    except BaseException:
        connection.close()
        raise


def get(url: SplitResult, headers: Mapping[str, str], *, name: str) -> dict[str, Any]:
    """Return the JSON object at an address. Raises the same errors as `post`."""
    try:
        with closing(_connection(url)) as connection:
            connection.request("GET", url.path, headers={"User-Agent": f"turnlog/{__version__}", **headers})
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refused(name, answer)
            return _object(answer.read(MAX_BYTES + 1), name)
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(name, error) from error


def _connection(url: SplitResult) -> http.client.HTTPConnection:
    host = str(url.hostname)
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=CONNECT_SECONDS)
    return http.client.HTTPSConnection(host, url.port, timeout=CONNECT_SECONDS, context=ssl.create_default_context())


def _events(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, name: str
) -> Iterator[dict[str, Any]]:
    """Yield the server-sent events of an answer: lines of data up to an empty line.

    See https://html.spec.whatwg.org/multipage/server-sent-events.html. Closing the iterator early closes the connection, so that
    the model stops.
    """
    data = list[str]()
    with closing(connection):
        try:
            while line := answer.readline(MAX_BYTES):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if text.startswith("data:"):
                    data.append(text[5:].removeprefix(" "))
                elif not text and data:
                    if data == ["[DONE]"]:
                        return
                    yield _object("\n".join(data).encode(), name)
                    data.clear()
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(name, error) from error


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UnavailableError(f"{name} answers with something that is no JSON object", code="model_unreadable")
    return value


def _unreachable(name: str, error: Exception) -> UnavailableError:
    reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return UnavailableError(f"{name}: {reason}", code="model_unreachable")


def _refused(name: str, answer: http.client.HTTPResponse) -> TurnlogError:
    status = answer.status
    try:
        error = json.loads(answer.read(MAX_BYTES))["error"]
        words = str(error["message"] if isinstance(error, dict) else error)[:_MAX_WORDS]
    except (ValueError, KeyError, TypeError, RecursionError):
        words = ""
    detail = f"{name} answers {status}{f': {words}' if words else ''}"
    if status == 429:
        return ThrottledError(detail, code="model_throttled")
    if status in (408, 409, 425) or status >= 500:
        return UnavailableError(detail, code="model_unavailable")
    return InvalidInputError(detail, code="model_refused")
