"""Encode a stretch of commits with their payloads as a segment, and decode it to the identical commits.

    magic, version, codec, sizes of head and hashes | head, bzip2 of JSON | hashes, as they are | body, bzip2 of lines

The **body** has each commit's lines as they are stored. The line of a payload that is stored beside the commits is followed
by the payload's content. A payload in the blob store stays there; its line names it with its digest.

The **head** has the headers. Each entry holds only what `_predicted` can't derive from the commit before and the commit's
own lines. Nonces, hashes of idempotency keys and other incompressible bytes stand apart. Chain hashes are derived on
reading; only the first commit's predecessor and the last commit have theirs stored.

`_predicted` is part of the format: another prediction needs another version.
"""

from __future__ import annotations

import json
from bz2 import BZ2Compressor, BZ2Decompressor
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from turnlog.core.errors import CorruptError, NewerSchemaError
from turnlog.core.events import Event
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.log.commit import Commit, events_of
from turnlog.log.headers import chain_hash, hashed_header, read_header
from turnlog.log.keys import commit_sort_key, position_of
from turnlog.log.packing import MAX_UNPACKED_BYTES, line_digest
from turnlog.log.payloads import digest_of, is_blob
from turnlog.log.read_lines import payload_of
from turnlog.ports import AttributeValue, Item

VERSION = 1
_MAGIC, _BZIP2 = b"TLsg", 2
_PREFIX_BYTES = 14
_MAX_HEAD_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_APART = frozenset({"pk", "sk", "h", "b"})
_KEY_HASH_BYTES, _RING_BYTES = 6, 240
"""Sizes in the ring of keys of a predicted header. Version 1 fixes them; the entry of a header without the ring says so."""
Attributes: TypeAlias = "dict[str, AttributeValue]"
"""The attributes of a header that an entry describes."""
_FLAGS = "ol."
"""Holds the flags of attribute ``ol`` without its numbers. No real attribute of a header has a dot in its name."""


@lazy_dataclass(frozen=True, slots=True)
class SealedCommit:
    """A commit read from a segment.

    ``item`` is the stored item without ``pk`` and ``b``; ``lines`` are the content of its ``b``. ``contents`` are its
    payloads by place, without those in the blob store.
    """

    commit: Commit
    item: Item
    lines: tuple[bytes, ...]
    contents: Mapping[str, bytes]

    @property
    def events(self) -> tuple[Event, ...]:
        """The commit's events, complete but for payloads in the blob store, which are left out."""
        return tuple(events_of(self.commit, self.contents))


class SegmentWriter:
    """Packs commits in order. Keeps the packed bytes in memory, and of the commits only their headers."""

    def __init__(self, previous: bytes) -> None:
        """Begin a segment after the commit whose chain hash is ``previous``."""
        self._head: JsonObject = {"q": previous.hex()}
        self._entries = list[JsonObject]()
        self._hashes, self._body = bytearray(), bytearray()
        self._compressor = BZ2Compressor()
        self._hash = previous
        self._before: Attributes = {}
        self._shape: JsonObject = {}

    def add(self, item: Item, lines: Sequence[bytes], contents: Mapping[str, bytes]) -> None:
        """Add a commit: its item, the lines of its content, and its payloads except for those in the blob store."""
        parsed = [json.loads(line) for line in lines]
        attributes = _header_attributes(item)
        self._entries.append(self._entry(attributes, position_of(str(item["sk"])), parsed))
        self._hash, self._before = cast("bytes", item["h"]), attributes
        for line, fields in zip(lines, parsed, strict=True):
            self._write(line)
            payload = payload_of(fields)
            if payload is not None and not is_blob(payload):
                self._write(contents[payload.place])

    def finish(self) -> bytes:
        """Return the bytes of the segment."""
        head = {**self._head, "h": self._hash.hex(), "f": self._first, "c": self._entries}
        packer = BZ2Compressor()
        packed = packer.compress(encode_json(head)) + packer.flush()
        self._body += self._compressor.flush()
        sizes = len(packed).to_bytes(4, "big") + len(self._hashes).to_bytes(4, "big")
        return b"".join([_MAGIC, bytes([VERSION, _BZIP2]), sizes, packed, self._hashes, self._body])

    def _write(self, line: bytes) -> None:
        self._body += self._compressor.compress(line + b"\n")

    def _entry(self, attributes: Attributes, first: int, lines: Sequence[dict[str, Any]]) -> JsonObject:
        if not self._entries:
            self._first = first
        key = attributes.get("ik")
        if not isinstance(key, bytes) or key == self._before.get("ik"):
            key = b""
        predicted = _predicted(self._before, first, lines, key)
        entry: JsonObject = {"n": len(lines)} if len(lines) > 1 else {}
        absent = sorted(name for name in predicted if name not in attributes)
        if absent:
            entry["-"] = list(absent)
        shape: JsonObject = {}
        for name in sorted(attributes):
            value, expected = attributes[name], predicted.get(name)
            if value == expected and type(value) is type(expected):
                continue
            if isinstance(value, bytes):
                self._hashes += value
                shape[name] = len(value)
            elif name == "t" and isinstance(value, int) and isinstance(expected, int):
                entry["=t"] = value - expected
            else:
                entry["=" + name] = value
        if shape != self._shape:
            entry["#"] = self._shape = shape
        return entry


