"""Threads as sessions, and the keys of their documents. A thread's session is created by its first write."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from turnlog.client.documents import Document, Documents
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.identity import is_principal_id
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.records import checkpoint_of
from turnlog.integrations.sessions import digest_id, stored_ids

_ROOT, LARGE, CHECKPOINTS = "lg", "lgb/", "lgc/"
STORE = "lgs/"
"""Keys of `TurnlogStore` begin so. Its session may have the id of a thread, whose documents they are not."""
_HASHED = "~"
_SAFE = "-_.:|"
_MAX_NAMESPACE, _MAX_CHECKPOINT, _MAX_TASK = 160, 200, 100
T = TypeVar("T")
THREAD_ID = "langgraph_thread_id"
"""Metadata key of a session whose id differs from its thread's id: the thread id."""


@lazy_dataclass(frozen=True, slots=True)
class Namespace:
    """The checkpoints of one namespace of a thread."""

    thread_id: str
    name: str

    @property
    def prefix(self) -> str:
        return f"{CHECKPOINTS}{short(self.name, _MAX_NAMESPACE)}/"

    @property
    def is_named_by_key(self) -> bool:
        """Whether keys contain the namespace. Otherwise they contain a digest, and its checkpoints store the name."""
        return unquote(short(self.name, _MAX_NAMESPACE)) == self.name

    def checkpoint(self, checkpoint_id: str) -> str:
        return self.prefix + id_in_key(checkpoint_id)

    def writes(self, checkpoint_id: str, task: str) -> str:
        """Return the key of a task's writes to a checkpoint. ``task`` comes from `task_name`."""
        return f"{self.checkpoint(checkpoint_id)}/w/{task}"

    def above(self, checkpoint_id: str) -> str:
        """Return a key that sorts after a checkpoint and its writes, and before the next checkpoint."""
        return f"{self.checkpoint(checkpoint_id)}/x"

    def parsed(self, key: str) -> tuple[str, str | None]:
        """Return the checkpoint id in a key, and the task name; None for the checkpoint's own document."""
        checkpoint_id, _, rest = key.removeprefix(self.prefix).partition("/")
        return unquote(checkpoint_id), rest.removeprefix("w/") or None


def task_name(task_id: str) -> str:
    """Return the name of a task in keys: its id, or a digest of a long one."""
    return short(task_id, _MAX_TASK)


def task_of(name: str) -> str | None:
    """Return the task id of a name, or None when the name is a digest and the writes themselves store the id."""
    return None if name.startswith(_HASHED) else unquote(name)


@functools.lru_cache(4096)
def short(text: str, limit: int) -> str:
    """Return a name as part of a key; a digest when it is longer than ``limit``."""
    quoted = quote(text, safe=_SAFE, errors="surrogatepass")
    if len(quoted) <= limit:
        return quoted
    return _HASHED + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@functools.lru_cache(4096)
def id_in_key(checkpoint_id: str) -> str:
    """Return a checkpoint's id as part of a key; names sort as the checkpoints do."""
    quoted = quote(checkpoint_id, safe=_SAFE)
    if not 0 < len(quoted) <= _MAX_CHECKPOINT:
        raise InvalidInputError(f"a checkpoint's id has 1 to {_MAX_CHECKPOINT} characters, not {len(quoted)}")
    return quoted


def _earlier_id(thread_id: str) -> str:
    """Return the session id that earlier versions gave a thread: its own where it has only letters, digits, ``_`` and ``-``."""
    is_plain = is_principal_id(thread_id) and not thread_id.startswith(("t_", "h_"))
    return thread_id if is_plain else digest_id(thread_id)


class ThreadSessions:
    """The threads of an owner. ``settings`` of `Sessions.create` apply to sessions that are created."""

    def __init__(self, log: Turnlog, settings: Mapping[str, Any]) -> None:
        self._log = log
        self._settings = dict(settings)
        self._id_of = stored_ids(log, _earlier_id)

    def session(self, thread_id: str) -> Session:
        return self._log.sessions.of(self._id_of(thread_id))

    def documents(self, thread_id: str) -> Documents:
        return self.session(thread_id).documents

    def written(self, thread_id: str, write: Callable[[Session], T]) -> T:
        """Return the result of ``write``. Creates the session and repeats when ``write`` raises `NotFoundError`."""
        session = self.session(thread_id)
        try:
            return write(session)
        except NotFoundError:
            settings = dict(self._settings)
            if session.id != thread_id:
                settings["metadata"] = {**(settings.get("metadata") or {}), THREAD_ID: thread_id}
            self._log.sessions.get_or_create(session.id, **settings)
        return write(session)

    def all(self) -> Iterator[str]:
        """Yield every possible thread: each session of the owner may be one."""
        for info in self._log.sessions.list():
            thread_id = (info.metadata or {}).get(THREAD_ID)
            yield thread_id if isinstance(thread_id, str) else info.session_id

    def namespaces(self, thread_id: str) -> list[Namespace]:
        """Return the namespaces of a thread, with one request for each; an empty list when the thread does not exist."""
        namespaces, after = list[Namespace](), None
        reading = self.documents(thread_id).reading()
        try:
            while True:
                first = next(iter(reading.list(CHECKPOINTS, after=after, limit=1)), None)
                if first is None:
                    return namespaces
                key_part = first.key.removeprefix(CHECKPOINTS).partition("/")[0]
                after = f"{CHECKPOINTS}{key_part}0"  # "0" is the next character after "/"
                name = self._named(reading, key_part) if key_part.startswith(_HASHED) else unquote(key_part)
                if name is not None:
                    namespaces.append(Namespace(thread_id, name))
        except NotFoundError:
            return namespaces

    def pages(self, thread_id: str) -> Iterator[Sequence[Document]]:
        """Yield the documents of a thread in order of their keys, page by page; none of a thread that does not exist."""
        pages = self.documents(thread_id).list(_ROOT)
        with suppress(NotFoundError):
            while (page := pages.page()) is not None:
                yield [document for document in page if not document.key.startswith(STORE)]

    def delete(self, thread_id: str) -> None:
        """Delete all documents of a thread, oldest first, so that a crash never leaves an older state behind."""
        keys = [document.key for page in self.pages(thread_id) for document in page]
        with suppress(NotFoundError):
            self.documents(thread_id).delete(keys)

    def _named(self, reading: Any, name: str) -> str | None:
        """Return the namespace that a checkpoint stores, or the name itself where it stores none; None without a checkpoint."""
        for document in reading.list(f"{CHECKPOINTS}{name}/"):
            if "/w/" not in document.key:
                return checkpoint_of(document.data, item=document.key).namespace or unquote(name)
        return None
