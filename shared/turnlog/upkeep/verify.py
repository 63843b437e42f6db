"""Check stored sessions: the chain of commits, checksums, payloads, the positions of caches, and the blobs they name.

A check only reads. A session that shows damage is checked a second time, since it may have been erased, redacted or written
to meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256

from pydantic import Field

from turnlog.core.errors import CorruptError, TurnlogError, UnavailableError
from turnlog.core.identity import owner_of_ids
from turnlog.core.models import Answer
from turnlog.log.commit import Commit, checked_chain, read_commit
from turnlog.log.commit_items import is_tombstone
from turnlog.log.headers import Header, item_name, read_header
from turnlog.log.keys import DOCUMENTS, SessionKeys, commit_sort_key
from turnlog.log.payloads import Payloads, is_blob
from turnlog.log.records import Record
from turnlog.log.tombstones import MATERIALISING, is_cache_tombstone
from turnlog.ports import BlobStore, Clock, IdSource, Inspectable, Item, ItemTable, Query, pages
from turnlog.sessions.documents import DocumentStore, is_deleted, key_of
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.full import FullSnapshots, parts_of
from turnlog.snapshots.segment_format import SealedCommit
from turnlog.snapshots.segments import Segment, Segments


class Damage(Answer):
    """A damaged or missing item. ``session_id`` is empty for damage of the database file itself."""

    tenant_id: str = ""
    user_id: str = ""
    session_id: str = ""
    item: str = Field(description="Sort key of the stored item or name of its blob; empty when unknown")
    code: str
    detail: str


class Verification(Answer):
    """The result of a check: how many things were checked, and all damage."""

    sessions: int = 0
    commits: int = 0
    payloads: int = 0
    segments: int = 0
    snapshots: int = 0
    documents: int = 0
    damages: list[Damage] = Field(default_factory=list)

    def plus(self, other: Verification) -> Verification:
        """Return the sum of both."""
        counts = {name: self[name] + other[name] for name in type(self).model_fields if name != "damages"}
        return Verification(**counts, damages=self.damages + other.damages)


Progress = Callable[[Verification], None]
_CACHES = (("D#", "H"), ("O#", "P"), ("S#", "T"))
"""Ranges of sort keys of caches, which may say which position they reflect."""


class VerifySessions:
    """Use case: check one session, or everything that an engine holds."""

    def __init__(self, items: ItemTable, blobs: BlobStore, clock: Clock, ids: IdSource) -> None:
        self.items = items
        self.blobs = blobs
        self.payloads = Payloads(items, blobs)
        # Expired sessions are checked until they are erased.
        self.log = SessionLog(items, self.payloads, clock, ids, expires=False)
        self.segments = Segments(items, blobs, self.payloads, self.log.commits)
        self.snapshots = FullSnapshots(blobs, self.segments, clock)
        self.documents = DocumentStore(items, blobs, clock)

    def session(self, keys: SessionKeys) -> Verification:
        """Check one session. All counts are 0 when the session does not exist."""
        first = _SessionCheck(self, keys).run()
        # An item that was erased or redacted while the session was read is not damage: check again.
        return _SessionCheck(self, keys).run() if first.damages else first

    def every(self, table: Inspectable, progress: Progress) -> Verification:
        """Check everything in an engine, of all owners. ``progress`` is called with the sum so far after each session."""
        total = Verification(damages=[_damage("", detail) for detail in table.damages()])
        for partition in table.partitions():
            keys = _session_keys_of(partition)
            if keys is None:
                damages = list[Damage]()
                with collect_damage(damages, None):  # every item of a partition that belongs to no session can be read
                    for _ in self.read(partition, "", "~"):
                        pass
                total = total.plus(Verification(damages=damages))
                continue
            total = total.plus(self.session(keys))
            progress(total)
        return total

    def read(self, partition: str, low: str, high: str) -> Iterator[Sequence[Item]]:
        """Yield pages of items with sort keys from ``low`` to ``high``."""
        return pages(self.items, Query(partition, low, high))


class _SessionCheck:
    def __init__(self, readers: VerifySessions, keys: SessionKeys) -> None:
        self._readers = readers
        self._keys = keys
        self._commits = readers.log.commits
        self._damages = list[Damage]()
        self._counts = {"sessions": 0, "commits": 0, "payloads": 0, "segments": 0, "snapshots": 0, "documents": 0}
        self._hashes = dict[int, bytes]()
        """Hashes of the commits where segments end, by position."""

    def run(self) -> Verification:
        """Check log, snapshots and documents; return the counts and all damage."""
        with self._collecting():
            self._check_log()
        with self._collecting():
            for record in self._readers.log.records.every(self._keys.snapshots):
                if record.content.get("kind") == "full":
                    self._check_snapshot(record)
        with self._collecting():
            for items in self._read(DOCUMENTS, DOCUMENTS + "\U0010ffff"):
                for item in items:
                    self._check_document(item)
        return Verification(**self._counts, damages=self._damages)

    # ------------------------------------------------------------ the log

    def _check_log(self) -> None:
        # Read the caches first: a concurrent write makes the log longer than they say, never shorter.
        caches = [item for low, high in _CACHES for items in self._read(low, high) for item in items]
        caches = [item for item in caches if not is_cache_tombstone(item)]
        segments = list(self._readers.segments.list(self._keys))
        newest = next(self._commits.stored.back(self._keys, limit=1), ())
        if is_tombstone(newest) or any(MATERIALISING in item for item in (*caches, *newest)):
            return  # erased, or not yet created
        if not newest:
            if caches:
                raise CorruptError("the session has caches and no commit", item=commit_sort_key(1))
            return
        self._counts["sessions"] += 1
        header = read_header(newest[0])
        for item in caches:
            self._check_position(item, header)
        self._hashes = dict.fromkeys((segment.last for segment in segments), b"")
        self._walk(header)
        for segment in segments:
            with self._collecting():
                self._check_segment(segment)

    def _check_position(self, item: Item, head: Header) -> None:
        position = item.get("pos")
        if isinstance(position, int) and position > head.last:
            detail = f"it reflects position {position}, and the log ends at {head.last}: commits are missing"
            self._note(item_name(item), detail)

    def _walk(self, head: Header) -> None:
        last_item: Sequence[Item] = ()
        next_position = 1
        for items in self._commits.stored.on(self._keys, 1, head.last):
            for commit in self._read_chain(last_item, items):
                if commit.header.first != next_position and not last_item:
                    self._note(commit_sort_key(next_position), f"the log begins at position {commit.header.first}")
                next_position = commit.header.last + 1
                last_item = items[-1:]
                if commit.header.last in self._hashes:
                    self._hashes[commit.header.last] = commit.header.hash
                self._counts["commits"] += 1
                self._counts["payloads"] += len(commit.payloads)
                with self._collecting(commit_sort_key(commit.header.first)):
                    self._commits.events(self._keys, [commit])
        if next_position != head.last + 1:
            detail = f"the log ends at {next_position - 1}, and its newest commit at {head.last}"
            self._note(commit_sort_key(next_position), detail)

    def _read_chain(self, before: Sequence[Item], items: Sequence[Item]) -> list[Commit]:
        """Return commits, checked as a chain. When the chain is broken, return those that can be read on their own."""
        with self._collecting():
            return checked_chain([*before, *items])[len(before) :]
        commits = list[Commit]()
        for item in items:
            with self._collecting():
                commits.append(read_commit(item))
        return commits

    # ------------------------------------------------------------ blobs

    def _check_segment(self, segment: Segment) -> None:
        self._counts["segments"] += 1
        last = b""
        for sealed in self._readers.segments.commits(self._keys, segment):
            last = sealed.commit.header.hash
            self._check_sealed(sealed)
        if last != self._hashes[segment.last]:
            raise CorruptError("a segment does not hold the commits of the log", item=f"G#{segment.first:012d}")

    def _check_snapshot(self, record: Record) -> None:
        self._counts["snapshots"] += 1
        with self._collecting(self._keys.snapshots.record(record.id).sk):
            for part in parts_of(record):
                # Read the blob itself: the archive may have cached it.
                data = part.inline or self._readers.blobs.get(self._keys.blob_prefix + part.blob)
                if data is None or sha256(data).hexdigest() != part.sha256:
                    raise CorruptError("a part of a snapshot is missing or damaged", item=part.blob)
            for sealed in self._readers.snapshots.archive(self._keys, record).commits():
                self._check_sealed(sealed)

    def _check_sealed(self, sealed: SealedCommit) -> None:
        """Check the payloads that a segment names and does not hold."""
        self._readers.payloads.fetch(self._keys, [payload for payload in sealed.commit.payloads if is_blob(payload)])

    def _check_document(self, item: Item) -> None:
        if is_deleted(item):
            return
        self._counts["documents"] += 1
        with self._collecting(item_name(item)):
            self._readers.documents.get_many(self._keys, [key_of(item)])

    # ------------------------------------------------------------ helpers

    def _read(self, low: str, high: str) -> Iterator[Sequence[Item]]:
        return self._readers.read(self._keys.partition, low, high)

    def _collecting(self, item: str = "") -> AbstractContextManager[None]:
        return collect_damage(self._damages, self._keys, item)

    def _note(self, item: str, detail: str) -> None:
        self._damages.append(_damage(item, detail, self._keys))


@contextmanager
def collect_damage(damages: list[Damage], keys: SessionKeys | None, item: str = "") -> Iterator[None]:
    """Add the error of the block to ``damages``. Errors of the engine that are not damage propagate."""
    try:
        yield
    except UnavailableError as error:
        if error.error_code != "storage_damaged":
            raise
        damages.append(_damage(item, error.detail, keys, code=error.error_code))
    except TurnlogError as error:
        name = str(error.details.get("item", item))
        detail = error.detail.removesuffix(f" (item {name!r})")
        damages.append(_damage(name, detail, keys, code=error.error_code))
    except (ValueError, LookupError, TypeError) as error:
        damages.append(_damage(item, f"can't be read ({type(error).__name__})", keys))


def _damage(item: str, detail: str, keys: SessionKeys | None = None, *, code: str = "corrupt") -> Damage:
    ids = dict[str, str]()
    if keys is not None:
        ids = {"tenant_id": keys.owner.tenant_id, "user_id": keys.owner.user_id, "session_id": keys.session_id}
    return Damage(**ids, item=item, code=code, detail=detail)


def _session_keys_of(partition: str) -> SessionKeys | None:
    """Return the session keys of a partition; None for one that belongs to no session.

    The base that a fork keeps of an erased session is such a partition: it is checked with the fork.
    """
    parts = partition.split("#")
    if len(parts) != 6 or (parts[0], parts[2], parts[4]) != ("T", "U", "S"):
        return None
    try:
        return SessionKeys(owner_of_ids(parts[1], parts[3]), parts[5])
    except TurnlogError:
        return None
