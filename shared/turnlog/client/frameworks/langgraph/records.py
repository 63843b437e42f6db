"""What a document says: a checkpoint with the values that are new in it, or what a task wrote to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from turnlog.client.frameworks.langgraph.packing import packed, unpacked
from turnlog.domain.errors import CorruptError, NewerSchemaError
from turnlog.domain.values import dataclass

Version: TypeAlias = str | int | float
Typed: TypeAlias = tuple[str, bytes]
"""A value as the serializer says it: a type and bytes."""
_SCHEMA = 1
_CHECKPOINT, _WRITES = "c", "w"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Nothing:
    """The channel has no value."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A value in one piece."""

    value: Typed


@dataclass(frozen=True, slots=True)
class Written:
    """Elements of a list that a task wrote to a checkpoint: ``count`` from ``first`` on of its write ``index``."""

    checkpoint_id: str
    task: str
    index: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Alike:
    """An element that is nearly what was written: of that type, and made of it by `patched`."""

    written: Written
    kind: str
    patch: bytes


Item: TypeAlias = Typed | Written | Alike


@dataclass(frozen=True, slots=True)
class Base:
    """The first ``count`` elements of a list as it was: the value of that version in the checkpoint ``home``."""

    home: str
    version: Version
    count: int


@dataclass(frozen=True, slots=True)
class Elements:
    """A list: those of its base, and then these."""

    base: Base | None
    items: tuple[Item, ...]

    @property
    def written(self) -> list[Written]:
        """What must be read for it of what tasks have written."""
        return [one.written if isinstance(one, Alike) else one for one in self.items if not isinstance(one, tuple)]


@dataclass(frozen=True, slots=True)
class Large:
    """Beside, in parts: a value of another kind, as `packed` makes it."""

    name: str
    parts: int

    @property
    def keys(self) -> list[str]:
        return [f"{self.name}.{at}" for at in range(self.parts)]


Stored: TypeAlias = Nothing | Whole | Elements | Large


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a channel from a version on."""

    channel: str
    version: Version
    stored: Stored


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint. ``places`` says of each channel whose value is an older one which checkpoint has it.

    ``low`` is the oldest checkpoint that a list among ``values`` needs. A hidden one is there for the values that others need.
    ``namespace`` is said where the key doesn't.
    """

    parent: str | None
    checkpoint: Typed
    metadata: Typed
    values: tuple[Value, ...]
    places: tuple[tuple[str, str], ...] = ()
    low: str | None = None
    namespace: str | None = None
    is_hidden: bool = False

    def value(self, channel: str, version: Version) -> Stored | None:
        for one in self.values:
            if one.channel == channel and one.version == version:
                return one.stored
        return None

    def hidden(self, needed: Collection[tuple[str, Version]]) -> Checkpointed:
        """Only those of its values, by channel and version, and what they need."""
        values = tuple(one for one in self.values if (one.channel, one.version) in needed)
        return Checkpointed(None, ("null", b""), ("null", b""), values, (), self.low, self.namespace, is_hidden=True)

    def in_place_of(self, other: Checkpointed, order: Callable[[str], str]) -> Checkpointed:
        """This one, with the values of the other one that it has not itself. ``order`` is that of the checkpoints."""
        mine = {(one.channel, one.version) for one in self.values}
        rest = tuple(one for one in other.values if (one.channel, one.version) not in mine)
        lows = [one for one in (self.low, other.low if rest else None) if one is not None]
        return replace(self, values=self.values + rest, low=min(lows, key=order, default=None))

    def larges(self) -> list[Large]:
        return [one.stored for one in self.values if isinstance(one.stored, Large)]

    def packed(self) -> bytes:
        values = [[one.channel, one.version, _told(one.stored)] for one in self.values]
        rest = [[list(place) for place in self.places], self.low, self.namespace, self.is_hidden]
        return packed([_SCHEMA, _CHECKPOINT, self.parent, *self.checkpoint, *self.metadata, values, *rest])


@dataclass(frozen=True, slots=True)
class Write:
    """``index`` is the place in the list that was written, or the number of a special channel, below 0."""

    index: int
    channel: str
    path: str
    stored: Stored


