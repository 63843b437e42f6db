"""What an erasure counts is what it did: each commit, item and request. What it forgets, when it gives up, what has expired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog.core.errors import ConflictError
from turnlog.core.identity import Owner
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.jobs.worker import Later
from turnlog.log.commit import VERIFIED
from turnlog.log.keys import SessionKeys
from turnlog.log.tombstones import is_slot_tombstone
from turnlog.ports import Item, Key, Lost, Page, Query
from turnlog.privacy.erase import until_due

KEYS = SessionKeys(Owner.of("acme", "ada"), "s")
BATCH = 25
BESIDE = (3, 4)
"""Requests that are counted besides those of `Counted`: the items of the fence, and the lists of blobs."""


class Counted:
    """The requests that DynamoDB would get: 25 items in a batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = 0
        query, write, delete = SqliteItemTable.query, SqliteItemTable.write_many, SqliteItemTable.delete_many

        def queried(table: SqliteItemTable, asked: Query) -> Page:
            self.requests += 1
            return query(table, asked)

        def written(table: SqliteItemTable, items: Sequence[Item]) -> None:
            self.requests += -(-len(items) // BATCH)
            write(table, items)

        def deleted(table: SqliteItemTable, keys: Sequence[Key]) -> None:
            self.requests += -(-len(keys) // BATCH)
            delete(table, keys)

        monkeypatch.setattr(SqliteItemTable, "query", queried)
        monkeypatch.setattr(SqliteItemTable, "write_many", written)
        monkeypatch.setattr(SqliteItemTable, "delete_many", deleted)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("commits", "items", "base"), [(1, 0, 0), (400, 0, 0), (1, 400, 0), (1, 0, 400), (60, 60, 60)])
def test_an_erasure_counts_what_it_deletes_and_how_it_asks(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, commits: int, items: int, base: int
) -> None:
    session = harness.log().sessions.create("s")
    for number in range(1, commits):
        session.append({"role": "user", "content": f"{number}"})
    table = harness.app.engine.items
    beside = {
        item["sk"] for item in table.query(Query(KEYS.partition, "", "~")).items if not str(item["sk"]).startswith("C#")
    }
    table.write_many([{"pk": KEYS.partition, "sk": f"K#{number:05d}"} for number in range(items)])
    table.write_many([{"pk": KEYS.base.partition, "sk": f"C#{number:012d}"} for number in range(1, base + 1)])
    counted = Counted(monkeypatch)
    erased = harness.app.erasure.erase(KEYS)
    assert erased.is_complete
    assert erased.commits == commits
    assert items + base <= erased.items <= items + base + len(beside)
    assert erased.requests - counted.requests in BESIDE
    assert table.query(Query(KEYS.base.partition, "", "~")).items == ()


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_e1_an_erasure_forgets_what_this_process_has_read(harness: Harness) -> None:
    VERIFIED.clear()
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "hi"})
    assert list(session.messages()) and VERIFIED.size_bytes > 0
    harness.app.erasure.erase(KEYS)
    assert VERIFIED.size_bytes == 0


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_d2_a_fence_that_loses_every_slot_says_so_after_five_seconds(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.log().sessions.create("s")
    table, tries = harness.app.engine.items, list[Item]()
    put = table.put

    def losing(item: Item, **options: Any) -> Lost | None:
        if not is_slot_tombstone(item) or len(tries) == 20:
            return put(item, **options)
        tries.append(item)
        harness.clock.advance(1)
        return Lost(item)

    monkeypatch.setattr(table, "put", losing)
    with pytest.raises(ConflictError) as raised:
        harness.app.erasure.fence(KEYS)
    assert (len(tries), raised.value.retry_after_seconds) == (5, 1)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_session_has_expired_at_its_time_and_until_it_is_fenced(harness: Harness) -> None:
    erasure = harness.app.erasure
    assert (erasure.expired_ms(KEYS), erasure.is_expiring(KEYS), erasure.identity(KEYS)) == (None, False, "")
    assert not erasure.fence(KEYS, if_expired=True), "there is none to fence"
    harness.log().sessions.create("s", ttl_days=1)
    created_ms = harness.app.log.commits.tail(KEYS).header.time_ms
    identity = erasure.identity(KEYS)
    assert len(bytes.fromhex(identity)) == 16
    harness.clock.advance((created_ms + 86_400_000 - 1 - harness.clock.now_ms()) / 1000)
    assert erasure.expired_ms(KEYS) is None
    assert not erasure.fence(KEYS, if_expired=True)
    harness.clock.advance(0.001)
    assert (erasure.expired_ms(KEYS), erasure.is_expiring(KEYS)) == (created_ms + 86_400_000, False)
    assert erasure.fence(KEYS, if_expired=True)
    assert (erasure.expired_ms(KEYS), erasure.is_expiring(KEYS)) == (None, True)
    assert erasure.fence(KEYS, if_expired=True), "it is fenced already"
    assert erasure.fence(KEYS)
    erasure.erase(KEYS)
    assert (erasure.expired_ms(KEYS), erasure.identity(KEYS)) == (None, identity)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_session_without_a_limit_never_expires(harness: Harness) -> None:
    harness.log().sessions.create("s")
    harness.clock.advance(10**9)
    assert harness.app.erasure.expired_ms(KEYS) is None
    assert not harness.app.erasure.fence(KEYS, if_expired=True)
    assert harness.app.erasure.fence(KEYS)
    assert not harness.app.erasure.fence(KEYS, if_expired=True), "it is being erased, and has not expired"


def test_a_second_pass_that_comes_early_waits_until_it_is_due(harness: Harness) -> None:
    options: Any = {"not_before": 1_500}
    assert until_due(harness.app.erasure, options, {}, 1_000) == Later({}, options, 1), "a queue waits whole seconds"
    assert until_due(harness.app.erasure, options, {}, 1_500) is None
