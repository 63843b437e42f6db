"""What carries calls to the service: in this process, or over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from turnlog.contracts.jobs import Redriven


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

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven: ...

    def close(self) -> None: ...
