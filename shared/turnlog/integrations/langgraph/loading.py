"""Loads checkpoints as LangGraph has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.elements import ElementPlace
from turnlog.integrations.langgraph.known import CheckpointMemory, KnownCheckpoint
from turnlog.integrations.langgraph.reading import Reader, StoredCheckpoint
from turnlog.integrations.langgraph.records import Typed, Version
from turnlog.integrations.langgraph.threads import Namespace, ThreadSessions
from turnlog.integrations.langgraph.values import CheckpointValues, Plain, needed_by
from turnlog.integrations.langgraph.writing import places_of

Load: TypeAlias = Callable[[Typed], Any]


@lazy_dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint without its values, its metadata, and what was found of it."""

    found: StoredCheckpoint
    checkpoint: Mapping[str, Any]
    metadata: dict[str, Any]

    @property
    def versions(self) -> Mapping[str, Version]:
        found: Mapping[str, Version] = self.checkpoint["channel_versions"]
        return found


class Loader:
    """Loads checkpoints, and remembers what the next one is made of."""

    def __init__(self, threads: ThreadSessions, memory: CheckpointMemory, load: Load) -> None:
        self._threads = threads
        self._memory = memory
        self._load = load

    def reader(self, space: Namespace, *, at: str | None = None, below: str | None = None) -> Reader:
        hint = self._memory.newest(space) if at is None and below is None else at
        if at is not None and self._memory.known(space, at) is None:
            hint = None
        return Reader(self._threads.documents(space.thread_id), space, at=at, below=below, hint=hint)

    def one(self, space: Namespace, checkpoint_id: str | None) -> tuple[Loaded, CheckpointValues] | None:
        """That checkpoint, or the newest one."""
        reader = self.reader(space, at=checkpoint_id)
        try:
            found = reader.exactly(checkpoint_id) if checkpoint_id is not None else reader.newest()
        except NotFoundError:
            found = None
        if found is None:
            if checkpoint_id is None:
                self._memory.forget([space])
            return None
        return self.loaded(found), self.values_of(reader)

    def loaded(self, found: StoredCheckpoint) -> Loaded:
        return Loaded(found, self._load(found.record.checkpoint), self._load(found.record.metadata))

    def values_of(self, reader: Reader) -> CheckpointValues:
        return CheckpointValues(reader, partial(self._memory.list, reader.space))

    def values(self, loaded: Loaded, values: CheckpointValues) -> dict[str, Any]:
        return {name: self.value(one) for name, one in values.of(loaded.found, loaded.versions).items()}

    def writes(self, loaded: Loaded, values: CheckpointValues) -> list[tuple[str, str, Any]]:
        return [(task_id, channel, self.value(one)) for task_id, channel, one in values.written(loaded.found)]

    def value(self, plain: Plain) -> Any:
        return [self._load(one) for one in plain] if isinstance(plain, list) else self._load(plain)

    def known(self, space: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        """What the checkpoint is made of: remembered, or read."""
        known = self._memory.known(space, checkpoint_id)
        if known is not None:
            return known
        one = self.one(space, checkpoint_id)
        if one is None:
            return None
        loaded, values = one
        values.of(loaded.found, loaded.versions)
        return self.remember(space, loaded, values)

    def remember(self, space: Namespace, loaded: Loaded, values: CheckpointValues) -> KnownCheckpoint:
        """What the checkpoint is made of, whose values have been put together."""
        found, versions = loaded.found, loaded.versions
        needed = needed_by(found.checkpoint_id, found.record, versions)
        homes: dict[str, tuple[Version, str | None]] = {name: (version, None) for name, version in versions.items()}
        homes |= {name: (one.version, one.home) for name, one in needed.items()}
        known = KnownCheckpoint(homes, values.list_states(found, versions))
        self._memory.remember(space, found.checkpoint_id, known)
        written = dict[Typed, ElementPlace]()
        for name, writes in found.writes.items():
            written |= places_of(found.checkpoint_id, name, writes, len(writes.packed()))
        self._memory.remember_written(space, found.checkpoint_id, written)
        return known

    def homes(
        self, space: Namespace, before: KnownCheckpoint | None, older: Mapping[str, Version]
    ) -> dict[str, str | None]:
        """Which checkpoints have values of these versions; of a channel that is not among them there is none."""
        homes, left = dict[str, str | None](), dict[str, Version]()
        for name, version in older.items():
            found = before.homes.get(name) if before is not None else None
            place = (
                (found[1],) if found is not None and found[0] == version else self._memory.home(space, name, version)
            )
            if place is not None:
                homes[name] = place[0]
            else:
                left[name] = version
        return homes | (self._searched(space, left) if left else {})

    def _searched(self, space: Namespace, left: Mapping[str, Version]) -> dict[str, str | None]:
        homes = dict[str, str | None]()
        try:
            for found in Reader(self._threads.documents(space.thread_id), space).walk():
                for one in found.record.values:
                    if left.get(one.channel) == one.version:
                        homes.setdefault(one.channel, found.checkpoint_id)
                if len(homes) == len(left):
                    break
        except NotFoundError:
            return {}
        return homes


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether the metadata say all of that."""
    return all(metadata.get(name) == value for name, value in (wanted or {}).items())


OWN_ANCESTOR = "a checkpoint is its own ancestor"


class Histories:
    """Of some channels, on the way back from a checkpoint."""

    def __init__(self, loader: Loader, channels: Sequence[str]) -> None:
        self._loader = loader
        self._writes: dict[str, list[PendingWrite]] = {name: [] for name in channels}
        self._seeds: dict[str, Any] = {}
        self._left = set(channels)
        self._added = set[str]()

    @property
    def is_done(self) -> bool:
        return not self._left

    def add(self, loaded: Loaded, values: CheckpointValues) -> None:
        """The next checkpoint on the way: what was written to it, and its values, with which a channel begins."""
        for write in reversed(self._loader.writes(loaded, values)):
            if write[1] in self._left:
                self._writes[write[1]].append(write)
        versions = {name: one for name, one in loaded.versions.items() if name in self._left}
        for name, plain in values.of(loaded.found, versions).items():
            self._seeds[name] = self._loader.value(plain)
            self._left.discard(name)
        self._added.add(loaded.found.checkpoint_id)
        parent = loaded.found.record.parent
        if not self.is_done and parent in self._added:
            raise CorruptError(OWN_ANCESTOR, item=parent)

    def all(self) -> dict[str, DeltaChannelHistory]:
        found = dict[str, DeltaChannelHistory]()
        for name, writes in self._writes.items():
            found[name] = {"writes": writes[::-1]}
            if name in self._seeds:
                found[name]["seed"] = self._seeds[name]
        return found
