"""What stays of a session that has expired: its full snapshots, until their own expiry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from turnlog.log.erasure import Kept
from turnlog.log.keys import SessionKeys
from turnlog.log.records import Record, Records
from turnlog.ports import BlobStore

_PAGE = 1_000
_PAYLOADS = "payload/"


def kept_of(records: Records, blobs: BlobStore, keys: SessionKeys) -> Kept:
    """Records and names of full snapshots; segments and tails; payloads in the blob store up to the newest of their positions."""
    full = [record for record in _all(records, keys) if record.content.get("kind") == "full"]
    if not full:
        return Kept()
    shelf, until = keys.snapshots, max(cast("int", record.content["position"]) for record in full)
    named = [cast("str", record.content["name"]) for record in full if record.content.get("name") is not None]
    sort_keys = [shelf.record(record.id).sk for record in full] + [shelf.name(name).sk for name in named]
    names = [name for name in blobs.names(keys.blob_prefix) if _is_needed(name[len(keys.blob_prefix) :], until)]
    return Kept(frozenset(sort_keys), frozenset(names))


def _all(records: Records, keys: SessionKeys) -> list[Record]:
    found, after = list[Record](), cast("Mapping[str, str] | None", None)
    while True:
        page, after = records.page(keys.snapshots, limit=_PAGE, after=after)
        found += page
        if after is None:
            return found


def _is_needed(name: str, until: int) -> bool:
    """By the name behind the session's prefix: that of a payload begins with its position."""
    return not name.startswith(_PAYLOADS) or int(name[len(_PAYLOADS) :].partition("-")[0]) <= until
