"""Reads the documents of a namespace, newest first or by their keys, and restores the values of a checkpoint from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from turnlog.client.documents import Document, Documents
from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.known import CheckpointCache, KnownCheckpoint, ListState, pieces_within
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
    larges_of,
    patched,
    size_of,
    stored_of,
    writes_of,
)
from turnlog.integrations.langgraph.threads import Namespace, ThreadSessions, task_of

FIRST_DOCUMENTS = 22
"""Documents of the first page of a walk: the newest checkpoint and ten that its lists are built on, each with a task's writes."""
Load: TypeAlias = Callable[[Typed], Any]
Plain: TypeAlias = Typed | list[Typed]
"""A serialized value; a list is given by its serialized elements."""


@lazy_dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint, and the keys of its tasks' writes by task name."""

    checkpoint_id: str
    record: Checkpointed
    writes: Mapping[str, str]


@lazy_dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint without its channel values, its metadata, and the stored checkpoint that they come from."""

    stored: StoredCheckpoint
    checkpoint: Mapping[str, Any]
    metadata: dict[str, Any]

    @property
    def refs(self) -> dict[str, ValueRef]:
        """References to the values of the checkpoint by channel. Channels without a value are left out."""
        record, checkpoint_id, refs = self.stored.record, self.stored.checkpoint_id, dict[str, ValueRef]()
        places = dict(record.places)
        for channel, version in self.checkpoint["channel_versions"].items():
            stored = record.value(channel, version)
            if stored is not None and not isinstance(stored, Nothing):
                refs[channel] = ValueRef(checkpoint_id, channel, version)
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
        *,
        start: str | None = None,
        below: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.namespace = namespace
        self._documents = documents.reading()
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
                yield StoredCheckpoint(checkpoint_id, self.checkpoint_at(key), writes.pop(checkpoint_id, {}))

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

    # ------------------------------------------------------------ by key

    def read_between(self, newest: str, oldest: str) -> None:
        """Read all documents from the checkpoint ``newest`` back to ``oldest``, with the writes of their tasks."""
        first, last = self.namespace.checkpoint(newest), self.namespace.checkpoint(oldest)
        if self._order and first <= self._order[0]:
            while self._order[-1] > last and self._read_page():
                pass
            return
        for page in self._listed(after=self.namespace.above(newest), until=last):
            self._kept(page)

    def get(self, keys: Iterable[str]) -> None:
        """Read the documents with these keys. Raises `CorruptError` when one is missing: other documents refer to it."""
        wanted = sorted(keys)
        documents = self._documents.get_many(wanted)
        for key in wanted:
            if key not in documents:
                raise CorruptError("a document of a checkpoint is missing", item=key)
        self._kept(documents.values())

    def unread(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if key not in self._data}

    def checkpoint_at(self, key: str) -> Checkpointed:
        """Return the checkpoint of a document that has been read."""
        if key not in self._checkpoints:
            self._checkpoints[key] = checkpoint_of(self._data[key], item=key)
        return self._checkpoints[key]

    def writes_at(self, key: str) -> Writes:
        """Return the writes of a document that has been read."""
        if key not in self._writes:
            self._writes[key] = writes_of(self._data[key], item=key)
        return self._writes[key]

    def large(self, large: Large) -> Stored:
        """Return a large value whose parts have been read."""
        if large.name not in self._large:
            self._large[large.name] = stored_of(b"".join(map(self._data.__getitem__, large.keys)), item=large.name)
        return self._large[large.name]


Missing: TypeAlias = set[str | tuple[str, str]]
"""What must be read before a value can be restored: keys of documents, and ranges from a checkpoint back to an older one."""


class CheckpointValues:
    """Values of the checkpoints that a reader reads.

    ``lists`` are the lists of checkpoints that are known. ``refs`` and ``writes`` name the
    values, and the documents of tasks' writes, that `of` has restored values from.
    """

    def __init__(self, reader: Reader, lists: Mapping[ValueRef, ListState]) -> None:
        self._reader = reader
        self._lists = lists
        self._namespace = reader.namespace
        self._spans: set[tuple[str, str]] = set()
        self._restored: dict[str, ListState] = {}
        self.refs: set[ValueRef] = set()
        self.writes: set[str] = set()

    def of(self, loaded: Loaded) -> dict[str, Typed | ListState]:
        """Return the values of a checkpoint by channel. Channels without a value are left out.

        Reads ranges of checkpoints with a request per megabyte, and the rest by key.
        """
        while True:
            missing: Missing = set()
            values = {channel: self._value(ref, missing) for channel, ref in loaded.refs.items()}
            restored = {channel: value for channel, value in values.items() if value is not None}
            if not missing:
                return restored
            for span in (span for span in missing if not isinstance(span, str)):
                self._spans.add(span)
                self._reader.read_between(*span)
            if keys := self._reader.unread(key for key in missing if isinstance(key, str)):
                self._reader.get(keys)

    def written(self, checkpoint: StoredCheckpoint) -> list[tuple[str, str, Plain]]:
        """Return the writes to a checkpoint as (task id, channel, value), in the order of LangGraph's `writes_sort_key`."""
        pairs = list[tuple[str, Any]]()
        for name, key in checkpoint.writes.items():
            writes = self._reader.writes_at(key)
            task_id = writes.task_id if writes.task_id is not None else task_of(name) or name
            pairs += [(task_id, write) for write in writes.writes]
        if keys := self._reader.unread(
            key for _, write in pairs for large in larges_of(write.stored) for key in large.keys
        ):
            self._reader.get(keys)
        pairs.sort(key=lambda pair: (pair[1].path, pair[0], pair[1].index))
        return [(task_id, write.channel, self._plain(write.stored)) for task_id, write in pairs]

    def _value(self, ref: ValueRef, missing: Missing) -> Typed | ListState | None:
        """Return a value, or None when there is none, or ``missing`` must be read first."""
        if (known := self.known(ref)) is not None:
            return known
        stored = self._stored(ref, missing)
        self.refs.add(ref)
        if isinstance(stored, WholeValue):
            return stored.value
        return self._list(ref, missing) if isinstance(stored, Elements) else None

    def _stored(self, ref: ValueRef, missing: Missing) -> Stored | None:
        """Return the stored form of a value, or None when ``missing`` must be read first."""
        key = self._namespace.checkpoint(ref.home)
        if self._reader.unread([key]):
            missing.add(key)
            return None
        stored = self._reader.checkpoint_at(key).value(ref.channel, ref.version)
        if stored is None:
            raise CorruptError("a value is not where it should be", item=key)
        if not isinstance(stored, Large):
            return stored
        unread = self._reader.unread(stored.keys)
        missing.update(unread)
        return self._reader.large(stored) if not unread else None

    def _plain(self, stored: Stored) -> Plain:
        if isinstance(stored, Large):
            stored = self._reader.large(stored)
        if isinstance(stored, WholeValue):
            return stored.value
        return self._elements(stored.items) if isinstance(stored, Elements) else []

    # ------------------------------------------------------------ lists

    def known(self, ref: ValueRef) -> ListState | None:
        """Return a list that has been restored, or that was known before."""
        state = self._restored.get(ref.channel)
        return state if state is not None and state.ref == ref else self._lists.get(ref)

    def _list(self, ref: ValueRef, missing: Missing) -> ListState | None:
        """Return a list, restored from where it is stored whole, or from a known one; None when ``missing`` must be read first."""
        links, current, low = dict[ValueRef, Elements](), ref, ""
        is_whole = True
        while (known := self.known(current)) is None:
            key = self._namespace.checkpoint(current.home)
            if current in links:
                raise CorruptError("a list continues itself", item=key)
            span = (current.home, low or current.home)
            if links and span not in self._spans and self._reader.unread([key]):
                missing.add(span)
                return None
            stored = self._stored(current, missing)
            if stored is None:
                return None
            if not isinstance(stored, Elements):
                raise CorruptError("a list is not where it should be", item=key)
            is_whole = not self._lacks(stored, missing) and is_whole
            links[current] = stored
            if stored.base is None:
                break
            low = self._reader.checkpoint_at(key).low or ""
            current = ValueRef(stored.base.home, current.channel, stored.base.version)
        if not is_whole:
            return None
        self.refs.update(links)
        state = self._grown(known, list(links.items())[::-1])
        self._restored[ref.channel] = state
        return state

    def _lacks(self, stored: Elements, missing: Missing) -> bool:
        """Add the documents that a list's items refer to, and that have not been read, to ``missing``; return whether there are."""
        keys = {key for large in larges_of(stored) for key in large.keys}
        for item in stored.written:
            key = self._writes_key(item)
            self.writes.add(key)
            if not self._reader.unread([key]):
                keys |= {key for large in larges_of(self._write(item)) for key in large.keys}
            keys.add(key)
        unread = self._reader.unread(keys)
        missing.update(unread)
        return bool(unread)

    def _grown(self, known: ListState | None, links: Iterable[tuple[ValueRef, Elements]]) -> ListState:
        """Return a list: that of ``known``, changed as the links say, the oldest first."""
        state, items = known, list(known.items) if known is not None else []
        for ref, stored in links:
            count = stored.base.count if stored.base is not None else 0
            if len(items) < count:
                raise CorruptError("a list is shorter than it was", item=self._namespace.checkpoint(ref.home))
            items[count:] = self._elements(stored.items)
            size = size_of(stored)
            if state is None or stored.base is None:
                pieces = tuple(item for item in stored.items if isinstance(item, ListPiece))
                state = ListState(ref, (), pieces, 0, size, ref.home)
            else:
                pieces, depth = pieces_within(state.pieces, count), state.depth + 1
                state = ListState(ref, (), pieces, depth, state.tail_bytes + size, state.start)
        if state is None:
            raise CorruptError("a list is not where it should be", item=self._namespace.name)
        return replace(state, items=tuple(items))

    def _elements(self, items: Iterable[Item]) -> list[Typed]:
        """Return the elements of a list's items."""
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
        write = self._reader.writes_at(key).write(item.index)
        if write is None:
            raise CorruptError("a write is not where it should be", item=key)
        return write.stored

    def _writes_key(self, item: WrittenElements) -> str:
        return self._namespace.writes(item.checkpoint_id, item.task)