def previous_hash(data: bytes) -> bytes:
    """Return the chain hash before the first commit of a segment that `read_segment` has accepted."""
    end = _PREFIX_BYTES + int.from_bytes(data[6:10], "big")
    return bytes.fromhex(_head(data[_PREFIX_BYTES:end])["q"])


def read_segment(data: bytes, *, name: str) -> Iterator[SealedCommit]:
    """Yield the commits of a segment in order, unpacked one at a time.

    ``data`` must be the bytes that were written (their hash is in the blob's name); the chain hashes prove the commits.
    Raises `CorruptError`, which names the segment, at the latest after the last commit.
    """
    if len(data) < _PREFIX_BYTES or data[:4] != _MAGIC:
        raise CorruptError("not a segment, or a segment that is cut short", item=name)
    if data[4] > VERSION:
        raise NewerSchemaError(f"segment version {data[4]} is newer than {VERSION}", item=name)
    if data[4] != VERSION or data[5] != _BZIP2:
        raise CorruptError(f"unknown segment version {data[4]} or codec {data[5]}", item=name)
    head_end = _PREFIX_BYTES + int.from_bytes(data[6:10], "big")
    hashes_end = head_end + int.from_bytes(data[10:14], "big")
    try:
        body = memoryview(data)[hashes_end:]
        yield from _commits(_head(data[_PREFIX_BYTES:head_end]), data[head_end:hashes_end], body, name)
    except CorruptError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CorruptError(f"a segment is damaged: {type(error).__name__}", item=name) from error


def read_stretch(data: bytes, first: int, last: int, *, name: str, fault: str) -> Iterator[SealedCommit]:
    """Yield the commits of a segment as `read_segment` does. They must have all positions from ``first`` to ``last``.

    Raises `CorruptError` with the text ``fault`` at the first commit that does not; a missing last one is seen at the end.
    """
    position = first
    for sealed in read_segment(data, name=name):
        if sealed.commit.header.first != position:
            raise CorruptError(fault, item=name)
        position = sealed.commit.header.last + 1
        yield sealed
    if position != last + 1:
        raise CorruptError(fault, item=name)


def _next_event(lines: Iterator[bytes], contents: dict[str, bytes], name: str) -> tuple[bytes, dict[str, Any]]:
    """Return the next event as its line and parsed; add the payload behind it, if it has one, to ``contents``."""
    line = _next(lines)
    event: dict[str, Any] = json.loads(line)
    payload = payload_of(event)
    if payload is not None and not is_blob(payload):
        content = contents[payload.place] = _next(lines)
        if digest_of(content) != payload.digest:
            raise CorruptError("a payload in a segment is not the one its commit names", item=name)
    return line, event


def _commits(head: dict[str, Any], hashes: bytes, body: memoryview, name: str) -> Iterator[SealedCommit]:
    lines = _lines(body)
    chained, first = bytes.fromhex(head["q"]), int(head["f"])
    before: Attributes = {}
    shape: dict[str, int] = {}
    offset = 0
    for entry in head["c"]:
        shape = entry.get("#", shape)
        hashed = dict[str, AttributeValue]()
        for attribute, size in shape.items():
            if offset + size > len(hashes):
                raise EOFError
            hashed[attribute] = hashes[offset : offset + size]
            offset += size
        contents = dict[str, bytes]()
        events = [_next_event(lines, contents, name) for _ in range(entry.get("n", 1))]
        stored, parsed = [line for line, _ in events], [event for _, event in events]
        before = _attributes(entry, hashed, before, first, parsed)
        item = _item(before, first)
        covered = hashed_header(str(item["sk"]), item)
        chained = item["h"] = chain_hash(chained, covered, list(map(line_digest, stored)))
        header = read_header(item)
        if header.last != first + len(stored) - 1:
            raise CorruptError("a commit in a segment does not hold the events of its positions", item=name)
        until = item.get("fu")
        commit = Commit(header, tuple(parsed), until=until if isinstance(until, int) else None)
        yield SealedCommit(commit, item, tuple(stored), contents)
        first = header.last + 1
    if chained.hex() != head["h"] or offset != len(hashes) or next(lines, None) is not None:
        raise CorruptError("a segment does not end as its head says", item=name)


