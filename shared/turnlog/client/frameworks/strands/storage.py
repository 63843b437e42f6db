"""Strands' `Storage` over the documents of one session."""

from __future__ import annotations

import asyncio
import builtins
import copy
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from strands.storage import Storage, storage
from strands.types.exceptions import StorageError

from turnlog.client.frameworks.strands.values import Values
from turnlog.client.model import Turnlog
from turnlog.domain.errors import NotFoundError, TurnlogError

if TYPE_CHECKING:
    from strands.storage.search.types import SearchStrategy
    from strands.storage.storage import StorageSearchResult

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

    def _values(self) -> Values:
        return Values(self._log.sessions.of(self._session_id).documents)


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
