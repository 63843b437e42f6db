"""Writes checkpoints and the writes of tasks: large values first, then the document that refers to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from turnlog.client.documents import Documents
from turnlog.core.errors import DocumentChangedError
from turnlog.engines.system import RandomIds
from turnlog.integrations.langgraph.elements import BESIDE_BYTES, DOCUMENT_BYTES, ElementPlace
from turnlog.integrations.langgraph.known import CheckpointMemory
from turnlog.integrations.langgraph.records import (
    PART_BYTES,
    Checkpointed,
    Elements,
    Large,
    Stored,
    Typed,
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
    """Writes documents of threads and caches the written list elements."""

    def __init__(self, threads: ThreadSessions, memory: CheckpointMemory) -> None:
        self._threads = threads
        self._memory = memory

    def put_checkpoint(self, space: Namespace, checkpoint_id: str, record: Checkpointed, parts: Parts) -> int:
        """Write a checkpoint and return its size in bytes.

        An existing checkpoint is replaced, but keeps values that other checkpoints may refer to.
        """
        key = space.checkpoint(checkpoint_id)
        data = record.packed()

        def merge(old: bytes) -> bytes:
            return record.in_place_of(checkpoint_of(old, item=key), space.checkpoint).packed()

        self._put(space, key, data, parts, merge)
        return len(data) + DOCUMENT_BYTES

    def put_writes(self, space: Namespace, checkpoint_id: str, task_id: str, writes: Sequence[Write]) -> None:
        """Write a task's writes to a checkpoint, merged with its earlier ones."""
        name, parts = task_name(task_id), Parts()
        key = space.writes(checkpoint_id, name)
        fitted = parts.fitted([write.stored for write in writes])
        mine = Writes(
            tuple(
                Write(write.index, write.channel, write.path, stored)
                for write, stored in zip(writes, fitted, strict=True)
            ),
            task_id if task_of(name) is None else None,
        ).ordered()
        kept = [mine]

        def merge(old: bytes) -> bytes | None:
            before = writes_of(old, item=key)
            kept[0] = before.merged(mine)
            return kept[0].packed() if kept[0] != before else None

        with self._memory.writing(space, checkpoint_id):
            data = mine.packed()
            self._put(space, key, data, parts, merge)
            self._memory.remember_written(space, checkpoint_id, places_of(checkpoint_id, name, kept[0], len(data)))

    def _put(self, space: Namespace, key: str, data: bytes, parts: Parts, merge: Merge) -> None:
        def write(documents: Documents) -> None:
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

        self._threads.written(space.thread_id, write)


def places_of(checkpoint_id: str, name: str, writes: Writes, size: int) -> dict[Typed, ElementPlace]:
    """Return the places of the elements that a task has written. Special channels are left out: they can be overwritten."""
    places = dict[Typed, ElementPlace]()
    for write in writes.writes:
        if write.index >= 0:
            stored = write.stored
            items = (
                stored.items
                if isinstance(stored, Elements)
                else (stored.value,)
                if isinstance(stored, WholeValue)
                else ()
            )
            for index, item in enumerate(items):
                if isinstance(item, tuple):
                    places[item] = ElementPlace(checkpoint_id, name, write.index, index, item[1], size + DOCUMENT_BYTES)
    return places


def _is_small(stored: Stored) -> bool:
    return isinstance(stored, Elements) or size_of(stored) <= BESIDE_BYTES
