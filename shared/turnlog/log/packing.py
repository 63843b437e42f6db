"""How bytes are put into items: one codec byte, a checksum over the header and the content, the content.

Never a DynamoDB map: any JSON reads back equal. Content is compressed only where that saves a write unit.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

from turnlog.core.errors import CorruptError

WRITE_UNIT_BYTES = 1024
MAX_UNPACKED_BYTES = 32 * 1024 * 1024
PREFIX_BYTES = 5
_RAW, _ZLIB = 0, 1
_COUNT: ContextVar[Callable[[int], None] | None] = ContextVar("turnlog_count_content", default=None)


@contextmanager
def counting_content(count: Callable[[int], None]) -> Iterator[None]:
    """Call ``count`` with the bytes of each content that the block reads, before they become objects. It may raise."""
    token = _COUNT.set(count)
    try:
        yield
    finally:
        _COUNT.reset(token)


def count_content(content: bytes) -> None:
    """Tell `counting_content` of content that is read: unpacked, or unpacked before and kept."""
    if (count := _COUNT.get()) is not None:
        count(len(content))


def pack(content: bytes, *, beside: bytes = b"", item_bytes: int = 0) -> bytes:
    """``content`` behind its prefix. ``beside`` is checked too, not stored. ``item_bytes``: what the item has otherwise."""
    checksum = zlib.crc32(content, zlib.crc32(beside)).to_bytes(4, "big")
    if _units(len(content) + PREFIX_BYTES + item_bytes) > 1:
        small = zlib.compress(content, 6)
        if _units(len(small) + PREFIX_BYTES + item_bytes) < _units(len(content) + PREFIX_BYTES + item_bytes):
            return bytes([_ZLIB]) + checksum + small
    return bytes([_RAW]) + checksum + content


def unpack(packed: bytes, *, item: str, beside: bytes = b"") -> bytes:
    """What was packed, or `CorruptError` naming ``item``. Never inflates to more than `MAX_UNPACKED_BYTES`."""
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


def unpack_json(packed: bytes, *, item: str) -> Any:
    """Return the JSON that was packed, or raise the `CorruptError` that names ``item``."""
    content = unpack(packed, item=item)
    with decoding(item):
        return json.loads(content)


@contextmanager
def decoding(item: str) -> Iterator[None]:
    """Raise a `CorruptError` that names ``item`` for whatever stored content of another form makes its decoder raise.

    For decoders alone: what asks an engine stays outside.
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


REDACTED_LINE = b'{"rx":"'
"""What the line of a redacted event begins with, and no other. The digest of the line before follows, hexadecimal."""
_FROM, _TO = len(REDACTED_LINE), len(REDACTED_LINE) + 64


def line_digest(line: bytes) -> bytes:
    """SHA-256 of a line; of one that is redacted, of the line that it was."""
    if line[:_FROM] == REDACTED_LINE:
        with suppress(ValueError):  # then it is no line that we wrote
            return bytes.fromhex(line[_FROM:_TO].decode("ascii"))
    return sha256(line).digest()
