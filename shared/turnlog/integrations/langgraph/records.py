"""The two kinds of documents and their encoding: a checkpoint with its new values, and the writes of a task."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import ormsgpack

from turnlog.core.errors import CorruptError, NewerSchemaError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.log.packing import is_dense

PART_BYTES = 200 * 1024
"""Size of the parts of a large value: several documents of this size fit into one request."""
_RAW, _ZLIB_1 = 0, 1
_WINDOW = -15
_WORDS_1 = (
    b"__pregel_tasks __interrupt__ __error__ __resume__ __scheduled__ __no_writes__ __root__ json null bytes "
    b"langgraph.types\xa9Interrupt\xa5value interrupts remaining_steps structured_response jump_to run_id fork update "
    b"lc_source \xa4text\xa4type\xa4text \xadserver_side tool_use input stop_reason end_turn stop_sequence "
    b"finish_reason\xaatool_calls finish_reason\xa4stop prompt_tokens completion_tokens total_tokens system_fingerprint "
    b"\xbflangchain_core.messages.system\xadSystemMessage\x86\xa7content\xda "
    b"\xd9 langchain_core.messages.human\xacHumanMessage\x86\xa7content\xda \xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json "
    b"\xbclangchain_core.messages.tool\xabToolMessage\x89\xa7content\xda \xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xa7 \xa2id\xd9$ \xactool_call_id\xb5call_ "
    b"\xa8artifact\xc0\xa6status\xa7success\xb3model_validate_json "
    b"\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda \xb1additional_kwargs\x80\xb1response_metadata\x81"
    b"\xaamodel_name\xae \xa4type\xa2ai\xa4name\xc0\xa2id\xd9.lc_run--01 -0\xaatool_calls\x91\x84\xa4name\xa7 \xa4args\x81"
    b"\xa2id\xb5call_ \xa4type\xa9tool_call\xb2invalid_tool_calls\x90\xaeusage_metadata\x83\xacinput_tokens\xcd"
    b"\xadoutput_tokens\xcc\xactotal_tokens\xcd\xb3model_validate_json\xc8\x02\x05\x94\xa7msgpack\xc5\x03 "
    b"\xc0\x93\xa1t\xa4null\xc4\x00 \x91\xa1e \x93\xa1l~__pregel_pull, __start__ ~__pregel_pull, model "
    b"~__pregel_pull, tools ~__pregel_pull, agent \xa7msgpack\xc4\x01\x87\xa1v\x04\xa2ts\xd9 2026-01-01T00:00:00.000000+00:00"
    b"\xa2id\xd9$1f \xb0channel_versions\x84\xa9__start__\xd920000000000000000000000000000000.0.0"
    b"\xa8messages\xd930000000000000000000000000000000.0.0\xafbranch:to:agent\xd93\xafbranch:to:tools\xd93\xafbranch:to:model"
    b"\xadversions_seen\x84\xa9__input__\x80\xa9__start__\x81\xa9__start__\xd93\xa5agent\x81\xafbranch:to:agent\xd93"
    b"\xa5model\x81\xafbranch:to:model\xd93\xa5tools\x81\xafbranch:to:tools\xd93\xb0updated_channels\x92"
    b"\xafbranch:to:agent\xafbranch:to:tools\xa8messages\x91\xa9__start__\xadpending_sends\x90\xa7msgpack\xc4\x24\x83"
    b"\xa6source\xa5input\xa4step\xa7parents\x80\xa7msgpack\xc4\x23\x83\xa6source\xa4loop\xa4step\xcd\xa7parents\x80"
)
Version: TypeAlias = str | int | float
Typed: TypeAlias = tuple[str, bytes]
"""A value as the serializer encodes it: a type name and bytes."""
_SCHEMA = 2
_CHECKPOINT, _WRITES = "c", "w"
T = TypeVar("T")


def packed(content: Any) -> bytes:
    """Encode content as msgpack behind one codec byte, compressed when that is smaller."""
    raw = ormsgpack.packb(content)
    if not is_dense(raw):
        deflate = zlib.compressobj(6, zlib.DEFLATED, _WINDOW, 9, zlib.Z_DEFAULT_STRATEGY, _WORDS_1)
        small = deflate.compress(raw) + deflate.flush()
        if len(small) < len(raw):
            return bytes([_ZLIB_1]) + small
    return bytes([_RAW]) + raw


def patched(alike: bytes, patch: bytes, *, item: str) -> bytes:
    """Return the data that a patch was made of. Raises `CorruptError` naming ``item``."""
    try:
        return _inflated(patch, _WORDS_1 + alike, item)
    except zlib.error as error:
        raise CorruptError("an element is damaged", item=item) from error


def unpacked(data: bytes, *, item: str) -> Any:
    """Decode content that `packed` encoded. Raises `CorruptError` or `NewerSchemaError` naming ``item``."""
    if not data:
        raise CorruptError("a document is empty", item=item)
    codec, content = data[0], data[1:]
    if codec > _ZLIB_1:
        raise NewerSchemaError(f"codec {codec} is newer than {_ZLIB_1}", item=item)
    try:
        if codec == _ZLIB_1:
            content = _inflated(content, _WORDS_1, item)
        return ormsgpack.unpackb(content, option=ormsgpack.OPT_NON_STR_KEYS)
    except (zlib.error, ormsgpack.MsgpackDecodeError) as error:
        raise CorruptError("a document is damaged", item=item) from error


def _inflated(small: bytes, words: bytes, item: str) -> bytes:
    inflate = zlib.decompressobj(_WINDOW, zdict=words)
    raw = inflate.decompress(small)
    if not inflate.eof:
        raise CorruptError("a document is cut short", item=item)
    return raw


@lazy_dataclass(frozen=True, slots=True)
class ValueRef:
    """A reference to a channel's value: its version, and the checkpoint that stores it."""

    home: str
    channel: str
    version: Version


