"""Who calls: from the authoriser's claims, and from nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnlog.domain.errors import ForbiddenError, UnauthorizedError
from turnlog.domain.identity import Owner
from turnlog.settings import Settings

USER_HEADER = "x-turnlog-user"
USER_KIND, ROLE_KIND = "iam-user/", "iam-role/"
"""What the user of an owner begins with where its plain name belongs to another kind of principal. No IAM name has a slash."""
_ROLE = re.compile(
    r"arn:aws[\w-]*:(?:sts::([0-9]{12}):assumed-role/([^/\s]+)/\S+|iam::([0-9]{12}):role/(?:.*/)?([^/\s]+))"
)
_USER = re.compile(r"arn:aws[\w-]*:iam::([0-9]{12}):user/(?:.*/)?([^/\s]+)")


def identify(event: Mapping[str, Any], settings: Settings) -> Owner:
    """Return the owner that an API Gateway event's authoriser names.

    A delegating role may name the person it acts for in ``X-Turnlog-User``, inside its own tenant; the person can be no principal
    of IAM.

    Raises:
        UnauthorizedError: The authoriser names nobody that can own sessions.
        ForbiddenError: Another caller sent the header, or a delegating role named no person in it.
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


def _from_claims(authorizer: Mapping[str, Any], settings: Settings) -> tuple[str, str]:
    claims = (authorizer.get("jwt") or {}).get("claims") or {}
    tenant, user = claims.get(settings.tenant_claim), claims.get(settings.user_claim)
    if not isinstance(tenant, str) or not isinstance(user, str) or not tenant or not user:
        raise UnauthorizedError("the token does not name a tenant and a user")
    return tenant, user


def _from_iam(authorizer: Mapping[str, Any], settings: Settings) -> tuple[str, str, bool]:
    """Return account and user of a role or an IAM user, and whether it may delegate.

    The account's root, federated users and whatever AWS may add own nothing: a federated user's name is its maker's choice.
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
    """Return account and name of a role, from its ARN or from that of one of its sessions, which has no path."""
    match = _ROLE.fullmatch(arn)
    return (match[1] or match[3], match[2] or match[4]) if match else None


def _person(name: str, settings: Settings) -> str:
    """Return the name unless it is empty or that of a principal: applications pass on names that people have chosen."""
    if not name.strip():
        raise ForbiddenError("X-Turnlog-User is empty")
    roles = {role[1] if (role := _role(entry)) else entry for entry in settings.delegating_principals}
    if name.startswith((USER_KIND, ROLE_KIND)) or name in roles | set(settings.plain_iam_users):
        raise ForbiddenError(f"X-Turnlog-User names the IAM principal {name[:80]!r}; name a person")
    return name
