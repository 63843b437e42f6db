"""Which requests the local server takes: from its own machine and pages, with its token, and within a budget of content.

A web page in a browser on this machine can reach the server too. Two rules keep foreign pages out. The ``Host`` must be loopback or
an allowed name, which stops DNS rebinding: a foreign name that resolves to 127.0.0.1. And ``Origin`` and ``Sec-Fetch-Site``, which
a page can neither leave out nor forge, must be the server's own.

Parsed JSON may take 50 times its bytes as Python objects (a list of empty lists does). Requests therefore share a budget of
bytes, counted over request bodies and stored content as it is read. One request at a time may exceed the budget, however large;
the others wait for it. A request that waits too long is refused as ``busy`` and can be repeated.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from turnlog.core.errors import ForbiddenError, InvalidInputError, UnavailableError
from turnlog.log.packing import counting_content

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


_AUTHORITY = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[\w-]+(?:\.[\w-]+)*\.?)(?::(?P<port>[0-9]{0,5}))?", re.ASCII)
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]+)")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_OWN_SITES = frozenset({"same-origin", "none"})  # none: an address bar or a bookmark


def is_authorized(environ: WSGIEnvironment, token: str | None) -> bool:
    """Return whether the request carries the server's bearer token; always True without a token."""
    if token is None:
        return True
    scheme, _, credentials = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(credentials.encode("latin-1", "replace"), token.encode())


class Callers:
    """Checks each request before it is read. ``allowed_hosts`` are names and addresses allowed beside loopback."""

    def __init__(self, allowed_hosts: Iterable[str] = ()) -> None:
        self._allowed = frozenset(_checked_name(host) for host in allowed_hosts)

    def check(self, environ: WSGIEnvironment) -> None:
        """Raise `ForbiddenError` for a host name that is not allowed, or for a page of another origin."""
        host = str(environ.get("HTTP_HOST", ""))
        self._check_host(host)
        target = str(environ.get("REQUEST_URI", ""))
        if not target.startswith(("/", "*")):
            self._check_host(re.split("[/?#]", target.partition("://")[2])[0])
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE", "none")
        if site not in _OWN_SITES or (origin is not None and not _is_origin_of(str(origin), host)):
            raise ForbiddenError(
                "the request comes from a web page of another origin; this server answers its own pages and programs",
                code="cross_site",
            )

    def _check_host(self, host: str) -> None:
        name = _name(host)
        if name is None or not (is_loopback(name) or name in self._allowed):
            raise ForbiddenError(
                f"the host {host[:80]!r} is not a name of this machine; allow it with `turnlog serve --allow-host NAME`",
                code="host_not_allowed",
            )


def _is_origin_of(origin: str, host: str) -> bool:
    """Return whether an origin belongs to this host, by http or by a proxy's https."""
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        return False
    default_port = _DEFAULT_PORTS[match["scheme"]]
    return _place(match["authority"], default_port) == _place(host, default_port) is not None


def _place(authority: str, default_port: str) -> tuple[str, str] | None:
    match = _AUTHORITY.fullmatch(authority)
    return (_canonical(match["name"]), match["port"] or default_port) if match else None


@lru_cache(maxsize=256)
def _name(authority: str) -> str | None:
    match = _AUTHORITY.fullmatch(authority)
    return _canonical(match["name"]) if match else None


def _canonical(name: str) -> str:
    """Return the name in lower case, without brackets and without a trailing dot."""
    return name.strip("[]").lower().removesuffix(".")


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _checked_name(host: str) -> str:
    name, _, _ = host.partition("%")  # a Host header has no zone, such as %eth0 in fe80::1%eth0
    match = _AUTHORITY.fullmatch(f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name)
    if match is None or match["port"] is not None:
        message = f"{host!r} is not a host name or address: write it without scheme and port"
        raise InvalidInputError(message, code="invalid_host")
    return _canonical(match["name"])


class ContentBudget:
    """A budget of content bytes that requests share. At most ``waiting`` requests wait, each in a thread of the server."""

    def __init__(self, size_bytes: int, *, waiting: int, wait_seconds: float) -> None:
        self.free_bytes = size_bytes
        self.waiting_left = waiting
        self._wait_seconds = wait_seconds
        self._is_exceeded = False
        self._changed = threading.Condition()

    @contextmanager
    def request(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes bytes for one request. Bytes of stored content are taken too; all are released at the end.

        The function raises `UnavailableError` (``busy``) when too many requests wait, or when one waits too long.
        """
        share = _Share()
        take = partial(self._take, share)
        try:
            with counting_content(take):
                yield take
        finally:
            self._give_back(share)

    def _take(self, share: _Share, size: int) -> None:
        with self._changed:
            if not (share.is_beyond or self._has_room(size)):
                self._wait(size)
            if share.is_beyond:
                return
            if size <= self.free_bytes:
                self.free_bytes -= size
                share.held += size
            else:
                self._is_exceeded = share.is_beyond = True

    def _has_room(self, size: int) -> bool:
        return size <= self.free_bytes or not self._is_exceeded

    def _wait(self, size: int) -> None:
        is_free = False
        if self.waiting_left:
            self.waiting_left -= 1
            try:
                is_free = self._changed.wait_for(lambda: self._has_room(size), self._wait_seconds)
            finally:
                self.waiting_left += 1
        if not is_free:
            raise UnavailableError(
                "other requests hold as much content as this server works on at once; try again",
                code="busy",
                retry_after_seconds=1,
            )

    def _give_back(self, share: _Share) -> None:
        with self._changed:
            self.free_bytes += share.held
            if share.is_beyond:
                self._is_exceeded = False
            self._changed.notify_all()


class _Share:
    """A request's part of the budget. ``is_beyond``: this request is the one that may exceed the budget."""

    held = 0
    is_beyond = False