@lazy_dataclass(frozen=True, slots=True)
class Nothing:
    """A channel without a value."""


@lazy_dataclass(frozen=True, slots=True)
class WholeValue:
    """A value in one piece."""

    value: Typed


@lazy_dataclass(frozen=True, slots=True)
class WrittenElements:
    """A reference to list elements that a task wrote to a checkpoint: ``count`` elements of its write ``index`` from ``first``."""

    checkpoint_id: str
    task: str
    index: int
    first: int
    count: int


@lazy_dataclass(frozen=True, slots=True)
class Alike:
    """An element stored as a patch of a similar written one: ``kind`` is its serializer type, `patched` restores its bytes."""

    written: WrittenElements
    kind: str
    patch: bytes


@lazy_dataclass(frozen=True, slots=True)
class Large:
    """A reference to a large value of another kind, packed and stored in ``parts`` documents of its own."""

    name: str
    parts: int

    @property
    def keys(self) -> list[str]:
        return [f"{self.name}.{number}" for number in range(self.parts)]


@lazy_dataclass(frozen=True, slots=True)
class ListPiece:
    """A reference to ``count`` elements that stand beside the checkpoints, and that many lists begin with."""

    large: Large
    count: int


Item: TypeAlias = Typed | ListPiece | WrittenElements | Alike
"""An element, or a reference to some. `WrittenElements` and `Alike` are read where earlier versions wrote them."""


@lazy_dataclass(frozen=True, slots=True)
class Base:
    """A reference to the first ``count`` elements of an older list: the value of ``version`` in the checkpoint ``home``."""

    home: str
    version: Version
    count: int


@lazy_dataclass(frozen=True, slots=True)
class Elements:
    """A list: the elements of its base, followed by ``items``."""

    base: Base | None
    items: tuple[Item, ...]


Stored: TypeAlias = Nothing | WholeValue | Elements | Large


def written_of(stored: Stored) -> list[WrittenElements]:
    """Return the references to written elements that a list has; they must be read to restore it."""
    items = stored.items if isinstance(stored, Elements) else ()
    references = [item.written if isinstance(item, Alike) else item for item in items]
    return [item for item in references if isinstance(item, WrittenElements)]


