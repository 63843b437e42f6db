"""botocore clients, made the lean way: no boto3, one session, each client only when it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

SERVICES = ("bedrock-agentcore", "bedrock-runtime", "dynamodb", "s3", "sqs", "sts")
"""What functions call, by botocore's names: the layer has the data of no others."""
_CONNECT_TIMEOUT_SECONDS = 2
_MAX_ATTEMPTS = 4
_OF_TENANTS = frozenset({"dynamodb", "s3"})
"""What keeps data of tenants. A queue's message and a model's request have no key that a policy could look at."""


class Clients:
    """Clients of one region, each made at its first use and kept. Safe to share between threads.

    With ``tenant_role_arn``, DynamoDB and S3 are asked with the rights of that role for the tenant that is served.
    """

    def __init__(
        self, region: str | None, endpoint_url: str | None, max_attempts: int, tenant_role_arn: str = ""
    ) -> None:
        self._region = region
        self._endpoint_url = endpoint_url
        self._max_attempts = max_attempts
        self._tenant_role_arn = tenant_role_arn
        self._session: Session | None = None
        self._tenants: Session | None = None
        self._opened: dict[str, Any] = {}
        # Making a client is not thread-safe in botocore; using one is.
        self._lock = threading.Lock()

    @property
    def dynamodb(self) -> DynamoDBClient:
        return cast("DynamoDBClient", _AtFirstUse(lambda: self.open("dynamodb", read_timeout_seconds=5)))

    @property
    def s3(self) -> S3Client:
        return cast("S3Client", _AtFirstUse(lambda: self.open("s3", read_timeout_seconds=20)))

    @property
    def sqs(self) -> SQSClient:
        return cast("SQSClient", _AtFirstUse(lambda: self.open("sqs", read_timeout_seconds=5)))

    def open(self, service: str, *, read_timeout_seconds: int) -> Any:
        """A client of any service, in a function one of `SERVICES`; the time-out is that of the first call."""
        with self._lock:
            if service not in self._opened:
                self._opened[service] = self._make(service, read_timeout_seconds)
            return self._opened[service]

    def _make(self, service: str, read_timeout_seconds: int) -> Any:
        from botocore.config import Config

        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            read_timeout=read_timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": self._max_attempts},
            tcp_keepalive=True,
            # An emulator on localhost has no host name per bucket.
            s3={"addressing_style": "path"} if self._endpoint_url else None,
            # Signed addresses of objects are SigV4's everywhere, also where botocore would still take its first version.
            signature_version="s3v4" if service == "s3" else None,
        )
        return self._session_of(service).create_client(
            service,
            region_name=self._region,
            endpoint_url=self._endpoint_url,
            config=config,
        )

    def _session_of(self, service: str) -> Session:
        if self._session is None:
            from botocore.session import get_session

            from turnlog.adapters.aws.service_models import use_service_models

            self._session = get_session()
            use_service_models(self._session)
        if not self._tenant_role_arn or service not in _OF_TENANTS:
            return self._session
        if self._tenants is None:
            from turnlog.adapters.aws.tenants import session_of_tenants

            self._session.set_config_variable("sts_regional_endpoints", "regional")
            self._tenants = session_of_tenants(
                self._session, self._tenant_role_arn, lambda: self.open("sts", read_timeout_seconds=5)
            )
        return self._tenants


class _AtFirstUse:
    """Stands for a client until something of it is asked for: most functions never use S3 or SQS."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)


def make_clients(
    region: str | None,
    endpoint_url: str | None = None,
    *,
    max_attempts: int = _MAX_ATTEMPTS,
    tenant_role_arn: str = "",
) -> Clients:
    """The clients of a region, or of an emulator. No I/O, and botocore is not imported before a client is used.

    ``max_attempts`` counts the first request too; the SDK retries the others with backoff.
    """
    return Clients(region, endpoint_url, max_attempts, tenant_role_arn)
