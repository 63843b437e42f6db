"""Full snapshots: a record that names the segments of a session's log, and a tail that no segment has.

Segments are shared by all snapshots of a session and by its log; a tail belongs to one snapshot. A tail of a few kilobytes
is stored in the record. So a further snapshot writes only the new segments, one tail and one record.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import last_of_stretch
from turnlog.log.commit_items import with_lines
from turnlog.log.headers import GENESIS, chain_hash, hashed_header
from turnlog.log.keys import COMMITS_FROM, COMMITS_TO, PAYLOAD_BLOBS, SessionKeys, commit_sort_key, item_at
from turnlog.log.packing import line_digest, pack
from turnlog.log.records import Record
from turnlog.ports import MAX_PAGE_BYTES, BlobStore, Clock, Condition, Item, Key, Lost, Page, Query, item_size_bytes
from turnlog.snapshots.segment_format import SealedCommit, read_stretch
from turnlog.snapshots.segments import Segment, Segments, next_stretch

INLINE_BYTES = 4 * 1024
"""Largest tail that is stored in the snapshot's record."""
_OPEN_PARTS = 2


@lazy_dataclass(frozen=True, slots=True)
class SnapshotStretch:
    """A part of a snapshot's history: a segment, or the tail after the last one.

    ``blob`` is the name behind the session's prefix. ``inline`` has the bytes of a part that is stored in the record.
    """

    first: int
    last: int
    sha256: str
    size_bytes: int
    blob: str
    inline: bytes | None = None

    def encode(self) -> JsonObject:
        """Return the part as JSON, as the record stores it."""
        encoded: JsonObject = {"r": [self.first, self.last, self.size_bytes], "d": self.sha256, "b": self.blob}
        return encoded | ({"x": b64encode(self.inline).decode("ascii")} if self.inline is not None else {})

    @classmethod
    def decode(cls, encoded: Mapping[str, Any]) -> SnapshotStretch:
        """Return the part that `encode` has written."""
        first, last, size = encoded["r"]
        inline = b64decode(encoded["x"]) if "x" in encoded else None
        return cls(first, last, encoded["d"], size, encoded["b"], inline)


def digest_of_parts(parts: Sequence[SnapshotStretch]) -> str:
    """Return the SHA-256 over a line ``<first>-<last>-<sha256>`` for each part; it binds every byte of the history."""
    lines = "".join(f"{part.first}-{part.last}-{part.sha256}\n" for part in parts)
    return sha256(lines.encode("ascii")).hexdigest()


class Archive:
    """The history of a session up to a position, read from consecutive ``parts``. Blob names are behind the session's prefix."""

    def __init__(
        self, blobs: BlobStore, keys: SessionKeys, parts: Sequence[SnapshotStretch], *, last_hash: str
    ) -> None:
        self.keys = keys
        self._blobs = blobs
        self.parts = tuple(parts)
        self._firsts = [part.first for part in parts]
        self.last_hash = last_hash
        self._open: OrderedDict[int, list[SealedCommit]] = OrderedDict()

    def commits(self) -> Iterator[SealedCommit]:
        """Yield all commits in order, with one part in memory at a time.

        Raises `CorruptError`, at the latest after the last commit, when they are not the commits that the snapshot was made
        of.
        """
        previous, position = GENESIS, 1
        for part in self.parts:
            for index, sealed in enumerate(self._read(part)):
                if index == 0:
                    covered = hashed_header(commit_sort_key(part.first), sealed.item)
                    digests = list(map(line_digest, sealed.lines))
                    if chain_hash(previous, covered, digests) != sealed.commit.header.hash:
                        raise CorruptError("a part of a snapshot does not follow the part before it", item=part.blob)
                position, previous = sealed.commit.header.last + 1, sealed.commit.header.hash
                yield sealed
        if previous.hex() != self.last_hash:
            raise CorruptError(
                "a snapshot does not end with the commit that it was made at", item=commit_sort_key(position)
            )

    def from_position(self, position: int) -> Iterator[SealedCommit]:
        """Yield the commits of the part that holds a position, and of all later parts."""
        for index in range(max(0, bisect_right(self._firsts, position) - 1), len(self.parts)):
            yield from self.part(index)

    def part(self, index: int) -> list[SealedCommit]:
        """Return the commits of a part. The last two parts that were read stay in memory."""
        commits = self._open.get(index)
        if commits is None:
            commits = self._open[index] = list(self._read(self.parts[index]))
            while len(self._open) > _OPEN_PARTS:
                self._open.popitem(last=False)
        self._open.move_to_end(index)
        return commits

    def _read(self, part: SnapshotStretch) -> Iterator[SealedCommit]:
        data = part.inline
        if data is None:
            name = self.keys.blob_prefix + part.blob
            data = self._blobs.get(name)
            if data is None:
                raise CorruptError("a part of a snapshot is missing", item=part.blob)
            if sha256(data).hexdigest() != part.sha256:
                raise CorruptError("the digest of a blob does not match its name", item=name)
        fault = "a part of a snapshot does not hold the positions of its entry"
        return read_stretch(data, part.first, part.last, name=part.blob, fault=fault)