def part_keys(values: Iterable[Stored]) -> set[str]:
    """Return the keys of the documents beside the checkpoints that stored values refer to."""
    items = [item for stored in values for item in (stored.items if isinstance(stored, Elements) else (stored,))]
    larges = [item.large if isinstance(item, ListPiece) else item for item in items]
    return {key for large in larges if isinstance(large, Large) for key in large.keys}


@lazy_dataclass(frozen=True, slots=True)
class Value:
    """The value of a channel since a version."""

    channel: str
    version: Version
    stored: Stored


@lazy_dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint. ``places`` names the checkpoint that stores the value of each channel with an older value.

    ``low`` is the oldest checkpoint that a list among ``values`` needs. A hidden checkpoint is kept only for values that others
    need. ``namespace`` is None when the key contains it.
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
        matches = (value.stored for value in self.values if value.channel == channel and value.version == version)
        return next(matches, None)

    def hidden(self, needed: Collection[tuple[str, Version]]) -> Checkpointed:
        """Return a hidden checkpoint with only the values whose channel and version are ``needed``."""
        values = tuple(value for value in self.values if (value.channel, value.version) in needed)
        return Checkpointed(None, ("null", b""), ("null", b""), values, (), self.low, self.namespace, is_hidden=True)

    def in_place_of(self, other: Checkpointed, order: Callable[[str], str]) -> Checkpointed:
        """Return this checkpoint, or ``other`` when only that is visible, plus the values that only the other one has.

        ``order`` maps a checkpoint id to its sort key.
        """
        first, second = (other, self) if self.is_hidden and not other.is_hidden else (self, other)
        own = {(value.channel, value.version) for value in first.values}
        rest = tuple(value for value in second.values if (value.channel, value.version) not in own)
        lows = [low for low in (first.low, second.low if rest else None) if low is not None]
        return replace(first, values=first.values + rest, low=min(lows, key=order, default=None))

    def packed(self) -> bytes:
        values = [[value.channel, value.version, _encoded(value.stored)] for value in self.values]
        rest = [[list(place) for place in self.places], self.low, self.namespace, self.is_hidden]
        return packed([_SCHEMA, _CHECKPOINT, self.parent, *self.checkpoint, *self.metadata, values, *rest])


@lazy_dataclass(frozen=True, slots=True)
class Write:
    """One write of a task. ``index`` counts from 0; special channels have fixed numbers below 0."""

    index: int
    channel: str
    path: str
    stored: Stored


@lazy_dataclass(frozen=True, slots=True)
class Writes:
    """The writes of a task to a checkpoint, in order of their indexes. ``task_id`` is None when the key contains it."""

    writes: tuple[Write, ...]
    task_id: str | None = None

    def write(self, index: int) -> Write | None:
        return next((write for write in self.writes if write.index == index), None)

    def merged(self, newer: Writes) -> Writes:
        """Merge with newer writes. The first write of an index stays; for special channels (index below 0) the last one wins."""
        by_index = {write.index: write for write in self.writes}
        by_index |= {write.index: write for write in newer.writes if write.index < 0 or write.index not in by_index}
        return Writes(tuple(by_index[index] for index in sorted(by_index)), newer.task_id)

    def packed(self) -> bytes:
        writes = [[write.index, write.channel, write.path, _encoded(write.stored)] for write in self.writes]
        return packed([_SCHEMA, _WRITES, writes, self.task_id])


def checkpoint_of(data: bytes, *, item: str) -> Checkpointed:
    """Decode a checkpoint. Raises `CorruptError` or `NewerSchemaError` naming ``item``."""
    return _read(data, _CHECKPOINT, _checkpoint, item)


def writes_of(data: bytes, *, item: str) -> Writes:
    """Decode the writes of a task. Raises `CorruptError` or `NewerSchemaError` naming ``item``."""
    return _read(data, _WRITES, _writes, item)


