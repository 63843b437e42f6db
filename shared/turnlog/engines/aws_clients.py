"""botocore clients that start fast: no boto3, one session, and each client is made at its first use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from turnlog.core.limits import check_time, seconds_left
from turnlog.engines import AtFirstUse

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient


SERVICES = ("bedrock-agentcore", "bedrock-runtime", "dynamodb", "s3", "sqs", "sts")
"""The services that functions call, by botocore's names; the Lambda layer has the data of no others."""
CONNECT_SECONDS = 2
ITEM_SECONDS, BLOB_SECONDS = 5, 6
"""Read time-outs, for each wait for bytes of an answer: of DynamoDB, SQS and STS; and of S3."""
_TENANT_SERVICES = frozenset({"dynamodb", "s3"})
"""Services that store data of tenants. Messages in a queue and requests to a model have no key that a policy could check."""


class Clients:
    """Clients of one region, each made at its first use and kept. Safe to share between threads.

    A request is not begun, or retried, if it could outlast the deadline of the current call; it raises `UnavailableError` instead.
    With ``tenant_role_arn``, requests to DynamoDB and S3 assume that role for the current tenant.
    """

    def __init__(
        self, region: str | None, endpoint_url: str | None = None, *, max_attempts: int = 4, tenant_role_arn: str = ""
    ) -> None:
        """Set the region, or an emulator at ``endpoint_url``. Does no I/O.

        ``max_attempts`` counts the first request too; botocore makes the other attempts with backoff.
        """
        self._region = region
        self._endpoint_url = endpoint_url
        self._max_attempts = max_attempts
        self._tenant_role_arn = tenant_role_arn
        self._session: Session | None = None
        self._tenants: Session | None = None
        self._opened: dict[tuple[str, float], Any] = {}
        self.dynamodb = cast(
            "DynamoDBClient", AtFirstUse(lambda: self.open("dynamodb", read_timeout_seconds=ITEM_SECONDS))
        )
        self.s3 = cast("S3Client", AtFirstUse(lambda: self.open("s3", read_timeout_seconds=BLOB_SECONDS)))
        self.sqs = cast("SQSClient", AtFirstUse(lambda: self.open("sqs", read_timeout_seconds=ITEM_SECONDS)))
        # Making a client is not thread-safe in botocore; using one is.
        self._lock = threading.Lock()

    def open(self, service: str, *, read_timeout_seconds: float) -> Any:
        """Return the client of a service with this time-out; in a function, of one of `SERVICES`."""
        place = service, read_timeout_seconds
        with self._lock:
            if place not in self._opened:
                self._opened[place] = self.make(service, read_timeout_seconds)
            return self._opened[place]

    def make(self, service: str, read_timeout_seconds: float) -> Any:
        """Return a new client of a service. Unlike `open`, it may not be called from two threads at once."""
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=read_timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": self._max_attempts},
            tcp_keepalive=True,
            # An emulator on localhost has no host name per bucket.
            s3={"addressing_style": "path"} if self._endpoint_url else None,
            # Signed addresses of objects are SigV4's everywhere, also where botocore would still take its first version.
            signature_version="s3v4" if service == "s3" else None,
        )
        client = self._session_of(service).create_client(
            service, region_name=self._region, endpoint_url=self._endpoint_url, config=config
        )
        _keep_deadlines(client, service, CONNECT_SECONDS + read_timeout_seconds)
        return client

    def _session_of(self, service: str) -> Session:
        if self._session is None:
            from botocore.session import get_session

            from turnlog.engines.aws_service_models import use_service_models

            self._session = get_session()
            use_service_models(self._session)
        if not self._tenant_role_arn or service not in _TENANT_SERVICES:
            return self._session
        if self._tenants is None:
            from turnlog.engines.aws_tenants import session_of_tenants

            self._session.set_config_variable("sts_regional_endpoints", "regional")
            self._tenants = session_of_tenants(
                self._session, self._tenant_role_arn, lambda: self.open("sts", read_timeout_seconds=ITEM_SECONDS)
            )
        return self._tenants


def _keep_deadlines(client: Any, service: str, needed_seconds: float) -> None:
    """Let the client begin a try only if ``needed_seconds`` are left before the deadline, and not pause for a try without them."""

    def check(**_: Any) -> None:
        check_time(needed_seconds, f"a request to {service}")

    def give_up(caught_exception: Exception | None = None, **_: Any) -> None:
        if caught_exception is not None and seconds_left() < needed_seconds:
            raise caught_exception

    client.meta.events.register_first("before-send", check)
    client.meta.events.register_first("needs-retry", give_up)


def fitting(timeout_seconds: int) -> int:
    """Return ``timeout_seconds``, or the whole seconds until the deadline if fewer are left; at least 1.

    For requests that are tried once.
    """
    left = seconds_left() - CONNECT_SECONDS
    return timeout_seconds if left >= timeout_seconds else max(1, int(left))