class Loader:
    """Loads checkpoints, and remembers what the next checkpoint will refer to."""

    def __init__(self, threads: ThreadSessions, cache: CheckpointCache, load: Load) -> None:
        self._threads = threads
        self._cache = cache
        self.load = load

    def reader(self, namespace: Namespace, *, start: str | None = None, below: str | None = None) -> Reader:
        known, hint = self._cache.known(namespace), start
        if start is None and below is None:
            hint = max(known, key=namespace.checkpoint, default=None)
        hint = hint if hint in known else None
        return Reader(self._threads.documents(namespace.thread_id), namespace, start=start, below=below, hint=hint)

    def values_of(self, reader: Reader) -> CheckpointValues:
        lists: dict[ValueRef, ListState] = {}
        for known in self._cache.known(reader.namespace).values():
            lists |= known.lists
        return CheckpointValues(reader, lists)

    def find(self, namespace: Namespace, checkpoint_id: str | None) -> tuple[Loaded, CheckpointValues] | None:
        """Return the checkpoint with this id, or without an id the newest one; None when there is none."""
        reader = self.reader(namespace, start=checkpoint_id)
        try:
            stored = next(reader.walk() if checkpoint_id is not None else reader.visible(), None)
        except NotFoundError:
            stored = None
        if stored is None and checkpoint_id is None:
            self._cache.forget([namespace])
        if stored is None or stored.record.is_hidden or checkpoint_id not in (stored.checkpoint_id, None):
            return None
        return self.loaded(stored), self.values_of(reader)

    def loaded(self, stored: StoredCheckpoint) -> Loaded:
        return Loaded(stored, self.load(stored.record.checkpoint), self.load(stored.record.metadata))

    def known(self, namespace: Namespace, checkpoint_id: str) -> KnownCheckpoint | None:
        """Return the places of a checkpoint's values, and its lists, from memory or from the store; None when it is missing."""
        known = self._cache.known(namespace).get(checkpoint_id)
        if known is None and (result := self.find(namespace, checkpoint_id)) is not None:
            loaded, values = result
            values.of(loaded)
            known = self.remember(namespace, loaded, values)
        return known

    def remember(self, namespace: Namespace, loaded: Loaded, values: CheckpointValues) -> KnownCheckpoint:
        """Remember the places of a checkpoint's values, and its lists, which ``values`` has restored."""
        refs, versions = loaded.refs, loaded.checkpoint["channel_versions"]
        homes = {name: (version, refs[name].home if name in refs else None) for name, version in versions.items()}
        lists = {ref: state for ref in refs.values() if (state := values.known(ref)) is not None}
        known = KnownCheckpoint(homes, lists)
        self._cache.remember(namespace, loaded.stored.checkpoint_id, known)
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
