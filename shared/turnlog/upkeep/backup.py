"""Care of an engine's files: checking what is stored, and backups."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.ports import BlobStore, Clock, IdSource, Inspectable

if TYPE_CHECKING:
    from turnlog.app import Engine
    from turnlog.log.keys import SessionKeys
    from turnlog.upkeep.models import Backup, Verification
    from turnlog.upkeep.verify import Progress, VerifySessions


_TRIES = 5
"""Copies of the database that a backup takes while blobs of the one before it are deleted."""


class Upkeep:
    """The use cases of an operator who has the engine's files. Not imported by functions."""

    def __init__(self, engine: Engine, clock: Clock, ids: IdSource) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids

    def verify(self, keys: SessionKeys | None, progress: Progress) -> Verification:
        """Check one session, or with None everything in the engine, whoever owns it."""
        if keys is not None:
            done = self._verify(self._engine, self._engine.blobs).session(keys)
            progress(done)
            return done
        if not isinstance(self._engine.items, Inspectable):
            message = f"engine {self._engine.name!r} can't list what it holds; name a session"
            raise InvalidInputError(message, code="needs_engine")
        return self._verify(self._engine, self._engine.blobs).every(self._engine.items, progress)

    def back_up(self, path: Path, progress: Progress) -> Backup:
        """Write the database and the blobs that it names to a new file and a folder beside it, and check what was written.

        Consistent while others write: the copy is of one moment. A blob that was deleted after that moment makes it begin again
        with a newer copy. `InvalidInputError` when something is there already; nothing is left of a backup that fails.
        """
        from turnlog.upkeep.models import Backup

        if self._engine.copy_to is None:
            raise InvalidInputError(f"engine {self._engine.name!r} has no files to back up", code="needs_engine")
        with _new_place(path) as (temporary, folder):
            for attempt in range(_TRIES):
                temporary.unlink(missing_ok=True)
                copy = self._engine.copy_to(temporary, folder)
                try:
                    blobs = _CopiedBlobs(self._engine.blobs, copy.blobs)
                    verification = self._verify_copy(copy, blobs, progress)
                    copy.blobs.delete_many([name for name in copy.blobs.names("") if name not in blobs.sizes])
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
        """Check a copy, and so copy each blob that it names. Of what is damaged every blob is copied."""
        from turnlog.core.identity import owner_of_ids
        from turnlog.log.keys import SessionKeys

        assert isinstance(copy.items, Inspectable)  # noqa: S101 - an embedded engine's
        done = self._verify(copy, blobs).every(copy.items, progress)
        damaged = {
            (damage.tenant_id, damage.user_id, damage.session_id) for damage in done.damages if damage.session_id
        }
        for tenant_id, user_id, session_id in damaged:
            keys = SessionKeys(owner_of_ids(tenant_id, user_id), session_id)
            for name in self._engine.blobs.names(keys.blob_prefix):
                blobs.get(name)
        return done

    def _verify(self, engine: Engine, blobs: BlobStore) -> VerifySessions:
        from turnlog.upkeep.verify import VerifySessions

        return VerifySessions(engine.items, blobs, self._clock, self._ids)


class _CopiedBlobs:
    """`BlobStore` of a backup: a blob that is read is copied. ``missing`` are names that the source had not."""

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
        raise NotImplementedError("a check only reads")

    def names(self, prefix: str) -> Sequence[str]:
        return self._source.names(prefix)

    def delete_many(self, names: Sequence[str]) -> None:
        raise NotImplementedError("a check only reads")

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        raise NotImplementedError("a check only reads")

    def url(self, name: str, *, seconds: int, filename: str) -> str | None:
        return None


@contextmanager
def _new_place(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a temporary file beside a new backup, and the folder of its blobs. Both go when the block fails."""
    folder = path.with_name(path.name + ".blobs")
    for taken in (path, folder, path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")):
        if os.path.lexists(taken):
            raise _exists(taken)
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
    """Give a file its name, unless another one has it by now."""
    if os.path.lexists(path):
        raise _exists(path)
    temporary.rename(path)
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _exists(path: Path) -> InvalidInputError:
    return InvalidInputError(f"{str(path)!r} is there already; a backup overwrites nothing", code="file_exists")
