"""Session ids of frameworks' sessions and threads: one mapping for all adapters."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import lru_cache

from turnlog.client.model import Turnlog
from turnlog.core.errors import NotFoundError, SessionEndedError
from turnlog.core.identity import is_session_id

_MAPPED = "t_"
_REMEMBERED = 1_024


def session_id_of(*parts: str) -> str:
    """Return the session id of a framework's session: its parts joined by slashes, or a digest where that is no session id."""
    name = "/".join(parts)
    if all(part and "/" not in part for part in parts) and is_session_id(name) and not name.startswith(_MAPPED):
        return name
    return digest_id("\0".join(parts))


def digest_id(name: str) -> str:
    """Return the session id that stands for a name that is no session id."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return _MAPPED + base64.b32encode(digest).decode("ascii").lower()[:40]


def unchanged_id(name: str) -> str:
    """Return the name: adapters without a mapping stored sessions under it."""
    return name


def stored_ids(log: Turnlog, earlier: Callable[[str], str]) -> Callable[[str], str]:
    """Return `session_id_of` for an adapter that had another mapping; what it stored under the ``earlier`` id stays there.

    The function makes a request where the two ids differ, once for each name. Ids of letters, digits, ``_`` and ``-`` never do.
    """

    @lru_cache(maxsize=_REMEMBERED)
    def stored_id(name: str) -> str:
        session_id, earlier_id = session_id_of(name), earlier(name)
        if earlier_id == session_id or not is_session_id(earlier_id):
            return session_id
        try:
            log.sessions.get(earlier_id)
        except NotFoundError:
            return session_id
        except SessionEndedError:
            return earlier_id
        return earlier_id

    return stored_id
