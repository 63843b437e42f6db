"""A process-wide cache of verified commit items, limited in memory.

A commit changes only when it is redacted. An item that is read again is compared with the cached one byte by byte, which is
much cheaper than its checksum, digests and header. An item with any difference is verified again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from threading import Lock
from typing import TypeAlias

from turnlog.core.errors import CorruptError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.log.headers import Header, chain_hash, hashed_header, item_name, log_key, read_header
from turnlog.log.packing import count_content, decoding, line_digest, unpack
from turnlog.ports import Item, item_size_bytes

Blob: TypeAlias = bytes
MAX_BYTES = 8 * 1024 * 1024
_OVERHEAD_BYTES = 2 * 1024
"""Estimated memory of a commit's objects, without their contents."""


@lazy_dataclass(frozen=True, slots=True)
class Verified:
    """The contents of a commit's item after its checksum was checked. ``content`` are the stored lines of its events."""

    header: Header
    content: bytes
    covered: bytes
    digests: tuple[bytes, ...]

    def follows(self, previous: bytes) -> bool:
        """Return whether the chain hash follows from the hash of the previous commit."""
        return chain_hash(previous, self.covered, self.digests) == self.header.hash


class VerifiedItems:
    """A thread-safe cache of the items and blobs that were read last, with ``max_bytes`` of memory together."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._found: OrderedDict[tuple[object, object], tuple[Item, Verified, int]] = OrderedDict()
        self._blobs: OrderedDict[tuple[str, str], Blob] = OrderedDict()
        self._blob_bytes = 0
        self._bytes = 0
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        return self._bytes

    def of(self, item: Item) -> Verified:
        """Return the verified contents of an item. Raises a `CorruptError` or `NewerSchemaError` that names the item."""
        key = (item.get("pk"), item.get("sk"))
        with self._lock:
            known = self._found.get(key)
            if known is not None:
                self._found.move_to_end(key)
        if known is not None and known[0] == item:
            count_content(known[1].content)
            return known[1]
        verified = _verified(item)
        self._keep(key, dict(item), verified)
        return verified

    def forget(self, item: Item) -> None:
        """Remove an item from the cache, because it is being erased."""
        with self._lock:
            known = self._found.pop((item.get("pk"), item.get("sk")), None)
            self._bytes -= known[2] if known is not None else 0

    def blob(self, name: str, digest: str, get: Callable[[], Blob | None]) -> Blob | None:
        """Return an immutable blob with this SHA-256 (hexadecimal), from the cache or from ``get``; None when there is none.

        Raises a `CorruptError` that names the blob when its digest differs. Blobs larger than a quarter of ``max_bytes``
        are not cached; all blobs together may take half of ``max_bytes``.
        """
        key = (name, digest)
        with self._lock:
            known = self._blobs.get(key)
            if known is not None:
                self._blobs.move_to_end(key)
                return known
        data = get()
        if data is None:
            return None
        if sha256(data).hexdigest() != digest:
            raise CorruptError("the digest of a blob does not match its name", item=name)
        if len(data) <= self._max_bytes // 4:
            with self._lock:
                if key not in self._blobs:
                    self._blobs[key] = data
                    self._bytes += len(data)
                    self._blob_bytes += len(data)
                self._shrink()
        return data

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
            self._blobs.clear()
            self._bytes = self._blob_bytes = 0

    def _shrink(self) -> None:
        while self._bytes > self._max_bytes:
            if self._found and self._blob_bytes <= self._max_bytes // 2:
                self._bytes -= self._found.popitem(last=False)[1][2]
            else:
                size = len(self._blobs.popitem(last=False)[1])
                self._bytes -= size
                self._blob_bytes -= size

    def _keep(self, key: tuple[object, object], item: Item, made: Verified) -> None:
        size = item_size_bytes(item) + len(made.content) + len(made.covered) + _OVERHEAD_BYTES
        with self._lock:
            before = self._found.pop(key, None)
            self._bytes += size - (before[2] if before is not None else 0)
            self._found[key] = (item, made, size)
            self._shrink()


def _verified(item: Item) -> Verified:
    name, header = item_name(item), read_header(item)
    packed = item.get("b")
    if not isinstance(packed, bytes):
        raise CorruptError("a commit without a body", item=name)
    covered = hashed_header(log_key(item), item)
    content = unpack(packed, item=name, beside=covered)
    lines = content.split(b"\n")
    if len(lines) != header.last - header.first + 1:
        raise CorruptError(f"a commit of positions {header.first} to {header.last} has {len(lines)} events", item=name)
    if "fp" in item:
        _check_pointer(item, lines[0])
    return Verified(header, content, covered, tuple(map(line_digest, lines)))


def _check_pointer(item: Item, line: bytes) -> None:
    """Compare a fork's link to its parent, which no checksum covers, with the fork's event.

    Raises `CorruptError` on a difference. The link is empty after the parent was erased, when the fork has its own base.
    """
    with decoding(item_name(item)):
        event = json.loads(line)
        if item["fa"] != event["at"] or item.get("bs") not in ("", event["of"]):
            raise CorruptError("a fork's link to its parent differs from its event", item=item_name(item))


VERIFIED = VerifiedItems()
"""The cache of this process."""