class ArchiveItems:
    """`ItemTable` over an archive: commits and their payloads. Writes are ignored, as readers write only caches."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._partition = archive.keys.partition

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        own = (key for key in keys if key.pk == self._partition)
        return {key: item for key in own if (item := self._get(key)) is not None}

    def query(self, query: Query) -> Page:
        low, high, after = max(query.low, COMMITS_FROM), min(query.high, COMMITS_TO), query.after
        if after is not None:
            edge = after["sk"]
            low, high = (low, min(high, edge)) if query.descending else (max(low, edge), high)
        items, size = list[Item](), 0
        for sealed in self._within(low, high, descending=query.descending) if query.pk == self._partition else ():
            if after is not None and sealed.item["sk"] == after["sk"]:
                continue
            item = commit_item(self._partition, sealed)
            size += item_size_bytes(item)
            if items and (size > MAX_PAGE_BYTES or len(items) == query.limit):
                return Page(tuple(items), {"pk": self._partition, "sk": str(items[-1]["sk"])})
            items.append(item)
        return Page(tuple(items), None)

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        return None

    def write_many(self, items: Sequence[Item]) -> None:
        return

    def delete_many(self, keys: Sequence[Key]) -> None:
        return

    def _within(self, low: str, high: str, *, descending: bool) -> Iterator[SealedCommit]:
        parts = list(enumerate(self._archive.parts))
        for index, part in reversed(parts) if descending else parts:
            if commit_sort_key(part.last) < low or commit_sort_key(part.first) > high:
                continue
            commits = self._archive.part(index)
            for sealed in reversed(commits) if descending else commits:
                if low <= str(sealed.item["sk"]) <= high:
                    yield sealed

    def _get(self, key: Key) -> Item | None:
        kind, _, rest = key.sk.partition("#")
        digits = rest.partition("~")[0]
        if kind not in ("C", "R") or not digits.isdigit():
            return None
        # A payload is named after the slot that its commit tried first. If another commit won it, the next part may hold this one.
        for sealed in self._archive.from_position(int(digits)):
            if kind == "R" and key.sk in sealed.contents:
                return item_at(key, {"b": pack(sealed.contents[key.sk])})
            if kind == "C" and str(sealed.item["sk"]) >= key.sk:
                return commit_item(key.pk, sealed) if sealed.item["sk"] == key.sk else None
        return None


def commit_item(partition: str, sealed: SealedCommit) -> Item:
    """Return the item of a commit as it was stored, for another partition."""
    return with_lines({"pk": partition, **sealed.item}, sealed.lines)


@lazy_dataclass(frozen=True, slots=True)
class RetainedBlobs:
    """Blobs of a session that its full snapshots need.

    ``names`` are behind the session's prefix. Payloads are needed up to position ``until``; 0 without a full snapshot.
    """

    names: frozenset[str]
    until: int

    def needs(self, name: str) -> bool:
        """Return whether a blob must stay. ``name`` is without the session's prefix."""
        if name.startswith(PAYLOAD_BLOBS):
            return int(name[len(PAYLOAD_BLOBS) :].partition("-")[0]) <= self.until
        return name in self.names


