"""A table whose items carry a checksum: an item comes back as it was written, or reading it is a `CorruptError` that names it.

Commits and payloads are left out: the chain covers them, and costs stay as they are. Items that were stored without a checksum
are read as they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from turnlog.core.errors import CorruptError
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.headers import item_name
from turnlog.log.keys import COMMITS_FROM, PAYLOADS, STATE, SUMMARY, SYSTEM, WORDS
from turnlog.ports import Condition, Equal, Item, ItemTable, Key, Lost, Page, Query

CHECKSUM = "cs"
_MADE_AGAIN = frozenset({STATE, SUMMARY, SYSTEM, WORDS})
"""Caches whose readers go on without them: a damaged one counts as missing, and is overwritten."""


class CheckedItems:
    """`ItemTable` over another one. It adds the checksum to what is put, and takes it away from what is read."""

    def __init__(self, inner: ItemTable) -> None:
        self._inner = inner

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        items = self._inner.get_many(keys, consistent=consistent)
        return {key: _checked(item) for key, item in items.items() if not _is_missing(item)}

    def query(self, query: Query) -> Page:
        page = self._inner.query(query)
        return Page(tuple(_checked(item) for item in page.items if not _is_missing(item)), page.next)

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        lost = self._inner.put(_sealed(item), condition=condition)
        if lost is None or lost.existing is None:
            return lost
        damaged = lost.existing.get(CHECKSUM)
        if _is_missing(lost.existing) and damaged is not None:
            return self._inner.put(_sealed(item), condition=Equal(CHECKSUM, damaged))
        return Lost(_checked(lost.existing))

    def write_many(self, items: Sequence[Item]) -> None:
        self._inner.write_many(list(map(_sealed, items)))

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._inner.delete_many(keys)


def checksum(item: Item) -> bytes:
    """Return 4 bytes over all attributes of an item but the checksum itself."""
    texts = {name: value for name, value in item.items() if not isinstance(value, bytes) and name != CHECKSUM}
    total = zlib.crc32(json.dumps(texts, sort_keys=True, separators=(",", ":")).encode("ascii"))
    for name, value in sorted(item.items()):
        if isinstance(value, bytes) and name != CHECKSUM:
            total = zlib.crc32(value, zlib.crc32(f"{name}:{len(value)}:".encode(), total))
    return total.to_bytes(4, "big")


def _sealed(item: Item) -> Item:
    return item if _covers_itself(item) else {**item, CHECKSUM: checksum(item)}


def _checked(item: Item) -> Item:
    """Return the item without its checksum, or raise the `CorruptError` that names it."""
    if not _is_whole(item):
        raise CorruptError("the checksum of an item does not match", item=item_name(item))
    return {name: value for name, value in item.items() if name != CHECKSUM} if CHECKSUM in item else item


def _is_whole(item: Item) -> bool:
    """Whether the checksum fits. One of a newer version may be made otherwise: the item's reader refuses it by its version."""
    version = item.get("v")
    is_newer = isinstance(version, int) and version > SCHEMA_VERSION
    return CHECKSUM not in item or is_newer or item[CHECKSUM] == checksum(item)


def _is_missing(item: Item) -> bool:
    return item.get("sk") in _MADE_AGAIN and not _is_whole(item)


def _covers_itself(item: Item) -> bool:
    return str(item.get("sk")).startswith((COMMITS_FROM, PAYLOADS))
