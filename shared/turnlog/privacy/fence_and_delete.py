"""Erase a session: fence it, so that nothing answers; then delete everything but tombstones.

    fence      one conditional put into the next slot. It holds no commit, so an append in flight loses and finds no session.
    erase      tombstones over commits and caches; payloads, segments, snapshots and blobs with all their versions deleted
    erase      again, 15 minutes later: what requests in flight have left behind
    release    a day later: the tombstones, the first slot's last. Then the id is free

Each step repeats only what is not done, so an interrupted run continues.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeVar

from turnlog.core.errors import ConflictError, CorruptError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.log.commit import VERIFIED, header_in
from turnlog.log.commit_items import Forks
from turnlog.log.commits import WRITE_DEADLINE_SECONDS
from turnlog.log.headers import GENESIS, chain_hash, item_name
from turnlog.log.keys import COMMITS_FROM, COMMITS_TO, OwnerKeys, SessionKeys, answers_prefix, position_of
from turnlog.log.tombstones import (
    BARE,
    IDLE,
    MATERIALISING,
    SlotLease,
    SlotLeases,
    cache_tombstone,
    expired_tombstone,
    first_tombstone,
    is_cache_tombstone,
    is_empty_slot,
    is_slot_tombstone,
    keeps_snapshots,
    slot_tombstone,
)
from turnlog.ports import (
    MAX_WRITE_ITEMS,
    Absent,
    BlobStore,
    Clock,
    Equal,
    Item,
    ItemTable,
    Key,
    Purgeable,
    Query,
    get_item,
    pages,
)

_T = TypeVar("_T")
_CHUNK = 4 * MAX_WRITE_ITEMS
"""Items per call; the deadline is checked between calls."""
_BEFORE_COMMITS, _BEHIND_COMMITS = ("", "C"), ("D", "~")
_IDLE_FACTOR = 9
"""Pause between purges after first passes, as a multiple of the last purge's duration. Second passes don't wait."""


@lazy_dataclass(frozen=True, slots=True)
class RetainedItems:
    """Items and blobs that erasing leaves: sort keys in the session's partition, and names of blobs."""

    items: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.items or self.blobs)


@lazy_dataclass(frozen=True, slots=True)
class Erased:
    """Counts of what an erasing run has erased, and of its requests. ``is_complete``: nothing is left to erase."""

    is_complete: bool = False
    commits: int = 0
    items: int = 0
    blobs: int = 0
    requests: int = 0


class DeadlineMet(Exception):  # noqa: N818 - a control signal, not an error
    """The deadline of a run has passed."""


@dataclasses.dataclass(slots=True)
class ErasingRun:
    """One erasing run: its deadline, and what it has done so far."""

    clock: Clock
    deadline_ms: int | None
    done: Erased = field(default_factory=Erased)

    def count(self, *, requests: int = 0, commits: int = 0, items: int = 0, blobs: int = 0) -> None:
        """Add to the counts. Raises `DeadlineMet` when something was erased and the deadline has passed."""
        done = self.done
        self.done = Erased(
            False, done.commits + commits, done.items + items, done.blobs + blobs, done.requests + requests
        )
        if (commits or items) and self.deadline_ms is not None and self.clock.now_ms() >= self.deadline_ms:
            raise DeadlineMet  # only after something was done, so that every run makes progress


