"""What stands where something was erased: a key and nothing that was said.

A slot of the log is never freed while a writer may still be on its way to it, and a cache that is written late must not bring
back what it was made of: both find a tombstone in their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from turnlog.domain.times import DAY_MS
from turnlog.log.keys import MAX_POSITION, SessionKeys
from turnlog.ports import AttributeValue, Item, Key

KEPT_MS = DAY_MS
"""How long an id stays taken after its session was erased. No request lives that long."""
MATERIALISING = "mat"
"""The mark of ``D#META`` and of the first slot while the commits of a session are written that is made of stored ones."""
KEEPS, SINCE, FREE = "kp", "c", "ok"
"""Attributes of what an expired session leaves: that full snapshots of it are kept; and in the first slot since when somebody may
be at work on the rest, and that nobody is (`FirstSlot`)."""
EXPIRY_SHARDS = 16
"""Partitions of the expiry index, as each takes 1,000 write units a second. Fixed: readers of every version must know where
writers of every other put an entry."""
_GONE = MAX_POSITION + 1
"""Beyond every position, so that a cache's condition `pos < :pos` never holds again."""


def slot_tombstone(key: Key, hash: bytes, *, now_ms: int, expired: bool = False) -> Item:
    """In a slot of the log. Only the chain hash stays."""
    item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "h": hash}
    return item | _ttl(now_ms) | ({KEEPS: 1} if expired else {})


def first_tombstone(keys: SessionKeys, hash: bytes, *, now_ms: int) -> Item:
    """In the first slot. It keeps the id taken until all the others are gone, and the sweeper finds it by its index keys."""
    key, due_ms = keys.commit(1), now_ms + KEPT_MS
    return {"pk": key.pk, "sk": key.sk, "h": hash, **due_index(keys, due_ms)}


def expired_tombstone(keys: SessionKeys, hash: bytes, *, now_ms: int, since_ms: int) -> Item:
    """In the first slot of a session that has expired: it says since when somebody may be at work on what is left."""
    return {**first_tombstone(keys, hash, now_ms=now_ms), KEEPS: 1, SINCE: since_ms}


def cache_tombstone(key: Key, *, now_ms: int, expired: bool = False) -> Item:
    """In place of a cache or an entry of the list. ``expired``: not all of the session was to be erased (`keeps_snapshots`); then
    it stays, so that whoever erases the person finds what was kept."""
    item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "pos": _GONE}
    return item | ({KEEPS: 1} if expired else _ttl(now_ms))


def keeps_snapshots(item: Item) -> bool:
    """Whether what is erased here has expired: its full snapshots are there until their own expiry."""
    return KEEPS in item


def is_empty_slot(item: Item) -> bool:
    """Whether a slot holds nothing that was said. The claim of a session that is being made is no commit, but holds one."""
    return "b" not in item


def is_cache_tombstone(item: Item) -> bool:
    return item.get("pos") == _GONE


def is_slot_tombstone(item: Item) -> bool:
    """Whether a slot holds no commit that can be read: a tombstone, or the claim of a session that is being made."""
    return "k" not in item and ("b" not in item or MATERIALISING in item)


def due_index(keys: SessionKeys, due_ms: int) -> dict[str, AttributeValue]:
    """Return the attributes that put an item of a session on the expiry index: its shard there, and the time."""
    session = f"{keys.owner.tenant_id}#{keys.owner.user_id}#{keys.session_id}"
    shard = crc32(session.encode()) % EXPIRY_SHARDS
    return {"g2pk": f"X#shard#{shard:02d}", "g2sk": f"{due_ms:013d}#{session}"}


def due_shards(worker: int = 0, workers: int = 1) -> Sequence[str]:
    """Return the partitions of the expiry index that one of several workers reads, numbered from 0."""
    return [f"X#shard#{shard:02d}" for shard in range(worker, EXPIRY_SHARDS, workers)]


def due_bucket(day: int) -> str:
    """Return the partition that held all that is due on a day, counted from 1970, before there were shards."""
    return f"X#{day}"


def _ttl(now_ms: int) -> dict[str, AttributeValue]:
    return {"ttl": (now_ms + 2 * KEPT_MS) // 1000}
