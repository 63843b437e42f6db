"""The Lambda handler of the HTTP API: API Gateway's proxy events in, proxy answers out.

Errors are answered as problem+json. The caller's identity comes from the event's authoriser.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler import Response as HttpResponse
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from turnlog.app import Application, make_application
from turnlog.core.errors import (
    ConflictError,
    CorruptError,
    ForbiddenError,
    InvalidInputError,
    MalformedError,
    MethodNotAllowedError,
    NotFoundError,
    ThrottledError,
    TooLargeError,
    TurnlogError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedMediaTypeError,
)
from turnlog.core.identity import Owner, correlated, is_correlation_id, serving
from turnlog.core.json_values import encode_json, parse_strict_json
from turnlog.core.limits import MAX_ANSWER_BYTES, MAX_EVENT_BODY_BYTES, event_bytes, fits_as_text, with_deadline
from turnlog.core.models import Answer
from turnlog.http.logs import describe_error, log_calls
from turnlog.routing import CORRELATION_HEADER, JSON, JSON_PATCH, HttpRequest, Response, Route, call
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.log.links import Link


USER_HEADER = "x-turnlog-user"
USER_KIND, ROLE_KIND = "iam-user/", "iam-role/"
"""Prefixes of an owner's user that keep IAM users and roles of one name apart. No IAM name contains a slash."""
_ROLE = re.compile(
    r"arn:aws[\w-]*:(?:sts::([0-9]{12}):assumed-role/([^/\s]+)/\S+|iam::([0-9]{12}):role/(?:.*/)?([^/\s]+))"
)
_USER = re.compile(r"arn:aws[\w-]*:iam::([0-9]{12}):user/(?:.*/)?([^/\s]+)")


def identify(event: Mapping[str, Any], settings: Settings) -> Owner:
    """Return the owner that an API Gateway event's authoriser names.

    A delegating role may name the person it acts for in ``X-Turnlog-User``, within its own tenant. The person must not be an IAM
    principal.

    Raises:
        UnauthorizedError: The authoriser names nobody that can own sessions.
        ForbiddenError: The caller may not send the header, or the header names no person.
    """
    authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
    person = next((value for name, value in (event.get("headers") or {}).items() if name.lower() == USER_HEADER), None)
    if settings.identity == "jwt":
        tenant, user = _from_claims(authorizer, settings)
        may_delegate = False
    else:
        tenant, user, may_delegate = _from_iam(authorizer, settings)
    if person is not None:
        if not may_delegate:
            raise ForbiddenError("this principal may not name another user")
        user = _person(person, settings)
    return Owner.of(tenant, user)


def is_operator(event: Mapping[str, Any], settings: Settings) -> bool:
    """Return whether the authoriser names an operator of the tenant, who acts for itself and for no person."""
    authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
    if any(name.lower() == USER_HEADER for name in event.get("headers") or {}):
        return False
    if settings.identity == "jwt":
        claims = (authorizer.get("jwt") or {}).get("claims") or {}
        # API Gateway passes a list as text: "[a b]".
        scopes = " ".join(str(claims.get(name) or "") for name in ("scope", "scp")).replace("[", " ").replace("]", " ")
        return bool(settings.operator_scope) and settings.operator_scope in scopes.split()
    role = _role(str((authorizer.get("iam") or {}).get("userArn")))
    return role is not None and any(entry == role[1] or _role(entry) == role for entry in settings.operator_principals)


def _from_claims(authorizer: Mapping[str, Any], settings: Settings) -> tuple[str, str]:
    claims = (authorizer.get("jwt") or {}).get("claims") or {}
    tenant, user = claims.get(settings.tenant_claim), claims.get(settings.user_claim)
    if not isinstance(tenant, str) or not isinstance(user, str) or not tenant or not user:
        raise UnauthorizedError("the token does not name a tenant and a user")
    return tenant, user


