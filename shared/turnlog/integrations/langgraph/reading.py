"""Reads the documents of a namespace, newest first or by their keys, and restores the values of a checkpoint from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from turnlog.client.documents import Document, Documents
from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.integrations.langgraph.known import CheckpointCache, KnownCheckpoint, ListState, following
from turnlog.integrations.langgraph.records import (
    Checkpointed,
    Elements,
    Item,
    Large,
    ListPiece,
    Nothing,
    Stored,
    Typed,
    ValueRef,
    Version,
    WholeValue,
    Writes,
    WrittenElements,
    checkpoint_of,
    part_keys,
    patched,
    stored_of,
    writes_of,
    written_of,
)
from turnlog.integrations.langgraph.threads import Namespace, ThreadSessions, task_of

FIRST_DOCUMENTS = 22
"""Documents of the first page of a walk: the newest checkpoint and ten that its lists are built on, each with a task's writes."""
Load: TypeAlias = Callable[[Typed], Any]
Plain: TypeAlias = Typed | list[Typed]
"""A serialized value; a list is given by its serialized elements."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint, and the keys of its tasks' writes by task name. ``load`` decodes a serialized value."""

    checkpoint_id: str
    record: Checkpointed
    writes: Mapping[str, str]
    load: Load

    @cached_property
    def checkpoint(self) -> Mapping[str, Any]:
        """The checkpoint as LangGraph has it, without its channel values."""
        checkpoint: Mapping[str, Any] = self.load(self.record.checkpoint)
        return checkpoint

    @cached_property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.load(self.record.metadata)
        return metadata

    @cached_property
    def refs(self) -> dict[str, ValueRef]:
        """References to the values of the checkpoint by channel. Channels without a value are left out."""
        refs, places = dict[str, ValueRef](), dict(self.record.places)
        for channel, version in self.checkpoint["channel_versions"].items():
            stored = self.record.value(channel, version)
            if stored is not None and not isinstance(stored, Nothing):
                refs[channel] = ValueRef(self.checkpoint_id, channel, version)
            elif stored is None and channel in places:
                refs[channel] = ValueRef(places[channel], channel, version)
        return refs


