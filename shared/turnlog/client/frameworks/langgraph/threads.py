"""The session of a thread: made when something is written to it first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from turnlog.client.documents import Documents
from turnlog.client.frameworks.langgraph.keys import CHECKPOINTS, ROOT, Space, namespace_of, session_id_of
from turnlog.client.frameworks.langgraph.records import checkpoint_of
from turnlog.client.model import Turnlog
from turnlog.domain.errors import NotFoundError

T = TypeVar("T")
THREAD_ID = "langgraph_thread_id"
"""In the metadata of a session that was made for a thread of another name."""
_BATCH = 25


class Threads:
    """The threads of an owner. ``settings`` are of a session, for when one is made."""

    def __init__(self, log: Turnlog, settings: Mapping[str, Any]) -> None:
        self._log = log
        self._settings = dict(settings)

    def documents(self, thread_id: str) -> Documents:
        return self._log.sessions.of(session_id_of(thread_id)).documents

    def written(self, thread_id: str, write: Callable[[Documents], T]) -> T:
        """What ``write`` gives. The session is made if that finds none."""
        try:
            return write(self.documents(thread_id))
        except NotFoundError:
            self._make(thread_id)
        return write(self.documents(thread_id))

    def all(self) -> Iterator[str]:
        """The threads that there may be: each session of the owner is one."""
        for info in self._log.sessions.list():
            thread_id = (info.metadata or {}).get(THREAD_ID)
            yield thread_id if isinstance(thread_id, str) else info.session_id

    def spaces(self, thread_id: str) -> list[Space]:
        """The namespaces of a thread: a request for each. None when there is no such thread."""
        spaces, after = list[Space](), None
        reading = self.documents(thread_id).reading()
        try:
            while True:
                first = next(iter(reading.list(CHECKPOINTS, after=after, limit=1)), None)
                if first is None:
                    return spaces
                name, namespace = namespace_of(first.key)
                after = f"{CHECKPOINTS}{name}/{_LAST}"
                namespace = namespace if namespace is not None else self._named(reading, name)
                if namespace is not None:
                    spaces.append(Space(thread_id, namespace))
        except NotFoundError:
            return spaces

    def delete(self, thread_id: str) -> None:
        """All documents of a thread, the oldest first: what is left of it by a crash is no state of before."""
        documents = self.documents(thread_id)
        try:
            documents.delete([one.key for one in documents.list(ROOT)])
        except NotFoundError:
            return

    def copy(self, source: str, target: str) -> None:
        """All documents of a thread in order of their keys: what is named is there before what names it."""
        batch = dict[str, bytes]()
        try:
            for one in self.documents(source).list(ROOT):
                batch[one.key] = one.data
                if len(batch) == _BATCH:
                    self._put(target, batch)
                    batch = {}
        except NotFoundError:
            if self._log.sessions.exists(session_id_of(source)):
                raise
        if batch:
            self._put(target, batch)

    def _put(self, thread_id: str, batch: Mapping[str, bytes]) -> None:
        self.written(thread_id, lambda documents: documents.put_many(batch))

    def _make(self, thread_id: str) -> None:
        session_id, settings = session_id_of(thread_id), dict(self._settings)
        if session_id != thread_id:
            settings["metadata"] = {**(settings.get("metadata") or {}), THREAD_ID: thread_id}
        self._log.sessions.get_or_create(session_id, **settings)

    def _named(self, reading: Any, name: str) -> str | None:
        """The namespace of a name that doesn't tell it: a checkpoint says it."""
        for one in reading.list(f"{CHECKPOINTS}{name}/"):
            if "/w/" not in one.key:
                return checkpoint_of(one.data, item=one.key).namespace
        return None


_LAST = "~~"
"""Greater than what checkpoints are called."""