class Erasure:
    """Erases sessions of an engine."""

    def __init__(self, items: ItemTable, blobs: BlobStore, forks: Forks, clock: Clock) -> None:
        self._items = items
        self._blobs = blobs
        self._forks = forks
        self._clock = clock
        self.slots = SlotLeases(items, clock)
        self.purging = Purging(items, blobs, clock)

    def identity(self, keys: SessionKeys) -> str:
        """Return the hash of the session's first slot, which tells sessions of the same id apart; empty without a session."""
        first = self.slots.read(keys)
        digest = first.get("h") if first is not None else None
        return digest.hex() if isinstance(digest, bytes) else ""

    def is_half_made(self, keys: SessionKeys) -> bool:
        """Return whether an import, or a restore under a new id, has begun to write the session and has not finished it."""
        slot = keys.commit(1)
        items = self._items.get_many([slot, keys.meta])
        return any(MATERIALISING in item for item in items.values()) and not keeps_snapshots(items.get(slot, {}))

    def expired_ms(self, keys: SessionKeys) -> int | None:
        """Return when the session expired; None when it has not, or there is no log."""
        newest = self._newest(keys)
        if newest is None or is_slot_tombstone(newest):
            return None
        expires_ms = header_in(newest).expires_ms
        return expires_ms if expires_ms is not None and self._clock.now_ms() >= expires_ms else None

    def is_expiring(self, keys: SessionKeys) -> bool:
        """Return whether the session was fenced because it has expired, while its first slot is not erased yet."""
        newest = self._newest(keys)
        return newest is not None and is_empty_slot(newest) and keeps_snapshots(newest)

    def fence(self, keys: SessionKeys, *, if_expired: bool = False) -> bool:
        """Fence the session: afterwards no request finds it, and no request under way can write to its log.

        Without a commit, the fence keeps the first one from being made. ``if_expired`` fences only an expired session, and
        returns False for another. Under many writers the fence may take `WRITE_DEADLINE_SECONDS`, and then raises
        `ConflictError`.
        """
        deadline = self._clock.now_ms() + WRITE_DEADLINE_SECONDS * 1000
        while not (fenced := self._put_fence(keys, if_expired=if_expired)):
            if fenced is None:
                return False
            if self._clock.now_ms() >= deadline:
                raise ConflictError("other writers won every slot; try again", retry_after_seconds=1)
        self._hide(keys, expired=if_expired)
        return True

    def expire(self, keys: SessionKeys) -> SlotLease | bool:
        """Prepare an expired session for `erase`: fence it, or lease the first slot if it was fenced before.

        Returns False when it has not expired, is being restored, or was erased with nothing retained.
        """
        first = self.slots.read(keys)
        if first is None or MATERIALISING in first or (is_slot_tombstone(first) and not keeps_snapshots(first)):
            return False
        if not keeps_snapshots(first):
            return self.fence(keys, if_expired=True)
        lease = self.slots.take(keys, first)
        if lease is None:
            raise ConflictError(
                "another process is erasing or restoring this session; try again", retry_after_seconds=1
            )
        self._hide(keys, expired=True)
        return lease

    def clear(
        self, keys: SessionKeys, first: Item, find_retained: Callable[[], RetainedItems], *, deadline_ms: int
    ) -> RetainedItems | None:
        """Erase an expired session except for retained items, its list entry and its first slot, so that it can be restored.

        Returns what is retained; None when another process may be at work, or the deadline passed first.
        """
        lease = self.slots.take(keys, first, alone=True)
        if lease is None:
            return None
        self._hide(keys, expired=True)
        kept = find_retained()
        is_complete = self.erase(keys, kept=kept, deadline_ms=deadline_ms).is_complete
        if is_complete:
            self._free_slots(keys)
            self._items.delete_many([keys.meta, keys.system, keys.summary, keys.state])
        self.slots.leave(lease, free=BARE if is_complete else IDLE)
        return kept if is_complete else None

    def erase(
        self,
        keys: SessionKeys,
        *,
        kept: RetainedItems | None = None,
        deadline_ms: int | None = None,
        hand_on: Callable[[Sequence[SessionKeys]], None] = lambda forks: None,
    ) -> Erased:
        """Erase everything of the session but ``kept``, which is given for a session that was prepared by `expire`.

        Begins nothing after the deadline; then ``is_complete`` is False and the next run continues. ``hand_on`` is called with
        the session's forks when they have their copies, before the log and the list of its forks are erased.
        """
        work, is_expired = ErasingRun(self._clock, deadline_ms), kept is not None
        if not is_expired:
            self.slots.disown(keys)
            self.fence(keys)
        kept = kept or RetainedItems()
        try:
            work.count(requests=5)
            hand_on(self._release_forks(keys))
            now = self._clock.now_ms()
            self._items.write_many(
                [cache_tombstone(key, now_ms=now) for key in (keys.system, keys.summary, keys.state)]
            )
            work.count(requests=1)
            self._erase_commits(keys, work, expired=is_expired)
            # Payloads come after the commits that name them, so no reader of a commit misses one.
            for items in self._other_items(keys):
                unneeded = (
                    item for item in items if not is_cache_tombstone(item) and item_name(item) not in kept.items
                )
                self._delete(list(unneeded), work)
            # Nobody writes to a fork's copies of an erased session, so their slots need no tombstones.
            for items in self.pages(keys.base, "", "~"):
                self._delete(items, work)
            work.count(requests=2, blobs=self._blobs.erase(keys.blob_prefix, keep=kept.blobs))
            work.count(requests=1, blobs=self._blobs.erase(answers_prefix(keys.owner, keys.session_id)))
        except DeadlineMet:
            return work.done
        return replace(work.done, is_complete=True)

    def release(self, keys: SessionKeys) -> bool:
        """Free the id of an erased session; False while something is left of it, or the id is not an erased session's.

        The first slot's tombstone is deleted last: until then nobody can create a session of this id.
        """
        first = self.slots.read(keys)
        if first is None or not is_empty_slot(first):
            return False
        if self._blobs.names(keys.blob_prefix) or any(
            not all(map(is_cache_tombstone, items)) for items in self._other_items(keys)
        ):
            # The index finds the session again a day later.
            renewed = self._tombstone(keys, first, self._clock.now_ms())
            self._items.put(renewed, condition=Equal("g2sk", first.get("g2sk", "")))
            return False
        for items in self._other_items(keys):
            self._items.delete_many(list(map(_key, items)))
        self._free_slots(keys)
        entry = get_item(self._items, keys.directory)
        if entry is not None and is_cache_tombstone(entry):
            self._items.delete_many([keys.directory])
        self._items.delete_many([keys.commit(1)])
        return True

    # ------------------------------------------------------------ steps

    def _hide(self, keys: SessionKeys, *, expired: bool) -> None:
        """Put tombstones in place of the list entry and ``D#META``."""
        now = self._clock.now_ms()
        for key in (keys.directory, keys.meta):
            self._items.put(cache_tombstone(key, now_ms=now, expired=expired))

    def _free_slots(self, keys: SessionKeys) -> None:
        """Delete the tombstones of all slots but the first."""
        for items in self.pages(keys, COMMITS_FROM, COMMITS_TO):
            self._items.delete_many([key for key in map(_key, items) if key != keys.commit(1)])

    def _put_fence(self, keys: SessionKeys, *, if_expired: bool) -> bool | None:
        """Return whether the log ends with a tombstone, False when a writer won the slot; None for a session not to be fenced."""
        newest = self._newest(keys)
        now = self._clock.now_ms()
        if newest is None and if_expired:
            return None
        if newest is None:
            return self._items.put(first_tombstone(keys, GENESIS, now_ms=now), condition=Absent()) is None
        if is_slot_tombstone(newest):
            return True if not if_expired or (keeps_snapshots(newest) and MATERIALISING not in newest) else None
        if if_expired:
            expires_ms = header_in(newest).expires_ms
            if expires_ms is None or now < expires_ms:
                return None
        last, previous = newest.get("l"), newest.get("h")
        if not isinstance(last, int) or not isinstance(previous, bytes):
            raise CorruptError("a commit's header is damaged", item=item_name(newest))
        tombstone = slot_tombstone(keys.commit(last + 1), chain_hash(previous, b"", []), now_ms=now, expired=if_expired)
        return self._items.put(tombstone, condition=Absent()) is None

    def _newest(self, keys: SessionKeys) -> Item | None:
        query = Query(keys.partition, COMMITS_FROM, COMMITS_TO, descending=True, limit=1)
        return next(iter(self._items.query(query).items), None)

    def _release_forks(self, keys: SessionKeys) -> list[SessionKeys]:
        """Copy what forks share with this session's log into the forks, before the log is erased; return the forks.

        A fork whose first commit is not stored yet is refused: a tombstone takes its slot.
        """
        forks = list(self._forks.forks_of(keys))
        for fork in forks:
            self._items.put(first_tombstone(fork, GENESIS, now_ms=self._clock.now_ms()), condition=Absent())
        self._forks.make_independent(keys)
        return forks

    def _erase_commits(self, keys: SessionKeys, work: ErasingRun, *, expired: bool) -> None:
        """Put tombstones in place of all commits."""
        for items in self.pages(keys, COMMITS_FROM, COMMITS_TO):
            work.count(requests=1)
            remaining = [item for item in items if not is_empty_slot(item)]
            for chunk in _chunks(remaining):
                now = self._clock.now_ms()
                self._items.write_many([self._tombstone(keys, item, now, expired=expired) for item in chunk])
                for item in chunk:
                    VERIFIED.forget(item)
                work.count(requests=_batches(chunk), commits=len(chunk))

    def _tombstone(self, keys: SessionKeys, item: Item, now_ms: int, *, expired: bool = False) -> Item:
        """Return the tombstone for a slot of the log; it keeps the chain hash."""
        digest = item.get("h")
        previous = digest if isinstance(digest, bytes) else GENESIS
        if position_of(item_name(item)) == 1:
            if expired:
                return expired_tombstone(keys, previous, now_ms=now_ms, since_ms=now_ms)
            return first_tombstone(keys, previous, now_ms=now_ms)
        return slot_tombstone(_key(item), previous, now_ms=now_ms, expired=expired)

    def _delete(self, items: Sequence[Item], work: ErasingRun) -> None:
        """Delete items of a page, and count the request that read it too."""
        work.count(requests=1)
        for chunk in _chunks(items):
            self._items.delete_many(list(map(_key, chunk)))
            work.count(requests=_batches(chunk), items=len(chunk))

    def _other_items(self, keys: SessionKeys) -> Iterator[Sequence[Item]]:
        """Yield the session's items but its commits, a page at a time."""
        for low, high in (_BEFORE_COMMITS, _BEHIND_COMMITS):
            yield from self.pages(keys, low, high)

    def pages(self, keys: SessionKeys | OwnerKeys, low: str, high: str) -> Iterator[Sequence[Item]]:
        """Yield items of a partition as they are stored, damaged ones too; at most 1 MB at a time."""
        return pages(self._items, Query(keys.partition, low, high))


