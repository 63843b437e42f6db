"""Owners of sessions, and what a block of code works for: a tenant, and a call with its correlation id.

Names and ids are checked in this module; nothing else builds an owner.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from contextvars import ContextVar
from typing import Generic, TypeVar

from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import is_unicode
from turnlog.core.lazy_dataclass import lazy_dataclass

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASHED = "h_"
_PART = "[A-Za-z0-9_@:+-][A-Za-z0-9_@:.+-]*"
SESSION_ID_PATTERN = f"(?!{_HASHED}){_PART}(/{_PART})*"
MAX_SESSION_ID = 256
_SESSION_ID = re.compile(SESSION_ID_PATTERN)


@lazy_dataclass(frozen=True, slots=True)
class Owner:
    """A tenant and one of its users, as the authoriser names them, and the safe ids that stand for them in keys."""

    tenant: str
    user: str
    tenant_id: str
    user_id: str

    @classmethod
    def of(cls, tenant: str, user: str) -> Owner:
        """Return the owner for two non-empty names (role ARNs, e-mails, ``auth0|…``). Distinct names never share an id.

        Raises `InvalidInputError` for a value that is no text, and for a text with half a character (a lone surrogate).
        """
        for name in (tenant, user):
            if not isinstance(name, str):
                raise InvalidInputError(f"the name of a tenant or user must be text, not {type(name).__name__}")
            if not is_unicode(name):
                raise InvalidInputError("the name of a tenant or user has half a character (a lone surrogate)")
        return cls(tenant=tenant, user=user, tenant_id=safe_id(tenant), user_id=safe_id(user))


def owner_of_ids(tenant_id: str, user_id: str) -> Owner:
    """Return the owner with these ids, as keys and jobs hold them. Names behind hashed ids stay unknown.

    Raises `InvalidInputError` for text that can't be an id.
    """
    for name in (tenant_id, user_id):
        if not is_principal_id(name):
            raise InvalidInputError(f"{name[:80]!r} is not an id of a tenant or user")
    return Owner(tenant=tenant_id, user=user_id, tenant_id=tenant_id, user_id=user_id)


def is_principal_id(value: object) -> bool:
    """Return whether ``value`` can be the id of a tenant or user in a key: no key separators, no IAM wildcards."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def safe_id(name: str) -> str:
    """Return the name itself when it has only safe characters, else ``h_`` and a digest of it.

    It stands for the name in keys, paths and IAM policies. Distinct names never share an id.
    """
    if not name:
        raise InvalidInputError("tenant and user must not be empty")
    if _ID.fullmatch(name) and not name.startswith(_HASHED):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return _HASHED + base64.b32encode(digest).decode("ascii").rstrip("=")[:40]


def check_session_id(value: str, *, pointer: str = "/session_id") -> str:
    """Return ``value``, or raise `InvalidInputError` when it is not a legal session id."""
    if not is_session_id(value):
        rule = "'h_' at the start, and no part between slashes that is empty or begins with a dot"
        message = f"session id {str(value)[:80]!r} is invalid: use 1 to {MAX_SESSION_ID} of A-Z a-z 0-9 _ - @ : . + /, not {rule}"
        raise InvalidInputError.at(pointer, message, "invalid_id")
    return value


def is_session_id(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_SESSION_ID and _SESSION_ID.fullmatch(value) is not None


def check_agent_id(value: str, *, pointer: str = "/agent_id") -> str:
    if not is_principal_id(value) or value.startswith(_HASHED):
        message = f"agent id {str(value)[:80]!r} does not match [A-Za-z0-9_-]{{1,64}} or begins with 'h_'"
        raise InvalidInputError.at(pointer, message, "invalid_id")
    return value


T = TypeVar("T")


class Within(Generic[T]):
    """A block in which a context variable has a value: ``with Within(variable, value): ...``. It is entered once."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_error: object) -> None:
        self._variable.reset(self._token)


_SERVED: ContextVar[str | None] = ContextVar("turnlog_served_tenant", default=None)


def served_tenant() -> str | None:
    """Return the id of the tenant being served, as keys hold it; None outside of `serving`."""
    return _SERVED.get()


def serving(tenant_id: str | None) -> Within[str | None]:
    """Make all engine requests of the block on behalf of this tenant; with None, of no tenant.

    Take the tenant from the caller's identity or from a job's message, never from a key. Raises ``ValueError`` for an id
    that can't be in a key, so that nothing else reaches an IAM policy.
    """
    if tenant_id is not None and not is_principal_id(tenant_id):
        raise ValueError(f"{tenant_id[:80]!r} is not an id of a tenant")
    return Within(_SERVED, tenant_id)


CORRELATION_PATTERN = r"^[A-Za-z0-9_.:/+=@-]{1,128}$"
"""Characters of a correlation id. Logs print it unchanged, so free text is not allowed."""
_CORRELATION_ID = re.compile(CORRELATION_PATTERN)
_CORRELATED: ContextVar[str | None] = ContextVar("turnlog_correlation_id", default=None)


def correlation_id() -> str | None:
    """Return the correlation id of the current call in this thread or task, or None."""
    return _CORRELATED.get()


def is_correlation_id(value: object) -> bool:
    return isinstance(value, str) and _CORRELATION_ID.fullmatch(value) is not None


def correlated(value: str | None) -> Within[str | None]:
    """Give all calls in the block this correlation id; with None they have none.

    An id has 1 to 128 of ``A-Z a-z 0-9 _ . : / + = @ -``; others raise `InvalidInputError`. An engine in this process
    writes the id into the jobs that the calls start. A service receives it as ``X-Correlation-Id``.
    """
    if value is not None and not is_correlation_id(value):
        message = f"a correlation id is 1 to 128 of A-Z a-z 0-9 _ . : / + = @ -, not {value!r:.80}"
        raise InvalidInputError(message, code="invalid_correlation_id")
    return Within(_CORRELATED, value)


def correlation_of(body: str) -> str | None:
    """Return the correlation id in a queue message, or None. Works for any text, so logs have the id before parsing fails."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    value = message.get("correlation_id") if isinstance(message, dict) else None
    return value if is_correlation_id(value) else None
