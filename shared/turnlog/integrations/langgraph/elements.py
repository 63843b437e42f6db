"""Stores lists element by element: a list that has grown is stored as a reference to the old list plus the new elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.integrations.langgraph.records import (
    Alike,
    Base,
    Elements,
    Item,
    Typed,
    Version,
    WrittenElements,
    patch_of,
)

FIRST_SPAN_BYTES, LEAST_SPAN_BYTES = 1536 * 1024, 900 * 1024
"""Bytes that reading a list may take before the list is stored whole again: the first time, and the least later."""
MOST_ALIKE, MOST_ALIKE_BYTES = 8, 30 * 1024
DOCUMENT_BYTES = 150
"""Estimated overhead of a document beyond its data."""
BESIDE_BYTES = 8 * 1024
"""A larger value is stored in documents of its own. New elements of a list always stay in the checkpoint's document."""
_SCALARS = (int, float, type(None))


@lazy_dataclass(frozen=True, slots=True)
class ElementPlace:
    """A list element that a task wrote: its place, its data, and the size of the task's document."""

    checkpoint_id: str
    task: str
    index: int
    item: int
    data: bytes
    document_bytes: int

    @property
    def written(self) -> WrittenElements:
        return WrittenElements(self.checkpoint_id, self.task, self.index, self.item, 1)


@lazy_dataclass(frozen=True, slots=True)
class ListState:
    """A stored list: its value of ``version`` is in the checkpoint ``home``.

    To read it, the checkpoints from ``start`` to ``home`` are needed, about ``span_bytes``. ``whole_bytes`` is its size when it
    was last stored whole.
    """

    version: Version
    home: str
    items: tuple[Typed, ...]
    start: str
    span_bytes: int
    whole_bytes: int


def is_by_element(value: Any) -> bool:
    """Return whether a value is stored element by element: a list that is not empty and holds neither numbers nor None."""
    return type(value) is list and bool(value) and not any(isinstance(element, _SCALARS) for element in value)


def base_of(items: Sequence[Typed], before: ListState | None) -> Base | None:
    """Return the part of the older list that the new one begins with, or None.

    None when the lists share less than half of the older one, or when reading it back takes too many bytes.
    """
    if before is None or before.span_bytes > _most_span(before.whole_bytes):
        return None
    count = 0
    for item, old_item in zip(items, before.items, strict=False):
        if item != old_item:
            break
        count += 1
    return Base(before.home, before.version, count) if count and 2 * count >= len(before.items) else None


def _most_span(whole_bytes: int) -> int:
    """Return the span after which a list is stored whole again; larger lists are rewritten more rarely."""
    return FIRST_SPAN_BYTES if whole_bytes <= BESIDE_BYTES else max(LEAST_SPAN_BYTES, 3 * whole_bytes // 2)


def elements_of(items: Sequence[Typed], base: Base | None, written: Mapping[Typed, ElementPlace]) -> Elements:
    """Return the stored form of a list: its base and the elements after it, with references to what tasks have written."""
    elements, alike = list[Item](), list(written.values())[-MOST_ALIKE:]
    for index in range(base.count if base is not None else 0, len(items)):
        place = written.get(items[index])
        last = elements[-1] if elements else None
        if place is None:
            elements.append(_nearly(items[index], alike))
        elif isinstance(last, WrittenElements) and _before(place.written, last) == last:
            elements[-1] = replace(last, count=last.count + 1)
        else:
            elements.append(place.written)
    return Elements(base, tuple(elements))


def _nearly(item: Typed, alike: Sequence[ElementPlace]) -> Item:
    """Return an element as a patch of a similar written one, or the element itself when a patch saves too little.

    A reducer often changes what a task has written only slightly, for instance by giving a message its id.
    """
    kind, data = item
    best: Alike | None = None
    for place in alike:
        if len(place.data) <= MOST_ALIKE_BYTES:
            patch = patch_of(data, place.data)
            if best is None or len(patch) < len(best.patch):
                best = Alike(place.written, kind, patch)
    return best if best is not None and 3 * len(best.patch) < len(data) else item


def _before(following: WrittenElements, last: WrittenElements) -> WrittenElements:
    """Return the run of ``last.count`` elements that ends right before ``following``."""
    return replace(following, first=following.first - last.count, count=last.count)
