"""Strands' `Storage` over the documents of one session."""

from __future__ import annotations

import asyncio
import builtins
import copy
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from strands.storage import Storage, storage
from strands.types.exceptions import StorageError

from turnlog.client.documents import Document, Documents
from turnlog.client.model import Turnlog
from turnlog.core.errors import CorruptError, NotFoundError, TurnlogError
from turnlog.core.json_values import canonical_json, decode_json
from turnlog.engines.system import RandomIds
from turnlog.sessions.document_models import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from strands.storage.search.types import SearchStrategy
    from strands.storage.storage import StorageSearchResult


_PARTS = "strands/parts/"
_WHOLE, _NAMED = b"\x00", b"\x01"
_INLINE = 16 * 1024
"""A listing reads documents with their data: what is larger is beside them."""
_TRIES = 5
_IDS = RandomIds()


class PartedValues:
    """Bytes by key, the last writer's, whole. Whose parts are replaced while they are read is read again."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """`DocumentChangedError` with ``if_absent`` when there is one."""
        self._write(key, data, None if if_absent else self._documents.get(key), if_absent=if_absent)

    def read(self, key: str) -> bytes | None:
        found = self._read(key)
        return None if found is None else found[0]

    def change(self, key: str, change: Callable[[bytes], bytes]) -> bool:
        """Writes what ``change`` makes of what is there; False where nothing is."""
        found = self._read(key)
        if found is None:
            return False
        self._write(key, change(found[0]), found[1])
        return True

    def delete(self, key: str) -> None:
        self._documents.delete([key, *self._parts_of(self._documents.get(key))])

    def items(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Of small ones, in order of their keys."""
        for one in self._documents.list(prefix):
            yield one.key, one.data[1:] if not self._parts_of(one) else self.read(one.key) or b""

    def keys(self, prefix: str) -> list[str]:
        return [one.key for one in self._documents.list(prefix)]

    def _read(self, key: str) -> tuple[bytes, Document] | None:
        for _ in range(_TRIES):
            found = self._documents.get(key)
            if found is None:
                return None
            names = self._parts_of(found)
            if not names:
                return found.data[1:], found
            parts = self._documents.get_many(names)
            if len(parts) == len(names):
                return b"".join(parts[name].data for name in names), found
        raise CorruptError("parts of a value are not there", item=key)

    def _write(self, key: str, data: bytes, before: Document | None, *, if_absent: bool = False) -> None:
        """In place of what was there ``before``, whose parts go."""
        if len(data) < _INLINE:
            self._documents.put(key, _WHOLE + data, if_absent=if_absent)
        else:
            name = _IDS.new_id()
            starts = range(0, len(data), MAX_DOCUMENT_BYTES)
            parts = {_part(name, at): data[start : start + MAX_DOCUMENT_BYTES] for at, start in enumerate(starts)}
            named = _NAMED + canonical_json({"name": name, "parts": len(parts)})
            self._documents.put_many(parts, then={} if if_absent else {key: named})
            if if_absent:
                self._documents.put(key, named, if_absent=True)
        if names := self._parts_of(before):
            self._documents.delete(names)

    @staticmethod
    def _parts_of(document: Document | None) -> list[str]:
        if document is None or document.data[:1] != _NAMED:
            return []
        named = decode_json(document.data[1:])
        assert isinstance(named, dict)  # noqa: S101 - written above
        count = named["parts"]
        assert isinstance(count, int)  # noqa: S101
        return [_part(str(named["name"]), at) for at in range(count)]


def _part(name: str, at: int) -> str:
    return f"{_PARTS}{name}/{at:06d}"


_FOLDER = "strands/storage/"
_NAMESPACED = getattr(storage, "_NAMESPACED", None)
"""By this the SDK knows a storage that has a namespace of its own already, and gives it none."""
T = TypeVar("T")


class TurnlogStorage(Storage):
    """Bytes by key beside a session's log: ``SnapshotSessionManager("support-42", storage=TurnlogStorage(log, "support-42"))``.

    Values may have any size; they are erased with the session, which is made when the first one is written, with ``settings`` of
    `Sessions.create`. Keys are as those of Strands' own storages: runs of ``/`` are one. `search` is Strands' own, over all of it,
    or that of ``search_strategy``, which is told of every write.
    """

    def __init__(
        self,
        log: Turnlog,
        session_id: str,
        *,
        search_strategy: SearchStrategy[TurnlogStorage] | None = None,
        **settings: Any,
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._search_strategy = search_strategy
        self._settings = settings
        self._folder = _FOLDER

    async def write(self, key: str, data: bytes) -> None:
        """Whole, or not at all. `StorageError` too when it was written and the search strategy could not take it."""
        name, value = _key(key), bytes(data)
        full = self._folder + name

        def written() -> None:
            try:
                self._values().write(full, value)
            except NotFoundError:
                self._log.sessions.get_or_create(self._session_id, **self._settings)
                self._values().write(full, value)

        await _told(written, f"Failed to write '{key}'")
        if self._search_strategy is not None:
            try:
                await self._search_strategy.index(self, name, value)
            except Exception as error:
                raise StorageError(f"Wrote '{key}' but indexing failed") from error

    async def read(self, key: str) -> bytes | None:
        name = self._folder + _key(key)
        return await _told(lambda: _there(lambda: self._values().read(name), None), f"Failed to read '{key}'")

    async def delete(self, key: str) -> None:
        name = self._folder + _key(key)
        await _told(lambda: _there(lambda: self._values().delete(name), None), f"Failed to delete '{key}'")

    async def list(self, query: str = "") -> builtins.list[str]:
        prefix = self._folder + _prefix(query)
        nothing = builtins.list[str]()
        found = await _told(lambda: _there(lambda: self._values().keys(prefix), nothing), f"Failed to list '{query}'")
        return [key.removeprefix(self._folder) for key in found]

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        if self._search_strategy is not None:
            return await self._search_strategy.search(self, query)
        found: builtins.list[StorageSearchResult] = await super().search(query)
        return found

    def namespace(self, prefix: str) -> TurnlogStorage:
        """The storage below a prefix, which its keys are without: ``storage.namespace("team")``, as of Strands' own storages."""
        scoped = copy.copy(self)
        name = _prefix(prefix).rstrip("/")
        scoped._folder = f"{self._folder}{name}/" if name else self._folder
        scoped._namespaced = _NAMESPACED  # type: ignore[attr-defined]
        return scoped

    def _values(self) -> PartedValues:
        return PartedValues(self._log.sessions.of(self._session_id).documents)


async def _told(what: Callable[[], T], message: str) -> T:
    """In a thread, to its end; what goes wrong as the exception that Strands knows."""
    try:
        return await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(what)))
    except TurnlogError as error:
        raise StorageError(f"{message}: {error.detail}") from error


def _there(what: Callable[[], T], otherwise: T) -> T:
    try:
        return what()
    except NotFoundError:
        return otherwise


def _key(key: str) -> str:
    name = _checked(key).strip("/")
    if not name:
        raise StorageError("Storage key must not be empty")
    return name


def _prefix(prefix: str) -> str:
    return _checked(prefix).lstrip("/")


def _checked(key: str) -> str:
    normal = re.sub(r"/+", "/", key)
    if "\\" in key or ".." in normal.strip("/").split("/"):
        raise StorageError(f"Invalid storage key '{key}': neither backslashes nor '..' segments are allowed")
    return normal
