"""Segments: immutable blobs of packed history beside the log, and the entries ``G#…`` that find them.

The log stays the only source of truth: what is not sealed, or whose entry was lost, is read there. A blob is stored before
its entry, under a name that contains the hash of its bytes. Sealing a stretch again makes the same blob and the same entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TypeAlias

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.events import MessageEvent, Payload
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import batches
from turnlog.core.positions import last_of_stretch, stretch_of
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.commit import Commit, checked_chain, header_in, stored_lines
from turnlog.log.commit_items import as_shared, logged
from turnlog.log.commits import CommitLog
from turnlog.log.headers import GENESIS, attribute, check_version, item_name
from turnlog.log.keys import SEGMENTS_FROM, SEGMENTS_TO, SessionKeys, commit_sort_key, position_of, segment_sort_key
from turnlog.log.payloads import Payloads, is_blob
from turnlog.log.reading import Located, placed, with_bodies
from turnlog.ports import MAX_GET_ITEMS, Absent, BlobStore, Equal, Item, ItemTable, Query, pages
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.segment_format import SealedCommit, SegmentWriter, read_segment, read_stretch

Beside: TypeAlias = "Callable[[SessionKeys, Segment, Iterable[tuple[Located, int]]], str]"
"""Stores a segment's search index, from its messages, each with its commit's first position; returns its SHA-256."""
MAX_MS = 5_000
"""A job begins no segment after this time, so that it ends before its worker's time-out. The next job continues."""


@lazy_dataclass(frozen=True, slots=True)
class Segment:
    """A segment as its entry describes it.

    ``size_bytes`` is the packed size; ``body_bytes`` is the size of the ``messages``' bodies, without those in the blob
    store. ``index_sha256`` is the hash of the search index that was stored with it; empty for none. ``is_redacted``: a message was
    redacted after it was sealed.
    """

    first: int
    last: int
    sha256: str
    messages: int
    size_bytes: int
    body_bytes: int
    index_sha256: str = ""
    is_redacted: bool = False

    def blob(self, keys: SessionKeys) -> str:
        """Return the name of the segment's blob."""
        return keys.segment_blob(self.first, self.last, self.sha256)


def next_stretch(segment: Segment | None) -> int:
    """Return the stretch behind a segment; without one the first stretch."""
    return stretch_of(segment.last + 1) if segment is not None else 0


