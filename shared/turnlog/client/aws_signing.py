"""Sign requests with AWS Signature Version 4. botocore finds and refreshes the credentials, and makes the canonical form."""

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
"""Headers that a proxy may change. The signature does not cover them."""


class RequestSigner:
    """Signs requests to one service of one region. Threads may share it.

    Credentials are looked up at the first request and kept; temporary credentials are refreshed. ``session`` is a session of
    boto3 or botocore; without it, the session of ``profile`` or of the environment is used.
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
        """Return the headers of one try, with its time and signature.

        ``url``, with its query, is as it is sent. Values of headers are text, sent as UTF-8.
        """
        region, credentials = self._region_and_credentials()
        try:
            frozen = credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise _not_refreshed(error) from error
        if not frozen.access_key or not frozen.secret_key:
            raise _no_credentials()
        kept = {name: value for name, value in headers.items() if name.lower() not in UNSIGNED_HEADERS}
        request = AWSRequest(method=method, url=url, headers=kept, data=body or b"")
        SigV4Auth(frozen, self._service, region).add_auth(request)
        return {**headers, **dict(request.headers.items())}

    def _region_and_credentials(self) -> tuple[str, Credentials]:
        """Return region and credentials, looked up once. Raises `UnauthorizedError` or `InvalidInputError` when there are none."""
        with self._lock:
            try:
                self._look_up()
            except ProfileNotFound as error:
                raise UnauthorizedError(f"there is no AWS profile {self._profile!r}", code="no_credentials") from error
            except PartialCredentialsError as error:
                raise UnauthorizedError("the AWS credentials are incomplete", code="no_credentials") from error
            except (BotoCoreError, ClientError) as error:
                raise _not_refreshed(error) from error
            if self._credentials is None:
                raise _no_credentials()
            if not self._region:
                raise InvalidInputError(
                    "signing needs a region: Aws(region=...), or AWS_DEFAULT_REGION", code="no_region"
                )
            return self._region, self._credentials

    def _look_up(self) -> None:
        if self._session is None:
            self._session = Session(profile=self._profile)
        if self._region is None:
            self._region = _region_of(self._session)
        if self._credentials is None:
            self._credentials = self._session.get_credentials()


def _region_of(session: Any) -> str | None:
    """Return the region of a session: an attribute in boto3, a configuration variable in botocore."""
    name = session.region_name if hasattr(session, "region_name") else session.get_config_variable("region")
    return str(name) if name else None


def _no_credentials() -> UnauthorizedError:
    return UnauthorizedError(
        "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or a role, "
        "or pass token=, or aws=False for a service that needs no signature",
        code="no_credentials",
    )


def _not_refreshed(error: BotoCoreError | ClientError) -> UnavailableError:
    # Only the type: a credential provider's message may repeat its input.
    return UnavailableError(
        f"AWS credentials could not be loaded: {type(error).__name__}", code="credentials_unavailable"
    )