def size_of(stored: Stored) -> int:
    """Return the size of a stored value in bytes, before packing. References count 0."""
    match stored:
        case WholeValue((_, data)):
            return len(data)
        case Elements(_, items):
            return sum(
                len(item[1]) if isinstance(item, tuple) else len(item.patch)
                for item in items
                if isinstance(item, tuple | Alike)
            )
        case _:
            return 0


def large_of(stored: Stored) -> bytes:
    """Encode a value for storage in parts."""
    return packed(_encoded(stored))


def stored_of(data: bytes, *, item: str) -> Stored:
    """Decode the joined parts of a large value. Raises `CorruptError` naming ``item``."""
    content = unpacked(data, item=item)
    return _checked(lambda: _stored(content), item)


def _read(data: bytes, kind: str, make: Callable[[Sequence[Any]], T], item: str) -> T:
    content = unpacked(data, item=item)
    if not isinstance(content, list) or len(content) < 2:
        raise CorruptError("a document is damaged", item=item)
    if isinstance(content[0], int) and content[0] > _SCHEMA:
        raise NewerSchemaError(f"schema version {content[0]} is newer than {_SCHEMA}", item=item)
    if content[0] not in (1, _SCHEMA) or content[1] != kind:
        raise CorruptError("a document is not what its key says", item=item)
    return _checked(lambda: make(content[2:]), item)


def _checked(make: Callable[[], T], item: str) -> T:
    try:
        return make()
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise CorruptError("a document is damaged", item=item) from error


def _checkpoint(fields: Sequence[Any]) -> Checkpointed:
    parent, kind, data, meta_kind, meta, values, places, low, namespace, is_hidden = fields
    stored_values = tuple(Value(channel, version, _stored(stored)) for channel, version, stored in values)
    homes = tuple((channel, home) for channel, home in places)
    return Checkpointed(parent, (kind, data), (meta_kind, meta), stored_values, homes, low, namespace, is_hidden)


def _writes(fields: Sequence[Any]) -> Writes:
    listed, task_id = fields
    writes = (Write(index, channel, path, _stored(stored)) for index, channel, path, stored in listed)
    return Writes(tuple(writes), task_id)


def _encoded(stored: Stored) -> list[Any]:
    match stored:
        case WholeValue(value):
            return ["t", *value]
        case Elements(base, items):
            elements = list(map(_encoded_item, items))
            return ["l", elements] if base is None else ["l", elements, base.home, base.version, base.count]
        case Large(name, parts):
            return ["b", name, parts]
        case Nothing():
            return ["e"]


def _encoded_item(item: Item) -> list[Any]:
    match item:
        case ListPiece(Large(name, parts), count):
            return [name, parts, count]
        case WrittenElements(checkpoint_id, task, index, first, count):
            return [checkpoint_id, task, index, first, count]
        case Alike(written, kind, patch):
            return [*_encoded_item(written), kind, patch]
        case (kind, data):
            return [kind, data]


def _stored(fields: Sequence[Any]) -> Stored:
    match fields:
        case ["t", kind, data]:
            return WholeValue((kind, data))
        case ["l", items]:
            return Elements(None, tuple(map(_item, items)))
        case ["l", items, home, version, count]:
            return Elements(Base(home, version, count), tuple(map(_item, items)))
        case ["b", name, parts]:
            return Large(name, parts)
        case ["e"]:
            return Nothing()
    raise ValueError(fields)


def _item(fields: Sequence[Any]) -> Item:
    if len(fields) == 2:  # most items
        kind, data = fields
        if type(kind) is str and type(data) is bytes:
            return kind, data
    types = list(map(type, fields))
    if types == [str, int, int]:
        name, parts, count = fields
        return ListPiece(Large(name, parts), count)
    if types[:5] == [str, str, int, int, int]:
        written = WrittenElements(*fields[:5])
        if len(fields) == 5:
            return written
        if types[5:] == [str, bytes]:
            return Alike(written, *fields[5:])
    raise ValueError(fields)
