"""Builds the stored form of checkpoints and of tasks' writes, and writes it: large values first, then what refers to them.

A checkpoint has its new values, and references to checkpoints that hold the older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from langgraph.checkpoint.base import Checkpoint

from turnlog.client import retried
from turnlog.client.documents import Documents
from turnlog.client.model import Session
from turnlog.core.errors import DocumentChangedError
from turnlog.engines import RandomIds
from turnlog.integrations.langgraph.known import (
    KnownCheckpoint,
    ListState,
    base_of,
    following,
    is_by_element,
    pieces_within,
    shared_count,
)
from turnlog.integrations.langgraph.records import (
    PART_BYTES,
    Checkpointed,
    Elements,
    Large,
    ListPiece,
    Nothing,
    Stored,
    Typed,
    Value,
    ValueRef,
    Version,
    WholeValue,
    Write,
    Writes,
    checkpoint_of,
    large_of,
    size_of,
    writes_of,
)
from turnlog.integrations.langgraph.threads import LARGE, Namespace, ThreadSessions, id_in_key, task_name, task_of

BESIDE_BYTES, PIECE_BYTES = 8 * 1024, 4 * 1024
"""A larger value is stored in documents of its own, and more elements of a list that is stored whole become a piece."""
_IDS = RandomIds()
Dump: TypeAlias = Callable[[Any], Typed]


class Parts:
    """Large values of a document; their parts are written before the document."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}

    def fitted(self, values: Sequence[Stored]) -> list[Stored]:
        """Return the values for one document of at most `PART_BYTES`, with large values replaced by references."""
        placed = [
            value if isinstance(value, Elements) or size_of(value) <= BESIDE_BYTES else self.beside(value)
            for value in values
        ]
        while sum(map(size_of, placed)) > PART_BYTES:
            largest = max(range(len(placed)), key=lambda index: size_of(placed[index]))
            placed[largest] = self.beside(placed[largest])
        return placed

    def beside(self, stored: Stored) -> Stored:
        """Return a value whose data becomes documents of its own."""
        return self.shortened(stored) if isinstance(stored, Elements) else self._large(stored)

    def shortened(self, stored: Elements) -> Elements:
        """Return a list whose elements after its pieces become a piece."""
        pieces = tuple(item for item in stored.items if isinstance(item, ListPiece))
        rest = stored.items[len(pieces) :]
        return Elements(stored.base, (*pieces, ListPiece(self._large(Elements(None, rest)), len(rest))))

    def _large(self, stored: Stored) -> Large:
        data, name = large_of(stored), LARGE + _IDS.new_id()
        parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]
        self.documents |= {f"{name}.{number}": part for number, part in enumerate(parts)}
        return Large(name, len(parts))


class Writer:
    """Writes documents of threads."""

    def __init__(self, threads: ThreadSessions) -> None:
        self._threads = threads

    def put_writes(self, namespace: Namespace, checkpoint_id: str, task_id: str, writes: Sequence[Write]) -> None:
        """Write a task's writes to a checkpoint, merged with its earlier ones."""
        name, parts = task_name(task_id), Parts()
        key = namespace.writes(checkpoint_id, name)
        fitted = parts.fitted([write.stored for write in writes])
        mine = Writes(
            tuple(replace(write, stored=stored) for write, stored in zip(writes, fitted, strict=True)),
            task_id if task_of(name) is None else None,
        )
        self.put(namespace.thread_id, key, Writes(()).merged(mine).packed(), parts)

    def copy(self, source: str, target: str) -> None:
        """Copy all documents of a thread in key order: referenced documents arrive before those that refer to them.

        Documents that the target has too are merged: a checkpoint stays visible, with the values that others there need.
        """
        for page in self._threads.pages(source):
            self._copy_page(target, {document.key: document.data for document in page})

    def _copy_page(self, target: str, page: Mapping[str, bytes]) -> None:
        def write(session: Session) -> None:
            known = session.documents.get_many(key for key in page if not key.startswith(LARGE))
            session.documents.put_many({key: data for key, data in page.items() if key not in known})
            for key, document in known.items():
                if page[key] != document.data:
                    self.put(target, key, page[key], Parts())

        self._threads.written(target, write)

    def put(self, thread_id: str, key: str, data: bytes, parts: Parts) -> None:
        """Write the document of a checkpoint or of a task's writes, and its large values.

        It is merged with the document under its key: a checkpoint keeps the values that others may refer to.
        """

        def put_merged(documents: Documents) -> None:
            old = documents.get(key)
            merged = merged_document(key, old.data, data) if old is not None else data
            if old is None or merged != old.data:
                revision = old.revision if old is not None else None
                documents.put(key, merged, if_absent=old is None, if_revision=revision)

        def write(session: Session) -> None:
            documents = session.documents
            if parts.documents:
                documents.put_many(parts.documents)
            try:
                documents.put(key, data, if_absent=True)
            except DocumentChangedError:
                retried(lambda: put_merged(documents), DocumentChangedError)

        self._threads.written(thread_id, write)


