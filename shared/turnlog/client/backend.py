"""Where calls go, and what all objects of the model have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from turnlog.contracts.jobs import Redriven
from turnlog.contracts.storage import Backup, Verification


class Backend(Protocol):
    """Where calls go. ``operation`` is a route's name; the answer is that route's."""

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        key: str | None = None,
        media_type: str | None = None,
    ) -> Any: ...

    def run_jobs(self) -> int: ...

    def download(self, url: str, into: BinaryIO) -> None:
        """Writes the bytes behind an address that an answer gave."""

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven: ...

    def verify(self, session_id: str | None, progress: Callable[[Verification], None]) -> Verification: ...

    def back_up(self, path: Path, progress: Callable[[Verification], None]) -> Backup: ...

    def close(self) -> None: ...


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a caller has given."""
    return {name: value for name, value in fields.items() if value is not None}


class OfOwner:
    """Calls about all that an owner has."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


class OfSession:
    """Calls about one session."""

    def __init__(self, backend: Backend, session_id: str) -> None:
        self._backend = backend
        self.id = session_id
        self._path = {"session_id": session_id}
