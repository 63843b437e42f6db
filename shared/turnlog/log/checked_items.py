"""An item table with checksums: reading a damaged item raises a `CorruptError` that names it.

Commits and payloads get no checksum here, because the hash chain covers them. Items that were stored without a checksum are
not checked.
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
_REBUILT = frozenset({STATE, SUMMARY, SYSTEM, WORDS})
"""Caches that readers can rebuild: a damaged one counts as missing and is overwritten."""


class CheckedItems:
    """An `ItemTable` over another one. It adds checksums to items it writes, and checks and removes them from items it reads."""

    def __init__(self, inner: ItemTable) -> None:
        self._inner = inner

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        items = self._inner.get_many(keys, consistent=consistent)
        return {key: _checked(item) for key, item in items.items() if not _is_missing(item)}

    def query(self, query: Query) -> Page:
        page = self._inner.query(query)
        if query.index == "expiry":
            # Entries of all tenants: the log of each session decides, so one that is damaged stops no other.
            return Page(tuple(_unsealed(item) for item in page.items), page.next)
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


def _unsealed(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != CHECKSUM}


def checksum(item: Item) -> bytes:
    """Return a 4-byte checksum over all attributes of an item except the checksum itself."""
    texts = {name: value for name, value in item.items() if not isinstance(value, bytes) and name != CHECKSUM}
    total = zlib.crc32(json.dumps(texts, sort_keys=True, separators=(",", ":")).encode("ascii"))
    for name, value in sorted(item.items()):
        if isinstance(value, bytes) and name != CHECKSUM:
            total = zlib.crc32(value, zlib.crc32(f"{name}:{len(value)}:".encode(), total))
    return total.to_bytes(4, "big")


def _sealed(item: Item) -> Item:
    return item if _covers_itself(item) else {**item, CHECKSUM: checksum(item)}


def _checked(item: Item) -> Item:
    """Return the item without its checksum. Raises a `CorruptError` that names the item when the checksum does not match."""
    if not _is_whole(item):
        raise CorruptError("the checksum of an item does not match", item=item_name(item))
    return {name: value for name, value in item.items() if name != CHECKSUM} if CHECKSUM in item else item


def _is_whole(item: Item) -> bool:
    """Return whether the checksum matches.

    Items of a newer version pass, because their checksum may be computed differently; their reader refuses them by version.
    """
    version = item.get("v")
    is_newer = isinstance(version, int) and version > SCHEMA_VERSION
    return CHECKSUM not in item or is_newer or item[CHECKSUM] == checksum(item)


def _is_missing(item: Item) -> bool:
    return item.get("sk") in _REBUILT and not _is_whole(item)


def _covers_itself(item: Item) -> bool:
    return str(item.get("sk")).startswith((COMMITS_FROM, PAYLOADS))