class Segments:
    """Seals, lists and reads the segments of sessions. ``beside`` runs before the segment's entry is written."""

    def __init__(
        self, items: ItemTable, blobs: BlobStore, payloads: Payloads, commits: CommitLog, beside: Beside | None = None
    ) -> None:
        self._beside = beside
        self._items = items
        self._blobs = blobs
        self._payloads = payloads
        self._commits = commits

    def newest(self, keys: SessionKeys) -> Segment | None:
        """Return the newest segment of a session. One request."""
        return self._before(keys, SEGMENTS_TO)

    def containing(self, keys: SessionKeys, position: int) -> Segment | None:
        """Return the segment that holds a position, or None when the position is not sealed. One request."""
        segment = self._before(keys, segment_sort_key(position))
        return segment if segment is not None and segment.last >= position else None

    def list(self, keys: SessionKeys, *, first: int = 1) -> Iterator[Segment]:
        """Yield the segments that begin at a position or later, in order. One request per some 4,000 segments."""
        for items in pages(self._items, Query(keys.partition, segment_sort_key(first), SEGMENTS_TO)):
            yield from map(_segment, items)

    def _before(self, keys: SessionKeys, sort_key: str) -> Segment | None:
        query = Query(keys.partition, SEGMENTS_FROM, sort_key, descending=True, limit=1)
        items = self._items.query(query).items
        return _segment(items[0]) if items else None

    def commits(self, keys: SessionKeys, segment: Segment) -> Iterator[SealedCommit]:
        """Yield the commits of a segment in order, unpacked one at a time. One request.

        Raises `CorruptError`, which names the blob, when it is missing, is not what its name says, or has a newer version.
        """
        name = segment.blob(keys)
        short = name.removeprefix(keys.blob_prefix)
        data = self._blobs.get(name)
        if data is None:
            raise CorruptError("a segment is missing", item=short)
        if sha256(data).hexdigest() != segment.sha256:
            raise CorruptError("a segment does not have the hash in its name", item=short)
        fault = "a segment does not hold the positions of its name"
        yield from read_stretch(data, segment.first, segment.last, name=short, fault=fault)

    def messages(self, keys: SessionKeys, segment: Segment) -> Iterator[Located]:
        """Yield the messages of a segment in order. Bodies in the blob store are fetched only for messages without an outline."""
        return (message for message, _ in self.placed(keys, self.commits(keys, segment)))

    def placed(self, keys: SessionKeys, commits: Iterable[SealedCommit]) -> Iterator[tuple[Located, int]]:
        """Yield the messages of commits, each with its commit's first position."""
        for sealed in commits:
            messages = list(placed(sealed.events, sealed.commit))
            for message in with_bodies(self._commits, keys, messages, lambda message: message.event.facts is None):
                yield message, sealed.commit.header.first

    def seal(self, keys: SessionKeys, stretch: int) -> Segment:
        """Seal a complete stretch of the log and return its segment.

        Repeated, or run twice at once, it makes the same blob and entry. Raises `CorruptError` for a missing commit or
        payload and for a hash that does not follow, and `NotFoundError` for an erased commit. Then nothing is stored.
        """
        commits, packed = self._packed(keys, last_of_stretch(stretch - 1), last_of_stretch(stretch))
        messages, body_bytes = _counts(commits)
        first, last = commits[0].commit.header.first, commits[-1].commit.header.last
        segment = Segment(first, last, sha256(packed).hexdigest(), messages, len(packed), body_bytes)
        name = segment.blob(keys)
        self._blobs.put(name, packed)
        if self._beside is not None:
            segment = replace(segment, index_sha256=self._beside(keys, segment, self.placed(keys, commits)))
        lost = self._items.put(_entry(keys, segment), condition=Absent())
        return segment if lost is None or lost.existing is None else _segment(lost.existing)

    def mark_redacted(self, keys: SessionKeys, position: int) -> None:
        """Mark the segment that holds a position, because a message in it is redacted: searches then read the log instead.

        Takes one request, and another one where there is such a segment.
        """
        segment = self.containing(keys, position)
        if segment is not None and not segment.is_redacted:
            marked = _entry(keys, replace(segment, is_redacted=True))
            self._items.put(marked, condition=Equal("d", bytes.fromhex(segment.sha256)))

    def exchange(self, keys: SessionKeys, before: Segment, packed: bytes) -> bool:
        """Replace a segment's bytes by other bytes of the same commits; False when another process replaced them first.

        The bytes before are not erased.
        """
        _, bodies = _counts(read_segment(packed, name=commit_sort_key(before.first)))
        after = replace(before, sha256=sha256(packed).hexdigest(), size_bytes=len(packed), body_bytes=bodies)
        self._blobs.put(after.blob(keys), packed)
        return self._items.put(_entry(keys, after), condition=Equal("d", bytes.fromhex(before.sha256))) is None

    def pack(self, keys: SessionKeys, first: int, last: int) -> bytes:
        """Return commits packed as a segment, without storing them.

        They begin with the commit at ``first`` and end with the one that ends at ``last``.
        """
        return self._packed(keys, first - 1, last)[1]

    def _packed(self, keys: SessionKeys, start: int, last: int) -> tuple[Sequence[SealedCommit], bytes]:
        """Pack the commits after position ``start``, up to the one that holds ``last``. Return them and the bytes."""
        before = next(self._commits.stored.back(keys, start, limit=1), ()) if start else ()
        if start and not before:
            raise NotFoundError(f"no session {keys.session_id!r}")
        writer = SegmentWriter(checked_chain(before)[0].header.hash if before else GENESIS)
        for sealed in stored_commits(self._commits, self._payloads, keys, last, before=before):
            if sealed.commit.home != keys.partition:
                # The commit belongs to the session that this one was forked from: the segment keeps a copy of its blobs.
                self._payloads.copy_blobs(keys, sealed.commit.payloads)
            writer.add(sealed.item, sealed.lines, sealed.contents)
        packed = writer.finish()
        # Read it back before it is stored: a segment must be readable.
        return tuple(read_segment(packed, name=commit_sort_key(start + 1))), packed


