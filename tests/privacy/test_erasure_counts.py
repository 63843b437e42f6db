"""What an erasure counts is what it did: each commit, each item, and each request of the engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.conftest import Harness
from turnlog.core.identity import Owner
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import SessionKeys
from turnlog.ports import Item, Key, Page, Query

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
    assert erased.is_whole
    assert erased.commits == commits
    assert items + base <= erased.items <= items + base + len(beside)
    assert erased.requests - counted.requests in BESIDE
    assert table.query(Query(KEYS.base.partition, "", "~")).items == ()