def parts_of(record: Record) -> tuple[SnapshotStretch, ...]:
    """Return the parts of a full snapshot, or those that the stub of a deleted one still names."""
    encoded_parts: Any = record.content.get("parts", [])
    return tuple(SnapshotStretch.decode(encoded) for encoded in encoded_parts)


def parts_content(parts: Sequence[SnapshotStretch]) -> JsonObject:
    """Return the fields of a full snapshot's record that describe its parts."""
    return {
        "parts": [part.encode() for part in parts],
        "size": sum(part.size_bytes for part in parts),
        "digest": digest_of_parts(parts),
    }


def kept_by(records: Iterable[Record]) -> RetainedBlobs:
    """Return the blobs that these snapshots need. Snapshots of kind ``ref`` need none."""
    full_records = [record for record in records if record.content.get("kind") == "full"]
    names = {part.blob for record in full_records for part in parts_of(record) if part.inline is None}
    return RetainedBlobs(
        frozenset(names), max((part.last for record in full_records for part in parts_of(record)), default=0)
    )


class FullSnapshots:
    """Stores the parts of full snapshots, and reads them."""

    def __init__(self, blobs: BlobStore, segments: Segments, clock: Clock) -> None:
        self._blobs = blobs
        self._segments = segments
        self._clock = clock

    def unsealed(self, keys: SessionKeys, last: int) -> int:
        """Return the number of complete stretches up to a position that are not sealed yet. One request."""
        return max(0, last // last_of_stretch(0) - next_stretch(self._segments.newest(keys)))

    def make(self, keys: SessionKeys, record_id: str, last: int, *, deadline_ms: int) -> list[SnapshotStretch] | None:
        """Store and return the parts of the history up to a position; None when the deadline passed first.

        Repeated, it continues where it stopped and writes nothing twice.
        """
        segments = self._sealed(keys, last)
        stretch = next_stretch(segments[-1] if segments else None)
        while last >= last_of_stretch(stretch):
            if self._clock.now_ms() >= deadline_ms:
                return None
            segments.append(self._segments.seal(keys, stretch))
            stretch = next_stretch(segments[-1])
        parts = [_part(keys, segment) for segment in segments]
        end = segments[-1].last if segments else 0
        if end < last:
            parts.append(self._tail(keys, record_id, end + 1, last))
        return parts

    def archive(self, keys: SessionKeys, record: Record) -> Archive:
        """Return the history of a full snapshot. Raises `NotFoundError` for a ``ref``."""
        if record.content["kind"] != "full":
            raise NotFoundError(
                f"session {keys.session_id!r} has expired or was erased, and a ref snapshot is only a pointer into it"
            )
        return Archive(self._blobs, keys, parts_of(record), last_hash=str(record.content["hash"]))

    def _sealed(self, keys: SessionKeys, last: int) -> list[Segment]:
        """Return the segments from the first position on, without a gap and none beyond ``last``."""
        segments = list[Segment]()
        for segment in self._segments.list(keys):
            if segment.first != (segments[-1].last + 1 if segments else 1) or segment.last > last:
                break
            segments.append(segment)
        return segments

    def _tail(self, keys: SessionKeys, record_id: str, first: int, last: int) -> SnapshotStretch:
        """Store the commits that no segment has; a short tail is returned with its bytes instead."""
        packed = self._segments.pack(keys, first, last)
        name = keys.snapshot_blob(record_id)
        blob = name.removeprefix(keys.blob_prefix)
        part = SnapshotStretch(first, last, sha256(packed).hexdigest(), len(packed), blob)
        if len(packed) <= INLINE_BYTES:
            return replace(part, inline=packed)
        self._blobs.put(name, packed)
        return part


def _part(keys: SessionKeys, segment: Segment) -> SnapshotStretch:
    blob = segment.blob(keys).removeprefix(keys.blob_prefix)
    return SnapshotStretch(segment.first, segment.last, segment.sha256, segment.size_bytes, blob)