def merged_document(key: str, old: bytes, new: bytes) -> bytes:
    """Return the document of a checkpoint, or of a task's writes, that has what both the old and the new one have."""
    if "/w/" in key:
        return writes_of(old, item=key).merged(writes_of(new, item=key)).packed()
    checkpoint = checkpoint_of(new, item=key)
    return checkpoint.in_place_of(checkpoint_of(old, item=key), id_in_key).packed()


@dataclass
class CheckpointBuilder:
    """Builds the record of a checkpoint that LangGraph puts after ``parent``, whose stored state is ``before``.

    ``homes`` maps each channel that is not in ``new_versions`` to the checkpoint that stores its value; None means that it has no
    value. A channel of ``new_versions`` without one in the checkpoint has none.
    """

    namespace: Namespace
    parent: str | None
    checkpoint: Checkpoint
    new_versions: Mapping[str, Version]
    dump: Dump
    before: KnownCheckpoint | None
    homes: Mapping[str, str | None]
    states: dict[str, ListState] = field(default_factory=dict, init=False)
    parts: Parts = field(default_factory=Parts, init=False)

    def record(self, metadata: Any) -> Checkpointed:
        stored = [self._stored(ValueRef(self.checkpoint["id"], *channel)) for channel in self.new_versions.items()]
        fitted = zip(self.new_versions.items(), self.parts.fitted(stored), strict=True)
        starts = [state.start for state in self.states.values() if state.depth]
        return Checkpointed(
            self.parent,
            self.dump({name: value for name, value in self.checkpoint.items() if name != "channel_values"}),
            self.dump(metadata),
            tuple(Value(name, version, value) for (name, version), value in fitted),
            tuple((name, home) for name, home in self.homes.items() if home is not None),
            min(starts, key=self.namespace.checkpoint, default=None),
            None if self.namespace.is_named_by_key else self.namespace.name,
        )

    def known(self) -> KnownCheckpoint:
        """Return what `CheckpointCache` remembers of the stored checkpoint."""
        checkpoint, checkpoint_id = self.checkpoint, self.checkpoint["id"]
        homes = {name: (checkpoint["channel_versions"][name], home) for name, home in self.homes.items()}
        for name, version in self.new_versions.items():
            homes[name] = (version, checkpoint_id if name in checkpoint["channel_values"] else None)
        older = self.before.lists.values() if self.before is not None else ()
        lists = [state for state in older if homes.get(state.ref.channel) == (state.ref.version, state.ref.home)]
        return KnownCheckpoint(homes, {state.ref: state for state in (*lists, *self.states.values())})

    def _stored(self, ref: ValueRef) -> Stored:
        values = self.checkpoint["channel_values"]
        if ref.channel not in values:
            return Nothing()
        value = values[ref.channel]
        return self._list(ref, tuple(map(self.dump, value))) if is_by_element(value) else WholeValue(self.dump(value))

    def _list(self, ref: ValueRef, items: tuple[Typed, ...]) -> Stored:
        """Return a list as its new elements behind the parent's list, or whole: as pieces of elements, and the others."""
        before = self._list_before(ref.channel)
        base, pieces = None, tuple[ListPiece, ...]()
        if before is not None:
            count = shared_count(items, before.items)
            items = before.items[:count] + items[count:]  # share equal elements in memory
            base = base_of(count, size_of(Elements(None, items[count:])), before)
            pieces = pieces_within(before.pieces, count)
        if base is not None:
            stored = Elements(base, items[base.count :])
        else:
            stored = Elements(None, (*pieces, *items[sum(piece.count for piece in pieces) :]))
            if size_of(stored) > PIECE_BYTES:
                stored = self.parts.shortened(stored)
        self.states[ref.channel] = replace(following(before, ref, stored), items=items)
        return stored

    def _list_before(self, name: str) -> ListState | None:
        """Return the parent's list to build on, or None when a checkpoint that it needs sorts after this one."""
        before, parent, newest = self.before, self.parent, self.namespace.checkpoint(self.checkpoint["id"])
        if before is None or parent is None or self.namespace.checkpoint(parent) > newest:
            return None
        state = next((state for ref, state in before.lists.items() if ref.channel == name), None)
        return state if state is not None and self.namespace.checkpoint(state.ref.home) <= newest else None
