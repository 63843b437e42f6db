"""Requests that the local server answers: under a name of this machine, and from no web page but its own.

A page in a browser of the same machine reaches the server too. Two rules keep it out. The ``Host`` must be loopback or a name
that an option allows, so that a name of the page's own that leads to 127.0.0.1 (DNS rebinding) is none. And ``Origin`` and
``Sec-Fetch-Site``, which no page can leave out or forge, must be those of the server itself.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from turnlog.core.errors import ForbiddenError, InvalidInputError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


_AUTHORITY = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[\w-]+(?:\.[\w-]+)*\.?)(?::(?P<port>[0-9]{0,5}))?", re.ASCII)
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]+)")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_OWN_SITES = frozenset({"same-origin", "none"})  # none: an address bar or a bookmark


class Callers:
    """Checks of each request before it is read. ``allowed_hosts`` are names and addresses beside those of loopback."""

    def __init__(self, allowed_hosts: Iterable[str] = ()) -> None:
        self._allowed = frozenset(_checked_name(host) for host in allowed_hosts)

    def check(self, environ: WSGIEnvironment) -> None:
        """Raise `ForbiddenError` for another host's name, and for a page of another origin."""
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
        if name is None or not (_is_loopback(name) or name in self._allowed):
            raise ForbiddenError(
                f"the host {host[:80]!r} is not a name of this machine; allow it with `turnlog serve --allow-host NAME`",
                code="host_not_allowed",
            )


def _is_origin_of(origin: str, host: str) -> bool:
    """Whether a page of this origin was served under this host, by http or by a proxy's https."""
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        return False
    default_port = _DEFAULT_PORTS[match["scheme"]]
    return _place(match["authority"], default_port) == _place(host, default_port) is not None


def _place(authority: str, default_port: str) -> tuple[str, str] | None:
    match = _AUTHORITY.fullmatch(authority)
    return (_canonical(match["name"]), match["port"] or default_port) if match else None


def _name(authority: str) -> str | None:
    match = _AUTHORITY.fullmatch(authority)
    return _canonical(match["name"]) if match else None


def _canonical(name: str) -> str:
    """Return the name in lower case, without brackets and without the dot of a name's root."""
    return name.strip("[]").lower().removesuffix(".")


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _checked_name(host: str) -> str:
    name, _, _ = host.partition("%")  # a zone, as in fe80::1%eth0, is no part of a Host
    match = _AUTHORITY.fullmatch(f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name)
    if match is None or match["port"] is not None:
        message = f"{host!r} is not a host name or address: write it without scheme and port"
        raise InvalidInputError(message, code="invalid_host")
    return _canonical(match["name"])
