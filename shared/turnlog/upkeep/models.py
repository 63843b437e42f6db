"""Models of checks of stored sessions, and of backups."""

from __future__ import annotations

from pydantic import Field

from turnlog.core.models import Answer


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


class Backup(Answer):
    """A backup that was written. ``verification`` is the check of the backup itself."""

    file: str
    size_bytes: int = Field(description="Size of the database without the blobs")
    blobs: int
    blob_bytes: int
    verification: Verification
