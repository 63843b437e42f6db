"""The tenant that is served: whose data the call under way in this thread or task may reach, wherever its keys lead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from turnlog.domain.identity import is_principal_id

_SERVED: ContextVar[str | None] = ContextVar("turnlog_served_tenant", default=None)


def served_tenant() -> str | None:
    """The id of the tenant that is served, as it is in keys; None outside of `serving`."""
    return _SERVED.get()


@contextmanager
def serving(tenant_id: str | None) -> Iterator[None]:
    """All that the block asks of the engine is asked for this tenant; with None, for what belongs to none.

    Who enters it knows the tenant from who calls, or from a job's message: never from a key. An id that could not be in a key is a
    ``ValueError``: nothing else reaches a policy of IAM.
    """
    if tenant_id is not None and not is_principal_id(tenant_id):
        raise ValueError(f"{tenant_id[:80]!r} is no id of a tenant")
    token = _SERVED.set(tenant_id)
    try:
        yield
    finally:
        _SERVED.reset(token)
