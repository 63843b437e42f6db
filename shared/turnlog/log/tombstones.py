"""What stands where something was erased: a key and nothing that was said.

A slot of the log is never freed while a writer may still be on its way to it, and a cache that is written late must not bring
back what it was made of: both find a tombstone in their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from turnlog.core.errors import ConflictError, CorruptError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import DAY_MS
from turnlog.log.headers import item_name
from turnlog.log.keys import MAX_POSITION, SessionKeys
from turnlog.ports import AttributeValue, Clock, Equal, Item, ItemTable, Key

KEPT_MS = DAY_MS
"""How long an id stays taken after its session was erased. No request lives that long."""
MATERIALISING = "mat"
"""The mark of ``D#META`` and of the first slot while the commits of a session are written that is made of stored ones."""
KEEPS, SINCE, FREE = "kp", "c", "ok"
"""Attributes of what an expired session leaves: that full snapshots of it are kept; and in the first slot since when somebody may
be at work on the rest, and that nobody is (`SlotLeases`)."""
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


QUIET_MS = 14 * 60_000
"""Nobody who took the slot so long ago, or was under way when the session expired, is there any more."""
IDLE, BARE = 1, 2
"""What `FREE` says: nobody is at work; and there is nothing in the log but this slot."""


@lazy_dataclass(frozen=True, slots=True)
class SlotLease:
    """The slot as it was taken. ``alone``: nobody else can be at work. ``before``: what `FREE` said."""

    item: Item
    alone: bool
    before: int


class SlotLeases:
    """Reads and takes first slots."""

    def __init__(self, items: ItemTable, clock: Clock) -> None:
        self._items = items
        self._clock = clock

    def read(self, keys: SessionKeys) -> Item | None:
        key = keys.commit(1)
        return self._items.get_many([key]).get(key)

    def wait_ms(self, first: Item) -> int:
        """How long somebody may be at work; 0: nobody is."""
        return 0 if FREE in first else max(0, since_of(first) + QUIET_MS - self._clock.now_ms())

    def take(self, keys: SessionKeys, first: Item, *, alone: bool = False) -> SlotLease | None:
        """Takes the slot of an expired session, which was read so; also from one who was making it again and has stopped.

        None: another one was faster; or with ``alone``, somebody may be at work.
        """
        is_alone = not self.wait_ms(first)
        if alone and not is_alone:
            return None
        now, before, digest = self._clock.now_ms(), first.get(FREE), first["h"]
        if not isinstance(digest, bytes):
            raise CorruptError("a slot without a hash", item=item_name(first))
        taken = expired_tombstone(keys, digest, now_ms=now, since_ms=max(now, since_of(first) + 1))
        if self._items.put(taken, condition=Equal(SINCE, since_of(first))) is not None:
            return None
        return SlotLease(taken, is_alone, before if isinstance(before, int) else IDLE)

    def leave(self, held: SlotLease, *, free: int) -> None:
        """Nobody is at work any more: said by one who was alone, and unless it was taken by another one since."""
        if held.alone:
            self._items.put({**held.item, FREE: free}, condition=Equal(SINCE, since_of(held.item)))

    def disown(self, keys: SessionKeys) -> None:
        """Nothing is kept any more: from here on it never begins again."""
        while (first := self.read(keys)) is not None and keeps_snapshots(first):
            digest = first["h"]
            plain = first_tombstone(keys, digest if isinstance(digest, bytes) else b"", now_ms=self._clock.now_ms())
            self._items.put(plain, condition=Equal(SINCE, since_of(first)))


def since_of(first: Item) -> int:
    found = first.get(SINCE)
    if not isinstance(found, int):
        raise CorruptError("a first slot does not say since when", item=item_name(first))
    return found


def still_erased(wait_ms: int) -> ConflictError:
    """What a session that has just expired answers to who wants it back."""
    return ConflictError(
        "the session has expired and is being erased, all but its full snapshots: it is restored under its own id when that is "
        "over, under another id at once",
        code="session_expiring",
        retry_after_seconds=max(1, -(-wait_ms // 1000)),
    )


def id_claimed(wait_ms: int | None = None) -> ConflictError:
    """What the id of a session that is being made answers to another one that is to be made there."""
    wait_seconds = -(-wait_ms // 1000) if wait_ms else None
    message = "another restore or import is making a session of this id"
    return ConflictError(message, code="id_claimed", retry_after_seconds=wait_seconds)