class Reader:
    """Reads the documents of one namespace and keeps what it has read. ``documents`` are those of a session.

    The walk through the checkpoints begins at ``start``, or before ``below``: a short page, then pages of a megabyte. ``hint``
    is the checkpoint that ends the first page, because nothing older may be needed.
    """

    def __init__(
        self,
        documents: Documents,
        namespace: Namespace,
        load: Load,
        *,
        start: str | None = None,
        below: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.namespace = namespace
        self._documents = documents.reading()
        self._load = load
        self._start = start
        self._data: dict[str, bytes] = {}
        self._checkpoints: dict[str, Checkpointed] = {}
        self._writes: dict[str, Writes] = {}
        self._large: dict[str, Stored] = {}
        self._order: list[str] = []
        after = (
            namespace.above(start) if start is not None else namespace.checkpoint(below) if below is not None else None
        )
        self._pages = self._walked(after, hint)

    def walk(self) -> Iterator[StoredCheckpoint]:
        """Yield the checkpoints, newest first, hidden ones too."""
        writes, place = dict[str, dict[str, str]](), 0
        while place < len(self._order) or self._read_page():
            key = self._order[place]
            place += 1
            checkpoint_id, task = self.namespace.parsed(key)
            if task is not None:
                writes.setdefault(checkpoint_id, {})[task] = key
            elif self._start is None or key <= self.namespace.checkpoint(self._start):
                record = self.checkpoint_at(key)
                yield StoredCheckpoint(checkpoint_id, record, writes.pop(checkpoint_id, {}), self._load)

    def visible(self) -> Iterator[StoredCheckpoint]:
        return (stored for stored in self.walk() if not stored.record.is_hidden)

    def _read_page(self) -> bool:
        """Read one more page of the walk. Returns False at its end."""
        for page in self._pages:
            self._order += self._kept(page)
            if page:
                return True
        return False

    def _walked(self, after: str | None, hint: str | None) -> Iterator[Sequence[Document]]:
        bounds: dict[str, Any] = {"limit": FIRST_DOCUMENTS}
        if hint is not None and (after is None or self.namespace.checkpoint(hint) < after):
            bounds = {"until": self.namespace.checkpoint(hint)}
        count = 0
        for page in self._listed(after=after, **bounds):
            count += len(page)
            after = page[-1].key if page else after
            yield page
        if "until" in bounds or count == FIRST_DOCUMENTS:
            yield from self._listed(after=after)

    def _listed(self, **bounds: Any) -> Iterator[Sequence[Document]]:
        pages = self._documents.list(self.namespace.prefix, order="desc", **bounds)
        while (page := pages.page()) is not None:
            yield page

    def _kept(self, documents: Iterable[Document]) -> list[str]:
        read = {document.key: document.data for document in documents}
        self._data |= read
        return list(read)

    def read_between(self, newest: str, oldest: str) -> None:
        """Read all documents from the checkpoint ``newest`` back to ``oldest``, with the writes of their tasks."""
        first, last = self.namespace.checkpoint(newest), self.namespace.checkpoint(oldest)
        if self._order and first <= self._order[0]:
            while self._order[-1] > last and self._read_page():
                pass
            return
        for page in self._listed(after=self.namespace.above(newest), until=last):
            self._kept(page)

    def need(self, keys: Iterable[str]) -> None:
        """Read the documents with these keys that have not been read. Raises `CorruptError` when one of them does not exist."""
        unread = self.unread(keys)
        documents = self._documents.get_many(unread)
        for key in unread:
            if key not in documents:
                raise CorruptError("a document of a checkpoint is missing", item=key)
        self._kept(documents.values())

    def unread(self, keys: Iterable[str]) -> list[str]:
        return sorted({key for key in keys if key not in self._data})

    def checkpoint_at(self, key: str) -> Checkpointed:
        """Return the checkpoint of a document."""
        if key not in self._checkpoints:
            self.need([key])
            self._checkpoints[key] = checkpoint_of(self._data[key], item=key)
        return self._checkpoints[key]

    def writes_at(self, key: str) -> Writes:
        """Return the writes of a document."""
        if key not in self._writes:
            self.need([key])
            self._writes[key] = writes_of(self._data[key], item=key)
        return self._writes[key]

    def large(self, large: Large) -> Stored:
        """Return a large value."""
        if large.name not in self._large:
            self.need(large.keys)
            self._large[large.name] = stored_of(b"".join(map(self._data.__getitem__, large.keys)), item=large.name)
        return self._large[large.name]


class CheckpointValues:
    """Values of the checkpoints that a reader reads.

    ``lists`` are the lists of checkpoints that are known. ``refs`` and ``writes`` name the
    values, and the documents of tasks' writes, that `of` has restored values from.
    """

    def __init__(self, reader: Reader, lists: Mapping[ValueRef, ListState]) -> None:
        self.reader = reader
        self.namespace = reader.namespace
        self._lists = lists
        self._restored: dict[str, ListState] = {}
        self.refs: set[ValueRef] = set()
        self.writes: set[str] = set()

    def of(self, checkpoint: StoredCheckpoint) -> dict[str, Typed | ListState]:
        """Return the values of a checkpoint by channel. Channels without a value are left out.

        Reads ranges of checkpoints with a request per megabyte, and the rest by key.
        """
        refs = checkpoint.refs
        while keys := self.reader.unread(key for ref in refs.values() for key in self._keys(ref)):
            self.reader.need(keys)
        values = {channel: self._value(ref) for channel, ref in refs.items()}
        return {channel: value for channel, value in values.items() if value is not None}

    def written(self, checkpoint: StoredCheckpoint) -> list[tuple[str, str, Plain]]:
        """Return the writes to a checkpoint as (task id, channel, value), in the order of LangGraph's `writes_sort_key`."""
        pairs = list[tuple[str, Any]]()
        for name, key in checkpoint.writes.items():
            writes = self.reader.writes_at(key)
            task_id = writes.task_id if writes.task_id is not None else task_of(name) or name
            pairs += [(task_id, write) for write in writes.writes]
        self.reader.need(part_keys(write.stored for _, write in pairs))
        pairs.sort(key=lambda pair: (pair[1].path, pair[0], pair[1].index))
        return [(task_id, write.channel, self._plain(write.stored)) for task_id, write in pairs]

    def _value(self, ref: ValueRef) -> Typed | ListState | None:
        if (known := self.known(ref)) is not None:
            return known
        links = self._links(ref)
        self.refs.update(links)
        stored = links[ref]
        if isinstance(stored, Nothing):  # the checkpoint is a copy of one in which the channel has no value
            return None
        return stored.value if isinstance(stored, WholeValue) else self._list(links)

    def _keys(self, ref: ValueRef) -> set[str]:
        """Return the keys of the documents that have a value, as far as those that have been read name them."""
        if self.known(ref) is not None:
            return set()
        if self.reader.unread([self._key(ref)]):
            return {self._key(ref)}
        links = self._links(ref).values()
        written = {self._writes_key(item): item for stored in links for item in written_of(stored)}
        read = [self._write(item) for key, item in written.items() if not self.reader.unread([key])]
        return {*written, *part_keys([*links, *read])}

    def _links(self, ref: ValueRef) -> dict[ValueRef, Stored]:
        """Return the stored forms of a value: its own, and of a list those that it is built on, back to a known one.

        Ends with a large value that has not been read.
        """
        links, low = dict[ValueRef, Stored](), ""
        while self.known(ref) is None:
            key = self._key(ref)
            if ref in links:
                raise CorruptError("a list continues itself", item=key)
            if self.reader.unread([key]):
                self.reader.read_between(ref.home, low or ref.home)
            checkpoint = self.reader.checkpoint_at(key)
            stored = checkpoint.value(ref.channel, ref.version)
            if stored is None:
                raise CorruptError("a value is not where it should be", item=key)
            if isinstance(stored, Large) and not self.reader.unread(stored.keys):
                stored = self.reader.large(stored)
            links[ref] = stored
            if not isinstance(stored, Elements) or stored.base is None:
                break
            low = checkpoint.low or ""
            ref = ValueRef(stored.base.home, ref.channel, stored.base.version)
        return links

    def _plain(self, stored: Stored) -> Plain:
        if isinstance(stored, Large):
            stored = self.reader.large(stored)
        if isinstance(stored, WholeValue):
            return stored.value
        return self._elements(stored.items) if isinstance(stored, Elements) else []

    def _key(self, ref: ValueRef) -> str:
        return self.namespace.checkpoint(ref.home)

    def known(self, ref: ValueRef) -> ListState | None:
        """Return a list that has been restored, or that was known before."""
        state = self._restored.get(ref.channel)
        return state if state is not None and state.ref == ref else self._lists.get(ref)

    def _list(self, links: Mapping[ValueRef, Stored]) -> ListState:
        """Return the list that the first of these stored forms is; the last one is stored whole, or built on a known list."""
        state, items = None, list[Typed]()
        for ref, stored in reversed(list(links.items())):
            if not isinstance(stored, Elements):
                raise CorruptError("a list is not where it should be", item=self._key(ref))
            base = stored.base
            if base is not None and state is None:
                state = self.known(ValueRef(base.home, ref.channel, base.version))
                items = list(state.items) if state is not None else []
            count = base.count if base is not None else 0
            if len(items) < count:
                raise CorruptError("a list is shorter than it was", item=self._key(ref))
            items[count:] = self._elements(stored.items)
            self.writes.update(map(self._writes_key, written_of(stored)))
            state = following(state, ref, stored)
        if state is None:
            raise CorruptError("a list is not where it should be", item=self.namespace.name)
        restored = self._restored[state.ref.channel] = replace(state, items=tuple(items))
        return restored

    def _elements(self, items: Iterable[Item]) -> list[Typed]:
        elements: list[Typed] = []
        for item in items:
            if isinstance(item, tuple):
                elements.append(item)
            elif isinstance(item, ListPiece):
                piece = self._plain(item.large)
                if not isinstance(piece, list) or len(piece) != item.count:
                    raise CorruptError("a piece of a list is not what it was", item=item.large.name)
                elements += piece
            elif isinstance(item, WrittenElements):
                elements += self._written_items(item)
            else:
                (alike,) = self._written_items(item.written)
                elements.append((item.kind, patched(alike[1], item.patch, item=self._writes_key(item.written))))
        return elements

    def _written_items(self, item: WrittenElements) -> list[Typed]:
        plain = self._plain(self._write(item))
        items = plain if isinstance(plain, list) else [plain]
        part = items[item.first : item.first + item.count]
        if len(part) < item.count:
            raise CorruptError("a write is shorter than it was", item=self._writes_key(item))
        return part

    def _write(self, item: WrittenElements) -> Stored:
        key = self._writes_key(item)
        write = self.reader.writes_at(key).write(item.index)
        if write is None:
            raise CorruptError("a write is not where it should be", item=key)
        return write.stored

    def _writes_key(self, item: WrittenElements) -> str:
        return self.namespace.writes(item.checkpoint_id, item.task)


class Loader:
    """Loads checkpoints, and remembers what the next checkpoint will refer to."""

    def __init__(self, threads: ThreadSessions, cache: CheckpointCache, load: Load) -> None:
        self._threads = threads
        self._cache = cache
        self._load = load

    def reader(self, namespace: Namespace, **bounds: Any) -> Reader:
        """Return a reader of a namespace; ``bounds`` are its options."""
        return Reader(self._threads.documents(namespace.thread_id), namespace, self._load, **bounds)

    def values(self, namespace: Namespace, *, start: str | None = None, below: str | None = None) -> CheckpointValues:
        """Return the values of checkpoints from ``start`` back, or before ``below``."""
        known, hint = self._cache.known(namespace), start
        if start is None and below is None:
            hint = max(known, key=namespace.checkpoint, default=None)
        reader = self.reader(namespace, start=start, below=below, hint=hint if hint in known else None)
        return CheckpointValues(reader, {ref: state for each in known.values() for ref, state in each.lists.items()})

    def find(self, namespace: Namespace, checkpoint_id: str | None) -> tuple[StoredCheckpoint, CheckpointValues] | None:
        """Return the checkpoint with this id, or without an id the newest one; None when there is none."""
        values = self.values(namespace, start=checkpoint_id)
        walk = values.reader.walk() if checkpoint_id is not None else values.reader.visible()
        try:
            stored = next(walk, None)
        except NotFoundError:
            stored = None
        if stored is None and checkpoint_id is None:
            self._cache.forget([namespace])
        if stored is None or stored.record.is_hidden or checkpoint_id not in (stored.checkpoint_id, None):
            return None
        return stored, values

    def known(self, namespace: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        """Return the places of a checkpoint's values, and its lists, from memory or from the store; None when it is missing."""
        known = self._cache.known(namespace).get(checkpoint_id)
        if known is None and (result := self.find(namespace, checkpoint_id)) is not None:
            checkpoint, values = result
            values.of(checkpoint)
            known = self.remember(checkpoint, values)
        return known

    def remember(self, checkpoint: StoredCheckpoint, values: CheckpointValues) -> KnownCheckpoint:
        """Remember the places of a checkpoint's values, and its lists, which ``values`` has restored."""
        refs, versions = checkpoint.refs, checkpoint.checkpoint["channel_versions"]
        homes = {name: (version, refs[name].home if name in refs else None) for name, version in versions.items()}
        lists = {ref: state for ref in refs.values() if (state := values.known(ref)) is not None}
        known = KnownCheckpoint(homes, lists)
        self._cache.remember(values.namespace, checkpoint.checkpoint_id, known)
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
            for stored in self.reader(namespace).walk():
                for value in stored.record.values:
                    if unknown.get(value.channel) == value.version:
                        homes.setdefault(value.channel, stored.checkpoint_id)
                if len(homes) == len(unknown):
                    break
        except NotFoundError:
            return {}
        return homes
