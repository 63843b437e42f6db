"""Lists, element by element: a list that has grown is kept as what it was and what has come."""

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
"""What is read of a list before it is stored whole again: the first time, and later."""
MOST_ALIKE, MOST_ALIKE_BYTES = 8, 30 * 1024
DOCUMENT_BYTES = 150
"""Of a document beside what it says."""
BESIDE_BYTES = 8 * 1024
"""A larger value is beside the document, but for what is new in a list."""
_SCALARS = (int, float, type(None))


@lazy_dataclass(frozen=True, slots=True)
class ElementPlace:
    """Where a task wrote an element, what it wrote, and how large the document of it is."""

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
    """A list that is stored: its value of ``version`` is in the checkpoint ``home``.

    What it needs lies between the checkpoints ``start`` and ``home``, in about ``span_bytes``; ``whole_bytes`` is what it took
    when it was last stored whole.
    """

    version: Version
    home: str
    items: tuple[Typed, ...]
    start: str
    span_bytes: int
    whole_bytes: int


def is_by_element(value: Any) -> bool:
    """Whether a list is kept by its elements. One of numbers is a value like another."""
    return type(value) is list and bool(value) and not any(isinstance(one, _SCALARS) for one in value)


def base_of(items: Sequence[Typed], before: ListState | None) -> Base | None:
    """What the new list begins with, if that is worth to be read: most of the older one, and not too far away."""
    if before is None or before.span_bytes > _most_span(before.whole_bytes):
        return None
    count = 0
    for one, other in zip(items, before.items, strict=False):
        if one != other:
            break
        count += 1
    return Base(before.home, before.version, count) if count and 2 * count >= len(before.items) else None


def _most_span(whole_bytes: int) -> int:
    """A list that is large is stored whole more rarely: all that is written stays less than twice what there is."""
    return FIRST_SPAN_BYTES if whole_bytes <= BESIDE_BYTES else max(LEAST_SPAN_BYTES, 3 * whole_bytes // 2)


def elements_of(items: Sequence[Typed], base: Base | None, written: Mapping[Typed, ElementPlace]) -> Elements:
    """The list behind its base. What a task has written is not written again."""
    found, alike = list[Item](), list(written.values())[-MOST_ALIKE:]
    for at in range(base.count if base is not None else 0, len(items)):
        place = written.get(items[at])
        last = found[-1] if found else None
        if place is None:
            found.append(_nearly(items[at], alike))
        elif isinstance(last, WrittenElements) and _before(place.written, last) == last:
            found[-1] = replace(last, count=last.count + 1)
        else:
            found.append(place.written)
    return Elements(base, tuple(found))


def _nearly(item: Typed, alike: Sequence[ElementPlace]) -> Item:
    """An element as what makes it of one that was written: of a message without its id yet, or of the text of one."""
    kind, data = item
    best: Alike | None = None
    for place in alike:
        if len(place.data) <= MOST_ALIKE_BYTES:
            patch = patch_of(data, place.data)
            if best is None or len(patch) < len(best.patch):
                best = Alike(place.written, kind, patch)
    return best if best is not None and 3 * len(best.patch) < len(data) else item


def _before(one: WrittenElements, last: WrittenElements) -> WrittenElements:
    """What ends before that one, and has as many as the last."""
    return replace(one, first=one.first - last.count, count=last.count)
