"""The first slot of a session that has expired: its id may begin again, when nobody can be at work on what was left any more.

Whoever erases there writes without conditions, so he takes the slot first: one conditional put that says since when. A session
begins again with a put on the very tombstone that was read. So of the two the one loses, however their requests interleave; and
one who was stopped in between is waited for as long as a request can live.
"""

from __future__ import annotations

from turnlog.domain.errors import ConflictError, CorruptError
from turnlog.domain.values import dataclass
from turnlog.log.headers import item_name
from turnlog.log.keys import SessionKeys
from turnlog.log.tombstones import FREE, SINCE, expired_tombstone, first_tombstone, keeps_snapshots
from turnlog.ports import Clock, Equal, Item, ItemTable

QUIET_MS = 14 * 60_000
"""Nobody who took the slot so long ago, or was under way when the session expired, is there any more."""
IDLE, BARE = 1, 2
"""What `FREE` says: nobody is at work; and there is nothing in the log but this slot."""


@dataclass(frozen=True, slots=True)
class Held:
    """The slot as it was taken. ``alone``: nobody else can be at work. ``before``: what `FREE` said."""

    item: Item
    alone: bool
    before: int


class FirstSlot:
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

    def take(self, keys: SessionKeys, first: Item, *, alone: bool = False) -> Held | None:
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
        return Held(taken, is_alone, before if isinstance(before, int) else IDLE)

    def leave(self, held: Held, *, free: int) -> None:
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
