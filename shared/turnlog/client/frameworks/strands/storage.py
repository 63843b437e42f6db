"""Strands' `Storage` over the documents of one session."""

from __future__ import annotations

import asyncio
import builtins
import re
from collections.abc import Callable
from typing import Any, TypeVar

from strands.storage import Storage
from strands.types.exceptions import StorageError

from turnlog.client.frameworks.strands.values import Values
from turnlog.client.model import Turnlog
from turnlog.domain.errors import NotFoundError, TurnlogError

_FOLDER = "strands/storage/"
T = TypeVar("T")


class TurnlogStorage(Storage):
    """Bytes by key beside a session's log: ``SnapshotSessionManager("support-42", storage=TurnlogStorage(log, "support-42"))``.

    Values may have any size; they are erased with the session, which is made when the first one is written, with ``settings`` of
    `Sessions.create`. Keys are as those of Strands' own storages: runs of ``/`` are one. `search` is Strands' own, over all of it.
    """

    def __init__(self, log: Turnlog, session_id: str, **settings: Any) -> None:
        self._log = log
        self._session_id = session_id
        self._settings = settings

    async def write(self, key: str, data: bytes) -> None:
        """Whole, or not at all."""
        name, value = _key(key), bytes(data)

        def written() -> None:
            try:
                self._values().write(name, value)
            except NotFoundError:
                self._log.sessions.get_or_create(self._session_id, **self._settings)
                self._values().write(name, value)

        await _told(written, f"Failed to write '{key}'")

    async def read(self, key: str) -> bytes | None:
        name = _key(key)
        return await _told(lambda: _there(lambda: self._values().read(name), None), f"Failed to read '{key}'")

    async def delete(self, key: str) -> None:
        name = _key(key)
        await _told(lambda: _there(lambda: self._values().delete(name), None), f"Failed to delete '{key}'")

    async def list(self, query: str = "") -> builtins.list[str]:
        prefix = _FOLDER + _prefix(query)
        nothing = builtins.list[str]()
        found = await _told(lambda: _there(lambda: self._values().keys(prefix), nothing), f"Failed to list '{query}'")
        return [key.removeprefix(_FOLDER) for key in found]

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
    return _FOLDER + name


def _prefix(prefix: str) -> str:
    return _checked(prefix).lstrip("/")


def _checked(key: str) -> str:
    normal = re.sub(r"/+", "/", key)
    if "\\" in key or ".." in normal.strip("/").split("/"):
        raise StorageError(f"Invalid storage key '{key}': neither backslashes nor '..' segments are allowed")
    return normal
