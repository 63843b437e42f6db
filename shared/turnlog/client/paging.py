"""Iterators over pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from turnlog.domain.errors import CorruptError

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
