"""Tombstones: items that take the place of erased ones and have no contents.

A tombstone in a slot blocks a writer that is still about to use the slot. A tombstone in place of a cache blocks a late write
that would bring erased contents back.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from turnlog.core.errors import ConflictError, SessionExistsError
from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_POSITION
from turnlog.core.times import DAY_MS
from turnlog.log.headers import attribute
from turnlog.log.keys import OwnerKeys, SessionKeys, item_at
from turnlog.ports import AttributeValue, Clock, Equal, Item, ItemTable, Key, get_item

KEPT_MS = DAY_MS
"""Time for which an id stays taken after its session was erased; longer than any request lasts."""
MATERIALISING = "mat"
"""Mark of ``D#META`` and of the first slot while a restore or import writes the commits of a session."""
KEEPS, SINCE, FREE = "kp", "c", "ok"
"""Attributes in the tombstones of an expired session: full snapshots are kept (``KEEPS``). In the first slot also the start of
the current lease (``SINCE``) and the fact that nobody holds one (``FREE``, see `SlotLeases`)."""
EXPIRY_SHARDS = 16
"""Number of partitions of the expiry index, each of which takes 1,000 write units a second. It must never change, so that
every version finds the entries of every other."""
_GONE = MAX_POSITION + 1
"""A value above every position, so that a cache's condition `pos < :pos` never holds again."""


def slot_tombstone(key: Key, hash: bytes, *, now_ms: int, expired: bool = False) -> Item:
    """Return the tombstone for a slot of the log. Only the chain hash stays."""
    return item_at(key, {"h": hash}) | _ttl(now_ms) | ({KEEPS: 1} if expired else {})


def first_tombstone(keys: SessionKeys, hash: bytes, *, now_ms: int) -> Item:
    """Return the tombstone for the first slot.

    It keeps the id taken until all other items are gone. The sweeper finds it through the expiry index.
    """
    return item_at(keys.commit(1), {"h": hash, **due_index(keys, now_ms + KEPT_MS)})


def expired_tombstone(keys: SessionKeys, hash: bytes, *, now_ms: int, since_ms: int) -> Item:
    """Return the tombstone for the first slot of an expired session. ``since_ms`` is the start of the lease on the slot."""
    return {**first_tombstone(keys, hash, now_ms=now_ms), KEEPS: 1, SINCE: since_ms}


def cache_tombstone(key: Key, *, now_ms: int, expired: bool = False) -> Item:
    """Return the tombstone for a cache or an entry of the session list.

    ``expired`` marks a session whose full snapshots are kept (`keeps_snapshots`). Its tombstone never expires, so that a
    later erasure of the user finds the snapshots.
    """
    return item_at(key, {"pos": _GONE, **({KEEPS: 1} if expired else _ttl(now_ms))})


def keeps_snapshots(item: Item) -> bool:
    """Return whether a tombstone is of an expired session, whose full snapshots stay until their own expiry."""
    return KEEPS in item


def is_empty_slot(item: Item) -> bool:
    """Return whether a slot has no contents. The claim of a session that a restore is making has contents."""
    return "b" not in item


def is_cache_tombstone(item: Item) -> bool:
    """Return whether an item is the tombstone of a cache or of an entry of the session list."""
    return item.get("pos") == _GONE


def is_slot_tombstone(item: Item) -> bool:
    """Return whether a slot has no readable commit: it has a tombstone, or the claim of a session being restored."""
    return "k" not in item and ("b" not in item or MATERIALISING in item)


def standing_mark(marker: Item | None) -> int | None:
    """Return the mark in an owner's item ``ERASING`` while it stands; None when its erasure is over, or there was none."""
    mark = marker.get("c") if marker is not None and "ttl" not in marker else None
    return mark if isinstance(mark, int) else None


def is_being_erased(items: ItemTable, owner: Owner, marker: Item | None) -> bool:
    """Return whether a mark stands whose job was started and is not done. No request without a mark, else one.

    A request marks the owner before it starts the job. If it crashes in between, no job would ever end the mark.
    """
    if standing_mark(marker) is None or marker is None:
        return False
    job_id = marker.get("id")  # a mark of 0.1.0 has none
    job = get_item(items, OwnerKeys(owner).jobs.record(job_id)) if isinstance(job_id, str) else {}
    return job is not None and job.get("st") != "done"


def due_index(keys: SessionKeys, due_ms: int) -> dict[str, AttributeValue]:
    """Return the attributes that put an item of a session on the expiry index: shard and time."""
    session = f"{keys.owner.tenant_id}#{keys.owner.user_id}#{keys.session_id}"
    shard = crc32(session.encode()) % EXPIRY_SHARDS
    return {"g2pk": f"X#shard#{shard:02d}", "g2sk": f"{due_ms:013d}#{session}"}