def _from_iam(authorizer: Mapping[str, Any], settings: Settings) -> tuple[str, str, bool]:
    """Return account and user of a role or an IAM user, and whether it may delegate.

    Other principals, such as the account's root and federated users, can't own sessions: anyone who makes a federated user
    chooses its name.
    """
    arn = (authorizer.get("iam") or {}).get("userArn")
    if not isinstance(arn, str):
        raise UnauthorizedError("the request is not signed by an IAM principal")
    if role := _role(arn):
        account, name = role
        user = ROLE_KIND + name if name in settings.plain_iam_users else name
        return account, user, any(entry == name or _role(entry) == role for entry in settings.delegating_principals)
    if match := _USER.fullmatch(arn):
        account, name = match.groups()
        return account, name if name in settings.plain_iam_users else USER_KIND + name, False
    raise UnauthorizedError("the request is signed by neither a role nor an IAM user")


def _role(arn: str) -> tuple[str, str] | None:
    """Return account and name of a role from its ARN, or from the ARN of one of its sessions, which has no path; else None."""
    match = _ROLE.fullmatch(arn)
    return (match[1] or match[3], match[2] or match[4]) if match else None


def _person(name: str, settings: Settings) -> str:
    """Return the name of a person; raise `ForbiddenError` if it is empty or could be an IAM principal's.

    Applications pass on names that people have chosen, so a person could choose the name of a principal.
    """
    if not name.strip():
        raise ForbiddenError("X-Turnlog-User is empty")
    roles = {role[1] if (role := _role(entry)) else entry for entry in settings.delegating_principals}
    if name.startswith((USER_KIND, ROLE_KIND)) or name in roles | set(settings.plain_iam_users):
        raise ForbiddenError(f"X-Turnlog-User names the IAM principal {name[:80]!r}; name a person")
    return name


