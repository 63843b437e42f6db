"""Segments: immutable blobs of packed history beside the log, and the entries ``G#…`` that find them.

The log stays the only truth: what is not sealed, or whose entry got lost, is read there. A blob is stored before its entry, under
a name that has the hash of its bytes; sealing a stretch again makes the same blob and the same entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TypeAlias

from turnlog.core.errors import CorruptError, NewerSchemaError, NotFoundError
from turnlog.core.events import MessageEvent, Payload
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import last_of_stretch, stretch_of
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.commit_items import logged
from turnlog.log.commits import Commit, CommitLog, checked_chain, events_of, stored_lines
from turnlog.log.headers import GENESIS, item_name
from turnlog.log.keys import SEGMENTS_FROM, SEGMENTS_TO, SessionKeys, commit_sort_key, position_of, segment_sort_key
from turnlog.log.payloads import Payloads, is_blob
from turnlog.log.reading import Located, placed
from turnlog.ports import MAX_GET_ITEMS, Absent, BlobStore, Equal, Item, ItemTable, Query
from turnlog.sessions.session_log import SessionLog, as_shared
from turnlog.snapshots.segment_format import SealedCommit, SegmentWriter, read_segment


@lazy_dataclass(frozen=True, slots=True)
class Segment:
    """A segment as its entry names it. ``size_bytes`` is packed; ``body_bytes`` are the bodies of its ``messages`` but for those in
    the blob store."""

    first: int
    last: int
    sha256: str
    messages: int
    size_bytes: int
    body_bytes: int


Beside: TypeAlias = "Callable[[SessionKeys, Segment, Iterable[tuple[Located, int]]], None]"
"""Stores what is kept beside a segment, from its messages, each with its commit's first position."""


