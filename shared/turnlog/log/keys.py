"""Keys of items and names of blobs, built from a checked owner and session id, never from a raw string."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from turnlog.core.errors import NotFoundError
from turnlog.core.identity import Owner, check_session_id, safe_id
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.ports import AttributeValue, Key

COMMITS_FROM, COMMITS_TO = "C#", "C~"
META, SUMMARY, SYSTEM, STATE = "D#META", "E#SUM", "E#SYS", "S#STATE"
WORDS = "S#WORDS"
ORDERS, ORDERS_TO = "Q#", "Q~"
TAIL_TO, WINDOW_TO = "D~", "E~"
SEGMENTS_FROM, SEGMENTS_TO = "G#", "G~"
DOCUMENTS = "K#"
REQUESTS = "I#"
PAYLOADS = "R#"
OFFLOADED, OFFLOAD_DUE = "O#DONE", "O#DUE"
SEGMENT_BLOBS, PAYLOAD_BLOBS, SNAPSHOT_BLOBS, INDEX_BLOBS = "seg/", "payload/", "snap/", "index/"
OFFLOAD_BLOBS, DOCUMENT_BLOBS = "offload/", "doc/"
"""Name parts of a session's kinds of blobs; they follow the session's prefix."""
EXPORT_BLOBS = "~exports/"
"""Prefix of the names of exports; no tenant id has a tilde. A lifecycle rule of the bucket deletes exports."""
BLOB_PLACE = "blob:"
"""Prefix of a payload's place in the blob store; the blob's name without the session's prefix follows."""
ERASING = "ERASING"
_RECORD_ID = re.compile(r"[0-9]{13}-[A-Za-z0-9_-]{1,50}")
DIRECTORY_FROM, DIRECTORY_TO = "S#", "S~"
FORKS_FROM, FORKS_TO = "F#", "F~"
USERS_FROM, USERS_TO = "U#", "U~"
_BASE = "#base"
QUESTION_DIGITS = 4
"""Digits of a question's hash in a key: enough to tell questions at one position apart, too few to find out what was asked."""


@lazy_dataclass(frozen=True, slots=True)
class RecordKeys:
    """Keys of records of a kind in a partition: by time, by name, and by the idempotency key of their request."""

    partition: str
    prefix: str

    def record(self, record_id: str) -> Key:
        """Return the key of the record with this id."""
        return Key(self.partition, self.prefix + check_record_id(record_id))

    def name(self, name: str) -> Key:
        """Return the key of the item that points from a name to a record."""
        return Key(self.partition, f"{self.prefix}@{_digest(name)}")

    def request(self, key_hash: bytes) -> Key:
        """Return the key of the item that points from a request's idempotency key to a record."""
        return Key(self.partition, f"{self.prefix}~{key_hash.hex()}")

    @property
    def bounds(self) -> tuple[str, str]:
        """The lowest and highest sort key of records, which begin with the digits of their time."""
        return f"{self.prefix}0", f"{self.prefix}:"


def is_record_id(text: str) -> bool:
    return _RECORD_ID.fullmatch(text) is not None


def check_record_id(text: str) -> str:
    """Return ``text``, or raise `NotFoundError` when it can't be a record's id."""
    if not is_record_id(text):
        raise NotFoundError(f"nothing has the id {text[:80]!r}")
    return text


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@lazy_dataclass(frozen=True, slots=True)
class TenantKeys:
    """Keys of a tenant's items. ``tenant_id`` comes from an owner, so it has no ``#``."""

    tenant_id: str

    def spending(self, day: str) -> Key:
        """Return the key of the tenant's spending on a day such as ``2026-11-21``."""
        return Key(self.partition, f"B#{day}")

    @property
    def partition(self) -> str:
        return f"T#{self.tenant_id}"

    def user(self, user_id: str) -> Key:
        """Return the key of the item that says that the tenant has this user."""
        return Key(self.partition, f"{USERS_FROM}{user_id}")


@lazy_dataclass(frozen=True, slots=True)
class OwnerKeys:
    """Keys of an owner's items: the list of sessions, jobs and memories."""

    owner: Owner

    @property
    def partition(self) -> str:
        return f"T#{self.owner.tenant_id}#U#{self.owner.user_id}"

    @property
    def erasing(self) -> Key:
        return Key(self.partition, ERASING)

    @property
    def user(self) -> Key:
        """The key of the item by which an operator of the tenant finds the user."""
        return TenantKeys(self.owner.tenant_id).user(self.owner.user_id)

    @property
    def jobs(self) -> RecordKeys:
        return RecordKeys(self.partition, "J#")

    def directory(self, session_id: str) -> Key:
        return Key(self.partition, f"S#{check_session_id(session_id)}")

    def memories(self, session_id: str, part_id: str) -> Key:
        """Return the key of the facts from a part of a session."""
        return Key(self.partition, f"M#{check_session_id(session_id)}#{_digest(part_id)}")

    def memory_bounds(self, session_id: str | None = None) -> tuple[str, str]:
        """Return the lowest and highest sort key of all facts, or of the facts from a session."""
        prefix = f"M#{check_session_id(session_id)}#" if session_id is not None else "M#"
        return prefix, prefix + "~"