def _key(item: Item) -> Key:
    return Key(str(item["pk"]), item_name(item))


def _chunks(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _batches(chunk: Sequence[object]) -> int:
    """Return the number of write requests for a chunk."""
    return -(-len(chunk) // MAX_WRITE_ITEMS)


class Purging:
    """A thread-safe purger of erased bytes from an engine's files, shared by concurrent erasures.

    A purge rewrites a file completely. A purge that begins after an erasure has ended removes the erasure's bytes, also when
    another erasure started the purge. So the purge after an erasure's first pass usually serves its second pass too, which
    erases nothing more.
    """

    def __init__(self, items: ItemTable, blobs: BlobStore, clock: Clock) -> None:
        self._stores = [store for store in (items, blobs) if isinstance(store, Purgeable)]
        self._clock = clock
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._begun = self._done = 0
        self._idle_until_ms = 0

    def mark(self) -> str:
        """Return a mark for `after_last_pass`. A purge that begins after it removes everything that was erased before it."""
        return f"{self._process}-{self._begun}"

    def after_first_pass(self, mark: str, due_seconds: int) -> int:
        """Purge after an erasure's first pass, unless a purge that began after ``mark`` has ended.

        Return the seconds until the job's next part: ``due_seconds``, or the rest of the pause that follows another purge.
        """
        pause_ms = self._idle_until_ms - self._clock.now_ms()
        if 0 < pause_ms <= 3_600_000:  # after the clock went back, this may purge once more than needed
            return min(due_seconds, -(-pause_ms // 1000))
        self.after_last_pass(mark)
        return due_seconds

    def after_last_pass(self, mark: str) -> None:
        """Purge after an erasure's last pass, unless a purge that began after ``mark`` has ended.

        With an empty mark it always purges. When it returns, the files hold nothing that the erasure deleted. Raises
        `UnavailableError` when a purge is not possible at the moment.
        """
        process, _, begun = mark.partition("-")
        if process == self._process and self._done > int(begun):
            return
        with self._lock:
            self._begun += 1
            number, began_ms = self._begun, self._clock.now_ms()
        for store in self._stores:
            store.purge()
        with self._lock:
            self._done = max(self._done, number)
            ended_ms = self._clock.now_ms()
            self._idle_until_ms = ended_ms + _IDLE_FACTOR * (ended_ms - began_ms)