class Segments:
    """Seals, lists and reads the segments of sessions. ``beside`` is done before a segment can be found."""

    def __init__(
        self, items: ItemTable, blobs: BlobStore, payloads: Payloads, commits: CommitLog, beside: Beside | None = None
    ) -> None:
        self._beside = beside
        self._items = items
        self._blobs = blobs
        self._payloads = payloads
        self._commits = commits

    # ------------------------------------------------------------ finding

    def newest(self, keys: SessionKeys) -> Segment | None:
        """One request."""
        return self._before(keys, SEGMENTS_TO)

    def containing(self, keys: SessionKeys, position: int) -> Segment | None:
        """The segment that holds a position, in one request; None: that is not sealed."""
        found = self._before(keys, segment_sort_key(position))
        return found if found is not None and found.last >= position else None

    def list(self, keys: SessionKeys, *, first: int = 1) -> Iterator[Segment]:
        """Those that begin at a position or later, in order: one request for some 4,000 of them."""
        after: Mapping[str, str] | None = None
        while True:
            low = segment_sort_key(first)
            page = self._items.query(Query(keys.partition, low, SEGMENTS_TO, after=after))
            yield from map(_segment, page.items)
            after = page.next
            if after is None:
                return

    def _before(self, keys: SessionKeys, sort_key: str) -> Segment | None:
        query = Query(keys.partition, SEGMENTS_FROM, sort_key, descending=True, limit=1)
        items = self._items.query(query).items
        return _segment(items[0]) if items else None

    # ------------------------------------------------------------ reading

    def commits(self, keys: SessionKeys, segment: Segment) -> Iterator[SealedCommit]:
        """The commits of a segment in order, in one request; unpacked one after the other.

        A blob that is missing, is not what its name says, or is of a newer version is a `CorruptError` that names it.
        """
        name = keys.segment_blob(segment.first, segment.last, segment.sha256)
        short = name[len(keys.blob_prefix) :]
        data = self._blobs.get(name)
        if data is None:
            raise CorruptError("a segment is missing", item=short)
        if sha256(data).hexdigest() != segment.sha256:
            raise CorruptError("a segment is not the one that its name says", item=short)
        at = segment.first
        for sealed in read_segment(data, name=short):
            if sealed.commit.header.first != at:
                raise CorruptError("a segment does not hold the positions of its name", item=short)
            at = sealed.commit.header.last + 1
            yield sealed
        if at != segment.last + 1:
            raise CorruptError("a segment does not hold the positions of its name", item=short)

    def messages(self, keys: SessionKeys, segment: Segment) -> Iterator[Located]:
        """The messages of a segment in order. Bodies in the blob store are not fetched while there is a card."""
        return (one for one, _ in self.placed(keys, self.commits(keys, segment)))

    def placed(self, keys: SessionKeys, commits: Iterable[SealedCommit]) -> Iterator[tuple[Located, int]]:
        """The messages of commits, each with its commit's first position."""
        for sealed in commits:
            for one in placed(sealed.events, sealed.commit):
                if one.event.body is None and one.event.facts is None:
                    (event,) = self._commits.fetch(keys, [one.event]).values()
                    yield Located(event, one.loop, one.time_ms), sealed.commit.header.first
                else:
                    yield one, sealed.commit.header.first

    # ------------------------------------------------------------ sealing

    def seal(self, keys: SessionKeys, stretch: int) -> Segment | None:
        """Seals a stretch of the log; None while it is not complete. Again, or twice at once: the same blob and entry.

        A hole, a hash that does not follow, a payload that is missing (`CorruptError`) and an erased commit (`NotFoundError`)
        end it before anything is stored.
        """
        sealing = _Sealing(self._commits, self._payloads, keys, last_of_stretch(stretch - 1), last_of_stretch(stretch))
        packed = sealing.pack()
        if packed is None:
            return None
        digest = sha256(packed).hexdigest()
        segment = Segment(sealing.first, sealing.last, digest, sealing.messages, len(packed), sealing.body_bytes)
        name = keys.segment_blob(segment.first, segment.last, digest)
        # What can't be read back is never stored.
        commits = list(read_segment(packed, name=name[len(keys.blob_prefix) :]))
        self._blobs.put(name, packed)
        if self._beside is not None:
            self._beside(keys, segment, self.placed(keys, commits))
        lost = self._items.put(_entry(keys, segment), condition=Absent())
        return segment if lost is None or lost.existing is None else _segment(lost.existing)

    def exchange(self, keys: SessionKeys, before: Segment, packed: bytes) -> bool:
        """Puts other bytes of the same commits in a segment's place; False where another has done so. The bytes before stay."""
        name, bodies = commit_sort_key(before.first), 0
        for sealed in read_segment(packed, name=name):
            bodies += sum(
                len(encode_json(event.body))
                for event in sealed.events
                if isinstance(event, MessageEvent) and event.body is not None
            )
        after = replace(before, sha256=sha256(packed).hexdigest(), size_bytes=len(packed), body_bytes=bodies)
        self._blobs.put(keys.segment_blob(after.first, after.last, after.sha256), packed)
        return self._items.put(_entry(keys, after), condition=Equal("d", bytes.fromhex(before.sha256))) is None

    def pack(self, keys: SessionKeys, first: int, last: int) -> bytes:
        """The commits from one that begins at ``first`` to the one that ends at ``last``, in the form of a segment; nothing is
        stored."""
        packed = _Sealing(self._commits, self._payloads, keys, first - 1, last).pack()
        if packed is None:
            raise self._commits.missing(keys, last)
        for _ in read_segment(packed, name=commit_sort_key(first)):
            pass
        return packed


