"""Credentials for each tenant: a role that is assumed with the session tag ``tenant``.

Each request is signed with the credentials of the current tenant (`turnlog.core.identity`). IAM compares the request's keys with
the tag and refuses keys of another tenant, even if a bug built them. One client serves all tenants: connections belong to no
tenant, only signatures do.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.credentials import Credentials, DeferredRefreshableCredentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.session import get_session

from turnlog.core.errors import UnavailableError
from turnlog.core.identity import served_tenant
from turnlog.engines.aws_errors import DENIED, translate

if TYPE_CHECKING:
    from botocore.session import Session


TAG = "tenant"
MAX_TENANTS = 500
"""Number of tenants whose credentials are kept, about 2 KB each; the least recently used are dropped."""
LIFETIME_SECONDS = 3600
"""Lifetime of credentials: the maximum for a role that a role assumes. botocore renews them 15 minutes before they end."""


class TenantCredentials(Credentials):
    """Credentials of the current tenant; without a current tenant, ``own``. Safe to share between threads.

    ``assume`` takes a tenant's id and returns the fields of botocore's refreshable credentials. Its errors are raised by the
    request that is being signed.
    """

    def __init__(
        self, own: Credentials | None, assume: Callable[[str], dict[str, str]], *, max_tenants: int = MAX_TENANTS
    ) -> None:
        # botocore's signer calls get_frozen_credentials for each request. No account is named: that would change the endpoint.
        super().__init__("", "", method="assume-role")
        self._own = own
        self._assume = assume
        self._max_tenants = max_tenants
        self._kept: OrderedDict[str, DeferredRefreshableCredentials] = OrderedDict()
        self._lock = threading.Lock()

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        tenant_id = served_tenant()
        if tenant_id is not None:
            return self._for_tenant(tenant_id)
        if self._own is None:
            raise NoCredentialsError
        return self._own.get_frozen_credentials()

    def _for_tenant(self, tenant_id: str) -> ReadOnlyCredentials:
        with self._lock:
            credentials = self._kept.get(tenant_id)
            if credentials is None:
                credentials = DeferredRefreshableCredentials(lambda: self._assume(tenant_id), self.method)
                self._kept[tenant_id] = credentials
                if len(self._kept) > self._max_tenants:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(tenant_id)
        try:
            return credentials.get_frozen_credentials()
        except RuntimeError as error:  # botocore's error if fresh credentials have already expired: a clock is wrong
            raise UnavailableError("AssumeRole gave credentials that have expired", code=DENIED) from error


def session_of_tenants(own: Session, role_arn: str, sts: Callable[[], Any]) -> Session:
    """Return a session that signs requests with the current tenant's credentials; without a tenant, with those of ``own``. No I/O.

    ``sts`` returns the client that assumes the role.
    """
    session = get_session()
    session.register_component("data_loader", own.get_component("data_loader"))
    session.register_component("credential_provider", _Provider(own, role_arn, sts))
    return session


class _Provider:
    """A credential provider; botocore calls it once for each session, when the session's first client is made."""

    def __init__(self, own: Session, role_arn: str, sts: Callable[[], Any]) -> None:
        self._own = own
        self._role_arn = role_arn
        self._sts = sts

    def load_credentials(self) -> Credentials:
        return TenantCredentials(self._own.get_credentials(), self._assume)

    def _assume(self, tenant_id: str) -> dict[str, str]:
        try:
            answer = self._sts().assume_role(
                RoleArn=self._role_arn,
                RoleSessionName=f"turnlog-{tenant_id}"[:64],
                DurationSeconds=LIFETIME_SECONDS,
                Tags=[{"Key": TAG, "Value": tenant_id}],
            )
        except (ClientError, BotoCoreError) as error:
            # botocore logs this error with its traceback, and the service's text names roles of the account: so it is not chained.
            raise translate(error, "AssumeRole") from None
        credentials = answer["Credentials"]
        return {
            "access_key": credentials["AccessKeyId"],
            "secret_key": credentials["SecretAccessKey"],
            "token": credentials["SessionToken"],
            "expiry_time": credentials["Expiration"].isoformat(),
        }
