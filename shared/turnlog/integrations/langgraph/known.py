"""The checkpoints that the savers of a log have read and written last, kept in memory so that the next one needs no reading.

A list is stored as a reference to the older list and its new elements. Every few checkpoints it is stored whole again: as
references to pieces of elements beside the checkpoints, and the rest. So few documents are read to restore it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

from turnlog.client.model import Turnlog
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.records import Base, Elements, ListPiece, Typed, ValueRef, Version, size_of
from turnlog.integrations.langgraph.threads import Namespace

LEAST_DEPTH, TAIL_BYTES = 10, 64 * 1024
"""Checkpoints that a list is built on, and bytes of their elements, after which the list is stored whole again."""
_SCALARS = (int, float, type(None))
MAX_NAMESPACES, MAX_CHECKPOINTS, MAX_BYTES = 512, 8, 32 * 1024 * 1024


@lazy_dataclass(frozen=True, slots=True)
class ListState:
    """A stored list, the value that ``ref`` names.

    It is built on ``depth`` older checkpoints, back to ``start``, which have ``tail_bytes`` of its elements. ``pieces`` have the
    elements that it begins with.
    """

    ref: ValueRef
    items: tuple[Typed, ...]
    pieces: tuple[ListPiece, ...]
    depth: int
    tail_bytes: int
    start: str


def is_by_element(value: Any) -> bool:
    """Return whether a value is stored element by element: a list that is not empty and holds neither numbers nor None."""
    return type(value) is list and bool(value) and not any(isinstance(element, _SCALARS) for element in value)


def shared_count(items: Sequence[Typed], before: Sequence[Typed]) -> int:
    """Return the number of elements that two lists begin with."""
    pairs = enumerate(zip(items, before, strict=False))
    return next((index for index, (item, old_item) in pairs if item != old_item), min(len(items), len(before)))


def base_of(count: int, added_bytes: int, before: ListState) -> Base | None:
    """Return the first ``count`` elements of the older list as the base of a new one, or None when it is stored whole again."""
    is_short = before.depth < max(LEAST_DEPTH, len(before.pieces) // 6)
    if not count or 2 * count < len(before.items) or not is_short or before.tail_bytes + added_bytes > TAIL_BYTES:
        return None
    return Base(before.ref.home, before.ref.version, count)


def following(before: ListState | None, ref: ValueRef, stored: Elements) -> ListState:
    """Return the state, without its items, of a list that is stored like this after the list ``before``."""
    size = size_of(stored)
    if before is None or stored.base is None:
        pieces = tuple(item for item in stored.items if isinstance(item, ListPiece))
        return ListState(ref, (), pieces, 0, size, ref.home)
    pieces = pieces_within(before.pieces, stored.base.count)
    return ListState(ref, (), pieces, before.depth + 1, before.tail_bytes + size, before.start)


def pieces_within(pieces: Sequence[ListPiece], count: int) -> tuple[ListPiece, ...]:
    """Return the pieces that end within the first ``count`` elements."""
    ends = accumulate(piece.count for piece in pieces)
    return tuple(piece for piece, end in zip(pieces, ends, strict=True) if end <= count)


@lazy_dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A stored checkpoint: where the value of each channel is (None: it has no value), and the state of its lists."""

    homes: Mapping[str, tuple[Version, str | None]]
    lists: Mapping[ValueRef, ListState]

    @property
    def bytes(self) -> int:
        """Size of the list elements in memory. The lists of its parents share them."""
        return sum(len(data) for state in self.lists.values() for _, data in state.items)


class CheckpointCache:
    """Cache of the newest checkpoints of the namespaces used last; a log has one for all its savers. Safe to use from many threads.

    Stored checkpoints never change, so entries go stale only by deletion. A namespace is forgotten when it is found empty.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Namespace, OrderedDict[str, KnownCheckpoint]] = OrderedDict()
        self._bytes: dict[Namespace, int] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, log: Turnlog) -> CheckpointCache:
        """Return the cache of a log."""
        return _CACHES.setdefault(log, cls())

    def known(self, namespace: Namespace) -> dict[str, KnownCheckpoint]:
        """Return the known checkpoints of a namespace by id."""
        with self._lock:
            return dict(self._known.get(namespace, {}))

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

    def forget(self, namespaces: Iterable[Namespace] = (), *, thread_id: str | None = None) -> None:
        """Forget the given namespaces, and every namespace of ``thread_id``."""
        with self._lock:
            forgotten = [*namespaces, *(namespace for namespace in self._known if namespace.thread_id == thread_id)]
            for namespace in forgotten:
                self._drop(namespace)

    def _drop(self, namespace: Namespace) -> None:
        self._known.pop(namespace, None)
        self._bytes.pop(namespace, None)


_CACHES = WeakKeyDictionary[Turnlog, CheckpointCache]()
