"""Reads the documents of a namespace, newest first or by their keys, and restores the values of a checkpoint from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from turnlog.client.documents import Documents
from turnlog.core.errors import CorruptError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.checkpoint_cache import DOCUMENT_BYTES, ListState
from turnlog.integrations.langgraph.records import (
    Alike,
    Base,
    Checkpointed,
    Elements,
    Item,
    Large,
    Nothing,
    Stored,
    Typed,
    Version,
    WholeValue,
    Write,
    Writes,
    WrittenElements,
    checkpoint_of,
    patched,
    stored_of,
    writes_of,
)
from turnlog.integrations.langgraph.threads import Namespace, task_of

NEAR_DOCUMENTS = 100
"""How many more documents of the walk are read before documents of older checkpoints are fetched by key."""


@lazy_dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint with the writes of its tasks, by task name."""

    checkpoint_id: str
    record: Checkpointed
    writes: Mapping[str, Writes]

    def ordered(self) -> list[tuple[str, Write]]:
        """Return each write with its task's id, in the order of LangGraph's `writes_sort_key`."""
        pairs = list[tuple[str, Write]]()
        for name, writes in self.writes.items():
            task_id = writes.task_id if writes.task_id is not None else task_of(name) or name
            pairs += [(task_id, write) for write in writes.writes]
        return sorted(pairs, key=lambda pair: (pair[1].path, pair[0], pair[1].index))


class Reader:
    """Reads the documents of one namespace and keeps what it has read. ``documents`` are those of a session.

    The walk through the checkpoints begins at ``start``, or before ``below``, and reads pages of a megabyte. ``hint`` is the
    checkpoint that ends the first page, because nothing older may be needed.
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
        self._at = start
        self._after = (
            namespace.above(start) if start is not None else namespace.checkpoint(below) if below is not None else None
        )
        self._data: dict[str, bytes] = {}
        self._checkpoints: dict[str, Checkpointed] = {}
        self._writes: dict[str, Writes] = {}
        self._order = list[str]()
        self._pages = self._walked(hint)
        self._is_hinted = hint is not None

    def newest(self) -> StoredCheckpoint | None:
        return next(self.visible(), None)

    def exactly(self, checkpoint_id: str) -> StoredCheckpoint | None:
        """Return the checkpoint at the start of the walk if it has this id and is visible, otherwise None."""
        stored = next(self.walk(), None)
        if stored is None or stored.checkpoint_id != checkpoint_id or stored.record.is_hidden:
            return None
        return stored

    def visible(self) -> Iterator[StoredCheckpoint]:
        return (stored for stored in self.walk() if not stored.record.is_hidden)

    def walk(self) -> Iterator[StoredCheckpoint]:
        """Yield the checkpoints, newest first, hidden ones too."""
        namespace, writes, place = self.namespace, dict[str, dict[str, Writes]](), 0
        while place < len(self._order) or self._pull():
            key = self._order[place]
            place += 1
            checkpoint_id, task = namespace.parsed(key)
            if task is not None:
                writes.setdefault(checkpoint_id, {})[task] = self.writes_at(key)
            elif self._at is None or key <= namespace.checkpoint(self._at):
                yield StoredCheckpoint(checkpoint_id, self.checkpoint_at(key), writes.pop(checkpoint_id, {}))

    def _pull(self) -> bool:
        """Read one more document of the walk. Returns False at its end."""
        key = next(self._pages, None)
        if key is not None:
            self._order.append(key)
        return key is not None

    def _walked(self, hint: str | None) -> Iterator[str]:
        after = self._after
        if hint is not None and (after is None or self.namespace.checkpoint(hint) < after):
            for key in self._listed(after=after, until=self.namespace.checkpoint(hint)):
                after = key
                yield key
        yield from self._listed(after=after)

    def _listed(self, **bounds: Any) -> Iterator[str]:
        for document in self._documents.list(self.namespace.prefix, order="desc", **bounds):
            self._data[document.key] = document.data
            yield document.key

    # ------------------------------------------------------------ by key

    def read_between(self, newest: str, oldest: str) -> None:
        """Read all documents from the checkpoint ``newest`` back to ``oldest``, with the writes of their tasks."""
        first, last = self.namespace.checkpoint(newest), self.namespace.checkpoint(oldest)
        if self._order and first <= self._order[0]:
            while self._order[-1] > last and self._pull():
                pass
        else:
            for _ in self._listed(after=self.namespace.above(newest), until=last):
                pass

    def get(self, keys: Iterable[str]) -> None:
        """Read the documents with these keys. Raises `CorruptError` when one is missing: other documents refer to it."""
        wanted_keys = sorted(keys)
        if self._order and not self._is_hinted:
            for _ in range(NEAR_DOCUMENTS):  # most often they are in the page already read
                if all(key in self._data for key in wanted_keys) or not self._pull():
                    break
        wanted_keys = [key for key in wanted_keys if key not in self._data]
        if not wanted_keys:
            return
        documents = self._documents.get_many(wanted_keys)
        for key in wanted_keys:
            if key not in documents:
                raise CorruptError("a document of a checkpoint is missing", item=key)
            self._data[key] = documents[key].data

    def find(self, checkpoint_id: str) -> Checkpointed | None:
        """Return the checkpoint with this id, hidden or not; None when it is missing."""
        key = self.namespace.checkpoint(checkpoint_id)
        if key not in self._data:
            document = self._documents.get(key)
            if document is None:
                return None
            self._data[key] = document.data
        return self.checkpoint_at(key)

    def has(self, key: str) -> bool:
        return key in self._data

    def data(self, key: str) -> bytes:
        return self._data[key]

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


Plain: TypeAlias = Typed | list[Typed]
"""A serialized value; a list is given by its serialized elements."""


@lazy_dataclass(frozen=True, slots=True)
class ValueRef:
    """A reference to a channel's value: its version, and the checkpoint that stores it."""

    home: str
    channel: str
    version: Version