INITIALIZATION = "AWS_LAMBDA_INITIALIZATION_TYPE"
"""The variable that Lambda sets in its functions."""
RESERVE_SECONDS = 3.0
"""Part of a function's time that is reserved for the answer. API Gateway's 30 s include the cold start, Lambda's clock does not."""
MAX_BODY_BYTES = 4 * 1024 * 1024 + 256 * 1024
MAX_BODY_VALUES = 500_000
"""JSON values of a body: objects, lists, texts, numbers and so on; each costs some microseconds."""
_PROBLEM = "application/problem+json"
_STATUS: tuple[tuple[type[TurnlogError], int], ...] = (
    (MalformedError, 400),
    (TooLargeError, 413),
    (UnsupportedMediaTypeError, 415),
    (MethodNotAllowedError, 405),
    (InvalidInputError, 422),
    (UnauthorizedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (ThrottledError, 429),
    (UnavailableError, 503),
)
_log = logging.getLogger("turnlog")


class _Resolver(APIGatewayHttpResolver):
    """A Powertools resolver that serves one event at a time.

    Powertools keeps the event in a class attribute, which all threads of a process share; this class keeps it in the instance.
    """

    def resolve(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        self._event = APIGatewayProxyEventV2(dict(event))
        return super().resolve(event, context)

    @property
    def current_event(self) -> APIGatewayProxyEventV2:  # type: ignore[override]
        return self._event


def make_handler(
    routes: tuple[Route, ...], app: Application | None = None
) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Return a Lambda handler for routes. Without ``app``, the application is made from environment variables: while Lambda starts
    the function, which has more processor time then, and else at the first request.

    Several threads may call the handler at the same time; no request waits for another.
    """
    holder = _Holder(app)
    if INITIALIZATION in os.environ:
        holder.prepare(routes)
    idle = [_resolver(routes, holder)]

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        correlation = _correlation_of(event)
        try:
            resolver = idle.pop()
        except IndexError:
            resolver = _resolver(routes, holder)
        try:
            with correlated(correlation), with_deadline(_time_of(context)):
                answer = resolver.resolve(event, context)
        finally:
            idle.append(resolver)
        if correlation is not None:
            answer["headers"] = {**(answer.get("headers") or {}), CORRELATION_HEADER: correlation}
        return answer

    return handler if app is not None else log_calls(handler)


def _resolver(routes: tuple[Route, ...], holder: _Holder) -> _Resolver:
    resolver = _Resolver(serializer=_as_it_is)
    for route in routes:
        resolver.route(route.path.replace("{", "<").replace("}", ">"), method=route.method)(
            _served(resolver, route, holder)
        )
    resolver.not_found(lambda error: _problem(NotFoundError("no such route"), _request_id(resolver)))
    return resolver


def _time_of(context: Any) -> Callable[[], float] | None:
    """Return a function for the seconds that are left for the work of a request; None without a Lambda context."""
    return (lambda: context.get_remaining_time_in_millis() / 1000 - RESERVE_SECONDS) if context is not None else None


def _as_it_is(body: Any) -> Any:
    """Return a JSON body unchanged; it is already encoded, as text, or as bytes that are sent as base64."""
    return body


def _correlation_of(event: Mapping[str, Any]) -> str | None:
    """Return the caller's correlation id, else the request's id. An invalid correlation id is ignored, not refused."""
    headers = {str(name).lower(): value for name, value in (event.get("headers") or {}).items()}
    candidates = (headers.get(CORRELATION_HEADER.lower()), (event.get("requestContext") or {}).get("requestId"))
    return next((value for value in candidates if is_correlation_id(value)), None)


class _Holder:
    """The application, which is made once per process, at the first request."""

    def __init__(self, app: Application | None) -> None:
        self._app = app
        self._lock = threading.Lock()

    def get(self) -> Application:
        with self._lock:
            if self._app is None:
                from turnlog.http.metrics import EmfSignals

                self._app = make_application(signals=EmfSignals())
            return self._app

    def prepare(self, routes: tuple[Route, ...]) -> None:
        """Make what the first requests of the routes need. What can't be made is tried again by a request, which tells why."""
        try:
            self.get().prepare(route.name for route in routes)
        except Exception as error:  # noqa: BLE001 - a function that can't start would tell its callers nothing
            _log.warning("the function is not prepared: %s", describe_error(error))

    def count(self, error: TurnlogError) -> None:
        """Count an error that an operator must know of; most errors are the caller's own and are not counted."""
        if self._app is not None and isinstance(error, ConflictError | CorruptError):
            from turnlog.http.metrics import signal_of

            if name := signal_of(error):
                self._app.signal(name)


def _served(resolver: _Resolver, route: Route, holder: _Holder) -> Callable[..., HttpResponse[Any]]:
    def serve(**path: str) -> HttpResponse[Any]:
        event, code = resolver.current_event.raw_event, ""
        if "session_id" in path:
            # Clients encode a slash twice, because a gateway may decode once before it looks for the route.
            path["session_id"] = unquote(unquote(path["session_id"]))
        try:
            app = holder.get()
            owner = identify(event, app.settings) if route.resource != "health" else _NOBODY
            request = _request(event, owner, path, route, may_operate=is_operator(event, app.settings))
            _check_event(event, app)
            response = call(app, route, request)
            answer = _answer(response, lambda data: _keep_answer(app, owner, path, data))
        except TurnlogError as error:
            if status_of(error) >= 500:
                _log.error("%s: %s: %s", route.name, error.error_code, describe_error(error))
            holder.count(error)
            answer, code = _problem(error, _request_id(resolver)), error.error_code
        except Exception as error:  # noqa: BLE001 - the caller gets a problem document without contents
            _log.error("%s: unexpected error: %s", route.name, describe_error(error))
            answer = _problem(TurnlogError("unexpected error", code="internal"), _request_id(resolver))
            code = "internal"
        facts = {"route": route.name, "status": answer.status_code, "code": code, "request_id": _request_id(resolver)}
        _log.info("%s: %s", route.name, code or answer.status_code, extra=facts)
        return answer

    return serve


_NOBODY = Owner.of("none", "none")


def status_of(error: TurnlogError) -> int:
    """Return the HTTP status of an error: that of the first class in `_STATUS` that the error belongs to, else 500."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


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


def _problem(error: TurnlogError, request_id: str) -> HttpResponse[str]:
    headers: dict[str, str | list[str]] = {}
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    body = encode_json(problem_document(error, request_id)).decode()
    return HttpResponse(status_of(error), content_type=_PROBLEM, body=body, headers=headers)


def _answer(response: Response, keep: Callable[[bytes], Link | None]) -> HttpResponse[Any]:
    status, answer = response.status, response.answer
    if not isinstance(answer, Answer | Mapping):
        headers: dict[str, str | list[str]] = {
            "Content-Disposition": f'attachment; filename="{answer.filename}"',
            "X-Content-Type-Options": "nosniff",
        }
        return HttpResponse(status, content_type="application/octet-stream", body=answer.data, headers=headers)
    value = answer.model_dump(mode="python") if isinstance(answer, Answer) else answer
    data = encode_json(value)
    text = data.decode("utf-8")
    if fits_as_text(text, len(data)):
        return HttpResponse(status, content_type=JSON, body=text)
    link = keep(data) if len(data) > MAX_ANSWER_BYTES else None
    if link is None:
        # Powertools sends bytes as base64, which API Gateway decodes; as text, quotes would be escaped again and take more space.
        return HttpResponse(status, content_type=JSON, body=data)
    place = {"url": link.url, "expires_at": link.expires_at, "status": status, "size_bytes": len(data)}
    return HttpResponse(303, content_type=JSON, body=encode_json(place).decode(), headers={"Location": link.url})


def _keep_answer(app: Application, owner: Owner, path: Mapping[str, str], data: bytes) -> Link | None:
    with serving(owner.tenant_id):
        return app.links.keep(owner, path.get("session_id", ""), data)


def _request(
    event: Mapping[str, Any], owner: Owner, path: Mapping[str, str], route: Route, *, may_operate: bool
) -> HttpRequest:
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return HttpRequest(
        owner=owner,
        path=path,
        query=event.get("queryStringParameters") or {},
        body=_body(event, media_type, route),
        media_type=media_type or JSON,
        idempotency_key=headers.get("idempotency-key") if route.writes else None,
        is_operator=may_operate,
    )


def _body(event: Mapping[str, Any], media_type: str, route: Route) -> object:
    body = event.get("body")
    if not body:
        return None
    if media_type not in route.media_types:
        accepted = " or ".join(route.media_types) if JSON_PATCH in route.media_types else JSON
        problem = (
            f"content type {media_type[:80]!r} is not {accepted}" if media_type else "the body has no content type"
        )
        raise UnsupportedMediaTypeError(f"{problem}: send the header Content-Type: {JSON}")
    data = _bytes(body, is_base64=bool(event.get("isBase64Encoded")))
    if len(data) > MAX_BODY_BYTES:
        raise TooLargeError(f"a body of {len(data)} bytes is over the limit of {MAX_BODY_BYTES}")
    return parse_strict_json(data, max_values=MAX_BODY_VALUES)


def _check_event(event: Mapping[str, Any], app: Application) -> None:
    """Raise `TooLargeError` for a body that exceeds Lambda's limit; only if the blob store has addresses, which means AWS."""
    body = event.get("body") or ""
    size = 0 if event.get("isBase64Encoded") else event_bytes(body.encode("utf-8", "surrogatepass"))
    if size > MAX_EVENT_BODY_BYTES and app.links.has_addresses:
        raise TooLargeError(
            f"the body takes {size} bytes on its way to a function, as quotes, backslashes and line breaks count twice; "
            f"the limit is {MAX_EVENT_BODY_BYTES}: send less at once"
        )


def _bytes(body: str, *, is_base64: bool) -> bytes:
    if not is_base64:
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedError("the body is not the base64 that the event says it is") from error


def _request_id(resolver: _Resolver) -> str:
    context = resolver.current_event.raw_event.get("requestContext") or {}
    return str(context.get("requestId", ""))
