"""What stays of a session that has expired: its full snapshots, until their own expiry."""

from __future__ import annotations

from turnlog.log.erased import Kept
from turnlog.log.full_snapshots import kept_by
from turnlog.log.keys import SessionKeys
from turnlog.log.records import Records
from turnlog.ports import BlobStore


def kept_of(records: Records, blobs: BlobStore, keys: SessionKeys) -> Kept:
    """Records and names of full snapshots, with what deleted ones have left to be swept; and the blobs that they need."""
    shelf, alive = keys.snapshots, list(records.every(keys.snapshots))
    left = records.every(keys.snapshots, deleted=True)
    full = [one for one in (*alive, *left) if one.content.get("kind") == "full"]
    if not full:
        return Kept()
    needed = kept_by(alive)
    named = [name for one in full if isinstance(name := one.content.get("name"), str)]
    sort_keys = [shelf.record(one.id).sk for one in full] + [shelf.name(name).sk for name in named]
    names = [name for name in blobs.names(keys.blob_prefix) if needed.needs(name[len(keys.blob_prefix) :])]
    return Kept(frozenset(sort_keys), frozenset(names))
