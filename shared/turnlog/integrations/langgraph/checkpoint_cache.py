"""An in-memory cache of the checkpoints that a saver has read and written, so that the next one needs no reading.

It holds their lists element by element: a list that has grown is stored as a reference to the old list and the new elements.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.records import Base, Typed, Version
from turnlog.integrations.langgraph.threads import Namespace

FIRST_SPAN_BYTES, LEAST_SPAN_BYTES = 1536 * 1024, 900 * 1024
"""Bytes that reading a list may take before the list is stored whole again: the first time, and the least later."""
DOCUMENT_BYTES = 150
"""Estimated overhead of a document beyond its data."""
BESIDE_BYTES = 8 * 1024
"""A larger value is stored in documents of its own. New elements of a list always stay in the checkpoint's document."""
_SCALARS = (int, float, type(None))


@lazy_dataclass(frozen=True, slots=True)
class ListState:
    """A stored list: its value of ``version`` is in the checkpoint ``home``.

    To read it, the checkpoints from ``start`` to ``home`` are needed, about ``span_bytes``. ``whole_bytes`` is its size when it
    was last stored whole.
    """

    version: Version
    home: str
    items: tuple[Typed, ...]
    start: str
    span_bytes: int
    whole_bytes: int


def is_by_element(value: Any) -> bool:
    """Return whether a value is stored element by element: a list that is not empty and holds neither numbers nor None."""
    return type(value) is list and bool(value) and not any(isinstance(element, _SCALARS) for element in value)


def base_of(items: Sequence[Typed], before: ListState | None) -> Base | None:
    """Return the part of the older list that the new one begins with, or None.

    None when the lists share less than half of the older one, or when reading it back takes too many bytes.
    """
    if before is None or before.span_bytes > _most_span(before.whole_bytes):
        return None
    count = 0
    for item, old_item in zip(items, before.items, strict=False):
        if item != old_item:
            break
        count += 1
    return Base(before.home, before.version, count) if count and 2 * count >= len(before.items) else None


def _most_span(whole_bytes: int) -> int:
    """Return the span after which a list is stored whole again; larger lists are rewritten more rarely."""
    return FIRST_SPAN_BYTES if whole_bytes <= BESIDE_BYTES else max(LEAST_SPAN_BYTES, 3 * whole_bytes // 2)


MAX_NAMESPACES, MAX_CHECKPOINTS, MAX_BYTES = 512, 8, 32 * 1024 * 1024


@lazy_dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A stored checkpoint: where the value of each channel is (None: it has no value), and the state of its lists."""

    homes: Mapping[str, tuple[Version, str | None]]
    lists: Mapping[str, ListState]

    @property
    def bytes(self) -> int:
        """Size of the list elements in memory. The lists of its parents share them."""
        return sum(len(data) for state in self.lists.values() for _, data in state.items)


NO_CHECKPOINTS: Mapping[str, KnownCheckpoint] = {}


class CheckpointCache:
    """Cache of the newest checkpoints of the namespaces used last. Safe to use from many threads.

    Stored checkpoints never change, so entries go stale only by deletion. A namespace is forgotten when it is found empty.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Namespace, OrderedDict[str, KnownCheckpoint]] = OrderedDict()
        self._bytes: dict[Namespace, int] = {}
        self._lock = threading.Lock()

    def known(self, namespace: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        with self._lock:
            return self._known.get(namespace, NO_CHECKPOINTS).get(checkpoint_id)

    def remember(self, namespace: Namespace, checkpoint_id: str, known: KnownCheckpoint) -> None:
        with self._lock:
            checkpoints = self._known.setdefault(namespace, OrderedDict())
            checkpoints[checkpoint_id] = known
            checkpoints.move_to_end(checkpoint_id)
            if len(checkpoints) > MAX_CHECKPOINTS:
                checkpoints.popitem(last=False)
            self._known.move_to_end(namespace)
            self._bytes[namespace] = known.bytes
            while len(self._known) > 1 and (len(self._known) > MAX_NAMESPACES or sum(self._bytes.values()) > MAX_BYTES):
                self._drop(next(iter(self._known)))

    def newest(self, namespace: Namespace) -> str | None:
        with self._lock:
            return max(self._known.get(namespace, NO_CHECKPOINTS), key=namespace.checkpoint, default=None)

    def list(self, namespace: Namespace, channel: str, version: Version, home: str) -> ListState | None:
        """Return the list of a channel in this version, stored in the checkpoint ``home``; None when it is not cached."""
        with self._lock:
            for known in self._known.get(namespace, NO_CHECKPOINTS).values():
                state = known.lists.get(channel)
                if state is not None and (state.version, state.home) == (version, home):
                    return state
        return None

    def forget(self, namespaces: Iterable[Namespace] = (), *, thread_id: str | None = None) -> None:
        """Forget the given namespaces, and every namespace of ``thread_id``."""
        with self._lock:
            forgotten = [*namespaces, *(namespace for namespace in self._known if namespace.thread_id == thread_id)]
            for namespace in forgotten:
                self._drop(namespace)

    def _drop(self, namespace: Namespace) -> None:
        self._known.pop(namespace, None)
        self._bytes.pop(namespace, None)