def _attributes(
    entry: dict[str, Any], hashed: Attributes, before: Attributes, first: int, lines: Sequence[dict[str, Any]]
) -> Attributes:
    """Return the attributes of a header that its entry describes, as `_header_attributes` returned them."""
    key = hashed.get("ik", b"")
    attributes = _predicted(before, first, lines, key if isinstance(key, bytes) else b"")
    for attribute in entry.get("-", ()):
        del attributes[attribute]
    for field, value in entry.items():
        if field[0] == "=":
            attribute, expected = field[1:], attributes.get(field[1:])
            attributes[attribute] = value + expected if attribute == "t" and isinstance(expected, int) else value
    return attributes | hashed


def _item(attributes: Attributes, first: int) -> Attributes:
    """Return the stored item of a commit without its content."""
    item = attributes | {"sk": commit_sort_key(first)}
    if _FLAGS in item:
        item["ol"] = " ".join(str(item.pop(name)) for name in ("ol", _FLAGS))
    return item


def _header_attributes(item: Item) -> Attributes:
    """Return the attributes of a header that an entry has to describe."""
    attributes = {name: value for name, value in item.items() if name not in _APART}
    loop = attributes.get("ol")
    if isinstance(loop, str) and " " in loop:
        attributes["ol"], _, attributes[_FLAGS] = loop.rpartition(" ")
    return attributes


def _predicted(before: Attributes, first: int, lines: Sequence[dict[str, Any]], key: bytes) -> Attributes:
    """Return the attributes that a header is likely to have: those of the commit before, with its own lines counted in.

    A wrong prediction costs bytes, never correctness.
    """
    attributes = dict(before)
    messages, tokens, *_ = _numbers(attributes.get("ct"), 2)
    lead_messages, lead_tokens, *closed = _numbers(attributes.get("lt"), 4)
    for index, line in enumerate(lines):
        if line.get("k") != "m":
            continue
        number = line.get("o", 0)
        if number == 1:
            lead_messages, lead_tokens = messages, tokens
        elif number:
            closed = [messages - lead_messages, tokens - lead_tokens]
        if number:
            attributes["ol"] = f"{number} {first + index}"
        messages, tokens = messages + 1, tokens + line["t"]
    totals = [lead_messages, lead_tokens, *closed]
    if any(totals):
        attributes["lt"] = " ".join(map(str, totals))
    recent = attributes.get("w", b"")
    if key and isinstance(recent, bytes):
        attributes["w"] = (recent + key[:_KEY_HASH_BYTES] + first.to_bytes(4, "big"))[-_RING_BYTES:]
    return attributes | {"ct": f"{messages} {tokens}", "l": first + len(lines) - 1}


def _numbers(value: AttributeValue | None, count: int) -> list[int]:
    return [int(number) for number in value.split(" ")] if isinstance(value, str) else [0] * count


def _head(packed: bytes) -> dict[str, Any]:
    unpacker = BZ2Decompressor()
    content = unpacker.decompress(packed, _MAX_HEAD_BYTES)
    if not unpacker.eof or unpacker.unused_data:
        raise EOFError
    head: dict[str, Any] = json.loads(content)
    return head


def _lines(packed: memoryview) -> Iterator[bytes]:
    """Yield the lines of the body. At most one line and a chunk are in memory."""
    unpacker, rest, offset = BZ2Decompressor(), bytearray(), 0
    while not unpacker.eof:
        packed_chunk = packed[offset : offset + _CHUNK_BYTES] if unpacker.needs_input else b""
        if unpacker.needs_input and not packed_chunk:
            raise EOFError
        offset += len(packed_chunk)
        *complete, tail = unpacker.decompress(packed_chunk, _CHUNK_BYTES).split(b"\n")
        for line in complete:
            yield bytes(rest) + line
            rest.clear()
        rest += tail
        if len(rest) > MAX_UNPACKED_BYTES:
            raise ValueError
    if rest or unpacker.unused_data or offset < len(packed):
        raise EOFError


def _next(lines: Iterator[bytes]) -> bytes:
    line = next(lines, None)
    if line is None:
        raise EOFError
    return line
