"""Blob stores without AWS: in a folder, and in memory."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.log.fork_lock import fork_lock
from turnlog.ports import BlobStore

_TRIES = 10
_ABANDONED_SECONDS = 600
"""Age at which an unfinished file counts as abandoned: no put takes so long. Less than the time between an erasure's passes."""


class FileBlobStore(BlobStore):
    """`BlobStore` in a folder. A file is written under a temporary name, synced and moved into place: readers see whole files."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    @property
    def place(self) -> str:
        missing = "" if self._folder.is_dir() else ", which does not exist; move it together with its SQLite file"
        return f"the folder {self._folder.name}{missing}"

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        path = self._path(name)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with _translated():
                with self._begin(temporary) as file:
                    shutil.copyfileobj(BytesIO(data) if isinstance(data, bytes) else data, file)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
                _sync(path.parent)
        except UnavailableError:
            temporary.unlink(missing_ok=True)
            raise

    def get(self, name: str) -> bytes | None:
        with _translated(), suppress(FileNotFoundError):
            return self._path(name).read_bytes()
        return None

    def names(self, prefix: str) -> Sequence[str]:
        return sorted(name for path, name in self._below(prefix) if not path.name.startswith("."))

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        """Implement `BlobStore`; also delete the unfinished files of puts that ended early, and empty folders."""
        erased, folders = 0, set[Path]()
        for path, name in self._below(prefix):
            if name in keep:
                continue
            with _translated():
                path.unlink(missing_ok=True)
            erased += 1
            folders.add(path.parent)
        for folder in sorted(folders, reverse=True):
            _sync(folder)
            with suppress(OSError):  # not empty, or gone already
                folder.rmdir()
        if prefix.endswith("/"):
            with suppress(OSError):
                self._path(prefix[:-1]).rmdir()
        return erased

    def purge(self) -> None:
        """Implement `Purgeable`: delete the unfinished files of puts that ended early."""
        oldest = time.time() - _ABANDONED_SECONDS
        for path, _ in self._below(""):
            # An unfinished file that is missing is in place, or deleted, just now.
            with _translated(), suppress(FileNotFoundError):
                if path.name.startswith(".") and path.stat().st_mtime < oldest:
                    path.unlink()

    def _below(self, prefix: str) -> Iterator[tuple[Path, str]]:
        """Yield the files whose names begin with a prefix, with their names. An unfinished file has the name it will get."""
        parts = prefix.rpartition("/")[0]
        # A folder that another thread or process removes meanwhile is skipped; one that can't be read is an error.
        for folder, _, files in os.walk(self._path(parts) if parts else self._folder, onerror=_unless_gone):
            folders = Path(folder).relative_to(self._folder).parts
            for file in files:
                last = file[1:].rpartition(".")[0] if file.startswith(".") else file
                name = "/".join(unquote(part) for part in (*folders, last))
                if name.startswith(prefix):
                    yield Path(folder, file), name

    def _path(self, name: str) -> Path:
        # `quote` keeps dots, so parts that lead out of the folder are refused.
        parts = [quote(part, safe="-_~.=") for part in name.split("/")]
        if any(part in ("", ".", "..") or part.startswith(".") for part in parts):
            raise InvalidInputError(f"illegal blob name {name[:80]!r}")
        return self._folder.joinpath(*parts)

    def _begin(self, temporary: Path) -> BinaryIO:
        """Create a file and open it. A concurrent erasure may remove the folder while it is empty, so this is tried again."""
        for _ in range(_TRIES):
            make_folder(temporary.parent)
            with suppress(FileNotFoundError):
                return temporary.open("xb")
        return temporary.open("xb")


class MemoryBlobStore(BlobStore):
    """`BlobStore` in memory, for one process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._lock = fork_lock()

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        content = bytes(data) if isinstance(data, bytes) else data.read()
        with self._lock:
            self._blobs[name] = content

    def get(self, name: str) -> bytes | None:
        with self._lock:
            return self._blobs.get(name)

    def names(self, prefix: str) -> Sequence[str]:
        with self._lock:
            return sorted(name for name in self._blobs if name.startswith(prefix))

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        with self._lock:
            erased = [name for name in self._blobs if name.startswith(prefix) and name not in keep]
            for name in erased:
                del self._blobs[name]
        return len(erased)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents; the names of new folders are durable when this returns."""
    missing = list[Path]()
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with suppress(FileNotFoundError):  # another process has just removed the parent
            path.mkdir(exist_ok=True)
        _sync(path.parent)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the system's errors within the block as `UnavailableError`."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"blob folder: {error.strerror}", retry_after_seconds=1) from error


def _unless_gone(error: OSError) -> None:
    with _translated(), suppress(FileNotFoundError, NotADirectoryError):
        raise error


def _sync(folder: Path) -> None:
    """Make the names in a folder durable, if the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