class _Sealing:
    """The commits after position ``start`` to the one that holds ``end``, on their way into a segment, a page at a time."""

    def __init__(self, commits: CommitLog, payloads: Payloads, keys: SessionKeys, start: int, end: int) -> None:
        self._commits = commits
        self._payloads = payloads
        self._keys = keys
        self._start, self._end = start, end
        self.first = self.last = self.messages = self.body_bytes = 0

    def pack(self) -> bytes | None:
        """The segment's bytes; None while the log does not reach the end of the stretch."""
        newest = self._commit_before()
        before = checked_chain(newest)
        low = before[0].header.last + 1 if before else 1
        writer = SegmentWriter(before[0].header.hash if before else GENESIS)
        for stored in self._commits.stored.on(self._keys, low, self._end, exact=True):
            items = list(map(as_shared, stored))
            commits = checked_chain([*newest, *items])[len(newest) :]
            if not self.first and commits and commits[0].header.first != low:
                raise CorruptError(f"no commit holds position {low}", item=commit_sort_key(low))
            self._add(writer, list(zip(items, commits, strict=True)))
            newest = items[-1:] or newest
        return writer.finish() if self.last >= self._end else None

    def _commit_before(self) -> Sequence[Item]:
        """The commit that the stretch follows on; none before the first."""
        if self._start == 0:
            return ()
        found = next(self._commits.stored.back(self._keys, self._start, limit=1), ())
        if not found:
            raise NotFoundError(f"no session {self._keys.session_id!r}")
        return found

    def _add(self, writer: SegmentWriter, stored: Sequence[tuple[Item, Commit]]) -> None:
        """Commits of a page, with as many payloads at once as one request gets."""
        wanted, waiting = list[Payload](), list[tuple[Item, Commit]]()
        for item, commit in stored:
            beside = [payload for payload in commit.payloads if not is_blob(payload)]
            if len(wanted) + len(beside) > MAX_GET_ITEMS:
                self._write(writer, waiting, wanted)
                wanted, waiting = [], []
            wanted += beside
            waiting.append((item, commit))
        self._write(writer, waiting, wanted)

    def _write(self, writer: SegmentWriter, stored: Sequence[tuple[Item, Commit]], wanted: Sequence[Payload]) -> None:
        contents = self._payloads.fetch(self._keys, wanted)
        for item, commit in stored:
            if commit.home != self._keys.partition:
                # Shared with the session that this one was forked from: a copy of its blobs stays with the segment.
                self._payloads.copy_blobs(self._keys, commit.payloads)
            writer.add(logged(item), stored_lines(item), contents)
            self.first = self.first or commit.header.first
            self.last = commit.header.last
            for event in events_of(commit, contents):
                if isinstance(event, MessageEvent):
                    self.messages += 1
                    self.body_bytes += len(encode_json(event.body)) if event.body is not None else 0


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
    }


def _segment(item: Item) -> Segment:
    name, digest = item_name(item), item.get("d")
    version = _int(item, "v")
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version} is newer than {SCHEMA_VERSION}", item=name)
    if not isinstance(digest, bytes):
        raise CorruptError("an entry of a segment is damaged", item=name)
    first, last = position_of(name), _int(item, "pos")
    return Segment(first, last, digest.hex(), _int(item, "m"), _int(item, "sz"), _int(item, "rb"))


def _int(item: Item, name: str) -> int:
    value = item.get(name)
    if not isinstance(value, int):
        raise CorruptError(f"attribute {name!r} is not a number", item=item_name(item))
    return value


MAX_MS = 5_000
"""A job begins no further segment after that time, so that it ends before its worker does. The next job goes on from there."""


class SealSessions:
    """The use case of the worker: seals what is complete and not sealed yet. Doing it again, or twice at once, changes nothing."""

    def __init__(self, log: SessionLog, segments: Segments) -> None:
        self._log = log
        self._segments = segments

    def run(self, owner: Owner, session_id: str, _options: JsonObject) -> JsonObject:
        """A job's work: how many segments there are more, and the position up to which there are segments."""
        keys = SessionKeys(owner, session_id)
        deadline = self._log.clock.now_ms() + MAX_MS
        head = self._log.commits.tail(keys).header.last
        newest = self._segments.newest(keys)
        sealed, last = 0, newest.last if newest is not None else 0
        stretch = stretch_of(newest.first) + 1 if newest is not None else 0
        while head >= last_of_stretch(stretch) and (not sealed or self._log.clock.now_ms() < deadline):
            made = self._segments.seal(keys, stretch)
            if made is None:
                break
            sealed, last, stretch = sealed + 1, made.last, stretch + 1
        return {"segments": sealed, "last": last}
