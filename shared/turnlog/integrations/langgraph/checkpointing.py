"""A checkpoint as it is stored: the values that are new in it, and where the others are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.elements import (
    BESIDE_BYTES,
    ElementPlace,
    ListState,
    base_of,
    elements_of,
    is_by_element,
)
from turnlog.integrations.langgraph.known import KnownCheckpoint
from turnlog.integrations.langgraph.records import (
    Checkpointed,
    Elements,
    Large,
    Nothing,
    Stored,
    Typed,
    Value,
    Version,
    WholeValue,
    size_of,
)
from turnlog.integrations.langgraph.threads import Namespace
from turnlog.integrations.langgraph.writing import Parts

Dump: TypeAlias = Callable[[Any], Typed]


@lazy_dataclass(frozen=True, slots=True)
class Given:
    """What a saver is given. ``values`` are those of the new versions; a channel of these without one has none."""

    checkpoint_id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, Version]
    new_versions: Mapping[str, Version]
    values: Mapping[str, Any]

    @property
    def older(self) -> dict[str, Version]:
        """Channels whose value was stored before."""
        return {name: one for name, one in self.versions.items() if self.new_versions.get(name) != one}

    @property
    def has_lists(self) -> bool:
        return any(is_by_element(self.values.get(name)) for name in self.new_versions)


class Making:
    """Makes the record of a checkpoint. ``written`` is what tasks wrote to its parent, ``homes`` where older values are."""

    def __init__(
        self,
        space: Namespace,
        given: Given,
        *,
        dump: Dump,
        before: KnownCheckpoint | None,
        written: Mapping[Typed, ElementPlace],
        homes: Mapping[str, str | None],
    ) -> None:
        self._space = space
        self._given = given
        self._dump = dump
        self._before = before
        self._written = written
        self._homes = homes
        self._states: dict[str, ListState] = {}
        self._based: set[str] = set()
        self.parts = Parts()

    def record(self) -> Checkpointed:
        given = self._given
        stored = [self._stored(name, version) for name, version in given.new_versions.items()]
        fitted = self.parts.fitted(stored)
        values = tuple(
            Value(name, version, one) for (name, version), one in zip(given.new_versions.items(), fitted, strict=True)
        )
        places = tuple((name, home) for name, home in self._homes.items() if home is not None)
        starts = [self._states[name].start for name in self._based]
        return Checkpointed(
            given.parent,
            given.checkpoint,
            given.metadata,
            values,
            places,
            min(starts, key=self._space.checkpoint, default=None),
            None if self._space.is_named_by_key else self._space.namespace,
        )

    def known(self, document_bytes: int) -> KnownCheckpoint:
        """What is known of the checkpoint when it is stored."""
        given, before = self._given, self._before
        homes: dict[str, tuple[Version, str | None]] = {
            name: (given.versions[name], home) for name, home in self._homes.items()
        }
        for name, version in given.new_versions.items():
            homes[name] = (version, given.checkpoint_id if name in given.values else None)
        lists = {name: self._grown(name, one, document_bytes) for name, one in self._states.items()}
        if before is not None:
            older = {name: one for name, one in before.lists.items() if homes.get(name) == (one.version, one.home)}
            lists = older | lists
        return KnownCheckpoint(homes, lists)

    def _stored(self, name: str, version: Version) -> Stored:
        given = self._given
        if name not in given.values:
            return Nothing()
        value = given.values[name]
        return self._list(name, version, value) if is_by_element(value) else WholeValue(self._dump(value))

    def _list(self, name: str, version: Version, value: list[Any]) -> Stored:
        given, before = self._given, self._list_before(name)
        items = tuple(self._dump(one) for one in value)
        base = base_of(items, before)
        large: Large | None = None
        stored = elements_of(items, base, self._written)
        sizes = {(one.checkpoint_id, one.task): one.document_bytes for one in self._written.values()}
        outside = sum(sizes[one] for one in {(one.checkpoint_id, one.task) for one in stored.written})
        if base is not None and before is not None:
            start, span, whole = before.start, before.span_bytes + outside, before.whole_bytes
            items = before.items[: base.count] + items[base.count :]  # one object for what is the same
        else:
            start = min(
                [given.checkpoint_id, *(one.checkpoint_id for one in stored.written)], key=self._space.checkpoint
            )
            span, whole = 0, size_of(stored) + outside
            if size_of(stored) > BESIDE_BYTES:
                large = self.parts.beside(Elements(None, items))
                start, whole = given.checkpoint_id, sum(len(self.parts.documents[key]) for key in large.keys)
        self._states[name] = ListState(version, given.checkpoint_id, items, start, span, whole)
        if base is not None:
            self._based.add(name)
        return stored if large is None else large

    def _list_before(self, name: str) -> ListState | None:
        """The list in the parent, if all that it needs sorts before this checkpoint."""
        given, found = self._given, self._before.lists.get(name) if self._before is not None else None
        newest = self._space.checkpoint(given.checkpoint_id)
        if found is None or given.parent is None or self._space.checkpoint(given.parent) > newest:
            return None
        return found if self._space.checkpoint(found.home) <= newest else None

    def _grown(self, name: str, state: ListState, document_bytes: int) -> ListState:
        """With this checkpoint's document, which is read with the list."""
        return replace(state, span_bytes=state.span_bytes + document_bytes) if name in self._based else state