@lazy_dataclass(frozen=True, slots=True)
class SessionKeys:
    """Keys of a session. Sessions of other owners with the same id have other partitions."""

    owner: Owner
    session_id: str
    is_base: bool = False
    """Whether these keys are of a fork's base: the partition with commits copied from an erased parent."""

    def __post_init__(self) -> None:
        check_session_id(self.session_id)

    @property
    def partition(self) -> str:
        own = f"T#{self.owner.tenant_id}#U#{self.owner.user_id}#S#{self.session_id}"
        return own + _BASE if self.is_base else own

    @property
    def base(self) -> SessionKeys:
        """The keys of a fork's base partition. It holds the commits that the fork shared with a parent that was erased."""
        return SessionKeys(self.owner, self.session_id, is_base=True)

    def home(self, partition: str) -> SessionKeys:
        """Return the keys for a partition of the same owner."""
        _, _, _, _, _, session_id, *base = partition.split("#")
        return SessionKeys(self.owner, session_id, is_base=bool(base))

    def fork(self, session_id: str) -> Key:
        """Return the key of the item that registers a fork of this session."""
        return Key(self.partition, f"F#{check_session_id(session_id)}")

    @property
    def directory(self) -> Key:
        return OwnerKeys(self.owner).directory(self.session_id)

    @property
    def meta(self) -> Key:
        return Key(self.partition, META)

    @property
    def system(self) -> Key:
        return Key(self.partition, SYSTEM)

    @property
    def state(self) -> Key:
        return Key(self.partition, STATE)

    @property
    def summary(self) -> Key:
        return Key(self.partition, SUMMARY)

    @property
    def offloaded(self) -> Key:
        """The key of the item that says how far the session was handed to long-term memory."""
        return Key(self.partition, OFFLOADED)

    @property
    def offload_due(self) -> Key:
        """The key of the item that marks the session as waiting to be handed over."""
        return Key(self.partition, OFFLOAD_DUE)

    @property
    def offload_blob(self) -> str:
        """The name of the blob with a copy of all messages for the hand-over."""
        return f"{self.blob_prefix}{OFFLOAD_BLOBS}messages.jsonl.gz"

    def document(self, key: str) -> Key:
        """Return the key of a document. ``key`` must be checked."""
        return Key(self.partition, DOCUMENTS + key)

    def document_blob(self, name: str) -> str:
        return f"{self.blob_prefix}{DOCUMENT_BLOBS}{name}"

    @property
    def words(self) -> Key:
        return Key(self.partition, WORDS)

    def recalled(self, position: int, question: str) -> Key:
        """Return the key of the order of what is recalled for a question at a position."""
        return Key(self.partition, f"{ORDERS}{position:012d}~{_digest(question)[:QUESTION_DIGITS]}")

    @property
    def snapshots(self) -> RecordKeys:
        return RecordKeys(self.partition, "P#")

    def segment(self, first: int) -> Key:
        """Return the key of the segment that begins at this position."""
        return Key(self.partition, segment_sort_key(first))

    def segment_blob(self, first: int, last: int, sha256: str) -> str:
        return f"{self.blob_prefix}{SEGMENT_BLOBS}{first:012d}-{last:012d}-{sha256}"

    def index_blob(self, first: int, last: int, sha256: str) -> str:
        """Return the name of the blob with a segment's search index. ``sha256`` is in the segment's name."""
        return f"{self.blob_prefix}{INDEX_BLOBS}{first:012d}-{last:012d}-{sha256}"

    def snapshot_blob(self, record_id: str) -> str:
        """Return the name of the blob with the part of a full snapshot that no segment holds."""
        return f"{self.blob_prefix}{SNAPSHOT_BLOBS}{check_record_id(record_id)}"

    def request(self, key_hash: bytes) -> Key:
        """Return the key of the record that marks a request with an idempotency key as begun."""
        return Key(self.partition, REQUESTS + key_hash.hex())

    def commit(self, position: int) -> Key:
        return Key(self.partition, commit_sort_key(position))

    def payload(self, position: int, nonce: bytes, index: int) -> Key:
        return Key(self.partition, f"{PAYLOADS}{position:012d}~{nonce.hex()}{index:02d}")

    def blob(self, position: int, nonce: bytes, index: int) -> str:
        return f"{self.blob_prefix}{PAYLOAD_BLOBS}{position:012d}-{nonce.hex()}{index:02d}"

    def payload_blob(self, place: str) -> str:
        """Return the name of the blob for a payload's place in the blob store."""
        return self.blob_prefix + place[len(BLOB_PLACE) :]

    @property
    def blob_prefix(self) -> str:
        own = f"{self.owner.tenant_id}/{self.owner.user_id}/{safe_id(self.session_id)}/"
        return own + "base/" if self.is_base else own


def item_at(key: Key, fields: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return an item of this key with these attributes."""
    return {"pk": key.pk, "sk": key.sk, **fields}


def owner_blobs(owner: Owner) -> tuple[str, str]:
    """Return the prefixes of all blob names of an owner: of sessions and of exports."""
    return f"{owner.tenant_id}/{owner.user_id}/", export_prefix(owner)


def export_blob(owner: Owner, session_id: str) -> str:
    """Return the name of the newest export of a session, or with an empty id, of all data of the owner.

    An export outlives the deletion of its session.
    """
    name = f"session-{safe_id(check_session_id(session_id))}" if session_id else "everything"
    return f"{export_prefix(owner)}{name}.zip"


def export_prefix(owner: Owner) -> str:
    """Return the prefix of an owner's exports. The erasure of a user deletes them too."""
    return f"{EXPORT_BLOBS}{owner.tenant_id}/{owner.user_id}/"


def answers_prefix(owner: Owner, session_id: str) -> str:
    """Return the prefix of stored answers that were too large to send.

    With an empty session id, the prefix is that of answers about no single session.
    """
    return f"{export_prefix(owner)}answers/" + (f"{safe_id(check_session_id(session_id))}/" if session_id else "")


def commit_sort_key(position: int) -> str:
    return f"C#{position:012d}"


def segment_sort_key(first: int) -> str:
    return f"G#{first:012d}"


def position_of(sort_key: str) -> int:
    """Return the first position of the commit with this sort key."""
    return int(sort_key[2:])
