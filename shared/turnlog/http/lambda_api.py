"""The Lambda handler of the HTTP API: API Gateway's proxy events in, proxy answers out.

The caller's identity comes from the event's authoriser.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from turnlog.app import Application, make_application
from turnlog.core.errors import ForbiddenError, MalformedError, TooLargeError, UnauthorizedError, describe_error
from turnlog.core.identity import Owner
from turnlog.core.limits import MAX_EVENT_BODY_BYTES, event_bytes, fits_as_text
from turnlog.http.api import FILE, Api, ApiAnswer, ApiRequest, Caller, decoded_path, problem
from turnlog.http.logs import EmfSignals, log_calls
from turnlog.routing import Route
from turnlog.settings import Settings

USER_HEADER = "x-turnlog-user"
USER_KIND, ROLE_KIND = "iam-user/", "iam-role/"
"""Prefixes of an owner's user that keep IAM users and roles of one name apart. No IAM name contains a slash."""
_ROLE = re.compile(
    r"arn:aws[\w-]*:(?:sts::([0-9]{12}):assumed-role/([^/\s]+)/\S+|iam::([0-9]{12}):role/(?:.*/)?([^/\s]+))"
)
_USER = re.compile(r"arn:aws[\w-]*:iam::([0-9]{12}):user/(?:.*/)?([^/\s]+)")


def identify(event: Mapping[str, Any], settings: Settings) -> Caller:
    """Return the caller that an API Gateway event's authoriser names.

    A delegating role may name the person it acts for in ``X-Turnlog-User``, within its own tenant. The person must not be an IAM
    principal. An operator acts for itself.

    Raises:
        UnauthorizedError: The authoriser names nobody that can own sessions.
        ForbiddenError: The caller may not send the header, or the header names no person.
    """
    authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
    person = next((value for name, value in (event.get("headers") or {}).items() if name.lower() == USER_HEADER), None)
    may_delegate = False
    if settings.identity == "jwt":
        caller = _from_claims(authorizer, settings)
    else:
        caller, may_delegate = _from_iam(authorizer, settings)
    if person is None:
        return caller
    if not may_delegate:
        raise ForbiddenError("this principal may not name another user")
    return Caller(Owner.of(caller.owner.tenant, _person(person, settings)))


def _from_claims(authorizer: Mapping[str, Any], settings: Settings) -> Caller:
    claims = (authorizer.get("jwt") or {}).get("claims") or {}
    tenant, user = claims.get(settings.tenant_claim), claims.get(settings.user_claim)
    if not isinstance(tenant, str) or not isinstance(user, str) or not tenant or not user:
        raise UnauthorizedError("the token does not name a tenant and a user")
    # API Gateway passes a list as text: "[a b]".
    scopes = " ".join(str(claims.get(name) or "") for name in ("scope", "scp")).replace("[", " ").replace("]", " ")
    is_operator = bool(settings.operator_scope) and settings.operator_scope in scopes.split()
    return Caller(Owner.of(tenant, user), is_operator)


def _from_iam(authorizer: Mapping[str, Any], settings: Settings) -> tuple[Caller, bool]:
    """Return the caller that a role or an IAM user is, and whether it may delegate.

    Other principals, such as the account's root and federated users, can't own sessions: anyone who makes a federated user
    chooses its name.
    """
    arn = (authorizer.get("iam") or {}).get("userArn")
    if not isinstance(arn, str):
        raise UnauthorizedError("the request is not signed by an IAM principal")
    if role := _role(arn):
        account, name = role
        user = ROLE_KIND + name if name in settings.plain_iam_users else name
        is_operator, may_delegate = (
            any(entry == name or _role(entry) == role for entry in entries)
            for entries in (settings.operator_principals, settings.delegating_principals)
        )
        return Caller(Owner.of(account, user), is_operator), may_delegate
    if match := _USER.fullmatch(arn):
        account, name = match.groups()
        return Caller(Owner.of(account, name if name in settings.plain_iam_users else USER_KIND + name)), False
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
_log = logging.getLogger("turnlog")


