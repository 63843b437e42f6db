"""Check what an engine stores, and back up its files."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pydantic import Field

from turnlog.core.errors import ForbiddenError, InvalidInputError, UnavailableError
from turnlog.core.identity import owner_of_ids
from turnlog.core.models import Answer
from turnlog.log.keys import SessionKeys
from turnlog.ports import BlobStore, Clock, IdSource, Inspectable
from turnlog.upkeep.verify import Progress, Verification, VerifySessions

if TYPE_CHECKING:
    from turnlog.engines import Engine


_TRIES = 5
"""Copies of the database that a backup makes at most, since blobs of a copy may be deleted before they are copied too."""


class Backup(Answer):
    """A backup that was written. ``verification`` is the check of the backup itself."""

    file: str
    size_bytes: int = Field(description="Size of the database without the blobs")
    blobs: int
    blob_bytes: int
    verification: Verification


class Upkeep:
    """Use cases of an operator with access to the engine's files. Lambda functions do not import this module."""

    def __init__(self, engine: Engine, clock: Clock, ids: IdSource) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids

    def verify(self, keys: SessionKeys | None, progress: Progress) -> Verification:
        """Check one session, or with ``keys=None`` everything in the engine, of all owners.

        ``progress`` is called with the sum so far after each session.
        """
        if keys is not None:
            verification = self._verify(self._engine, self._engine.blobs).session(keys)
            progress(verification)
            return verification
        if not isinstance(self._engine.items, Inspectable):
            message = f"engine {self._engine.name!r} can't list what it holds; name a session"
            raise InvalidInputError(message, code="needs_engine")
        return self._verify(self._engine, self._engine.blobs).every(self._engine.items, progress)

    def back_up(self, path: Path, progress: Progress) -> Backup:
        """Write the database to a new file and the blobs that it names to a folder beside it, and check both.

        The backup is consistent while others write: it is a copy of one moment. When a blob was deleted after that moment, start
        again with a newer copy. `InvalidInputError` when file or folder exist; a backup that fails leaves nothing behind.
        """
        if self._engine.copy_to is None:
            raise InvalidInputError(f"engine {self._engine.name!r} has no files to back up", code="needs_engine")
        with _new_backup(path) as (temporary, folder):
            for attempt in range(_TRIES):
                temporary.unlink(missing_ok=True)
                copy = self._engine.copy_to(temporary, folder)
                try:
                    blobs = _CopiedBlobs(self._engine.blobs, copy.blobs)
                    verification = self._verify_copy(copy, blobs, progress)
                    copy.blobs.erase("", keep=blobs.sizes)
                finally:
                    copy.close()
                if not blobs.missing or attempt == _TRIES - 1:
                    break
            size = temporary.stat().st_size
            _link(temporary, path)
        return Backup(
            file=str(path),
            size_bytes=size,
            blobs=len(blobs.sizes),
            blob_bytes=sum(blobs.sizes.values()),
            verification=verification,
        )

    def _verify_copy(self, copy: Engine, blobs: _CopiedBlobs, progress: Progress) -> Verification:
        """Check a copy, which also copies each blob that it names. Copy all blobs of damaged sessions."""
        assert isinstance(copy.items, Inspectable)  # noqa: S101 - an embedded engine's
        verification = self._verify(copy, blobs).every(copy.items, progress)
        damaged = {
            SessionKeys(owner_of_ids(damage.tenant_id, damage.user_id), damage.session_id)
            for damage in verification.damages
            if damage.session_id
        }
        for keys in damaged:
            for name in self._engine.blobs.names(keys.blob_prefix):
                blobs.get(name)
        return verification

    def _verify(self, engine: Engine, blobs: BlobStore) -> VerifySessions:
        return VerifySessions(engine.items, blobs, self._clock, self._ids)


class _CopiedBlobs(BlobStore):
    """A store that copies each blob when it is read. ``missing`` are names that the source does not have."""

    def __init__(self, source: BlobStore, target: BlobStore) -> None:
        self._source = source
        self._target = target
        self.sizes = dict[str, int]()
        self.missing = set[str]()

    def get(self, name: str) -> bytes | None:
        data = self._target.get(name)
        if data is None:
            data = self._source.get(name)
            if data is None:
                self.missing.add(name)
                return None
            self._target.put(name, data)
        self.sizes[name] = len(data)
        return data

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        raise _read_only()

    def names(self, prefix: str) -> Sequence[str]:
        return self._source.names(prefix)

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        raise _read_only()


def _read_only() -> ForbiddenError:
    return ForbiddenError("a check of a backup only reads", code="read_only")


@contextmanager
def _new_backup(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a temporary file beside a new backup, and the folder of its blobs. Remove both when the block fails."""
    if not path.name:
        raise _exists(path)
    folder = path.with_name(path.name + ".blobs")
    for existing in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")):
        if os.path.lexists(existing):
            raise _exists(existing)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        raise _exists(folder) from error
    except OSError as error:
        message = f"can't write the backup {str(path)!r}: {(error.strerror or '').lower()}"
        raise UnavailableError(message, code="no_folder") from error
    try:
        yield temporary, folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    """Rename the temporary file to ``path`` and flush the folder. `InvalidInputError` when ``path`` exists."""
    if os.path.lexists(path):
        raise _exists(path)
    temporary.rename(path)
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _exists(path: Path) -> InvalidInputError:
    return InvalidInputError(f"{str(path)!r} already exists; choose another name for the backup", code="file_exists")
