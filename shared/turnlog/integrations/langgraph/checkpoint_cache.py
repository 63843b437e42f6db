"""An in-memory cache of the checkpoints that a saver has read and written, so that the next one needs no reading.

It holds their lists element by element: a list that has grown is stored as a reference to the old list and the new elements.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.records import (
    Alike,
    Base,
    Elements,
    Item,
    Typed,
    Version,
    WrittenElements,
    patch_of,
)
from turnlog.integrations.langgraph.threads import Namespace

FIRST_SPAN_BYTES, LEAST_SPAN_BYTES = 1536 * 1024, 900 * 1024
"""Bytes that reading a list may take before the list is stored whole again: the first time, and the least later."""
MOST_ALIKE, MOST_ALIKE_BYTES = 8, 30 * 1024
DOCUMENT_BYTES = 150
"""Estimated overhead of a document beyond its data."""
BESIDE_BYTES = 8 * 1024
"""A larger value is stored in documents of its own. New elements of a list always stay in the checkpoint's document."""
_SCALARS = (int, float, type(None))


@lazy_dataclass(frozen=True, slots=True)
class ElementPlace:
    """A list element that a task wrote: its place, its data, and the size of the task's document."""

    checkpoint_id: str
    task: str
    index: int
    item: int
    data: bytes
    document_bytes: int

    @property
    def written(self) -> WrittenElements:
        return WrittenElements(self.checkpoint_id, self.task, self.index, self.item, 1)


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


def elements_of(items: Sequence[Typed], base: Base | None, written: Mapping[Typed, ElementPlace]) -> Elements:
    """Return the stored form of a list: its base and the elements after it, with references to what tasks have written."""
    elements, alike = list[Item](), list(written.values())[-MOST_ALIKE:]
    for index in range(base.count if base is not None else 0, len(items)):
        place = written.get(items[index])
        last = elements[-1] if elements else None
        if place is None:
            elements.append(_nearly(items[index], alike))
        elif isinstance(last, WrittenElements) and _before(place.written, last) == last:
            elements[-1] = replace(last, count=last.count + 1)
        else:
            elements.append(place.written)
    return Elements(base, tuple(elements))


def _nearly(item: Typed, alike: Sequence[ElementPlace]) -> Item:
    """Return an element as a patch of a similar written one, or the element itself when a patch saves too little.

    A reducer often changes what a task has written only slightly, for instance by giving a message its id.
    """
    kind, data = item
    best: Alike | None = None
    for place in alike:
        if len(place.data) <= MOST_ALIKE_BYTES:
            patch = patch_of(data, place.data)
            if best is None or len(patch) < len(best.patch):
                best = Alike(place.written, kind, patch)
    return best if best is not None and 3 * len(best.patch) < len(data) else item


def _before(following: WrittenElements, last: WrittenElements) -> WrittenElements:
    """Return the run of ``last.count`` elements that ends right before ``following``."""
    return replace(following, first=following.first - last.count, count=last.count)


