"""Who calls: from the authoriser's claims, and from nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnlog.domain.errors import ForbiddenError, UnauthorizedError
from turnlog.domain.identity import Owner
from turnlog.settings import Settings

USER_HEADER = "x-turnlog-user"
_ASSUMED = re.compile(r"arn:aws[\w-]*:sts::(\d+):assumed-role/([^/]+)/.*")
_PRINCIPAL = re.compile(r"arn:aws[\w-]*:iam::(\d+):(?:role|user)/(?:.*/)?([^/]+)")


def identify(event: Mapping[str, Any], settings: Settings) -> Owner:
    """The owner that an API Gateway event's authoriser names, or `UnauthorizedError`.

    A delegating principal may name the person it acts for in ``X-Turnlog-User``, inside its own tenant; from anyone else
    the header is `ForbiddenError`.
    """
    authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
    if settings.identity == "jwt":
        tenant, user = _from_claims(authorizer, settings)
    else:
        tenant, user = _from_iam(authorizer)
    named = next((value for name, value in (event.get("headers") or {}).items() if name.lower() == USER_HEADER), None)
    if named is not None:
        if user not in settings.delegating_principals:
            raise ForbiddenError("this principal may not name another user")
        if not named.strip():
            raise ForbiddenError("X-Turnlog-User is empty")
        user = named
    return Owner.of(tenant, user)


def _from_claims(authorizer: Mapping[str, Any], settings: Settings) -> tuple[str, str]:
    claims = (authorizer.get("jwt") or {}).get("claims") or {}
    tenant, user = claims.get(settings.tenant_claim), claims.get(settings.user_claim)
    if not isinstance(tenant, str) or not isinstance(user, str) or not tenant or not user:
        raise UnauthorizedError("the token does not name a tenant and a user")
    return tenant, user


def _from_iam(authorizer: Mapping[str, Any]) -> tuple[str, str]:
    arn = (authorizer.get("iam") or {}).get("userArn")
    match = _ASSUMED.fullmatch(arn) or _PRINCIPAL.fullmatch(arn) if isinstance(arn, str) else None
    if match is None:
        raise UnauthorizedError("the request is not signed by an IAM principal")
    return match[1], match[2]
