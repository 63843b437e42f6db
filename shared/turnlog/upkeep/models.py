"""What a check of stored sessions found, and what a backup holds."""

from __future__ import annotations

from pydantic import Field

from turnlog.core.models import Answer


class Damage(Answer):
    """One thing that is wrong. ``session_id`` is empty for damage of the file itself."""

    tenant_id: str = ""
    user_id: str = ""
    session_id: str = ""
    item: str = Field(description="The stored item, by its key or the name of its blob; empty where it is not known")
    code: str
    detail: str


class Verification(Answer):
    """What was checked, counted, and everything that is wrong."""

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


class Backup(Answer):
    """A backup that was written. ``verification`` is of the backup itself."""

    file: str
    size_bytes: int = Field(description="Of the database, without the blobs")
    blobs: int
    blob_bytes: int
    verification: Verification
