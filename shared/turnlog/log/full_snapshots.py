"""Full snapshots: a record that names the segments of a session's log, and the tail that no segment has.

Segments are shared by all snapshots of a session and by its log; a tail belongs to its snapshot alone. A tail of a few kilobytes
is in the record. So another snapshot writes the segments that are new, one tail and one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.segments import last_of_stretch, stretch_of
from turnlog.domain.values import dataclass
from turnlog.log.archive import INLINE_BYTES, Archive, Part, digest_of_parts
from turnlog.log.keys import PAYLOAD_BLOBS, SessionKeys
from turnlog.log.records import Record, Records
from turnlog.log.segments import Segment, Segments
from turnlog.ports import BlobStore, Clock


@dataclass(frozen=True, slots=True)
class Kept:
    """What the full snapshots of a session need of its blobs. ``names`` are behind the session's prefix; payloads are needed up to
    position ``until`` (0: there is no full snapshot)."""

    names: frozenset[str]
    until: int

    def needs(self, name: str) -> bool:
        """Whether a blob, named without the session's prefix, must stay."""
        if name.startswith(PAYLOAD_BLOBS):
            return int(name[len(PAYLOAD_BLOBS) :].partition("-")[0]) <= self.until
        return name in self.names


def parts_of(record: Record) -> tuple[Part, ...]:
    """The parts of a full snapshot, also of what is left of a deleted one."""
    found: Any = record.content.get("parts", [])
    return tuple(Part.decode(one) for one in found)


def parts_content(parts: Sequence[Part]) -> JsonObject:
    """What the record of a full snapshot has of its parts."""
    return {
        "parts": [part.encode() for part in parts],
        "size": sum(part.size_bytes for part in parts),
        "digest": digest_of_parts(parts),
    }


def kept_by(records: Iterable[Record]) -> Kept:
    """What these snapshots need; those of kind ``ref`` need nothing."""
    full = [record for record in records if record.content.get("kind") == "full"]
    names = {part.blob for record in full for part in parts_of(record) if part.inline is None}
    return Kept(frozenset(names), max((part.last for record in full for part in parts_of(record)), default=0))


class FullSnapshots:
    """Makes the parts of full snapshots, and reads them."""

    def __init__(self, blobs: BlobStore, segments: Segments, records: Records, clock: Clock) -> None:
        self._blobs = blobs
        self._segments = segments
        self._records = records
        self._clock = clock

    def unsealed(self, keys: SessionKeys, last: int) -> int:
        """How many stretches of the log up to a position are complete and not sealed yet. One request."""
        newest = self._segments.newest(keys)
        stretch = stretch_of(newest.first) + 1 if newest is not None else 0
        return max(0, last // last_of_stretch(0) - stretch)

    def make(self, keys: SessionKeys, record_id: str, last: int, *, deadline_ms: int) -> list[Part] | None:
        """The parts of the history up to a position, stored; None when there was no time for all of it.

        Done again, it goes on where it ended, and writes nothing that is there already.
        """
        segments = self._sealed(keys, last)
        at = segments[-1].last if segments else 0
        stretch = stretch_of(segments[-1].first) + 1 if segments else 0
        while last >= last_of_stretch(stretch):
            if self._clock.now_ms() >= deadline_ms:
                return None
            made = self._segments.seal(keys, stretch)
            if made is None:
                break
            segments.append(made)
            at, stretch = made.last, stretch + 1
        parts = [_part(keys, segment) for segment in segments]
        if at < last:
            parts.append(self._tail(keys, record_id, at + 1, last))
        return parts

    def archive(self, keys: SessionKeys, record: Record) -> Archive:
        return Archive(self._blobs, keys, parts_of(record), last_hash=str(record.content["hash"]))

    def kept(self, keys: SessionKeys) -> Kept:
        """What all full snapshots of a session need when its log expires. What they need besides are their records."""
        return kept_by(self._records.every(keys.snapshots))

    def _sealed(self, keys: SessionKeys, last: int) -> list[Segment]:
        """The segments from the beginning on, without a gap; none that reaches beyond the position."""
        found = list[Segment]()
        for segment in self._segments.list(keys):
            if segment.first != (found[-1].last + 1 if found else 1) or segment.last > last:
                break
            found.append(segment)
        return found

    def _tail(self, keys: SessionKeys, record_id: str, first: int, last: int) -> Part:
        packed = self._segments.pack(keys, first, last)
        name = keys.snapshot_blob(record_id)
        part = Part(first, last, sha256(packed).hexdigest(), len(packed), name[len(keys.blob_prefix) :])
        if len(packed) <= INLINE_BYTES:
            return replace(part, inline=packed)
        self._blobs.put(name, packed)
        return part


def _part(keys: SessionKeys, segment: Segment) -> Part:
    name = keys.segment_blob(segment.first, segment.last, segment.sha256)
    return Part(segment.first, segment.last, segment.sha256, segment.size_bytes, name[len(keys.blob_prefix) :])