T = TypeVar("T")
MAX_NAMESPACES, MAX_CHECKPOINTS, MAX_BYTES = 512, 8, 32 * 1024 * 1024
PATIENCE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A stored checkpoint: where the value of each channel is (None: it has no value), and the state of its lists."""

    homes: Mapping[str, tuple[Version, str | None]]
    lists: Mapping[str, ListState]

    @property
    def bytes(self) -> int:
        """Size of the list elements in memory. The lists of its parents share them."""
        return sum(len(data) for state in self.lists.values() for _, data in state.items)


@dataclass(slots=True)
class _NamespaceEntry:
    """The cache of one namespace, each field by checkpoint id."""

    known: OrderedDict[str, KnownCheckpoint] = field(default_factory=OrderedDict)
    written: OrderedDict[str, dict[Typed, ElementPlace]] = field(default_factory=OrderedDict)
    under_way: dict[str, int] = field(default_factory=dict)
    bytes: int = 0


class CheckpointCache:
    """Cache of the newest checkpoints of the namespaces used last. Safe to use from many threads.

    Stored checkpoints never change, so entries go stale only by deletion. A namespace is forgotten when it is found empty.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Namespace, _NamespaceEntry] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()

    def known(self, namespace: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        with self._changed:
            return self._entry(namespace).known.get(checkpoint_id)

    def remember(self, namespace: Namespace, checkpoint_id: str, known: KnownCheckpoint) -> None:
        with self._changed:
            entry = self._entry(namespace)
            _keep_newest(entry.known, checkpoint_id, known)
            self._bytes += known.bytes - entry.bytes
            entry.bytes = known.bytes
            while self._bytes > MAX_BYTES and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))

    def newest(self, namespace: Namespace) -> str | None:
        with self._changed:
            return max(self._entry(namespace).known, key=namespace.checkpoint, default=None)

    def list(self, namespace: Namespace, channel: str, version: Version, home: str) -> ListState | None:
        """Return the list of a channel in this version, stored in the checkpoint ``home``; None when it is not cached."""
        with self._changed:
            for known in reversed(self._entry(namespace).known.values()):
                state = known.lists.get(channel)
                if state is not None and (state.version, state.home) == (version, home):
                    return state
        return None

    def home(self, namespace: Namespace, channel: str, version: Version) -> tuple[str | None] | None:
        """Return a one-element tuple with the checkpoint that stores this version; None when it is not cached.

        The element is None when the channel has no value.
        """
        with self._changed:
            for known in reversed(self._entry(namespace).known.values()):
                location = known.homes.get(channel)
                if location is not None and location[0] == version:
                    return (location[1],)
        return None

    def written(self, namespace: Namespace, checkpoint_id: str) -> dict[Typed, ElementPlace]:
        """Return list elements that tasks wrote to a checkpoint; waits for writes that are under way."""
        with self._changed:
            entry = self._entry(namespace)
            self._changed.wait_for(lambda: checkpoint_id not in entry.under_way, PATIENCE_SECONDS)
            return dict(entry.written.get(checkpoint_id, {}))

    def remember_written(self, namespace: Namespace, checkpoint_id: str, places: Mapping[Typed, ElementPlace]) -> None:
        with self._changed:
            entry = self._entry(namespace)
            _keep_newest(entry.written, checkpoint_id, {**entry.written.get(checkpoint_id, {}), **places})

    @contextmanager
    def writing(self, namespace: Namespace, checkpoint_id: str) -> Iterator[None]:
        """Mark a write to a checkpoint as under way within the block."""
        with self._changed:
            entry = self._entry(namespace)
            entry.under_way[checkpoint_id] = entry.under_way.get(checkpoint_id, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                entry.under_way[checkpoint_id] -= 1
                if not entry.under_way[checkpoint_id]:
                    del entry.under_way[checkpoint_id]
                self._changed.notify_all()

    def forget(self, namespaces: Iterable[Namespace] = (), *, thread_id: str | None = None) -> None:
        """Forget the given namespaces, and every namespace of ``thread_id``."""
        with self._changed:
            forgotten = [*namespaces, *(namespace for namespace in self._entries if namespace.thread_id == thread_id)]
            for namespace in forgotten:
                self._drop(namespace)

    def _entry(self, namespace: Namespace) -> _NamespaceEntry:
        entry = self._entries.setdefault(namespace, _NamespaceEntry())
        self._entries.move_to_end(namespace)
        while len(self._entries) > MAX_NAMESPACES:
            self._drop(next(iter(self._entries)))
        return entry

    def _drop(self, namespace: Namespace) -> None:
        entry = self._entries.pop(namespace, None)
        self._bytes -= entry.bytes if entry is not None else 0


def _keep_newest(among: OrderedDict[str, T], name: str, value: T) -> None:
    """Store ``value`` under ``name`` and drop all but the newest entries."""
    among[name] = value
    among.move_to_end(name)
    while len(among) > MAX_CHECKPOINTS:
        among.popitem(last=False)
