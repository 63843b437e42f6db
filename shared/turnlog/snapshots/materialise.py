"""Make a session of stored commits: the same positions, times, hashes and payloads, under another id or the same one.

One process at a time may make a session of an id. It claims the first slot with the first commit without its kind: readers
do not see such a commit, and no writer wins the slot. ``D#META`` is marked until everything is written, and readers treat a
log with that mark as empty. So the session appears complete or not at all. A process with the same token continues an
interrupted run; items that exist already stay as they are.

An expired session is restored in place of the tombstone in its first slot (`SlotLeases`). Its claim keeps the tombstone's
place on the expiry index, so an abandoned claim is erased like every other item of an expired session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from turnlog.core.errors import ConflictError, NotFoundError, SessionExistsError
from turnlog.core.events import Payload
from turnlog.core.session_settings import SessionSettings
from turnlog.log.caches import CurrentSettings, directory_item
from turnlog.log.commit import read_commit
from turnlog.log.headers import Header, item_name
from turnlog.log.keys import COMMITS_FROM, SessionKeys, commit_sort_key, item_at
from turnlog.log.packing import pack
from turnlog.log.payloads import in_parallel, is_blob
from turnlog.log.tombstones import (
    BARE,
    FREE,
    KEEPS,
    MATERIALISING,
    QUIET_MS,
    SINCE,
    expired_tombstone,
    id_claimed,
    keeps_snapshots,
    since_of,
    still_erased,
)
from turnlog.ports import Absent, AttributeValue, BlobStore, Condition, Equal, Item, Key, Query
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.full import commit_item
from turnlog.snapshots.segment_format import SealedCommit

_KIND, _HIDDEN_KIND = "k", "mk"
_TOMBSTONE_ATTRIBUTES = (KEEPS, SINCE, "g2pk", "g2sk")
"""Attributes that the claim of an expired session takes over from the tombstone before it."""
_BATCH = 25
_THREADS, _SEQUENTIAL = 8, 4

BlobOf: TypeAlias = Callable[[Payload], bytes]
"""Reads the content of a payload in the blob store."""


class Materialiser:
    """Writes sessions out of commits. Call `begin`, then `add` for all commits, then `finish`."""

    def __init__(self, log: SessionLog, blobs: BlobStore) -> None:
        self._log = log
        self._items = log.items
        self._blobs = blobs

    def begin(self, keys: SessionKeys, first: SealedCommit, token: bytes, *, again: bool = False) -> bool:
        """Claim the id for a session that begins with this commit. Return False when such a session exists already.

        Raises `SessionExistsError` for another session of this id, and `ConflictError` for another token's claim or an
        erased session. ``again`` allows an expired session's own id, once everything that stood in the way is erased.
        """
        slot = keys.commit(1)
        items = self._items.get_many([slot, keys.meta])
        existing = items.get(slot)
        if existing is not None and existing.get(MATERIALISING) == token and keeps_snapshots(existing):
            # Renew the lease, so that no other process takes the slot while this one works.
            renewed = {**existing, SINCE: max(self._log.clock.now_ms(), since_of(existing) + 1)}
            self._items.put(renewed, condition=Equal(SINCE, since_of(existing)))
        if items.get(keys.meta, {}).get(MATERIALISING) == token:
            return True
        if existing is None or (again and existing.get(FREE) == BARE):
            if not self._claim(keys, first, token, existing):
                return self.begin(keys, first, token, again=again)  # with what another process has written
        elif not _is_claim(existing, first, token, again=again):
            return False
        self._mark(keys, token)
        return True

    def _claim(self, keys: SessionKeys, first: SealedCommit, token: bytes, tombstone: Item | None) -> bool:
        """Claim the first slot. Return False when it has changed since it was read."""
        now, created_ms = self._log.clock.now_ms(), first.commit.header.time_ms
        entry = directory_item(keys, CurrentSettings(SessionSettings(), created_ms), None)
        lost = self._items.put(entry, condition=Absent())
        if lost is not None and lost.existing is not None and keeps_snapshots(lost.existing) and tombstone is not None:
            self._items.put(entry, condition=Equal(KEEPS, 1))
        self._log.check_in(keys.owner)
        claim = dict(commit_item(keys.partition, first))
        claim[_HIDDEN_KIND] = claim.pop(_KIND)
        claim[MATERIALISING] = token
        condition: Condition = Absent()
        if tombstone is not None:
            due = expired_tombstone(keys, b"", now_ms=now, since_ms=max(now, since_of(tombstone) + 1))
            claim |= {name: value for name, value in due.items() if name in _TOMBSTONE_ATTRIBUTES}
            condition = Equal(SINCE, since_of(tombstone))
        lost = self._items.put(claim, condition=condition)
        if lost is not None and lost.existing is None:
            raise ConflictError("the session of this id expired or was erased: take another", code="session_erased")
        return lost is None

    def add(self, keys: SessionKeys, commits: Iterable[SealedCommit], blob_of: BlobOf) -> None:
        """Write commits in batches, payloads before the commits that name them. `finish` writes the first commit."""
        remaining = iter(commits)
        while batch := list(islice(remaining, _BATCH)):
            self._write(keys, batch, blob_of)

    def finish(self, keys: SessionKeys, header: Header, token: bytes) -> None:
        """Make the session appear. ``header`` is its newest commit's."""
        slot = keys.commit(1)
        claim = dict(self._items.get_many([slot]).get(slot, {}))
        if claim.get(MATERIALISING) == token:
            commit = _claimed_commit(claim)
            lost = self._items.put(commit, condition=Equal(MATERIALISING, token))
            claim = commit if lost is None else dict(lost.existing or {})
        if _KIND not in claim:
            raise NotFoundError(f"session {keys.session_id!r} was erased meanwhile")
        self._log.write_listing(keys, header, self._log.settings_from_log(keys, header))

    def _mark(self, keys: SessionKeys, token: bytes) -> None:
        mark = item_at(keys.meta, {"pos": 0, MATERIALISING: token})
        lost = self._items.put(mark, condition=Absent())
        if lost is None or lost.existing is None or MATERIALISING in lost.existing:
            return
        slot = keys.commit(1)
        if MATERIALISING in self._items.get_many([slot]).get(slot, {}):
            # An erased session of this id has left this cache.
            self._items.put(mark, condition=Equal("pos", lost.existing.get("pos", 0)))

    def _write(self, keys: SessionKeys, batch: Sequence[SealedCommit], blob_of: BlobOf) -> None:
        payloads = [(sealed, payload) for sealed in batch for payload in sealed.commit.payloads]
        in_parallel(
            lambda task: self._put_payload(keys, task[0].contents, task[1], blob_of),
            payloads,
            threads=_THREADS,
            sequential=_SEQUENTIAL,
        )
        later = [sealed for sealed in batch if sealed.commit.header.first > 1]
        in_parallel(lambda sealed: self._put_commit(keys, sealed), later, threads=_THREADS, sequential=_SEQUENTIAL)

    def _put_payload(self, keys: SessionKeys, contents: Mapping[str, bytes], payload: Payload, blob_of: BlobOf) -> None:
        if not is_blob(payload):
            item = item_at(Key(keys.partition, payload.place), {"b": pack(contents[payload.place])})
            self._items.put(item, condition=Absent())
            return
        name = keys.payload_blob(payload.place)
        content = contents.get(payload.place)
        self._blobs.put(name, pack(content if content is not None else blob_of(payload)))

    def _put_commit(self, keys: SessionKeys, sealed: SealedCommit) -> None:
        item = commit_item(keys.partition, sealed)
        lost = self._items.put(item, condition=Absent())
        if lost is not None and lost.existing is not None and lost.existing.get("h") != item["h"]:
            raise ConflictError(f"slot {item_name(item)} has another commit", code="session_exists")

    def ending_at(self, keys: SessionKeys, last: int) -> Header | None:
        """Return the header of the commit that ends at a position, even of a claim; None without such a commit."""
        query = Query(keys.partition, COMMITS_FROM, commit_sort_key(last), descending=True, limit=1)
        items = self._items.query(query).items
        if not items or items[0].get("l") != last:
            return None
        return read_commit(_claimed_commit(items[0]) if MATERIALISING in items[0] else items[0]).header


def _claimed_commit(claim: Item) -> dict[str, AttributeValue]:
    """Return the first commit that a claim holds, as readers see it after `finish`."""
    commit = {name: value for name, value in claim.items() if name not in (MATERIALISING, *_TOMBSTONE_ATTRIBUTES)}
    commit[_KIND] = commit.pop(_HIDDEN_KIND)
    return commit


def _is_claim(existing: Item, first: SealedCommit, token: bytes, *, again: bool) -> bool:
    """Return whether this token has claimed the first slot; False when a session exists that begins with the same commit.

    Raises `ConflictError` for another claim or an erased session, and `SessionExistsError` for another session.
    """
    holder = existing.get(MATERIALISING)
    if holder == token:
        return True
    if holder is not None:
        raise id_claimed()
    if _KIND not in existing and again and keeps_snapshots(existing):
        raise still_erased(QUIET_MS)
    if _KIND not in existing:
        raise ConflictError("the session of this id expired or was erased: take another", code="session_erased")
    if existing.get("h") != first.item["h"]:
        raise SessionExistsError("there is another session of this id")
    return False
