"""Puts the values of a checkpoint together, wherever they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from turnlog.core.errors import CorruptError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.elements import DOCUMENT_BYTES, ListState
from turnlog.integrations.langgraph.reading import Reader, StoredCheckpoint
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
    WrittenElements,
    patched,
    stored_of,
)

Plain: TypeAlias = Typed | list[Typed]
"""A value as the serializer says it; a list by its elements."""


@lazy_dataclass(frozen=True, slots=True)
class Needed:
    """The value of a channel: of which version, and the checkpoint that it is in."""

    home: str
    channel: str
    version: Version


@lazy_dataclass(frozen=True, slots=True)
class ListLink:
    """A list in the checkpoint that has it, on the way back to where it is whole."""

    needed: Needed
    record: Checkpointed
    stored: Elements


class CheckpointValues:
    """Values of the checkpoints of a reader."""

    def __init__(self, reader: Reader, known: Callable[[str, Version, str], ListState | None]) -> None:
        """``known`` says of a list which elements it has, by channel, version and home, if that is known."""
        self._reader = reader
        self._known_list = known
        self._space = reader.space
        self._whole: set[Needed] = set()

    def of(self, found: StoredCheckpoint, versions: Mapping[str, Version]) -> dict[str, Plain]:
        """The values of a checkpoint, by channel. A channel without one is not there."""
        needed = needed_by(found.checkpoint_id, found.record, versions)
        self._fetch(needed.values())
        values = dict[str, Plain]()
        for channel, one in needed.items():
            known = self._known(one)
            stored = self.stored(one) if known is None else None
            if isinstance(stored, WholeValue):
                values[channel] = stored.value
            else:
                values[channel] = list(known.items) if known is not None else self._elements(one)
        return values

    def written(self, found: StoredCheckpoint) -> list[tuple[str, str, Plain]]:
        """What was written to a checkpoint, in order: task, channel, value."""
        ordered = found.ordered()
        self._get(key for _, one in ordered if isinstance(one.stored, Large) for key in one.stored.keys)
        return [(task_id, one.channel, self._written(one.stored)) for task_id, one in ordered]

    def list_states(self, found: StoredCheckpoint, versions: Mapping[str, Version]) -> dict[str, ListState]:
        """How the lists of a checkpoint are stored. Its values have been put together before."""
        states = dict[str, ListState]()
        for channel, one in needed_by(found.checkpoint_id, found.record, versions).items():
            if self._known(one) is not None or isinstance(self.stored(one), Elements):
                states[channel] = self._state(one)
        return states

    # ------------------------------------------------------------ what must be read

    def _fetch(self, needed: Iterable[Needed]) -> None:
        """Reads all that these are made of: what lies between two checkpoints by one request a megabyte, the rest by key."""
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

    def _missing(self, wanted: list[Needed], spans: set[tuple[str, str]]) -> tuple[set[str], tuple[str, str] | None]:
        keys, waiting, seen = set[str](), list(wanted), set[Needed]()
        while waiting:
            one = waiting.pop()
            key = self._space.checkpoint(one.home)
            if one in seen or one in self._whole or self._known(one) is not None:
                continue
            seen.add(one)
            if not self._reader.has(key):
                keys.add(key)
                continue
            record = self._reader.checkpoint_at(key)
            stored = self._found(one, record)
            if isinstance(stored, Large):
                keys.update(self._unread(stored.keys))
                if not all(map(self._reader.has, stored.keys)):
                    continue
                stored = self._large(stored)
            if not isinstance(stored, Elements):
                continue
            keys.update(self._unread_writes(stored))
            if stored.base is not None:
                before = Needed(stored.base.home, one.channel, stored.base.version)
                span = (before.home, record.low or before.home)
                if not self._reader.has(self._space.checkpoint(before.home)) and span not in spans:
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

    # ------------------------------------------------------------ what was read

    def stored(self, one: Needed) -> Stored:
        """A value as it is stored; what is beside is read."""
        stored = self._found(one, self._record(one))
        return self._large(stored) if isinstance(stored, Large) else stored

    def _record(self, one: Needed) -> Checkpointed:
        return self._reader.checkpoint_at(self._space.checkpoint(one.home))

    def _found(self, one: Needed, record: Checkpointed) -> Stored:
        stored = record.value(one.channel, one.version)
        if stored is None:
            raise CorruptError("a value is not where it should be", item=self._space.checkpoint(one.home))
        return stored

    def _large(self, large: Large) -> Stored:
        return stored_of(b"".join(map(self._reader.data, large.keys)), item=large.name)

    def _written(self, stored: Stored) -> Plain:
        if isinstance(stored, Large):
            stored = self._large(stored)
        if isinstance(stored, WholeValue):
            return stored.value
        items = stored.items if isinstance(stored, Elements) else ()
        return [one for one in items if isinstance(one, tuple)]

    def _writes_key(self, item: WrittenElements) -> str:
        return self._space.writes(item.checkpoint_id, item.task)

    def _write(self, item: WrittenElements) -> Stored:
        key = self._writes_key(item)
        write = self._reader.writes_at(key).write(item.index)
        if write is None:
            raise CorruptError("a write is not where it should be", item=key)
        return write.stored

    # ------------------------------------------------------------ lists

    def _known(self, one: Needed) -> ListState | None:
        return self._known_list(one.channel, one.version, one.home)

    def _chain(self, one: Needed) -> tuple[ListState | None, list[ListLink]]:
        """The list from which on it is not known, and from there, or from where it is whole, to the list."""
        links, at, seen = list[ListLink](), one, set[Needed]()
        while (known := self._known(at)) is None:
            if at in seen:
                raise CorruptError("a list continues itself", item=self._space.checkpoint(at.home))
            seen.add(at)
            stored = self.stored(at)
            if not isinstance(stored, Elements):
                raise CorruptError("a list is not where it should be", item=self._space.checkpoint(at.home))
            links.append(ListLink(at, self._record(at), stored))
            if stored.base is None:
                break
            at = Needed(stored.base.home, at.channel, stored.base.version)
        return known, links[::-1]

    def _elements(self, one: Needed) -> list[Typed]:
        known, links = self._chain(one)
        found = list(known.items) if known is not None else []
        for link in links:
            self._cut(found, link.stored.base, link)
            for item in link.stored.items:
                found += self._made(item)
        return found

    def _cut(self, found: list[Typed], base: Base | None, link: ListLink) -> None:
        if base is not None:
            if len(found) < base.count:
                raise CorruptError("a list is shorter than it was", item=self._space.checkpoint(link.needed.home))
            del found[base.count :]

    def _made(self, item: Item) -> list[Typed]:
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
        found = items[item.first : item.first + item.count]
        if len(found) < item.count:
            raise CorruptError("a write is shorter than it was", item=self._writes_key(item))
        return found

    def _state(self, one: Needed) -> ListState:
        known, links = self._chain(one)
        sizes = [self._bytes(link) for link in links]
        items = tuple(self._elements(one))
        if known is not None:
            span = known.span_bytes + sum(sizes)
            return ListState(one.version, one.home, items, known.start, span, known.whole_bytes)
        first = [links[0].needed.home, *(item.checkpoint_id for item in links[0].stored.written)]
        start = min(first, key=self._space.checkpoint)
        return ListState(one.version, one.home, items, start, sum(sizes[1:]), sizes[0])

    def _bytes(self, link: ListLink) -> int:
        keys = {self._space.checkpoint(link.needed.home)}
        keys |= {self._writes_key(item) for item in link.stored.written}
        stored = self._found(link.needed, link.record)
        keys |= set(stored.keys) if isinstance(stored, Large) else set()
        return sum(len(self._reader.data(key)) + DOCUMENT_BYTES for key in keys)


def needed_by(checkpoint_id: str, record: Checkpointed, versions: Mapping[str, Version]) -> dict[str, Needed]:
    """The values that a checkpoint has, by channel."""
    places, found = dict(record.places), dict[str, Needed]()
    for channel, version in versions.items():
        stored = record.value(channel, version)
        if stored is not None and not isinstance(stored, Nothing):
            found[channel] = Needed(checkpoint_id, channel, version)
        elif stored is None and channel in places:
            found[channel] = Needed(places[channel], channel, version)
    return found
