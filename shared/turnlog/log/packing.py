"""Contents of items as bytes that show damage: packing, and a table that checks every item.

A packed content is a codec byte, a checksum over header and content, and the content. It is stored as bytes, because a DynamoDB
map does not read back every JSON value unchanged. It is compressed only when that saves a write unit.

`CheckedItems` is an item table with checksums: reading a damaged item raises a `CorruptError` that names it. Commits and
payloads get no checksum there, because the hash chain covers them. Items that were stored without a checksum are not checked.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

from turnlog.core.errors import CorruptError
from turnlog.core.identity import Within
from turnlog.core.json_values import canonical_json
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.headers import attribute, item_name
from turnlog.log.keys import COMMITS_FROM, ORDERS, PAYLOADS, STATE, SUMMARY, SYSTEM, WORDS
from turnlog.ports import AttributeValue, Condition, Equal, Item, ItemTable, Key, Lost, Page, Query

WRITE_UNIT_BYTES = 1024
MAX_UNPACKED_BYTES = 40 * 1024 * 1024
PREFIX_BYTES = 5
_RAW, _ZLIB = 0, 1
_SAMPLES, _SAMPLE_BYTES = 8, 512
_COUNT: ContextVar[Callable[[int], None] | None] = ContextVar("turnlog_count_content", default=None)
REDACTED_LINE = b'{"rx":"'
"""Beginning of a redacted event's line, and of no other line. The hexadecimal digest of the original line follows."""
_FROM, _TO = len(REDACTED_LINE), len(REDACTED_LINE) + 64
CHECKSUM = "cs"
_REBUILT = frozenset({STATE, SUMMARY, SYSTEM, WORDS})
"""Caches that readers can rebuild: a damaged one counts as missing and is overwritten."""


def counting_content(count: Callable[[int], None]) -> Within[Callable[[int], None] | None]:
    """Call ``count`` with the size in bytes of each content that the block reads, before it is decoded.

    ``count`` may raise to stop the reading.
    """
    return Within(_COUNT, count)


def count_content(content: bytes) -> None:
    """Report content that is read, also from a memory cache, to `counting_content`."""
    if (count := _COUNT.get()) is not None:
        count(len(content))


def pack(content: bytes, *, beside: bytes = b"", item_bytes: int = 0) -> bytes:
    """Return the content with a checksum before it, compressed if that saves a capacity unit of the item that it is stored in.

    `unpack` is its inverse. ``beside`` is covered by the checksum but not stored. ``item_bytes`` is the size of the rest of the
    item.
    """
    checksum = zlib.crc32(content, zlib.crc32(beside)).to_bytes(4, "big")
    units = _units(len(content) + PREFIX_BYTES + item_bytes)
    if units > 1 and not is_dense(content):
        small = zlib.compress(content, 6)
        if _units(len(small) + PREFIX_BYTES + item_bytes) < units:
            return bytes([_ZLIB]) + checksum + small
    return bytes([_RAW]) + checksum + content


def is_dense(content: bytes) -> bool:
    """Return whether compression would not make a large content smaller, by samples of it: an image, an archive."""
    step = len(content) // _SAMPLES
    if step < 2 * _SAMPLE_BYTES:
        return False
    sample = b"".join(content[start : start + _SAMPLE_BYTES] for start in range(0, len(content), step))
    return len(zlib.compress(sample, 1)) >= len(sample)


def unpack(packed: bytes, *, item: str, beside: bytes = b"") -> bytes:
    """Return the content that was packed. Never inflates to more than `MAX_UNPACKED_BYTES`.

    Raises a `CorruptError` that names ``item``.
    """
    if len(packed) < PREFIX_BYTES:
        raise CorruptError("an item is cut short", item=item)
    codec, checksum, content = packed[0], packed[1:PREFIX_BYTES], packed[PREFIX_BYTES:]
    if codec == _ZLIB:
        content = _inflate(content, item)
    elif codec != _RAW:
        raise CorruptError(f"unknown codec {codec}", item=item)
    if zlib.crc32(content, zlib.crc32(beside)).to_bytes(4, "big") != checksum:
        raise CorruptError("checksum does not match", item=item)
    count_content(content)
    return content