def stored_commits(
    log: CommitLog, payloads: Payloads, keys: SessionKeys, last: int, *, before: Sequence[Item] = ()
) -> Iterator[SealedCommit]:
    """Yield the commits of a log up to the one that holds ``last``, in order and checked, with their payloads.

    ``before`` is the item of the commit before the first one; without it, they begin at position 1. They include commits that
    the log shares with the session it was forked from. Raises `CorruptError` for a missing commit or payload and for a hash
    that does not follow.
    """
    newest, first = before, header_in(before[0]).last + 1 if before else 1
    for stored in log.stored_on(keys, first, last, exact=True):
        items = list(map(as_shared, stored))
        pairs = list(zip(items, checked_chain([*newest, *items])[len(newest) :], strict=True))
        # A page's payloads can be many times as large as the page.
        for batch in batches(pairs, lambda pair: len(_inline(pair[1])), max_size=MAX_GET_ITEMS):
            contents = payloads.fetch(keys, [payload for _, commit in batch for payload in _inline(commit)])
            for item, commit in batch:
                bare = {name: value for name, value in logged(item).items() if name not in ("pk", "b")}
                own_contents = {payload.place: contents[payload.place] for payload in _inline(commit)}
                yield SealedCommit(commit, bare, tuple(stored_lines(item)), own_contents)
        newest = items[-1:]


def _inline(commit: Commit) -> list[Payload]:
    """Return the payloads of a commit that are not in the blob store."""
    return [payload for payload in commit.payloads if not is_blob(payload)]


def _counts(commits: Iterable[SealedCommit]) -> tuple[int, int]:
    """Return the number of messages of commits, and the size of their bodies without those in the blob store."""
    bodies = [event.body for sealed in commits for event in sealed.events if isinstance(event, MessageEvent)]
    return len(bodies), sum(len(encode_json(body)) for body in bodies if body is not None)


def _entry(keys: SessionKeys, segment: Segment) -> Item:
    key = keys.segment(segment.first)
    return {
        "pk": key.pk,
        "sk": key.sk,
        "v": SCHEMA_VERSION,
        "pos": segment.last,
        "d": bytes.fromhex(segment.sha256),
        "m": segment.messages,
        "sz": segment.size_bytes,
        "rb": segment.body_bytes,
        **({"ix": bytes.fromhex(segment.index_sha256)} if segment.index_sha256 else {}),
        **({"rx": 1} if segment.is_redacted else {}),
    }


def _segment(item: Item) -> Segment:
    check_version(item)
    last, messages, size_bytes, body_bytes = (attribute(item, field, int) for field in ("pos", "m", "sz", "rb"))
    digest = attribute(item, "d", bytes).hex()
    index = attribute(item, "ix", bytes).hex() if "ix" in item else ""
    return Segment(position_of(item_name(item)), last, digest, messages, size_bytes, body_bytes, index, "rx" in item)


class SealSessions:
    """Work of a job: seal the complete stretches of a session. Repeated or run twice at once, it changes nothing."""

    def __init__(self, log: SessionLog, segments: Segments) -> None:
        self._log = log
        self._segments = segments

    def run(self, owner: Owner, session_id: str, _options: JsonObject) -> JsonObject:
        """Seal stretches; return the number of new segments, and the last position that is sealed."""
        keys = SessionKeys(owner, session_id)
        deadline = self._log.clock.now_ms() + MAX_MS
        head = self._log.commits.tail(keys).header.last
        newest = self._segments.newest(keys)
        sealed = 0
        while head >= last_of_stretch(next_stretch(newest)) and (not sealed or self._log.clock.now_ms() < deadline):
            newest, sealed = self._segments.seal(keys, next_stretch(newest)), sealed + 1
        return {"segments": sealed, "last": newest.last if newest is not None else 0}
