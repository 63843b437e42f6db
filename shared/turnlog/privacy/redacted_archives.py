"""Repack segments and full snapshots without a redacted message, and erase the bytes before.

New bytes are stored before the entry that names them, and old bytes are erased last: a reader always finds one or the other.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from turnlog.core.errors import ConflictError
from turnlog.log.keys import INDEX_BLOBS, SEGMENT_BLOBS, SNAPSHOT_BLOBS, SessionKeys
from turnlog.log.lines import Redacted
from turnlog.log.packing import line_digest
from turnlog.log.records import Record, Records
from turnlog.ports import BlobStore
from turnlog.snapshots.full import INLINE_BYTES, SnapshotStretch, parts_content, parts_of
from turnlog.snapshots.segment_format import SegmentWriter, previous_hash, read_segment
from turnlog.snapshots.segments import Segment, Segments

_TRIES = 5


class RedactedParts:
    """Repacks the segments and full snapshots of sessions."""

    def __init__(self, blobs: BlobStore, segments: Segments, records: Records) -> None:
        self._blobs = blobs
        self._segments = segments
        self._records = records

    def replace(self, keys: SessionKeys, redacted: Redacted) -> tuple[int, int]:
        """Repack a session's segments and snapshots; return the number of repacked parts and of erased blobs."""
        done = self._replace_segments(keys, redacted)
        for record in list(self._records.every(keys.snapshots)):
            if record.content.get("kind") == "full":
                done += self._replace_record(keys, record, redacted)
        return done, self._erase_left(keys, redacted)

    # ------------------------------------------------------------ segments

    def _replace_segments(self, keys: SessionKeys, redacted: Redacted) -> int:
        segments = list(self._segments.list(keys))
        holding = [segment for segment in segments if segment.first <= redacted.position <= segment.last]
        if holding:
            stored = self._blobs.get(holding[0].blob(keys))
            if not _holds(self._data(keys, holding[0], stored), redacted):
                return 0
        return sum(
            self._replace_segment(keys, segment, redacted) for segment in segments if segment.last >= redacted.position
        )

    def _replace_segment(self, keys: SessionKeys, segment: Segment, redacted: Redacted) -> bool:
        for _ in range(_TRIES):
            packed = self._repacked(keys, segment, self._blobs.get(segment.blob(keys)), redacted)
            if packed is None:
                return False
            if self._segments.exchange(keys, segment, packed):
                return True
            current = self._segments.containing(keys, segment.first)
            if current is None:
                return False
            segment = current
        raise ConflictError("another process replaces the same segment; try again", retry_after_seconds=1)

    def _data(self, keys: SessionKeys, part: Segment | SnapshotStretch, stored: bytes | None) -> bytes:
        """Return the ``stored`` bytes of a part; packed from the log when an interrupted run has erased them."""
        return stored or self._segments.pack(keys, part.first, part.last)

    def _repacked(
        self, keys: SessionKeys, part: Segment | SnapshotStretch, stored: bytes | None, redacted: Redacted
    ) -> bytes | None:
        """Return the bytes to store for a part in place of the ``stored`` ones; None when these may stay."""
        data = self._data(keys, part, stored)
        packed = redact_segment(data, redacted)
        return data if packed is None and stored is None else packed

    # ------------------------------------------------------------ snapshots

    def _replace_record(self, keys: SessionKeys, record: Record, redacted: Redacted) -> int:
        for _ in range(_TRIES):
            old_parts = parts_of(record)
            holding = [part for part in old_parts if part.first <= redacted.position <= part.last]
            if not holding:
                return 0
            stored = self._stored(keys, holding[0])
            if not _holds(self._data(keys, holding[0], stored), redacted):
                return 0
            new_parts = [self._part(keys, record, part, redacted) for part in old_parts]
            if new_parts == list(old_parts):
                return 0
            changed = replace(record, content={**record.content, **parts_content(new_parts)})
            if self._records.exchange(keys.snapshots, record, changed):
                return sum(old != new for old, new in zip(old_parts, new_parts, strict=True))
            current = self._records.get(keys.snapshots, record.id)
            if current is None:
                return 0
            record = current
        raise ConflictError("another process replaces the same snapshot; try again", retry_after_seconds=1)

    def _part(self, keys: SessionKeys, record: Record, part: SnapshotStretch, redacted: Redacted) -> SnapshotStretch:
        if part.last < redacted.position:
            return part
        packed = self._repacked(keys, part, self._stored(keys, part), redacted)
        if packed is None:
            return part
        digest = sha256(packed).hexdigest()
        if part.inline is not None and len(packed) <= INLINE_BYTES:
            return replace(part, sha256=digest, size_bytes=len(packed), inline=packed)
        if part.blob.startswith(SEGMENT_BLOBS):
            name = keys.segment_blob(part.first, part.last, digest)
        else:
            name = f"{keys.snapshot_blob(record.id)}~{digest}"
        self._blobs.put(name, packed)
        return SnapshotStretch(part.first, part.last, digest, len(packed), name.removeprefix(keys.blob_prefix))

    def _stored(self, keys: SessionKeys, part: SnapshotStretch) -> bytes | None:
        return part.inline if part.inline is not None else self._blobs.get(keys.blob_prefix + part.blob)

    # ------------------------------------------------------------ what is left

    def _erase_left(self, keys: SessionKeys, redacted: Redacted) -> int:
        """Erase blobs that no entry names and that hold the redacted message; return their number."""
        erased, segments = 0, self._segments.list(keys)
        named = {segment.blob(keys) for segment in segments}
        for record in self._records.every(keys.snapshots):
            named |= {keys.blob_prefix + part.blob for part in parts_of(record) if part.inline is None}
        for kind in (SEGMENT_BLOBS, SNAPSHOT_BLOBS):
            for name in self._blobs.names(keys.blob_prefix + kind):
                last = int(name.removeprefix(keys.blob_prefix + kind).split("-")[1]) if kind == SEGMENT_BLOBS else None
                if name in named or (last is not None and last < redacted.position):
                    continue
                data = self._blobs.get(name)
                if data is not None and redact_segment(data, redacted) is not None:
                    erased += self._blobs.erase(name, keep=named)
        return erased + self._erase_indexes(keys, named)

    def _erase_indexes(self, keys: SessionKeys, named: set[str]) -> int:
        """Erase search indexes of replaced segments; they hold the redacted text. Readers rebuild indexes on demand."""
        prefix, erased = keys.blob_prefix + INDEX_BLOBS, 0
        for name in self._blobs.names(prefix):
            if keys.blob_prefix + SEGMENT_BLOBS + name[len(prefix) :] not in named:
                erased += self._blobs.erase(name)
        return erased


def redact_segment(data: bytes, redacted: Redacted) -> bytes | None:
    """Return a segment's bytes without the redacted message; None when the segment does not hold it."""
    writer: SegmentWriter | None = None
    is_changed = False
    for sealed in read_segment(data, name=""):
        if writer is None:
            writer = SegmentWriter(previous_hash(data))
        lines = redacted.redact_lines(sealed.lines, sealed.commit.header.first)
        is_changed = is_changed or lines != list(sealed.lines)
        writer.add(sealed.item, lines, sealed.contents)
    return writer.finish() if writer is not None and is_changed else None


def _holds(data: bytes, redacted: Redacted) -> bool:
    """Return whether a segment that has the message's position holds the message's text."""
    for sealed in read_segment(data, name=""):
        index = redacted.position - sealed.commit.header.first
        if 0 <= index < len(sealed.lines):
            return line_digest(sealed.lines[index]) == redacted.digest
    return False
