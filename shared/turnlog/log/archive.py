"""A full snapshot's history: commits out of its segments and its tail, whether or not the session's log is still there.

`ArchiveItems` gives them as a table that only reads, so whatever reads a session reads a snapshot too.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from turnlog.domain.errors import CorruptError
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.values import dataclass
from turnlog.log.digests import line_digest
from turnlog.log.headers import GENESIS, chain_hash, hashed_header
from turnlog.log.keys import COMMITS_FROM, COMMITS_TO, SessionKeys, commit_sort_key
from turnlog.log.packing import pack
from turnlog.log.segment_format import SealedCommit, read_segment
from turnlog.log.verified import VERIFIED
from turnlog.ports import MAX_PAGE_BYTES, BlobStore, Condition, Item, Key, Lost, Page, Query, item_size_bytes

INLINE_BYTES = 4 * 1024
"""A tail of at most so many bytes is kept in the snapshot's record."""
_OPEN_PARTS = 2


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the history: a segment, or what no segment has. ``inline`` are its bytes where they have no blob."""

    first: int
    last: int
    sha256: str
    size_bytes: int
    blob: str
    inline: bytes | None = None

    def encode(self) -> JsonObject:
        found: JsonObject = {"r": [self.first, self.last, self.size_bytes], "d": self.sha256, "b": self.blob}
        return found | ({"x": b64encode(self.inline).decode("ascii")} if self.inline is not None else {})

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> Part:
        first, last, size = found["r"]
        inline = b64decode(found["x"]) if "x" in found else None
        return cls(first, last, found["d"], size, found["b"], inline)


def digest_of_parts(parts: Sequence[Part]) -> str:
    """SHA-256 over a line ``<first>-<last>-<sha256>`` for each part: it binds every byte of the history."""
    lines = "".join(f"{part.first}-{part.last}-{part.sha256}\n" for part in parts)
    return sha256(lines.encode("ascii")).hexdigest()


class Archive:
    """The history of a session up to a position. ``parts`` follow one another; names of their blobs are behind its prefix."""

    def __init__(self, blobs: BlobStore, keys: SessionKeys, parts: Sequence[Part], *, last_hash: str) -> None:
        self.keys = keys
        self._blobs = blobs
        self._parts = tuple(parts)
        self._firsts = [part.first for part in parts]
        self._last_hash = last_hash
        self._open: OrderedDict[int, list[SealedCommit]] = OrderedDict()

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    def commits(self) -> Iterator[SealedCommit]:
        """All commits in order, one part in memory at a time. That they are those of the snapshot is proved on the way:
        `CorruptError` at the latest at the end."""
        previous, at = GENESIS, 1
        for part in self._parts:
            for index, sealed in enumerate(self._read(part)):
                if index == 0:
                    covered = hashed_header(commit_sort_key(part.first), sealed.item)
                    digests = list(map(line_digest, sealed.lines))
                    if chain_hash(previous, covered, digests) != sealed.commit.header.hash:
                        raise CorruptError("a part of a snapshot does not follow on the one before", item=part.blob)
                if sealed.commit.header.first != at:
                    raise CorruptError("a part of a snapshot has not the positions that it says", item=part.blob)
                at, previous = sealed.commit.header.last + 1, sealed.commit.header.hash
                yield sealed
            if at != part.last + 1:
                raise CorruptError("a part of a snapshot has not the positions that it says", item=part.blob)
        if previous.hex() != self._last_hash:
            raise CorruptError("a snapshot does not end with the commit that it was made at", item=commit_sort_key(at))

    def from_position(self, position: int) -> Iterator[SealedCommit]:
        """The commits of the part that holds a position, and of those after it."""
        for index in range(max(0, bisect_right(self._firsts, position) - 1), len(self._parts)):
            yield from self.part(index)

    def part(self, index: int) -> list[SealedCommit]:
        found = self._open.get(index)
        if found is None:
            found = self._open[index] = list(self._read(self._parts[index]))
            while len(self._open) > _OPEN_PARTS:
                self._open.popitem(last=False)
        self._open.move_to_end(index)
        return found

    def _read(self, part: Part) -> Iterator[SealedCommit]:
        data = part.inline
        if data is None:
            name = self.keys.blob_prefix + part.blob
            data = VERIFIED.blob(name, part.sha256, lambda: self._blobs.get(name))
            if data is None:
                raise CorruptError("a part of a snapshot is missing", item=part.blob)
        return read_segment(data, name=part.blob)


class ArchiveItems:
    """`ItemTable` over an archive: the commits and their payloads, nothing else. What is written goes nowhere: caches are all
    that a reader writes."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._partition = archive.keys.partition

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        found = dict[Key, Item]()
        for key in keys:
            item = self._get(key) if key.pk == self._partition else None
            if item is not None:
                found[key] = item
        return found

    def query(self, query: Query) -> Page:
        low, high, after = max(query.low, COMMITS_FROM), min(query.high, COMMITS_TO), query.after
        if after is not None:
            edge = after["sk"]
            low, high = (low, min(high, edge)) if query.descending else (max(low, edge), high)
        found, size = list[Item](), 0
        for sealed in self._within(low, high, descending=query.descending) if query.pk == self._partition else ():
            if after is not None and sealed.item["sk"] == after["sk"]:
                continue
            item = commit_item(self._partition, sealed)
            size += item_size_bytes(item)
            if found and (size > MAX_PAGE_BYTES or len(found) == query.limit):
                return Page(tuple(found), {"pk": self._partition, "sk": str(found[-1]["sk"])})
            found.append(item)
        return Page(tuple(found), None)

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
        # A payload's slot is the one that its commit tried first; what won it may have pushed the commit into the next part.
        for sealed in self._archive.from_position(int(digits)):
            if kind == "R" and key.sk in sealed.contents:
                return payload_item(key, sealed.contents[key.sk])
            if kind == "C" and str(sealed.item["sk"]) >= key.sk:
                return commit_item(key.pk, sealed) if sealed.item["sk"] == key.sk else None
        return None


def commit_item(partition: str, sealed: SealedCommit) -> Item:
    """The item of a commit as it was stored, in another partition."""
    item: dict[str, Any] = {"pk": partition, **sealed.item}
    covered = hashed_header(str(item["sk"]), item)
    item["b"] = pack(b"\n".join(sealed.lines), beside=covered, item_bytes=item_size_bytes(item) + 1)
    return item


def payload_item(key: Key, content: bytes) -> Item:
    return {"pk": key.pk, "sk": key.sk, "b": pack(content)}
