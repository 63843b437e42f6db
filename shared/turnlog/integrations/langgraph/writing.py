"""Builds the stored form of checkpoints and of tasks' writes, and writes it: large values first, then what refers to them.

A checkpoint has its new values, and references to checkpoints that hold the older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from turnlog.client.model import Session
from turnlog.core.errors import DocumentChangedError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.engines import RandomIds
from turnlog.integrations.langgraph.checkpoint_cache import (
    BESIDE_BYTES,
    DOCUMENT_BYTES,
    KnownCheckpoint,
    ListState,
    base_of,
    is_by_element,
)
from turnlog.integrations.langgraph.records import (
    PART_BYTES,
    Checkpointed,
    Elements,
    Large,
    Nothing,
    Stored,
    Typed,
    Value,
    Version,
    WholeValue,
    Write,
    Writes,
    checkpoint_of,
    large_of,
    size_of,
    writes_of,
)
from turnlog.integrations.langgraph.threads import LARGE, Namespace, ThreadSessions, task_name, task_of

_TRIES = 20
_IDS = RandomIds()
Merge: TypeAlias = Callable[[bytes], bytes | None]
"""Maps the stored data to its replacement; None keeps the stored data."""


class Parts:
    """Large values of a document; their parts are written before the document."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}

    def fitted(self, values: Sequence[Stored]) -> list[Stored]:
        """Return the values for one document of at most `PART_BYTES`, with large values replaced by references."""
        placed = [value if _is_small(value) else self.beside(value) for value in values]
        while sum(map(size_of, placed)) > PART_BYTES:
            largest = max(range(len(placed)), key=lambda index: size_of(placed[index]))
            placed[largest] = self.beside(placed[largest])
        return placed

    def beside(self, stored: Stored) -> Large:
        data, name = large_of(stored), LARGE + _IDS.new_id()
        parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
        self.documents |= {f"{name}.{number}": part for number, part in enumerate(parts)}
        return Large(name, len(parts))


class Writer:
    """Writes documents of threads."""

    def __init__(self, threads: ThreadSessions) -> None:
        self._threads = threads

    def put_checkpoint(self, namespace: Namespace, checkpoint_id: str, record: Checkpointed, parts: Parts) -> int:
        """Write a checkpoint and return its size in bytes.

        An existing checkpoint is replaced, but keeps values that other checkpoints may refer to.
        """
        key = namespace.checkpoint(checkpoint_id)
        data = record.packed()

        def merge(old: bytes) -> bytes:
            return record.in_place_of(checkpoint_of(old, item=key), namespace.checkpoint).packed()

        self._put(namespace, key, data, parts, merge)
        return len(data) + DOCUMENT_BYTES

    def put_writes(self, namespace: Namespace, checkpoint_id: str, task_id: str, writes: Sequence[Write]) -> None:
        """Write a task's writes to a checkpoint, merged with its earlier ones."""
        name, parts = task_name(task_id), Parts()
        key = namespace.writes(checkpoint_id, name)
        fitted = parts.fitted([write.stored for write in writes])
        mine = Writes(
            tuple(
                Write(write.index, write.channel, write.path, stored)
                for write, stored in zip(writes, fitted, strict=True)
            ),
            task_id if task_of(name) is None else None,
        ).ordered()

        def merge(old: bytes) -> bytes | None:
            before = writes_of(old, item=key)
            merged = before.merged(mine)
            return merged.packed() if merged != before else None

        self._put(namespace, key, mine.packed(), parts, merge)

    def _put(self, namespace: Namespace, key: str, data: bytes, parts: Parts, merge: Merge) -> None:
        def write(session: Session) -> None:
            documents = session.documents
            if parts.documents:
                documents.put_many(parts.documents)
            is_there = False
            for _ in range(_TRIES):
                old = documents.get(key) if is_there else None
                merged = merge(old.data) if old is not None else data
                if merged is None:
                    return
                with suppress(DocumentChangedError):
                    documents.put(
                        key, merged, if_absent=old is None, if_revision=old.revision if old is not None else None
                    )
                    return
                is_there = True
            raise DocumentChangedError(f"document {key[:80]!r} changes too often", details={"key": key})

        self._threads.written(namespace.thread_id, write)


def _is_small(stored: Stored) -> bool:
    return isinstance(stored, Elements) or size_of(stored) <= BESIDE_BYTES


Dump: TypeAlias = Callable[[Any], Typed]


