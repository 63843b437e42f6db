"""Leases on the first slot of an expired session: who may take one and when, and what a holder that is too slow leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.errors import CorruptError
from turnlog.core.identity import Owner
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import SessionKeys
from turnlog.log.tombstones import (
    BARE,
    EXPIRY_SHARDS,
    FREE,
    IDLE,
    QUIET_MS,
    SINCE,
    SlotLeases,
    cache_tombstone,
    due_shards,
    expired_tombstone,
    first_tombstone,
    id_claimed,
    is_cache_tombstone,
    is_slot_tombstone,
    keeps_snapshots,
    slot_tombstone,
    still_erased,
)
from turnlog.ports import Item
from turnlog.testing.fixed import FixedClock

KEYS = SessionKeys(Owner.of("acme", "ada"), "s1")
HASH = b"h" * 16
DAY_MS = 86_400_000


class Slot:
    """The first slot of an expired session, whose lease began at the clock's time."""

    def __init__(self) -> None:
        self.clock, self.items = FixedClock(), SqliteItemTable(SqliteDatabase(MEMORY))
        self.leases = SlotLeases(self.items, self.clock)
        now_ms = self.clock.now_ms()
        self.items.put(expired_tombstone(KEYS, HASH, now_ms=now_ms, since_ms=now_ms))

    def read(self) -> Item:
        first = self.leases.read(KEYS)
        assert first is not None
        return first


@pytest.fixture
def slot() -> Slot:
    return Slot()


@pytest.mark.parametrize(("after_ms", "wait_ms"), [(0, QUIET_MS), (QUIET_MS - 1, 1), (QUIET_MS, 0), (QUIET_MS + 1, 0)])
def test_a_lease_is_over_after_14_minutes(slot: Slot, after_ms: int, wait_ms: int) -> None:
    slot.clock.advance(after_ms / 1000)
    first = slot.read()
    assert QUIET_MS == 14 * 60_000
    assert slot.leases.wait_ms(first) == wait_ms
    held = slot.leases.take(KEYS, first, alone=True)
    assert (held is not None) is (wait_ms == 0)
    if held is not None:
        assert held.alone


def test_a_lease_that_may_still_be_held_can_be_taken_and_is_not_alone(slot: Slot) -> None:
    held = slot.leases.take(KEYS, slot.read())
    assert held is not None
    assert (held.alone, held.before, held.item) == (False, IDLE, slot.read())
    slot.leases.leave(held, free=BARE)
    assert FREE not in slot.read(), "whoever is not alone frees nothing"


def test_of_two_that_read_the_same_slot_one_has_the_lease(slot: Slot) -> None:
    first = slot.read()
    assert slot.leases.take(KEYS, first) is not None
    assert slot.leases.take(KEYS, first) is None


def test_a_lease_begins_later_than_the_one_before_also_when_the_clock_goes_back(slot: Slot) -> None:
    since_ms = slot.read()[SINCE]
    assert isinstance(since_ms, int)
    slot.clock.advance(-60)
    held = slot.leases.take(KEYS, slot.read())
    assert held is not None
    assert held.item[SINCE] == since_ms + 1


def test_a_freed_slot_can_be_taken_at_once_and_says_what_it_was(slot: Slot) -> None:
    slot.clock.advance(QUIET_MS / 1000)
    held = slot.leases.take(KEYS, slot.read())
    assert held is not None
    slot.leases.leave(held, free=BARE)
    assert slot.leases.wait_ms(slot.read()) == 0
    again = slot.leases.take(KEYS, slot.read(), alone=True)
    assert again is not None
    assert (again.alone, again.before) == (True, BARE)
    assert FREE not in slot.read(), "it is held again"


def test_a_holder_that_is_too_slow_does_not_free_the_slot_of_the_next(slot: Slot) -> None:
    slot.clock.advance(QUIET_MS / 1000)
    slow = slot.leases.take(KEYS, slot.read())
    slot.clock.advance(QUIET_MS / 1000)
    quick = slot.leases.take(KEYS, slot.read())
    assert slow is not None and quick is not None
    slot.leases.leave(slow, free=IDLE)
    assert slot.read() == quick.item


def test_a_disowned_slot_keeps_its_hash_and_no_snapshots(slot: Slot) -> None:
    slot.leases.disown(KEYS)
    first = slot.read()
    assert (first["h"], keeps_snapshots(first), SINCE in first) == (HASH, False, False)
    slot.leases.disown(KEYS)
    assert slot.read() == first


@pytest.mark.parametrize("attribute", ["h", SINCE])
def test_d4_a_slot_without_its_hash_or_its_lease_is_told_by_its_name(slot: Slot, attribute: str) -> None:
    first = {name: value for name, value in slot.read().items() if name != attribute} | {attribute: "damaged"}
    with pytest.raises(CorruptError) as raised:
        slot.leases.take(KEYS, first)
    assert raised.value.details["item"] == first["sk"]


@pytest.mark.parametrize(("wait_ms", "seconds"), [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (QUIET_MS, 840)])
def test_a_refused_restore_says_when_to_come_again(wait_ms: int, seconds: int) -> None:
    error = still_erased(wait_ms)
    assert (error.error_code, error.retry_after_seconds) == ("session_expiring", seconds)
    assert (id_claimed().error_code, id_claimed().retry_after_seconds) == ("id_claimed", None)
    assert id_claimed(0).retry_after_seconds is None
    assert id_claimed(1_001).retry_after_seconds == 2


# ------------------------------------------------------------ tombstones


def test_tombstones_have_nothing_but_what_blocks_and_when_they_go() -> None:
    """Each is compared whole: whatever else stayed would be contents of an erased session."""
    key, now_ms = KEYS.commit(1), 1_763_683_200_000
    in_two_days = (now_ms + 2 * DAY_MS) // 1000
    base: dict[str, Any] = {"pk": key.pk, "sk": key.sk}
    assert slot_tombstone(key, HASH, now_ms=now_ms) == {**base, "h": HASH, "ttl": in_two_days}
    assert slot_tombstone(key, HASH, now_ms=now_ms, expired=True) == {**base, "h": HASH, "ttl": in_two_days, "kp": 1}
    assert cache_tombstone(key, now_ms=now_ms) == {**base, "pos": 1_000_000_000_000, "ttl": in_two_days}
    assert cache_tombstone(key, now_ms=now_ms, expired=True) == {**base, "pos": 1_000_000_000_000, "kp": 1}
    first = first_tombstone(KEYS, HASH, now_ms=now_ms)
    assert first == {**base, "h": HASH, "g2pk": first["g2pk"], "g2sk": f"{now_ms + DAY_MS}#acme#ada#s1"}
    assert first["g2pk"] in due_shards()
    assert expired_tombstone(KEYS, HASH, now_ms=now_ms, since_ms=5) == {**first, "kp": 1, "c": 5}
    assert is_slot_tombstone(first) and not is_cache_tombstone(first)
    assert is_cache_tombstone(cache_tombstone(key, now_ms=now_ms))


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_workers_share_all_partitions_of_the_expiry_index(workers: int) -> None:
    shards = [shard for worker in range(workers) for shard in due_shards(worker, workers)]
    assert sorted(shards) == [f"X#shard#{shard:02d}" for shard in range(16)]
    assert EXPIRY_SHARDS == 16, "it must never change: old entries would not be seen"
