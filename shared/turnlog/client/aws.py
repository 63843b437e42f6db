"""Which requests are signed for AWS, and with what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult

from turnlog.core.errors import InvalidInputError

_ADDRESSES = (
    ("execute-api", re.compile(r"[a-z0-9-]+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")),
    ("lambda", re.compile(r"[a-z0-9]+\.lambda-url\.([a-z0-9-]+)\.on\.(?:aws|amazonwebservices\.com\.cn)")),
)
"""The host names that AWS gives: API Gateway's and those of function URLs, each with its region."""


class CredentialSource(Protocol):
    """A session of boto3 or botocore."""

    def get_credentials(self) -> Any: ...


class Signer(Protocol):
    def signed(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> dict[str, str]:
        """The headers of one try of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """How requests are signed with AWS credentials (SigV4), for a service behind a name of one's own.

    ``region`` and ``service`` (``execute-api``, or ``lambda`` for a function's URL) are what the address says where it is one of
    AWS's; else the session's region and ``execute-api``. ``session`` is one of boto3 or botocore, ``profile`` the name of one in
    the shared configuration; without either, credentials are looked for where AWS's tools do.
    """

    region: str | None = None
    service: str | None = None
    profile: str | None = None
    session: CredentialSource | None = None


def signer_of(url: SplitResult, aws: Aws | bool | None, *, has_token: bool) -> Signer | None:
    """The signer of requests to an address; None for those that are not signed.

    Left out (None), an https address of AWS's own is signed for unless there is a token.
    """
    if has_token and aws:
        raise InvalidInputError("a request has a bearer token or a signature: give token= or aws=, not both")
    service, region = _named(url.hostname or "")
    is_known = bool(service) and url.scheme == "https"
    if has_token or aws is False or (aws is None and not is_known):
        return None
    given = aws if isinstance(aws, Aws) else Aws()
    if given.profile is not None and given.session is not None:
        raise InvalidInputError("credentials are of a profile or of a session: give one of them")
    try:
        from turnlog.client.aws_signing import RequestSigner
    except ImportError as error:
        message = "requests to AWS are signed by botocore: pip install 'turnlog[aws]', or give a token="
        raise InvalidInputError(message, code="extra_missing") from error
    return RequestSigner(
        service=given.service or service or "execute-api",
        region=given.region or region or None,
        profile=given.profile,
        session=given.session,
    )


def _named(host: str) -> tuple[str, str]:
    """Service and region that a host name of AWS's tells; empty for others."""
    for service, pattern in _ADDRESSES:
        if found := pattern.fullmatch(host):
            return service, found[1]
    return "", ""
