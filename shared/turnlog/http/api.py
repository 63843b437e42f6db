"""The HTTP API over an application: find a request's route, read its body, call it, and shape its answer or problem document.

The Lambda handlers and the local server pass it their requests. Errors are answered as problem+json.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from pydantic import Field

from turnlog.core.errors import (
    STATUSES,
    NotFoundError,
    TooLargeError,
    TurnlogError,
    UnsupportedMediaTypeError,
    describe_error,
)
from turnlog.core.identity import Owner, correlated, is_correlation_id, serving
from turnlog.core.json_values import JsonObject, encode_json, parse_strict_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_ANSWER_BYTES, MAX_BODY_BYTES, MAX_UPLOAD_BYTES, fits_as_text, with_deadline
from turnlog.core.models import Answer, Body
from turnlog.http.logs import signal_of
from turnlog.routing import (
    CORRELATION_HEADER,
    JSON,
    JSON_PATCH,
    HttpRequest,
    Response,
    Route,
    RouteTable,
    call,
    read_body,
)

if TYPE_CHECKING:
    from turnlog.app import Application
    from turnlog.log.links import Upload

MAX_BODY_VALUES = 500_000
"""JSON values of a body: objects, lists, texts, numbers and so on; each costs some microseconds."""
PROBLEM, FILE = "application/problem+json", "application/octet-stream"
_log = logging.getLogger("turnlog")


@lazy_dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request as it came. Names of headers are in lower case; a repeated query parameter's values are joined with commas."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    request_id: str


@lazy_dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer to send. ``headers`` are those besides the content type."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@lazy_dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. An operator may see which sessions other users of its tenant have."""

    owner: Owner
    is_operator: bool = False


_NOBODY = Caller(Owner.of("none", "none"))
Admit: TypeAlias = "Callable[[Application], Caller]"
"""Returns who sends a request, or raises to refuse it."""


Answering: TypeAlias = Callable[[ApiRequest, Admit, Callable[[], float] | None], ApiAnswer]
"""A function that answers requests. Its last argument returns the seconds until the work must have ended; None: it has no end."""


class Api:
    """Answers requests by a table of routes. Several threads may use it at once; no request waits for another."""

    def __init__(self, routes: tuple[Route, ...], app: Callable[[], Application]) -> None:
        """Set the routes. ``app`` returns the application, always the same one; it is called by the first request."""
        self._routes = RouteTable(routes)
        self._app = app

    def answer(self, request: ApiRequest, admit: Admit, seconds_left: Callable[[], float] | None = None) -> ApiAnswer:
        """Return the answer to a request; see `Answering`."""
        candidates = (request.headers.get(CORRELATION_HEADER.lower()), request.request_id)
        # An invalid correlation id is ignored, not refused.
        correlation = next((value for value in candidates if value and is_correlation_id(value)), None)
        with correlated(correlation), with_deadline(seconds_left):
            answer = self._answer(request, admit)
        if correlation is None:
            return answer
        return replace(answer, headers={**answer.headers, CORRELATION_HEADER: correlation})

    def _answer(self, request: ApiRequest, admit: Admit) -> ApiAnswer:
        match = self._routes.find(request.method, request.path)
        if match is None:
            return problem(NotFoundError("no such route"), request.request_id)
        route, path = match
        code = ""
        try:
            answer = self._call(route, path, request, admit)
        except TurnlogError as error:
            code = error.error_code
            if status_of(error) >= 500:
                _log.error("%s: %s: %s", route.name, code, describe_error(error))
            if name := signal_of(error):  # most errors are the caller's own, and nothing that an operator must know of
                self._app().signal(name)
            answer = problem(error, request.request_id)
        except Exception as error:  # noqa: BLE001 - the caller gets a problem document without contents
            code = "internal"
            _log.error("%s: unexpected error: %s", route.name, describe_error(error))
            answer = problem(TurnlogError("unexpected error", code=code), request.request_id)
        facts = {"route": route.name, "status": answer.status, "code": code, "request_id": request.request_id}
        _log.info("%s: %s", route.name, code or answer.status, extra=facts)
        return answer

    def _call(self, route: Route, path: dict[str, str], request: ApiRequest, admit: Admit) -> ApiAnswer:
        if "session_id" in path:
            # Clients encode a slash twice, because a gateway may decode once before it looks for the route.
            path["session_id"] = unquote(unquote(path["session_id"]))
        app = self._app()
        caller = admit(app) if route.resource != "health" else _NOBODY
        if request.body and request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMediaTypeError("the body is compressed: send it without a header Content-Encoding")
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        may_upload = route.name == "append_messages"
        is_direct = may_upload and len(request.body) > MAX_BODY_BYTES and not app.links.has_addresses
        body = _body(request.body, media_type, route, MAX_UPLOAD_BYTES if is_direct else MAX_BODY_BYTES)
        if may_upload and isinstance(body, dict) and "upload" in body:
            with serving(caller.owner.tenant_id):
                upload, data = _upload(app, caller.owner, path["session_id"], body)
            if upload is not None:
                return ApiAnswer(200, encode_json(upload.model_dump()))
            body = parse_strict_json(data, max_values=MAX_BODY_VALUES)
        response = call(
            app,
            route,
            HttpRequest(
                owner=caller.owner,
                path=path,
                query=request.query,
                body=body,
                media_type=media_type or JSON,
                idempotency_key=request.headers.get("idempotency-key") if route.writes else None,
                is_operator=caller.is_operator,
            ),
        )
        return _shaped(response, app, caller.owner, path.get("session_id", ""))


