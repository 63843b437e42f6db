"""A Strands `Storage` over the documents of one session."""

from __future__ import annotations

import builtins
import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from strands.storage import Storage, storage
from strands.types.exceptions import StorageError

from turnlog.client import retried
from turnlog.client.async_calls import run_to_end
from turnlog.client.documents import Document, Documents
from turnlog.client.model import Turnlog
from turnlog.core.errors import CorruptError, DocumentChangedError, TurnlogError
from turnlog.core.json_values import canonical_json
from turnlog.engines import RandomIds
from turnlog.integrations.sessions import KeptDocuments, stored_ids
from turnlog.sessions.document_models import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from strands.storage.search.types import SearchStrategy
    from strands.storage.storage import StorageSearchResult


_PARTS = "strands/parts/"
_WHOLE, _NAMED = b"\x00", b"\x01"
_INLINE = 16 * 1024
"""Larger values are stored in parts under other keys, because a listing reads documents with their data."""
_TRIES = 5
_IDS = RandomIds()
_FOLDER = "strands/storage/"
_NAMESPACED = getattr(storage, "_NAMESPACED", None)
"""The SDK's marker of a storage that has a namespace already, so that the SDK adds none."""
T = TypeVar("T")


class PartedValues:
    """Values of any size by key; large ones are stored in parts. The last write wins.

    A read that meets parts being replaced is repeated.
    """

    def __init__(self, documents: Documents | KeptDocuments) -> None:
        self._documents = documents

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Write a value. With ``if_absent``, raises `DocumentChangedError` when the key exists."""
        before = None if if_absent else self._documents.get(key)
        self._write(key, data, before, **({"if_absent": True} if if_absent else {}))

    def read(self, key: str) -> bytes | None:
        stored = self._read(key)
        return None if stored is None else stored[0]

    def change(self, key: str, change: Callable[[bytes], bytes]) -> bool:
        """Replace the value with ``change(value)``, whoever else changes it. Returns False when the key does not exist."""

        def attempt() -> bool:
            stored = self._read(key)
            if stored is None:
                return False
            value, document = stored
            self._write(key, change(value), document, if_revision=document.revision)
            return True

        return retried(attempt, DocumentChangedError)

    def delete(self, key: str) -> None:
        self._documents.delete([key, *self._parts_of(self._documents.get(key))])

    def items(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield keys and values below a prefix, in key order. Large values cost a read each."""
        for document in self._documents.list(prefix):
            yield document.key, document.data[1:] if not self._parts_of(document) else self.read(document.key) or b""

    def keys(self, prefix: str) -> list[str]:
        return [document.key for document in self._documents.list(prefix)]

    def _read(self, key: str) -> tuple[bytes, Document] | None:
        for _ in range(_TRIES):
            document = self._documents.get(key)
            if document is None:
                return None
            names = self._parts_of(document)
            if not names:
                return document.data[1:], document
            parts = self._documents.get_many(names)
            if len(parts) == len(names):
                return b"".join(parts[name].data for name in names), document
        raise CorruptError("parts of a value are not there", item=key)

    def _write(self, key: str, data: bytes, before: Document | None, **condition: Any) -> None:
        """Write a value in place of the document ``before``, and delete its parts. ``condition`` is one of `Documents.put`."""
        parts, document = dict[str, bytes](), _WHOLE + data
        if len(data) >= _INLINE:
            name = _IDS.new_id()
            for number, start in enumerate(range(0, len(data), MAX_DOCUMENT_BYTES)):
                parts[_part(name, number)] = data[start : start + MAX_DOCUMENT_BYTES]
            document = _NAMED + canonical_json({"name": name, "parts": len(parts)})
        if parts:
            self._documents.put_many(parts, then={} if condition else {key: document})
        if condition or not parts:
            try:
                self._documents.put(key, document, **condition)
            except DocumentChangedError:
                self._documents.delete(parts)
                raise
        if names := self._parts_of(before):
            self._documents.delete(names)

    @staticmethod
    def _parts_of(document: Document | None) -> list[str]:
        if document is None or document.data[:1] != _NAMED:
            return []
        header = json.loads(document.data[1:])
        return [_part(header["name"], number) for number in range(header["parts"])]


def _part(name: str, number: int) -> str:
    return f"{_PARTS}{name}/{number:06d}"


class TurnlogStorage(Storage):
    """Stores bytes by key beside a session: ``SnapshotSessionManager("support-42", storage=TurnlogStorage(log, "support-42"))``.

    Values may have any size and are erased with the session. The first write creates the session, with ``settings`` of
    `Sessions.create`. Keys follow Strands' own storages: runs of ``/`` count as one. `search` is Strands' own over all keys, or
    that of ``search_strategy``, which indexes every write.
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
        self._id_of = stored_ids(log)
        self._search_strategy = search_strategy
        self._settings = settings
        self._folder = _FOLDER

    async def write(self, key: str, data: bytes) -> None:
        """Write a value, whole or not at all. Raises `StorageError`, also when only the search strategy failed to index it."""
        name, value = _key(key), bytes(data)
        await _in_thread(lambda: self._values().write(self._folder + name, value), f"Failed to write '{key}'")
        if self._search_strategy is not None:
            try:
                await self._search_strategy.index(self, name, value)
            except Exception as error:
                raise StorageError(f"Wrote '{key}' but indexing failed") from error

    async def read(self, key: str) -> bytes | None:
        name = self._folder + _key(key)
        return await _in_thread(lambda: self._values().read(name), f"Failed to read '{key}'")

    async def delete(self, key: str) -> None:
        name = self._folder + _key(key)
        await _in_thread(lambda: self._values().delete(name), f"Failed to delete '{key}'")

    async def list(self, query: str = "") -> builtins.list[str]:
        prefix = self._folder + _prefix(query)
        keys = await _in_thread(lambda: self._values().keys(prefix), f"Failed to list '{query}'")
        return [key.removeprefix(self._folder) for key in keys]

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        if self._search_strategy is not None:
            return await self._search_strategy.search(self, query)
        results: builtins.list[StorageSearchResult] = await super().search(query)
        return results

    def namespace(self, prefix: str) -> TurnlogStorage:
        """Return a storage of the keys below a prefix, such as ``storage.namespace("team")``. Its keys lack the prefix."""
        scoped = copy.copy(self)
        name = _prefix(prefix).rstrip("/")
        scoped._folder = f"{self._folder}{name}/" if name else self._folder
        scoped._namespaced = _NAMESPACED  # type: ignore[attr-defined]
        return scoped

    def _values(self) -> PartedValues:
        return PartedValues(KeptDocuments(self._log, self._id_of(self._session_id), **self._settings))


async def _in_thread(operation: Callable[[], T], message: str) -> T:
    """Run an operation in a thread, to its end even when cancelled. Raises Turnlog errors as `StorageError`."""
    try:
        return await run_to_end(operation)
    except TurnlogError as error:
        raise StorageError(f"{message}: {error.detail}") from error


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
