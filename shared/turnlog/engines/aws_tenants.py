"""Credentials of one tenant each: of a role that is assumed with the session tag ``tenant``.

A request is signed with those of the tenant that is served (`turnlog.core.identity`), and IAM compares its keys with the tag: one
of another tenant is refused, whoever has built it. One client serves all tenants, for its connections are nobody's; only what is
signed is somebody's.
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
"""Whose credentials are kept, about 2 KB each; who was not served for longest is forgotten first."""
LIFETIME_SECONDS = 3600
"""The most that a role gets which is assumed by a role. botocore asks for new ones 15 minutes before their end."""


class TenantCredentials(Credentials):
    """Those of the tenant that is served in the context of who asks; ``own`` where none is. Safe to share between threads.

    ``assume`` gets a tenant's id and gives what botocore's refreshable credentials take. What it raises is raised by the request
    that was to be signed.
    """

    def __init__(
        self, own: Credentials | None, assume: Callable[[str], dict[str, str]], *, max_tenants: int = MAX_TENANTS
    ) -> None:
        # What signs asks for frozen ones, each time anew. No account is named, for that would choose another endpoint.
        super().__init__("", "", method="assume-role")
        self._own = own
        self._assume = assume
        self._max_tenants = max_tenants
        self._kept: OrderedDict[str, DeferredRefreshableCredentials] = OrderedDict()
        self._lock = threading.Lock()

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        tenant_id = served_tenant()
        if tenant_id is not None:
            return self._of(tenant_id)
        if self._own is None:
            raise NoCredentialsError
        return self._own.get_frozen_credentials()

    def _of(self, tenant_id: str) -> ReadOnlyCredentials:
        with self._lock:
            found = self._kept.get(tenant_id)
            if found is None:
                found = DeferredRefreshableCredentials(lambda: self._assume(tenant_id), self.method)
                self._kept[tenant_id] = found
                if len(self._kept) > self._max_tenants:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(tenant_id)
        try:
            return found.get_frozen_credentials()
        except RuntimeError as error:  # botocore's, for new ones that are over already: somebody's clock is wrong
            raise UnavailableError("AssumeRole gave credentials that have expired", code=DENIED) from error


def session_of_tenants(own: Session, role_arn: str, sts: Callable[[], Any]) -> Session:
    """A session whose clients are signed for the tenant that is served, and for none as those of ``own``. No I/O.

    ``sts`` gives the client that assumes the role.
    """
    made = get_session()
    made.register_component("data_loader", own.get_component("data_loader"))
    made.register_component("credential_provider", _Provider(own, role_arn, sts))
    return made


class _Provider:
    """botocore asks it once for each session, when its first client is made."""

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
            # botocore logs what is raised here with its traceback, and the service's text names roles of the account.
            raise translate(error, "AssumeRole") from None
        given = answer["Credentials"]
        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": given["Expiration"].isoformat(),
        }