@dataclass(frozen=True, slots=True)
class Writes:
    """What a task wrote to a checkpoint, in order of the indexes. ``task_id`` is said where the key doesn't."""

    writes: tuple[Write, ...]
    task_id: str | None = None

    def ordered(self) -> Writes:
        return Writes(()).merged(self)

    def write(self, index: int) -> Write | None:
        return next((one for one in self.writes if one.index == index), None)

    def merged(self, newer: Writes) -> Writes:
        """Both: the first one of an index stays, the last one of a special channel."""
        by_index = {one.index: one for one in self.writes}
        by_index |= {one.index: one for one in newer.writes if one.index < 0 or one.index not in by_index}
        return Writes(tuple(by_index[at] for at in sorted(by_index)), newer.task_id)

    def larges(self) -> list[Large]:
        return [one.stored for one in self.writes if isinstance(one.stored, Large)]

    def packed(self) -> bytes:
        writes = [[one.index, one.channel, one.path, _told(one.stored)] for one in self.writes]
        return packed([_SCHEMA, _WRITES, writes, self.task_id])


def checkpoint_of(data: bytes, *, item: str) -> Checkpointed:
    return _read(data, _CHECKPOINT, _checkpoint, item)


def writes_of(data: bytes, *, item: str) -> Writes:
    return _read(data, _WRITES, _writes, item)


def size_of(stored: Stored) -> int:
    """Its bytes, before they are packed."""
    match stored:
        case Whole((_, data)):
            return len(data)
        case Elements(_, items):
            return sum(
                len(one[1]) if isinstance(one, tuple) else len(one.patch)
                for one in items
                if not isinstance(one, Written)
            )
        case _:
            return 0


def large_of(stored: Stored) -> bytes:
    """What stands in the parts of a large value."""
    return packed(_told(stored))


def stored_of(data: bytes, *, item: str) -> Stored:
    """The value in the parts of a large one."""
    told = unpacked(data, item=item)
    return _checked(lambda: _stored(told), item)


def _read(data: bytes, kind: str, make: Callable[[Sequence[Any]], T], item: str) -> T:
    told = unpacked(data, item=item)
    if not isinstance(told, list) or len(told) < 2:
        raise CorruptError("a document is damaged", item=item)
    if isinstance(told[0], int) and told[0] > _SCHEMA:
        raise NewerSchemaError(f"schema version {told[0]} is newer than {_SCHEMA}", item=item)
    if told[:2] != [_SCHEMA, kind]:
        raise CorruptError("a document is not what its key says", item=item)
    return _checked(lambda: make(told[2:]), item)


def _checked(make: Callable[[], T], item: str) -> T:
    try:
        return make()
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise CorruptError("a document is damaged", item=item) from error


def _checkpoint(told: Sequence[Any]) -> Checkpointed:
    parent, kind, data, meta_kind, meta, values, places, low, namespace, is_hidden = told
    return Checkpointed(
        parent,
        (kind, data),
        (meta_kind, meta),
        tuple(Value(channel, version, _stored(stored)) for channel, version, stored in values),
        tuple((channel, home) for channel, home in places),
        low,
        namespace,
        is_hidden,
    )


def _writes(told: Sequence[Any]) -> Writes:
    writes, task_id = told
    return Writes(
        tuple(Write(index, channel, path, _stored(stored)) for index, channel, path, stored in writes), task_id
    )


def _told(stored: Stored) -> list[Any]:
    match stored:
        case Whole(value):
            return ["t", *value]
        case Elements(base, items):
            told = list(map(_told_item, items))
            return ["l", told] if base is None else ["l", told, base.home, base.version, base.count]
        case Large(name, parts):
            return ["b", name, parts]
        case Nothing():
            return ["e"]


def _told_item(one: Item) -> list[Any]:
    match one:
        case Written(checkpoint_id, task, index, first, count):
            return [checkpoint_id, task, index, first, count]
        case Alike(written, kind, patch):
            return [*_told_item(written), kind, patch]
        case (kind, data):
            return [kind, data]


def _stored(told: Sequence[Any]) -> Stored:
    match list(told):
        case ["t", kind, data]:
            return Whole((kind, data))
        case ["l", items]:
            return Elements(None, tuple(map(_item, items)))
        case ["l", items, home, version, count]:
            return Elements(Base(home, version, count), tuple(map(_item, items)))
        case ["b", name, parts]:
            return Large(name, parts)
        case ["e"]:
            return Nothing()
    raise ValueError(told)


def _item(told: Sequence[Any]) -> Item:
    match list(told):
        case [str(kind), bytes(data)]:
            return (kind, data)
        case [str(checkpoint_id), str(task), int(index), int(first), int(count)]:
            return Written(checkpoint_id, task, index, first, count)
        case [str(checkpoint_id), str(task), int(index), int(first), int(count), str(kind), bytes(patch)]:
            return Alike(Written(checkpoint_id, task, index, first, count), kind, patch)
    raise ValueError(told)