@lazy_dataclass(frozen=True, slots=True)
class IncomingCheckpoint:
    """A checkpoint that LangGraph passes to `TurnlogSaver.put`.

    ``values`` holds the channels of ``new_versions``. A channel of ``new_versions`` without an entry there has no value.
    """

    checkpoint_id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, Version]
    new_versions: Mapping[str, Version]
    values: Mapping[str, Any]

    @property
    def older(self) -> dict[str, Version]:
        """Channels, with their versions, whose value is already stored by an earlier checkpoint."""
        return {name: version for name, version in self.versions.items() if self.new_versions.get(name) != version}

    @property
    def has_lists(self) -> bool:
        return any(is_by_element(self.values.get(name)) for name in self.new_versions)


class CheckpointBuilder:
    """Builds the record of a checkpoint.

    ``homes`` maps each older channel to the checkpoint that stores its value; None means that it has no value.
    """

    def __init__(
        self,
        namespace: Namespace,
        incoming: IncomingCheckpoint,
        *,
        dump: Dump,
        before: KnownCheckpoint | None,
        homes: Mapping[str, str | None],
    ) -> None:
        self._namespace = namespace
        self._incoming = incoming
        self._dump = dump
        self._before = before
        self._homes = homes
        self._states: dict[str, ListState] = {}
        self._based: set[str] = set()
        self.parts = Parts()

    def record(self) -> Checkpointed:
        incoming = self._incoming
        stored = [self._stored(name, version) for name, version in incoming.new_versions.items()]
        fitted = self.parts.fitted(stored)
        values = tuple(
            Value(name, version, value)
            for (name, version), value in zip(incoming.new_versions.items(), fitted, strict=True)
        )
        places = tuple((name, home) for name, home in self._homes.items() if home is not None)
        starts = [self._states[name].start for name in self._based]
        return Checkpointed(
            incoming.parent,
            incoming.checkpoint,
            incoming.metadata,
            values,
            places,
            min(starts, key=self._namespace.checkpoint, default=None),
            None if self._namespace.is_named_by_key else self._namespace.name,
        )

    def known(self, document_bytes: int) -> KnownCheckpoint:
        """Return what `CheckpointCache` remembers of the stored checkpoint. ``document_bytes`` is its document's size."""
        incoming, before = self._incoming, self._before
        homes: dict[str, tuple[Version, str | None]] = {
            name: (incoming.versions[name], home) for name, home in self._homes.items()
        }
        for name, version in incoming.new_versions.items():
            homes[name] = (version, incoming.checkpoint_id if name in incoming.values else None)
        lists = {name: self._grown(name, state, document_bytes) for name, state in self._states.items()}
        if before is not None:
            older = {
                name: state for name, state in before.lists.items() if homes.get(name) == (state.version, state.home)
            }
            lists = older | lists
        return KnownCheckpoint(homes, lists)

    def _stored(self, name: str, version: Version) -> Stored:
        incoming = self._incoming
        if name not in incoming.values:
            return Nothing()
        value = incoming.values[name]
        return self._list(name, version, value) if is_by_element(value) else WholeValue(self._dump(value))

    def _list(self, name: str, version: Version, value: list[Any]) -> Stored:
        incoming, before = self._incoming, self._list_before(name)
        items = tuple(self._dump(element) for element in value)
        base = base_of(items, before)
        stored: Stored
        if base is not None and before is not None:
            added = items[base.count :]
            stored = Elements(base, added)
            items = before.items[: base.count] + added  # share equal elements in memory
            self._states[name] = replace(before, version=version, home=incoming.checkpoint_id, items=items)
            self._based.add(name)
            return stored
        stored = Elements(None, items)
        whole_bytes = size_of(stored)
        if whole_bytes > BESIDE_BYTES:
            stored = self.parts.beside(stored)
            whole_bytes = sum(len(self.parts.documents[key]) for key in stored.keys)
        self._states[name] = ListState(version, incoming.checkpoint_id, items, incoming.checkpoint_id, 0, whole_bytes)
        return stored

    def _list_before(self, name: str) -> ListState | None:
        """Return the parent's list to build on, or None when a checkpoint that it needs sorts after this one."""
        incoming, state = self._incoming, self._before.lists.get(name) if self._before is not None else None
        newest = self._namespace.checkpoint(incoming.checkpoint_id)
        if state is None or incoming.parent is None or self._namespace.checkpoint(incoming.parent) > newest:
            return None
        return state if self._namespace.checkpoint(state.home) <= newest else None

    def _grown(self, name: str, state: ListState, document_bytes: int) -> ListState:
        """Return ``state`` with this checkpoint's document added to the span, when the list builds on an older one."""
        return replace(state, span_bytes=state.span_bytes + document_bytes) if name in self._based else state
