"""Decide which requests are signed for AWS, and with which credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult

from turnlog.core.errors import InvalidInputError

if TYPE_CHECKING:
    from turnlog.client.aws_signing import RequestSigner

_ADDRESSES = (
    ("execute-api", re.compile(r"[a-z0-9-]+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")),
    ("lambda", re.compile(r"[a-z0-9]+\.lambda-url\.([a-z0-9-]+)\.on\.(?:aws|amazonwebservices\.com\.cn)")),
)
"""Host names of API Gateway and of Lambda function URLs, each with its region."""


class CredentialSource(Protocol):
    """A session of boto3 or botocore."""

    def get_credentials(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """Options for signing requests with AWS credentials (SigV4), for a service behind a custom domain name.

    ``region`` and ``service`` (``execute-api``, or ``lambda`` for a function URL) are read from an address of AWS; else they
    are the session's region and ``execute-api``. ``session`` is a session of boto3 or botocore, ``profile`` a name in the
    shared configuration. Without either, credentials are looked up where the AWS tools do.
    """

    region: str | None = None
    service: str | None = None
    profile: str | None = None
    session: CredentialSource | None = None


def signer_of(url: SplitResult, aws: Aws | bool | None, *, has_token: bool) -> RequestSigner | None:
    """Return the signer of requests to a URL, or None when they are not signed.

    With ``aws=None``, requests to an https address of AWS are signed unless there is a token. Raises `InvalidInputError` for
    options that contradict each other.
    """
    if has_token and aws:
        raise InvalidInputError("a request has a bearer token or a signature: pass token= or aws=, not both")
    service, region = _service_and_region(url.hostname or "")
    is_known = bool(service) and url.scheme == "https"
    if has_token or aws is False or (aws is None and not is_known):
        return None
    options = aws if isinstance(aws, Aws) else Aws()
    if options.profile is not None and options.session is not None:
        raise InvalidInputError("Aws() takes a profile or a session, not both")
    try:
        from turnlog.client.aws_signing import RequestSigner
    except ImportError as error:
        message = "requests to AWS are signed by botocore: pip install 'turnlog[aws]', or pass token="
        raise InvalidInputError(message, code="extra_missing") from error
    return RequestSigner(
        service=options.service or service or "execute-api",
        region=options.region or region or None,
        profile=options.profile,
        session=options.session,
    )


def _service_and_region(host: str) -> tuple[str, str]:
    """Return service and region of an AWS host name; empty texts for other hosts."""
    for service, pattern in _ADDRESSES:
        if match := pattern.fullmatch(host):
            return service, match[1]
    return "", ""
