"""An in-memory cache of the checkpoints that a saver has read and written, so that the next one needs no reading."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from turnlog.integrations.langgraph.elements import ElementPlace, ListState
from turnlog.integrations.langgraph.records import Typed, Version
from turnlog.integrations.langgraph.threads import Namespace

T = TypeVar("T")
MAX_SPACES, MAX_CHECKPOINTS, MAX_BYTES = 512, 8, 32 * 1024 * 1024
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


class CheckpointMemory:
    """Cache of the newest checkpoints of the namespaces used last. Safe to use from many threads.

    Stored checkpoints never change, so entries go stale only by deletion. A namespace is forgotten when it is found empty.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Namespace, _NamespaceEntry] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()

    def known(self, space: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        with self._changed:
            return self._entry(space).known.get(checkpoint_id)

    def remember(self, space: Namespace, checkpoint_id: str, known: KnownCheckpoint) -> None:
        with self._changed:
            entry = self._entry(space)
            _keep_newest(entry.known, checkpoint_id, known)
            self._bytes += known.bytes - entry.bytes
            entry.bytes = known.bytes
            while self._bytes > MAX_BYTES and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))

    def newest(self, space: Namespace) -> str | None:
        with self._changed:
            return max(self._entry(space).known, key=space.checkpoint, default=None)

    def list(self, space: Namespace, channel: str, version: Version, home: str) -> ListState | None:
        """Return the list of a channel in this version, stored in the checkpoint ``home``; None when it is not cached."""
        with self._changed:
            for known in reversed(self._entry(space).known.values()):
                state = known.lists.get(channel)
                if state is not None and (state.version, state.home) == (version, home):
                    return state
        return None

    def home(self, space: Namespace, channel: str, version: Version) -> tuple[str | None] | None:
        """Return a one-element tuple with the checkpoint that stores this version; None when it is not cached.

        The element is None when the channel has no value.
        """
        with self._changed:
            for known in reversed(self._entry(space).known.values()):
                location = known.homes.get(channel)
                if location is not None and location[0] == version:
                    return (location[1],)
        return None

    def written(self, space: Namespace, checkpoint_id: str) -> dict[Typed, ElementPlace]:
        """Return list elements that tasks wrote to a checkpoint; waits for writes that are under way."""
        with self._changed:
            entry = self._entry(space)
            self._changed.wait_for(lambda: checkpoint_id not in entry.under_way, PATIENCE_SECONDS)
            return dict(entry.written.get(checkpoint_id, {}))

    def remember_written(self, space: Namespace, checkpoint_id: str, places: Mapping[Typed, ElementPlace]) -> None:
        with self._changed:
            entry = self._entry(space)
            _keep_newest(entry.written, checkpoint_id, {**entry.written.get(checkpoint_id, {}), **places})

    @contextmanager
    def writing(self, space: Namespace, checkpoint_id: str) -> Iterator[None]:
        """Mark a write to a checkpoint as under way within the block."""
        with self._changed:
            entry = self._entry(space)
            entry.under_way[checkpoint_id] = entry.under_way.get(checkpoint_id, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                entry.under_way[checkpoint_id] -= 1
                if not entry.under_way[checkpoint_id]:
                    del entry.under_way[checkpoint_id]
                self._changed.notify_all()

    def forget(self, spaces: Iterable[Namespace] = (), *, thread_id: str | None = None) -> None:
        """Forget the given namespaces, and every namespace of ``thread_id``."""
        with self._changed:
            forgotten = [*spaces, *(space for space in self._entries if space.thread_id == thread_id)]
            for space in forgotten:
                self._drop(space)

    def _entry(self, space: Namespace) -> _NamespaceEntry:
        entry = self._entries.setdefault(space, _NamespaceEntry())
        self._entries.move_to_end(space)
        while len(self._entries) > MAX_SPACES:
            self._drop(next(iter(self._entries)))
        return entry

    def _drop(self, space: Namespace) -> None:
        entry = self._entries.pop(space, None)
        self._bytes -= entry.bytes if entry is not None else 0


def _keep_newest(among: OrderedDict[str, T], name: str, value: T) -> None:
    """Store ``value`` under ``name`` and drop all but the newest entries."""
    among[name] = value
    among.move_to_end(name)
    while len(among) > MAX_CHECKPOINTS:
        among.popitem(last=False)
