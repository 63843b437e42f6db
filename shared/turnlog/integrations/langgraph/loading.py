"""Loads stored checkpoints into the form that LangGraph uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from turnlog.core.errors import NotFoundError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.checkpoint_cache import CheckpointCache, KnownCheckpoint
from turnlog.integrations.langgraph.records import Typed, Version
from turnlog.integrations.langgraph.threads import Namespace, ThreadSessions
from turnlog.integrations.langgraph.values import CheckpointValues, Plain, Reader, StoredCheckpoint, value_refs

Load: TypeAlias = Callable[[Typed], Any]


@lazy_dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint without its channel values, its metadata, and the stored checkpoint that they come from."""

    stored: StoredCheckpoint
    checkpoint: Mapping[str, Any]
    metadata: dict[str, Any]

    @property
    def versions(self) -> Mapping[str, Version]:
        versions: Mapping[str, Version] = self.checkpoint["channel_versions"]
        return versions


class Loader:
    """Loads checkpoints and caches what the next checkpoint will refer to."""

    def __init__(self, threads: ThreadSessions, cache: CheckpointCache, load: Load) -> None:
        self._threads = threads
        self._cache = cache
        self._load = load

    def reader(self, namespace: Namespace, *, start: str | None = None, below: str | None = None) -> Reader:
        hint = self._cache.newest(namespace) if start is None and below is None else start
        if start is not None and self._cache.known(namespace, start) is None:
            hint = None
        return Reader(self._threads.documents(namespace.thread_id), namespace, start=start, below=below, hint=hint)

    def find(self, namespace: Namespace, checkpoint_id: str | None) -> tuple[Loaded, CheckpointValues] | None:
        """Return the checkpoint with this id, or without an id the newest one; None when there is none."""
        reader = self.reader(namespace, start=checkpoint_id)
        try:
            stored = reader.exactly(checkpoint_id) if checkpoint_id is not None else reader.newest()
        except NotFoundError:
            stored = None
        if stored is None:
            if checkpoint_id is None:
                self._cache.forget([namespace])
            return None
        return self.loaded(stored), self.values_of(reader)

    def loaded(self, stored: StoredCheckpoint) -> Loaded:
        return Loaded(stored, self._load(stored.record.checkpoint), self._load(stored.record.metadata))

    def values_of(self, reader: Reader) -> CheckpointValues:
        return CheckpointValues(reader, partial(self._cache.list, reader.namespace))

    def values(self, loaded: Loaded, values: CheckpointValues) -> dict[str, Any]:
        return {name: self.value(value) for name, value in values.of(loaded.stored, loaded.versions).items()}

    def writes(self, loaded: Loaded, values: CheckpointValues) -> list[tuple[str, str, Any]]:
        return [(task_id, channel, self.value(value)) for task_id, channel, value in values.written(loaded.stored)]

    def value(self, plain: Plain) -> Any:
        return [self._load(element) for element in plain] if isinstance(plain, list) else self._load(plain)

    def known(self, namespace: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        """Return the places of a checkpoint's values, and its lists, from the cache or from the store; None when it is missing."""
        known = self._cache.known(namespace, checkpoint_id)
        if known is not None:
            return known
        result = self.find(namespace, checkpoint_id)
        if result is None:
            return None
        loaded, values = result
        values.of(loaded.stored, loaded.versions)
        return self.remember(namespace, loaded, values)

    def remember(self, namespace: Namespace, loaded: Loaded, values: CheckpointValues) -> KnownCheckpoint:
        """Cache the value locations and lists of a checkpoint. Its values must have been read with ``values``."""
        stored, versions = loaded.stored, loaded.versions
        needed = value_refs(stored.checkpoint_id, stored.record, versions)
        homes: dict[str, tuple[Version, str | None]] = {name: (version, None) for name, version in versions.items()}
        homes |= {name: (place.version, place.home) for name, place in needed.items()}
        known = KnownCheckpoint(homes, values.list_states(stored, versions))
        self._cache.remember(namespace, stored.checkpoint_id, known)
        return known

    def homes(
        self, namespace: Namespace, before: KnownCheckpoint | None, older: Mapping[str, Version]
    ) -> dict[str, str | None]:
        """Return the checkpoint that stores each channel's value of this version. None or no entry: the channel has no value."""
        homes, unknown = dict[str, str | None](), dict[str, Version]()
        for name, version in older.items():
            known_home = before.homes.get(name) if before is not None else None
            if known_home is not None and known_home[0] == version:
                homes[name] = known_home[1]
            else:
                unknown[name] = version
        return homes | (self._searched(namespace, unknown) if unknown else {})

    def _searched(self, namespace: Namespace, unknown: Mapping[str, Version]) -> dict[str, str | None]:
        homes = dict[str, str | None]()
        try:
            for stored in Reader(self._threads.documents(namespace.thread_id), namespace).walk():
                for value in stored.record.values:
                    if unknown.get(value.channel) == value.version:
                        homes.setdefault(value.channel, stored.checkpoint_id)
                if len(homes) == len(unknown):
                    break
        except NotFoundError:
            return {}
        return homes


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether the metadata contain every wanted entry."""
    return all(metadata.get(name) == value for name, value in (wanted or {}).items())
