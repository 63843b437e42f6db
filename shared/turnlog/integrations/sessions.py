"""Session ids of frameworks' sessions and threads, one mapping for all adapters, and documents that adapters keep in sessions."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, cast

from turnlog.client import python_json, retried
from turnlog.client.documents import Document, Documents
from turnlog.client.model import Turnlog
from turnlog.core.errors import DocumentChangedError, InvalidInputError, NotFoundError
from turnlog.core.identity import is_session_id


def sync_log(log: Turnlog) -> Turnlog:
    """Return the log. Raises `InvalidInputError` for another object, such as an `AsyncTurnlog`."""
    if not isinstance(cast("object", log), Turnlog):
        raise InvalidInputError(
            f"an adapter needs a Turnlog, not an object of {type(log).__name__}; it runs its calls in threads"
        )
    return log


_MAPPED = "t_"
_REMEMBERED = 1_024
_ENDING = ("ttl_days", "inactive_after_minutes")
"""Settings by which a session ends of itself."""


def session_id_of(*parts: str) -> str:
    """Return the session id of a framework's session: its parts joined by slashes, or a digest where that is no session id."""
    for part in parts:
        if not isinstance(part, str):
            raise InvalidInputError(f"the id of a session must be text, not {type(part).__name__}")
    name = "/".join(parts)
    if all(part and "/" not in part for part in parts) and is_session_id(name) and not name.startswith(_MAPPED):
        return name
    # A part may have the NUL that separates parts. Such names get an id that is one character shorter, so it equals no other.
    return digest_id("\0".join(parts)) if "\0" not in name else digest_id(json.dumps(parts))[:-1]


def digest_id(name: str) -> str:
    """Return the session id that stands for a name that is no session id."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return _MAPPED + base64.b32encode(digest).decode("ascii").lower()[:40]


def stored_ids(log: Turnlog, earlier: Callable[[str], str] = str) -> Callable[[str], str]:
    """Return `session_id_of` for an adapter that had another mapping; what it stored under the ``earlier`` id stays there.

    By default that is the name itself, under which adapters without a mapping stored sessions.
    The function makes a request where the two ids differ, once for each name. Ids of letters, digits, ``_`` and ``-`` never do.
    """

    sessions = sync_log(log).sessions

    @lru_cache(maxsize=_REMEMBERED)
    def stored_id(name: str) -> str:
        session_id, earlier_id = session_id_of(name), earlier(name)
        if earlier_id == session_id or not is_session_id(earlier_id):
            return session_id
        return earlier_id if sessions.exists(earlier_id) else session_id

    return stored_id


class KeptDocuments:
    """Documents that an adapter keeps in a session. The first write creates it, with ``settings`` as of `Sessions.create`."""

    def __init__(self, log: Turnlog, session_id: str, **settings: Any) -> None:
        self._log, self._session_id, self._settings = sync_log(log), session_id, settings

    def get(self, key: str) -> Document | None:
        """Return a document, or None."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Document]:
        """Return the documents that exist, by key."""
        with suppress(NotFoundError):
            return self._documents.get_many(keys)
        return {}

    def list(self, prefix: str) -> Iterator[Document]:
        """Yield the documents whose keys begin with a prefix, in the order of keys."""
        with suppress(NotFoundError):
            yield from self._documents.list(prefix)

    def read(self, key: str) -> Any:
        """Return the JSON of a document, or None."""
        return _json_of(self.get(key))

    def put(self, key: str, data: bytes, *, if_absent: bool = False, if_revision: str | None = None) -> None:
        """Write a document, on the conditions of `Documents.put`."""
        self._write(lambda: self._documents.put(key, data, if_absent=if_absent, if_revision=if_revision))

    def put_many(self, documents: Mapping[str, bytes], **options: Any) -> None:
        """Write documents, with the options of `Documents.put_many`."""
        self._write(lambda: self._documents.put_many(documents, **options))

    def replace(self, key: str, value: Any, before: Document | None) -> None:
        """Write Pydantic's JSON in place of the document ``before``, or where there is none. Raises `DocumentChangedError`."""
        data = python_json(value).encode("utf-8", "surrogatepass")
        self.put(key, data, if_absent=before is None, if_revision=before.revision if before is not None else None)

    def change(self, key: str, change: Callable[[Any], Any]) -> Any:
        """Replace the JSON of a document by what ``change`` makes of it (of None where there is none), whoever else writes.

        Returns the new JSON.
        """

        def attempt() -> Any:
            before = self.get(key)
            value = change(_json_of(before))
            self.replace(key, value, before)
            return value

        return retried(attempt, DocumentChangedError)

    def delete(self, keys: Iterable[str], **options: Any) -> None:
        """Delete documents, with the options of `Documents.delete`; missing ones are no error."""
        with suppress(NotFoundError):
            self._documents.delete(keys, **options)

    @property
    def _documents(self) -> Documents:
        return self._log.sessions.of(self._session_id).documents

    def _write(self, write: Callable[[], object]) -> None:
        try:
            write()
        except NotFoundError:
            self._log.sessions.get_or_create(self._session_id, **self._settings)
            write()


class SessionIndex(KeptDocuments):
    """Documents in which an adapter lists its sessions; ``settings`` are those of its sessions. It does not expire with them."""

    def __init__(self, log: Turnlog, session_id: str, settings: Mapping[str, Any]) -> None:
        super().__init__(log, session_id, **{name: settings[name] for name in settings if name not in _ENDING})
        self._expires = settings.get("ttl_days") is not None

    def id_of(self, name: str) -> str:
        """Return the session id of a name as `session_id_of` does. Raises `InvalidInputError` for that of the index itself."""
        session_id = session_id_of(name)
        if session_id == self._session_id:
            raise InvalidInputError(f"the id {name!r} is taken by the adapter's own list of sessions; use another one")
        return session_id

    def list_living(self, prefix: str, id_of: Callable[[str], str] = str) -> Iterable[Document]:
        """Return the documents of a prefix whose sessions exist; ``id_of`` makes a session id of the rest of a key."""
        documents = self.list(prefix)
        if not self._expires:
            return documents
        ids = {info.session_id for info in self._log.sessions.list()}
        return [document for document in documents if id_of(document.key.removeprefix(prefix)) in ids]

    def is_gone(self, session_id: str) -> bool:
        """Return whether a session has expired. Makes a request only when the adapter's sessions expire."""
        return self._expires and not self._log.sessions.exists(session_id)


def _json_of(document: Document | None) -> Any:
    return json.loads(document.data) if document is not None else None
