"""What a saver remembers of the checkpoints it has read and written, so that a new one needs no reading."""

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
    """A checkpoint that is stored: where the values of its channels are (None: nowhere, there is none), and how its lists are."""

    homes: Mapping[str, tuple[Version, str | None]]
    lists: Mapping[str, ListState]

    @property
    def bytes(self) -> int:
        """Of its lists; those of its parents have them too."""
        return sum(len(data) for one in self.lists.values() for _, data in one.items)


@dataclass(slots=True)
class _Of:
    """Of one namespace; all by checkpoint."""

    known: OrderedDict[str, KnownCheckpoint] = field(default_factory=OrderedDict)
    written: OrderedDict[str, dict[Typed, ElementPlace]] = field(default_factory=OrderedDict)
    under_way: dict[str, int] = field(default_factory=dict)
    bytes: int = 0


class CheckpointMemory:
    """The newest checkpoints of the namespaces that were used last. Safe to use from many threads.

    It says what is in the store and can't change there, but for what is deleted: a namespace is forgotten when it is found empty.
    """

    def __init__(self) -> None:
        self._of: OrderedDict[Namespace, _Of] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()

    def known(self, space: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        with self._changed:
            return self._spaced(space).known.get(checkpoint_id)

    def remember(self, space: Namespace, checkpoint_id: str, known: KnownCheckpoint) -> None:
        with self._changed:
            of = self._spaced(space)
            _kept(of.known, checkpoint_id, known)
            self._bytes += known.bytes - of.bytes
            of.bytes = known.bytes
            while self._bytes > MAX_BYTES and len(self._of) > 1:
                self._drop(next(iter(self._of)))

    def newest(self, space: Namespace) -> str | None:
        with self._changed:
            return max(self._spaced(space).known, key=space.checkpoint, default=None)

    def list(self, space: Namespace, channel: str, version: Version, home: str) -> ListState | None:
        """The list of that version, of which the checkpoint ``home`` has the value."""
        with self._changed:
            for known in reversed(self._spaced(space).known.values()):
                found = known.lists.get(channel)
                if found is not None and (found.version, found.home) == (version, home):
                    return found
        return None

    def home(self, space: Namespace, channel: str, version: Version) -> tuple[str | None] | None:
        """Where the value of that version is, in brackets; None when that is not known."""
        with self._changed:
            for known in reversed(self._spaced(space).known.values()):
                found = known.homes.get(channel)
                if found is not None and found[0] == version:
                    return (found[1],)
        return None

    def written(self, space: Namespace, checkpoint_id: str) -> dict[Typed, ElementPlace]:
        """Elements of lists that were written to a checkpoint, when all writing that has begun is done."""
        with self._changed:
            of = self._spaced(space)
            self._changed.wait_for(lambda: checkpoint_id not in of.under_way, PATIENCE_SECONDS)
            return dict(of.written.get(checkpoint_id, {}))

    def remember_written(self, space: Namespace, checkpoint_id: str, places: Mapping[Typed, ElementPlace]) -> None:
        with self._changed:
            of = self._spaced(space)
            _kept(of.written, checkpoint_id, {**of.written.get(checkpoint_id, {}), **places})

    @contextmanager
    def writing(self, space: Namespace, checkpoint_id: str) -> Iterator[None]:
        """While something is written to a checkpoint."""
        with self._changed:
            of = self._spaced(space)
            of.under_way[checkpoint_id] = of.under_way.get(checkpoint_id, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                of.under_way[checkpoint_id] -= 1
                if not of.under_way[checkpoint_id]:
                    del of.under_way[checkpoint_id]
                self._changed.notify_all()

    def forget(self, spaces: Iterable[Namespace] = (), *, thread_id: str | None = None) -> None:
        """Namespaces, or all of a thread."""
        with self._changed:
            gone = [*spaces, *(space for space in self._of if space.thread_id == thread_id)]
            for space in gone:
                self._drop(space)

    def _spaced(self, space: Namespace) -> _Of:
        of = self._of.setdefault(space, _Of())
        self._of.move_to_end(space)
        while len(self._of) > MAX_SPACES:
            self._drop(next(iter(self._of)))
        return of

    def _drop(self, space: Namespace) -> None:
        of = self._of.pop(space, None)
        self._bytes -= of.bytes if of is not None else 0


def _kept(among: OrderedDict[str, T], name: str, value: T) -> None:
    """The newest few."""
    among[name] = value
    among.move_to_end(name)
    while len(among) > MAX_CHECKPOINTS:
        among.popitem(last=False)
