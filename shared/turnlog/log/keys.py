"""Keys of items and names of blobs: built from a checked owner and session id, never from a raw string."""

from __future__ import annotations

from dataclasses import dataclass

from turnlog.domain.identity import Owner, check_session_id
from turnlog.ports import Key

MAX_POSITION = 999_999_999_999
COMMITS_FROM, COMMITS_TO = "C#", "C~"
META, SUMMARY, SYSTEM, STATE = "D#META", "E#SUM", "E#SYS", "S#STATE"
TAIL_TO, WINDOW_TO = "D~", "E~"
ERASING = "ERASING"
DIRECTORY_FROM, DIRECTORY_TO = "S#", "S~"


@dataclass(frozen=True, slots=True)
class OwnerKeys:
    """Keys of what an owner has: the list of sessions."""

    owner: Owner

    @property
    def partition(self) -> str:
        return f"T#{self.owner.tenant_id}#U#{self.owner.user_id}"

    @property
    def erasing(self) -> Key:
        return Key(self.partition, ERASING)

    def directory(self, session_id: str) -> Key:
        return Key(self.partition, f"S#{check_session_id(session_id)}")


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """Keys of one session. Another owner's session of the same id is another partition."""

    owner: Owner
    session_id: str

    def __post_init__(self) -> None:
        check_session_id(self.session_id)

    @property
    def partition(self) -> str:
        return f"T#{self.owner.tenant_id}#U#{self.owner.user_id}#S#{self.session_id}"

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

    def commit(self, position: int) -> Key:
        return Key(self.partition, commit_sort_key(position))

    def payload(self, position: int, nonce: bytes, index: int) -> Key:
        return Key(self.partition, f"R#{position:012d}~{nonce.hex()}{index:02d}")

    def blob(self, position: int, nonce: bytes, index: int) -> str:
        return f"{self.blob_prefix}payload/{position:012d}-{nonce.hex()}{index:02d}"

    @property
    def blob_prefix(self) -> str:
        return f"{self.owner.tenant_id}/{self.owner.user_id}/{self.session_id}/"


def commit_sort_key(position: int) -> str:
    return f"C#{position:012d}"


def position_of(sort_key: str) -> int:
    """The first position of the commit with this sort key."""
    return int(sort_key[2:])
