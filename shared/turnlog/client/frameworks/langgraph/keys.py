"""What threads, namespaces and checkpoints are called as sessions and documents.

    lgb/<id>.<part>                         a large value, in parts
    lgc/<namespace>/<checkpoint>            a checkpoint
    lgc/<namespace>/<checkpoint>/w/<task>   what a task wrote to it

Names are quoted, so that ``/`` only separates. Each document names only such as sort before it, large values among them: a copy in
order of the keys has what a document names before the document.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from urllib.parse import quote, unquote

from turnlog.domain.errors import InvalidInputError
from turnlog.domain.values import dataclass

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


@dataclass(frozen=True, slots=True)
class Space:
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
