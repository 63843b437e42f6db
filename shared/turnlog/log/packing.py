"""Packed contents of items: one codec byte, a checksum over header and content, and the content.

Content is stored as bytes, because a DynamoDB map does not read back every JSON value unchanged. It is compressed only when
that saves a write unit.
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
    """Call ``count`` with the size in bytes of each content that the block reads, before it is decoded.

    ``count`` may raise to stop the reading.
    """
    token = _COUNT.set(count)
    try:
        yield
    finally:
        _COUNT.reset(token)


def count_content(content: bytes) -> None:
    """Report content that is read, also from a memory cache, to `counting_content`."""
    if (count := _COUNT.get()) is not None:
        count(len(content))


def pack(content: bytes, *, beside: bytes = b"", item_bytes: int = 0) -> bytes:
    """Return the content packed.

    ``beside`` is covered by the checksum but not stored. ``item_bytes`` is the size of the rest of the item.
    """
    checksum = zlib.crc32(content, zlib.crc32(beside)).to_bytes(4, "big")
    if _units(len(content) + PREFIX_BYTES + item_bytes) > 1:
        small = zlib.compress(content, 6)
        if _units(len(small) + PREFIX_BYTES + item_bytes) < _units(len(content) + PREFIX_BYTES + item_bytes):
            return bytes([_ZLIB]) + checksum + small
    return bytes([_RAW]) + checksum + content


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


def unpack_json(packed: bytes, *, item: str) -> Any:
    """Return the JSON value that was packed, or raise a `CorruptError` that names ``item``."""
    content = unpack(packed, item=item)
    with decoding(item):
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


REDACTED_LINE = b'{"rx":"'
"""Beginning of a redacted event's line, and of no other line. The hexadecimal digest of the original line follows."""
_FROM, _TO = len(REDACTED_LINE), len(REDACTED_LINE) + 64


def line_digest(line: bytes) -> bytes:
    """Return the SHA-256 of a line; for a redacted line, the SHA-256 of the original line."""
    if line[:_FROM] == REDACTED_LINE:
        with suppress(ValueError):  # not hexadecimal, so Turnlog did not write this line
            return bytes.fromhex(line[_FROM:_TO].decode("ascii"))
    return sha256(line).digest()
