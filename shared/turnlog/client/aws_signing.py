"""Signing requests with AWS Signature Version 4, by botocore: its credentials, its refreshing of them, its canonical form."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError, PartialCredentialsError, ProfileNotFound
from botocore.session import Session

from turnlog.core.errors import InvalidInputError, UnauthorizedError, UnavailableError

if TYPE_CHECKING:
    from botocore.credentials import Credentials


UNSIGNED_HEADERS = frozenset({"accept", "user-agent"})
"""What a proxy may change on the way says nothing about the request, and is left out of the signature."""


class RequestSigner:
    """Signs requests to one service of one region. Credentials are looked for at the first request and kept; those that expire
    are refreshed. Threads may share it.

    ``session`` is one of boto3 or botocore; without it, one of ``profile``, or of the environment.
    """

    def __init__(self, *, service: str, region: str | None, profile: str | None = None, session: Any = None) -> None:
        self._service = service
        self._region = region
        self._profile = profile
        self._session = session
        self._credentials: Credentials | None = None
        # Looking for credentials is not thread-safe in botocore; using them is.
        self._lock = threading.Lock()

    def signed(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> dict[str, str]:
        """The headers of one try, with its time and its signature. ``url`` and the names in it are as they are sent, and values of
        headers are text, sent as UTF-8."""
        region, credentials = self._found()
        try:
            frozen = credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise _not_refreshed(error) from error
        if not frozen.access_key or not frozen.secret_key:
            raise _none_found()
        kept = {name: value for name, value in headers.items() if name.lower() not in UNSIGNED_HEADERS}
        request = AWSRequest(method=method, url=url, headers=kept, data=body or b"")
        SigV4Auth(frozen, self._service, region).add_auth(request)
        return {**headers, **dict(request.headers.items())}

    def _found(self) -> tuple[str, Credentials]:
        with self._lock:
            try:
                if self._session is None:
                    self._session = Session(profile=self._profile)
                if self._region is None:
                    self._region = _region_of(self._session)
                if self._credentials is None:
                    self._credentials = self._session.get_credentials()
            except ProfileNotFound as error:
                raise UnauthorizedError(f"there is no AWS profile {self._profile!r}", code="no_credentials") from error
            except PartialCredentialsError as error:
                raise UnauthorizedError("the AWS credentials are incomplete", code="no_credentials") from error
            except (BotoCoreError, ClientError) as error:
                raise _not_refreshed(error) from error
            if self._credentials is None:
                raise _none_found()
            if not self._region:
                raise InvalidInputError(
                    "signing needs a region: Aws(region=...), or AWS_DEFAULT_REGION", code="no_region"
                )
            return self._region, self._credentials


def _region_of(session: Any) -> str | None:
    """boto3 tells it as an attribute, botocore as a variable of its configuration."""
    name = session.region_name if hasattr(session, "region_name") else session.get_config_variable("region")
    return str(name) if name else None


def _none_found() -> UnauthorizedError:
    return UnauthorizedError(
        "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or a role, "
        "or give a token=, or aws=False for a service that asks for none",
        code="no_credentials",
    )


def _not_refreshed(error: BotoCoreError | ClientError) -> UnavailableError:
    # Only the kind: a provider's message may repeat what it was asked with.
    return UnavailableError(f"AWS credentials can't be had: {type(error).__name__}", code="credentials_unavailable")
