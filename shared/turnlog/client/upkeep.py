"""Care of an engine's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnlog.client.backend import OfOwner
from turnlog.contracts.storage import Backup, Verification


class UpkeepCalls(OfOwner):
    """Checks and backups of an engine in this process."""

    def verify(
        self, session_id: str | None = None, *, progress: Callable[[Verification], None] | None = None
    ) -> Verification:
        """Check what is stored: the chain of commits, checksums, payloads, the head against the caches, and blobs.

        One session of the owner, or everything in the engine, whoever owns it. Nothing is written, and others may write meanwhile.
        ``damages`` of the answer is empty when all is well. ``progress`` is told the sum after each session. It takes an engine in
        this process: over HTTP it is `InvalidInputError`.
        """
        return self._backend.verify(session_id, progress or _ignored)

    def backup(self, path: str | Path, *, progress: Callable[[Verification], None] | None = None) -> Backup:
        """Write the database and the blobs that it names to ``path`` and ``path + ".blobs"``, and check what was written.

        Writers need not stop: the backup is of one moment. Open it with ``sqlite:///PATH``. `InvalidInputError`, code
        ``file_exists``, when something is there already; over HTTP too.
        """
        return self._backend.back_up(Path(path), progress or _ignored)


def _ignored(done: Verification) -> None:
    """Nobody wants to know how far it is."""