@lazy_dataclass(frozen=True, slots=True)
class ListLink:
    """One step of the chain from a list back to the checkpoint that stores it whole."""

    needed: ValueRef
    record: Checkpointed
    stored: Elements


class CheckpointValues:
    """Values of the checkpoints that a reader reads."""

    def __init__(self, reader: Reader, known: Callable[[str, Version, str], ListState | None]) -> None:
        """``known`` returns a cached list by channel, version and home checkpoint, or None."""
        self._reader = reader
        self._known_list = known
        self._namespace = reader.namespace
        self._whole: set[ValueRef] = set()

    def of(self, checkpoint: StoredCheckpoint, versions: Mapping[str, Version]) -> dict[str, Plain]:
        """Return the values of a checkpoint by channel. Channels without a value are left out."""
        needed = value_refs(checkpoint.checkpoint_id, checkpoint.record, versions)
        self._fetch(needed.values())
        values = dict[str, Plain]()
        for channel, value in needed.items():
            known = self._known(value)
            stored = self.stored(value) if known is None else None
            if isinstance(stored, WholeValue):
                values[channel] = stored.value
            elif not isinstance(stored, Nothing):
                values[channel] = list(known.items) if known is not None else self._elements(value)
        return values

    def written(self, checkpoint: StoredCheckpoint) -> list[tuple[str, str, Plain]]:
        """Return the writes to a checkpoint, in order, as (task id, channel, value)."""
        ordered = checkpoint.ordered()
        self._get(key for _, write in ordered if isinstance(write.stored, Large) for key in write.stored.keys)
        return [(task_id, write.channel, self._written(write.stored)) for task_id, write in ordered]

    def list_states(self, checkpoint: StoredCheckpoint, versions: Mapping[str, Version]) -> dict[str, ListState]:
        """Return the state of each list of a checkpoint. `of` must have read its values."""
        states = dict[str, ListState]()
        for channel, value in value_refs(checkpoint.checkpoint_id, checkpoint.record, versions).items():
            if self._known(value) is not None or isinstance(self.stored(value), Elements):
                states[channel] = self._state(value)
        return states

    # ------------------------------------------------------------ reading documents

    def _fetch(self, needed: Iterable[ValueRef]) -> None:
        """Read every document that these values need: ranges of checkpoints by one request per megabyte, the rest by key."""
        wanted, spans = list(needed), set[tuple[str, str]]()
        while True:
            keys, span = self._missing(wanted, spans)
            if span is not None:
                spans.add(span)
                self._reader.read_between(*span)
            elif keys:
                self._reader.get(keys)
            else:
                self._whole.update(wanted)
                return

    def _missing(self, wanted: list[ValueRef], spans: set[tuple[str, str]]) -> tuple[set[str], tuple[str, str] | None]:
        keys, waiting, seen = set[str](), list(wanted), set[ValueRef]()
        while waiting:
            needed = waiting.pop()
            key = self._namespace.checkpoint(needed.home)
            if needed in seen or needed in self._whole or self._known(needed) is not None:
                continue
            seen.add(needed)
            if not self._reader.has(key):
                keys.add(key)
                continue
            record = self._reader.checkpoint_at(key)
            stored = self._stored_value(needed, record)
            if isinstance(stored, Large):
                keys.update(self._unread(stored.keys))
                if not all(map(self._reader.has, stored.keys)):
                    continue
                stored = self._large(stored)
            if not isinstance(stored, Elements):
                continue
            keys.update(self._unread_writes(stored))
            if stored.base is not None:
                before = ValueRef(stored.base.home, needed.channel, stored.base.version)
                span = (before.home, record.low or before.home)
                if not self._reader.has(self._namespace.checkpoint(before.home)) and span not in spans:
                    return keys, span
                waiting.append(before)
        return keys, None

    def _unread_writes(self, stored: Elements) -> set[str]:
        keys = set[str]()
        for item in stored.written:
            key = self._writes_key(item)
            if not self._reader.has(key):
                keys.add(key)
            elif isinstance(large := self._write(item), Large):
                keys.update(self._unread(large.keys))
        return keys

    def _unread(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if not self._reader.has(key)}

    def _get(self, keys: Iterable[str]) -> None:
        missing = self._unread(keys)
        if missing:
            self._reader.get(missing)

    # ------------------------------------------------------------ decoding documents

    def stored(self, needed: ValueRef) -> Stored:
        """Return the stored form of a value, with a large one decoded from its parts."""
        stored = self._stored_value(needed, self._record(needed))
        return self._large(stored) if isinstance(stored, Large) else stored

    def _record(self, needed: ValueRef) -> Checkpointed:
        return self._reader.checkpoint_at(self._namespace.checkpoint(needed.home))

    def _stored_value(self, needed: ValueRef, record: Checkpointed) -> Stored:
        stored = record.value(needed.channel, needed.version)
        if stored is None:
            raise CorruptError("a value is not where it should be", item=self._namespace.checkpoint(needed.home))
        return stored

    def _large(self, large: Large) -> Stored:
        return stored_of(b"".join(map(self._reader.data, large.keys)), item=large.name)

    def _written(self, stored: Stored) -> Plain:
        if isinstance(stored, Large):
            stored = self._large(stored)
        if isinstance(stored, WholeValue):
            return stored.value
        items = stored.items if isinstance(stored, Elements) else ()
        return [item for item in items if isinstance(item, tuple)]

    def _writes_key(self, item: WrittenElements) -> str:
        return self._namespace.writes(item.checkpoint_id, item.task)

    def _write(self, item: WrittenElements) -> Stored:
        key = self._writes_key(item)
        write = self._reader.writes_at(key).write(item.index)
        if write is None:
            raise CorruptError("a write is not where it should be", item=key)
        return write.stored

    # ------------------------------------------------------------ lists

    def _known(self, needed: ValueRef) -> ListState | None:
        return self._known_list(needed.channel, needed.version, needed.home)

    def _chain(self, needed: ValueRef) -> tuple[ListState | None, list[ListLink]]:
        """Return the newest cached ancestor of a list, or None, and the links from there to the list, oldest first.

        Without a cached ancestor, the links begin where the list is stored whole.
        """
        links, current, seen = list[ListLink](), needed, set[ValueRef]()
        while (known := self._known(current)) is None:
            if current in seen:
                raise CorruptError("a list continues itself", item=self._namespace.checkpoint(current.home))
            seen.add(current)
            stored = self.stored(current)
            if not isinstance(stored, Elements):
                raise CorruptError("a list is not where it should be", item=self._namespace.checkpoint(current.home))
            links.append(ListLink(current, self._record(current), stored))
            if stored.base is None:
                break
            current = ValueRef(stored.base.home, current.channel, stored.base.version)
        return known, links[::-1]

    def _elements(self, needed: ValueRef) -> list[Typed]:
        known, links = self._chain(needed)
        elements = list(known.items) if known is not None else []
        for link in links:
            self._cut(elements, link.stored.base, link)
            for item in link.stored.items:
                elements += self._list_items(item)
        return elements

    def _cut(self, elements: list[Typed], base: Base | None, link: ListLink) -> None:
        if base is not None:
            if len(elements) < base.count:
                raise CorruptError("a list is shorter than it was", item=self._namespace.checkpoint(link.needed.home))
            del elements[base.count :]

    def _list_items(self, item: Item) -> list[Typed]:
        match item:
            case WrittenElements():
                return self._items(item)
            case Alike(written, kind, patch):
                (alike,) = self._items(written)
                return [(kind, patched(alike[1], patch, item=self._writes_key(written)))]
            case _:
                return [item]

    def _items(self, item: WrittenElements) -> list[Typed]:
        plain = self._written(self._write(item))
        items = plain if isinstance(plain, list) else [plain]
        part = items[item.first : item.first + item.count]
        if len(part) < item.count:
            raise CorruptError("a write is shorter than it was", item=self._writes_key(item))
        return part

    def _state(self, needed: ValueRef) -> ListState:
        known, links = self._chain(needed)
        sizes = [self._bytes(link) for link in links]
        items = tuple(self._elements(needed))
        if known is not None:
            span = known.span_bytes + sum(sizes)
            return ListState(needed.version, needed.home, items, known.start, span, known.whole_bytes)
        first = [links[0].needed.home, *(item.checkpoint_id for item in links[0].stored.written)]
        start = min(first, key=self._namespace.checkpoint)
        return ListState(needed.version, needed.home, items, start, sum(sizes[1:]), sizes[0])

    def _bytes(self, link: ListLink) -> int:
        keys = {self._namespace.checkpoint(link.needed.home)}
        keys |= {self._writes_key(item) for item in link.stored.written}
        stored = self._stored_value(link.needed, link.record)
        keys |= set(stored.keys) if isinstance(stored, Large) else set()
        return sum(len(self._reader.data(key)) + DOCUMENT_BYTES for key in keys)


def value_refs(checkpoint_id: str, record: Checkpointed, versions: Mapping[str, Version]) -> dict[str, ValueRef]:
    """Return references to the values of a checkpoint by channel. Channels without a value are left out."""
    places, needed = dict(record.places), dict[str, ValueRef]()
    for channel, version in versions.items():
        stored = record.value(channel, version)
        if stored is not None and not isinstance(stored, Nothing):
            needed[channel] = ValueRef(checkpoint_id, channel, version)
        elif stored is None and channel in places:
            needed[channel] = ValueRef(places[channel], channel, version)
    return needed
