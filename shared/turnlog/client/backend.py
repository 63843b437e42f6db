"""Where calls go, and what all objects of the model have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

from turnlog.core.errors import CorruptError
from turnlog.jobs.models import Redriven
from turnlog.upkeep.models import Backup, Verification


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


class OwnerResource:
    """Calls about all that an owner has."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


class SessionResource:
    """Calls about one session."""

    def __init__(self, backend: Backend, session_id: str) -> None:
        self._backend = backend
        self.id = session_id
        self._path = {"session_id": session_id}


T = TypeVar("T")


class Paged(Iterator[T], Generic[T]):
    """Items, page by page: the next page is asked for when all of the one before have been taken. After an error the same page is
    asked for again."""

    def __init__(self, fetch: Callable[[Any], tuple[Sequence[T], Any]]) -> None:
        """``fetch`` is given a place (None at first), and gives a page and the place of the next; None behind the last."""
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
        """The next page as a whole; None when there is none. It may be empty."""
        if self._is_over:
            return None
        items, place = self._fetch(self._place)
        if place is not None and place == self._place:
            raise CorruptError("a page names itself as the next page", item=str(place))
        self._place, self._is_over = place, place is None
        return items