def decoded_path(raw: str) -> str:
    """Decode a path. A slash that is encoded stays encoded: it is part of an id."""
    return unquote(re.sub("%2f", "%252F", raw, flags=re.IGNORECASE), errors="replace")


def status_of(error: TurnlogError) -> int:
    """Return the HTTP status of an error."""
    return next((status for status, kind in STATUSES.items() if isinstance(error, kind)), 500)


def problem_document(error: TurnlogError, request_id: str) -> dict[str, Any]:
    """Return an error as a problem document of RFC 9457; clients switch on its ``code``."""
    document: dict[str, Any] = {
        "type": f"https://turnlog.dev/problems/{error.error_code}",
        "title": error.error_code.replace("_", " "),
        "status": status_of(error),
        "code": error.error_code,
        "detail": error.detail,
        "request_id": request_id,
        **error.details,
    }
    if error.problems:
        document["errors"] = [
            {"code": problem.code, "pointer": problem.pointer, "message": problem.message} for problem in error.problems
        ]
    return document


def problem(error: TurnlogError, request_id: str, headers: Mapping[str, str] | None = None) -> ApiAnswer:
    """Return the answer that reports an error. ``headers`` are further headers."""
    headers = dict(headers or {})
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    return ApiAnswer(status_of(error), encode_json(problem_document(error, request_id)), PROBLEM, headers)


def _shaped(response: Response, app: Application, owner: Owner, session_id: str) -> ApiAnswer:
    """Return the answer of a response; for one that is too large to send, the address of it."""
    status, answer = response.status, response.answer
    if not isinstance(answer, Answer | Mapping):
        disposition = f'attachment; filename="{answer.filename}"'
        headers = {"Content-Disposition": disposition, "X-Content-Type-Options": "nosniff"}
        return ApiAnswer(status, answer.data, FILE, headers)
    data = encode_json(answer.model_dump() if isinstance(answer, Answer) else answer)
    if len(data) <= MAX_ANSWER_BYTES or fits_as_text(data.decode("utf-8"), len(data)):
        return ApiAnswer(status, data)
    with serving(owner.tenant_id):
        link = app.links.keep(owner, session_id, data)
    if link is None:
        return ApiAnswer(status, data)
    place = {"url": link.url, "expires_at": link.expires_at, "status": status, "size_bytes": len(data)}
    return ApiAnswer(303, encode_json(place), headers={"Location": link.url})


class _AskedUpload(Body):
    """The body of a request in place of one that is too large to send: ``size_bytes`` asks for an address to upload that to."""

    upload: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the body")
    size_bytes: int | None = Field(default=None, ge=1)


def _upload(app: Application, owner: Owner, session_id: str, body: JsonObject) -> tuple[Upload | None, bytes]:
    """Return where the body of an append is to be uploaded to, or the body that was uploaded."""
    asked = read_body(body, _AskedUpload)
    if asked.size_bytes is None:
        return None, app.links.uploaded(owner, session_id, asked.upload)
    app.get_session(owner, session_id)  # refuses one that is not there before its messages are uploaded
    return app.links.upload(owner, session_id, sha256=asked.upload, size_bytes=asked.size_bytes), b""


def _body(data: bytes, media_type: str, route: Route, limit: int) -> object:
    if not data:
        return None
    if media_type not in route.media_types:
        accepted = " or ".join(route.media_types) if JSON_PATCH in route.media_types else JSON
        text = f"content type {media_type[:80]!r} is not {accepted}" if media_type else "the body has no content type"
        raise UnsupportedMediaTypeError(f"{text}: send the header Content-Type: {JSON}")
    if len(data) > limit:
        raise TooLargeError(f"a body of {len(data):,} bytes is over the limit of {limit:,}")
    return parse_strict_json(data, max_values=MAX_BODY_VALUES)