def make_handler(
    routes: tuple[Route, ...], app: Application | None = None
) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Return a Lambda handler for routes. Without ``app``, the application is made from environment variables: while Lambda starts
    the function, which has more processor time then, and else at the first request.

    Several threads may call the handler at the same time; no request waits for another.
    """
    get_app = (lambda: app) if app is not None else _made_once()
    if INITIALIZATION in os.environ:
        _prepare(get_app, routes)
    api = Api(routes, get_app)

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        def admit(app: Application) -> Caller:
            caller = identify(event, app.settings)
            size = 0 if event.get("isBase64Encoded") else event_bytes(request.body)
            if (
                size > MAX_EVENT_BODY_BYTES and app.links.has_addresses
            ):  # only then it runs on Lambda, which has the limit
                raise TooLargeError(
                    f"the body takes {size} bytes on its way to a function, as quotes, backslashes and line breaks count "
                    f"twice; the limit is {MAX_EVENT_BODY_BYTES}: send less at once"
                )
            return caller

        try:
            request = _request(event)
        except MalformedError as error:
            request_id = str((event.get("requestContext") or {}).get("requestId", ""))
            return _proxy_answer(problem(error, request_id))
        seconds_left = (
            None if context is None else lambda: context.get_remaining_time_in_millis() / 1000 - RESERVE_SECONDS
        )
        return _proxy_answer(api.answer(request, admit, seconds_left=seconds_left))

    return handler if app is not None else log_calls(handler)


def _made_once() -> Callable[[], Application]:
    """Return a function that makes the application at its first call."""
    lock, apps = threading.Lock(), list[Application]()

    def get() -> Application:
        with lock:
            if not apps:
                apps.append(make_application(signals=EmfSignals()))
            return apps[0]

    return get


def _prepare(get_app: Callable[[], Application], routes: tuple[Route, ...]) -> None:
    """Make what the first requests of the routes need. What can't be made is tried again by a request, which tells why."""
    try:
        get_app().prepare(route.name for route in routes)
    except Exception as error:  # noqa: BLE001 - a function that can't start would tell its callers nothing
        _log.warning("the function is not prepared: %s", describe_error(error))


def _request(event: Mapping[str, Any]) -> ApiRequest:
    if "rawPath" not in event:
        raise MalformedError("the event has no rawPath: give the integration of this function payload format 2.0")
    context, text = event.get("requestContext") or {}, str(event.get("body") or "")
    stage, path = context.get("stage", "$default"), str(event["rawPath"])
    if stage != "$default" and path.startswith(f"/{stage}/"):
        path = path[len(stage) + 1 :]  # API Gateway puts the name of a stage before its paths
    if ".lambda-url." in str(context.get("domainName")):
        path = decoded_path(path)  # API Gateway has decoded its paths
    try:
        is_base64 = event.get("isBase64Encoded")
        body = base64.b64decode(text, validate=True) if is_base64 else text.encode("utf-8", "surrogatepass")
    except ValueError as error:
        raise MalformedError("the body is not the base64 that the event says it is") from error
    return ApiRequest(
        method=(context.get("http") or {}).get("method", ""),
        path=path,
        headers={name.lower(): value for name, value in (event.get("headers") or {}).items()},
        query=event.get("queryStringParameters") or {},
        body=body,
        request_id=str(context.get("requestId", "")),
    )


def _proxy_answer(answer: ApiAnswer) -> dict[str, Any]:
    """Return an answer as API Gateway takes it: bytes, and a text that would not fit once it is escaped, as base64."""
    text = answer.body.decode("utf-8") if answer.content_type != FILE else ""
    is_text = answer.content_type != FILE and fits_as_text(text, len(answer.body))
    return {
        "statusCode": answer.status,
        "headers": {"Content-Type": answer.content_type, **answer.headers},
        "body": text if is_text else base64.b64encode(answer.body).decode("ascii"),
        "isBase64Encoded": not is_text,
    }
