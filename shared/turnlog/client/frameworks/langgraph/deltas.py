"""The history of delta channels: what was written to them since they were stored last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from turnlog.client.frameworks.langgraph.loading import Loaded, Loader
from turnlog.client.frameworks.langgraph.values import Values
from turnlog.domain.errors import CorruptError

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

    def add(self, loaded: Loaded, values: Values) -> None:
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
