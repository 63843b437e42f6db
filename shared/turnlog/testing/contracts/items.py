"""Items for the suites, each test's in a partition of its own, so that tests can share a table."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnlog.ports import AttributeValue, Item, ItemTable, Key, Lost, Page, Query, item_size_bytes

HIGHEST = "\U0010ffff"
"""A sort key after all others."""


def new_partition() -> str:
    return f"T#Acme#U#{secrets.token_hex(6)}#S#x"


def item_at(pk: str, sk: str, **attributes: AttributeValue) -> dict[str, AttributeValue]:
    return {"pk": pk, "sk": sk, **attributes}


def indexed_item(pk: str, sk: str, owner: str, at: str, **attributes: AttributeValue) -> dict[str, AttributeValue]:
    return item_at(pk, sk, g1pk=owner, g1sk=at, **attributes)


def item_of_size(pk: str, sk: str, size_bytes: int) -> dict[str, AttributeValue]:
    item = item_at(pk, sk, body=b"")
    item["body"] = b"\xa5" * (size_bytes - item_size_bytes(item))
    return item


def items_of(page: Page) -> list[dict[str, AttributeValue]]:
    return [dict(item) for item in page.items]


def plain(found: Mapping[Key, Item]) -> dict[Key, dict[str, AttributeValue]]:
    return {key: dict(item) for key, item in found.items()}


def sort_keys(page: Page) -> list[AttributeValue]:
    return [item["sk"] for item in page.items]


def item_that_won(result: Lost | None) -> dict[str, AttributeValue]:
    assert result is not None, "the put should have lost"
    assert result.existing is not None
    return dict(result.existing)


def walk(table: ItemTable, query: Query) -> Sequence[Page]:
    """All pages. The last may be empty: DynamoDB can't tell at a limit whether something follows."""
    pages: list[Page] = []
    after = query.after
    while True:
        page = table.query(replace(query, after=after))
        pages.append(page)
        assert len(pages) <= 100, "the pages do not end"
        if page.next is None:
            return pages
        assert page.items, "an empty page must be the last"
        after = page.next
