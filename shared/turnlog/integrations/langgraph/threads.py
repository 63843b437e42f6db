"""The session of a thread: made when something is written to it first."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from turnlog.client.documents import Documents
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.records import checkpoint_of

ROOT, LARGE, CHECKPOINTS = "lg", "lgb/", "lgc/"
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAPPED, _RESERVED = "t_", ("t_", "h_")
_HASHED = "~"
_SAFE = "-_.:|"
_MAX_NAMESPACE, _MAX_CHECKPOINT, _MAX_TASK = 160, 200, 100


def session_id_of(thread_id: str) -> str:
    """The session of a thread: of the same name, or of one made of it where sessions can't be called so."""
    if _SESSION_ID.fullmatch(thread_id) and not thread_id.startswith(_RESERVED):
        return thread_id
    digest = hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).digest()
    return _MAPPED + base64.b32encode(digest).decode("ascii").lower()[:40]


@lazy_dataclass(frozen=True, slots=True)
class Namespace:
    """The checkpoints of one namespace of a thread."""

    thread_id: str
    namespace: str

    @property
    def prefix(self) -> str:
        return f"{CHECKPOINTS}{short(self.namespace, _MAX_NAMESPACE)}/"

    @property
    def is_named_by_key(self) -> bool:
        """Whether the namespace can be read from a key; else its checkpoints say it."""
        return unquote(short(self.namespace, _MAX_NAMESPACE)) == self.namespace

    def checkpoint(self, checkpoint_id: str) -> str:
        return self.prefix + _checkpoint(checkpoint_id)

    def writes(self, checkpoint_id: str, task: str) -> str:
        """``task`` is a name of `task_name`."""
        return f"{self.checkpoint(checkpoint_id)}/w/{task}"

    def above(self, checkpoint_id: str) -> str:
        """Greater than the keys of a checkpoint and of all that was written to it; less than those of the next."""
        return f"{self.checkpoint(checkpoint_id)}/x"

    def parsed(self, key: str) -> tuple[str, str | None]:
        """The checkpoint that a key is of, and the name of the task."""
        checkpoint_id, _, rest = key.removeprefix(self.prefix).partition("/")
        return unquote(checkpoint_id), rest.removeprefix("w/") or None


def task_name(task_id: str) -> str:
    return short(task_id, _MAX_TASK)


def task_of(name: str) -> str | None:
    """The task of a name, or None when only what is written says it."""
    return None if name.startswith(_HASHED) else unquote(name)


def namespace_of(key: str) -> tuple[str, str | None]:
    """The name of the namespace in a key, and the namespace, if the name tells it."""
    name = key.removeprefix(CHECKPOINTS).partition("/")[0]
    return name, (None if name.startswith(_HASHED) else unquote(name))


@functools.lru_cache(4096)
def short(text: str, limit: int) -> str:
    """A name as a part of a key; a digest of one that is too long."""
    quoted = quote(text, safe=_SAFE, errors="surrogatepass")
    if len(quoted) <= limit:
        return quoted
    return _HASHED + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@functools.lru_cache(4096)
def _checkpoint(checkpoint_id: str) -> str:
    quoted = quote(checkpoint_id, safe=_SAFE)
    if not 0 < len(quoted) <= _MAX_CHECKPOINT:
        raise InvalidInputError(f"a checkpoint's id has 1 to {_MAX_CHECKPOINT} characters, not {len(quoted)}")
    return quoted


T = TypeVar("T")
THREAD_ID = "langgraph_thread_id"
"""In the metadata of a session that was made for a thread of another name."""
_BATCH = 25


class ThreadSessions:
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

    def spaces(self, thread_id: str) -> list[Namespace]:
        """The namespaces of a thread: a request for each. None when there is no such thread."""
        spaces, after = list[Namespace](), None
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
                    spaces.append(Namespace(thread_id, namespace))
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