def due_shards(worker: int = 0, workers: int = 1) -> Sequence[str]:
    """Return the partitions of the expiry index for one of several workers, which are numbered from 0."""
    return [f"X#shard#{shard:02d}" for shard in range(worker, EXPIRY_SHARDS, workers)]


def due_bucket(day: int) -> str:
    """Return the partition of the expiry index that old versions used for a day, counted in days from 1970."""
    return f"X#{day}"


def _ttl(now_ms: int) -> dict[str, AttributeValue]:
    return {"ttl": (now_ms + 2 * KEPT_MS) // 1000}


QUIET_MS = 14 * 60_000
"""Time after which a lease is over, and every request that was under way when the session expired has ended."""
IDLE, BARE = 1, 2
"""Values of `FREE`: nobody holds a lease (``IDLE``), and the log has nothing but this slot (``BARE``)."""


@lazy_dataclass(frozen=True, slots=True)
class SlotLease:
    """A lease on the first slot of an expired session.

    ``item`` is the slot as it was taken. ``alone`` says that nobody else can be at work on the session. ``before`` is the
    former value of `FREE`.
    """

    item: Item
    alone: bool
    before: int


class SlotLeases:
    """A manager of leases on first slots."""

    def __init__(self, items: ItemTable, clock: Clock) -> None:
        self._items = items
        self._clock = clock

    def read(self, keys: SessionKeys) -> Item | None:
        """Return the first slot of a session, or None."""
        return get_item(self._items, keys.commit(1))

    def wait_ms(self, first: Item) -> int:
        """Return the milliseconds for which the slot's lease may still be held; 0 when it is free."""
        return 0 if FREE in first else max(0, since_of(first) + QUIET_MS - self._clock.now_ms())

    def take(self, keys: SessionKeys, first: Item, *, alone: bool = False) -> SlotLease | None:
        """Take a lease on the first slot of an expired session; ``first`` is the slot as it was read.

        A lease can also be taken from a restore that has stopped. Returns None when another process was faster, or with
        ``alone``, when the lease may still be held.
        """
        is_alone = not self.wait_ms(first)
        if alone and not is_alone:
            return None
        now, before = self._clock.now_ms(), first.get(FREE)
        taken = expired_tombstone(
            keys, attribute(first, "h", bytes), now_ms=now, since_ms=max(now, since_of(first) + 1)
        )
        if self._items.put(taken, condition=Equal(SINCE, since_of(first))) is not None:
            return None
        return SlotLease(taken, is_alone, before if isinstance(before, int) else IDLE)

    def leave(self, lease: SlotLease, *, free: int) -> None:
        """Mark the slot as free, if this lease was held alone and nobody has taken the slot since."""
        if lease.alone:
            self._items.put({**lease.item, FREE: free}, condition=Equal(SINCE, since_of(lease.item)))

    def disown(self, keys: SessionKeys) -> None:
        """Replace the slot's tombstone by one that keeps no snapshots, so that the session can't be restored again."""
        while (first := self.read(keys)) is not None and keeps_snapshots(first):
            digest = first["h"]
            plain = first_tombstone(keys, digest if isinstance(digest, bytes) else b"", now_ms=self._clock.now_ms())
            self._items.put(plain, condition=Equal(SINCE, since_of(first)))


def since_of(first: Item) -> int:
    """Return the start of the lease on a first slot, in milliseconds since 1970."""
    return attribute(first, SINCE, int)


def still_erased(wait_ms: int) -> ConflictError:
    """Return the error for a restore of a session that has expired and is still being erased."""
    return ConflictError(
        "the session has expired and is being erased except for its full snapshots: restore it under its own id after that, "
        "or under another id at once",
        code="session_expiring",
        retry_after_seconds=max(1, -(-wait_ms // 1000)),
    )


def id_taken(session_id: str) -> SessionExistsError:
    """Return the error for a new session under an id that is not free yet."""
    return SessionExistsError(
        f"the id {session_id!r} is taken: by a session that has expired or was erased, until a day after all of it is gone, "
        "its full snapshots too; or by an import to be repeated or erased"
    )


def id_claimed(wait_ms: int | None = None) -> ConflictError:
    """Return the error for a restore or import under an id that another one is using."""
    wait_seconds = -(-wait_ms // 1000) if wait_ms else None
    message = "another restore or import is making a session of this id"
    return ConflictError(message, code="id_claimed", retry_after_seconds=wait_seconds)