def json_in(item: Item) -> Any:
    """Return the JSON value that is packed in the attribute ``b`` of an item. Raises a `CorruptError` that names the item."""
    content = unpack(attribute(item, "b", bytes), item=item_name(item))
    with decoding(item_name(item)):
        return json.loads(content)


@contextmanager
def decoding(item: str) -> Iterator[None]:
    """Turn a decoder's errors about malformed stored content into a `CorruptError` that names ``item``.

    Use it around decoders only; requests to an engine stay outside.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CorruptError(f"the content is damaged: {type(error).__name__}", item=item) from error


def _inflate(data: bytes, item: str) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise CorruptError("compressed content is damaged", item=item) from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise CorruptError("compressed content is cut short or too large", item=item)
    return content


def _units(size: int) -> int:
    return -(-size // WRITE_UNIT_BYTES)


def line_digest(line: bytes) -> bytes:
    """Return the SHA-256 of a line; for a redacted line, the SHA-256 of the original line."""
    if line[:_FROM] == REDACTED_LINE:
        with suppress(ValueError):  # not hexadecimal, so Turnlog did not write this line
            return bytes.fromhex(line[_FROM:_TO].decode("ascii"))
    return sha256(line).digest()


class CheckedItems:
    """An `ItemTable` over another one. It adds checksums to items it writes, and checks and removes them from items it reads."""

    def __init__(self, inner: ItemTable) -> None:
        self._inner = inner

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        items = self._inner.get_many(keys, consistent=consistent)
        return {key: checked for key, item in items.items() if (checked := _checked(item)) is not None}

    def query(self, query: Query) -> Page:
        page = self._inner.query(query)
        if query.index == "expiry":
            # Entries of all tenants: the log of each session decides, so one that is damaged stops no other.
            return Page(tuple(_unsealed(item) for item in page.items), page.next)
        return Page(tuple([item for item in map(_checked, page.items) if item is not None]), page.next)

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        lost = self._inner.put(_sealed(item), condition=condition)
        if lost is None or lost.existing is None:
            return lost
        existing = _checked(lost.existing)
        if existing is None:
            return self.put(item, condition=Equal(CHECKSUM, lost.existing[CHECKSUM]))
        return Lost(existing)

    def write_many(self, items: Sequence[Item]) -> None:
        self._inner.write_many(list(map(_sealed, items)))

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._inner.delete_many(keys)


def checksum(item: Item) -> bytes:
    """Return a 4-byte checksum over all attributes of an item except the checksum itself."""
    texts, contents = dict[str, AttributeValue](), list[tuple[str, bytes]]()
    for name, value in item.items():
        if not isinstance(value, bytes):
            texts[name] = value
        elif name != CHECKSUM:
            contents.append((name, value))
    total = zlib.crc32(canonical_json(texts))
    for name, content in sorted(contents):
        total = zlib.crc32(content, zlib.crc32(f"{name}:{len(content)}:".encode(), total))
    return total.to_bytes(4, "big")


def _sealed(item: Item) -> Item:
    covers_itself = str(item.get("sk")).startswith((COMMITS_FROM, PAYLOADS))
    return item if covers_itself else {**item, CHECKSUM: checksum(item)}


def _unsealed(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != CHECKSUM}


def _checked(item: Item) -> Item | None:
    """Return the item without its checksum; None for a damaged cache. Raises a `CorruptError` that names another damaged item.

    Items of a newer version pass, because their checksum may be computed differently; their reader refuses them by version.
    """
    if CHECKSUM not in item:
        return item
    version = item.get("v")
    if item[CHECKSUM] == checksum(item) or (isinstance(version, int) and version > SCHEMA_VERSION):
        return _unsealed(item)
    if item.get("sk") in _REBUILT or str(item.get("sk")).startswith(ORDERS):
        return None
    raise CorruptError("the checksum of an item does not match", item=item_name(item))
