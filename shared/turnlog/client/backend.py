"""The interface between the object model and an engine or service, and the base classes of the model's objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

from turnlog.core.errors import CorruptError
from turnlog.jobs.models import Redriven
from turnlog.upkeep.models import Backup, Verification


class Backend(Protocol):
    """Answers calls by route name: `call` takes the name of a route, and returns the answer of that route."""

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        idempotency_key: str | None = None,
        media_type: str | None = None,
    ) -> Any: ...

    def run_jobs(self) -> int: ...

    def download(self, url: str, into: BinaryIO) -> None:
        """Write the bytes behind a URL of an answer to ``into``."""

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven: ...

    def verify(self, session_id: str | None, progress: Callable[[Verification], None]) -> Verification: ...

    def back_up(self, path: Path, progress: Callable[[Verification], None]) -> Backup: ...

    def close(self) -> None: ...


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields whose value is not None."""
    return {name: value for name, value in fields.items() if value is not None}


class OwnerResource:
    """Base of objects whose calls concern everything of one owner."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


class SessionResource:
    """Base of objects whose calls concern one session."""

    def __init__(self, backend: Backend, session_id: str) -> None:
        self._backend = backend
        self.id = session_id
        self._path = {"session_id": session_id}


T = TypeVar("T")


class Paged(Iterator[T], Generic[T]):
    """Iterator over items that are fetched page by page.

    The next page is fetched when all items of the page before have been taken. After an error, the same page is fetched again.
    """

    def __init__(self, fetch: Callable[[Any], tuple[Sequence[T], Any]]) -> None:
        """Set ``fetch``: it takes a page's place (None: the first page), and returns the items and the next place (None: no
        more).
        """
        self._fetch = fetch
        self._place: Any = None
        self._is_over = False
        self._left = deque[T]()

    def __next__(self) -> T:
        while not self._left:
            page = self.page()
            if page is None:
                raise StopIteration
            self._left.extend(page)
        return self._left.popleft()

    def page(self) -> Sequence[T] | None:
        """Return the next page, or None after the last one. A page may be empty."""
        if self._is_over:
            return None
        items, place = self._fetch(self._place)
        if place is not None and place == self._place:
            raise CorruptError("a page names itself as the next page", item=str(place))
        self._place, self._is_over = place, place is None
        return items
