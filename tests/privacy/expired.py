"""A session after its expiry, as 3-data-model has it: tombstones in the slots, and what full snapshots need. Nothing else."""

from __future__ import annotations

from typing import Any

from turnlog.log.keys import SessionKeys
from turnlog.ports import Key, Query
from turnlog.snapshots.full import kept_by


def expire(harness: Any, keys: SessionKeys, *, tombstones: bool = True) -> None:
    """``tombstones=False``: their ttl is over too."""
    items, blobs = harness.app.engine.items, harness.app.engine.blobs
    kept = kept_by(harness.app.log.records.every(keys.snapshots))
    result, after = [], None
    while True:
        page = items.query(Query(keys.partition, "", "~", after=after))
        result += page.items
        after = page.next
        if after is None:
            break
    gone = [item for item in result if not str(item["sk"]).startswith("P#")]
    items.delete_many([Key(str(item["pk"]), str(item["sk"])) for item in gone])
    if tombstones:
        slots = [item for item in gone if str(item["sk"]).startswith("C#")]
        items.write_many([{"pk": item["pk"], "sk": item["sk"], "h": item["h"], "ttl": 2**31} for item in slots])
    items.delete_many([keys.directory])
    names = blobs.names(keys.blob_prefix)
    blobs.erase(keys.blob_prefix, keep=[name for name in names if kept.needs(name[len(keys.blob_prefix) :])])
