"""Positions of a log that are in view after rewinds: closed stretches, and everything since the newest rewind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass

MAX_HEADER_STRETCHES = 16
"""Closed stretches in a header; the event of the newest rewind has the older ones too."""
MAX_STRETCHES = 5_000
Stretch: TypeAlias = tuple[int, int]
"""First and last position."""


@lazy_dataclass(frozen=True, slots=True)
class VisibleRanges:
    """The visible positions: the closed stretches, oldest first, and all positions from ``since`` on.

    ``is_cut`` says that there are older stretches which ``closed`` does not have.
    """

    closed: tuple[Stretch, ...] = ()
    since: int = 1
    is_cut: bool = False

    def up_to(self, last: int) -> tuple[Stretch, ...]:
        """Return the stretches up to position ``last``, oldest first."""
        ranges = (*self.closed, (self.since, last))
        return tuple((first, min(end, last)) for first, end in ranges if first <= last)

    def shows(self, position: int) -> bool:
        return position >= self.since or any(first <= position <= last for first, last in self.closed)

    def rewound(self, to: int, *, at: int) -> VisibleRanges:
        """Return the view after a rewind event at position ``at`` back to position ``to`` of this view."""
        closed = self.up_to(to)
        if closed and closed[-1][1] + 1 == at:
            return VisibleRanges(closed[:-1], closed[-1][0], self.is_cut)
        return VisibleRanges(closed, at, self.is_cut)

    def cut(self) -> VisibleRanges:
        """Return the view with the newest stretches only, as many as a header holds."""
        if len(self.closed) <= MAX_HEADER_STRETCHES:
            return self
        return VisibleRanges(self.closed[-MAX_HEADER_STRETCHES:], self.since, True)

    def encode(self) -> str:
        """Encode the view for a header; empty for a log without rewinds."""
        if not self.closed and self.since == 1:
            return ""
        parts = [f"{first}-{last}" for first, last in self.closed]
        return " ".join([*(["~"] if self.is_cut else []), *parts, str(self.since)])

    @classmethod
    def decode(cls, text: str) -> VisibleRanges:
        *parts, since = text.split(" ")
        is_cut = parts[:1] == ["~"]
        pairs = (part.split("-") for part in parts[int(is_cut) :])
        return cls(tuple((int(first), int(last)) for first, last in pairs), int(since), is_cut)


def subtract(stretches: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """Return the parts of ``stretches`` that are not in ``others``; both are in order."""
    result = list[Stretch]()
    for first, last in stretches:
        next_position = first
        for start, end in others:
            if end < next_position or start > last:
                continue
            if start > next_position:
                result.append((next_position, start - 1))
            next_position = end + 1
        if next_position <= last:
            result.append((next_position, last))
    return result


SEGMENT_POSITIONS = 256


def stretch_of(position: int) -> int:
    """Return the number, from 0, of the segment stretch that a commit with this first position belongs to."""
    return (position - 1) // SEGMENT_POSITIONS


def last_of_stretch(stretch: int) -> int:
    """Return the last position of a segment stretch. No commit that begins later belongs to the stretch."""
    return (stretch + 1) * SEGMENT_POSITIONS


def completes_stretch(first: int, last: int) -> bool:
    """Return whether the commit with these positions is the last of a segment stretch."""
    return last // SEGMENT_POSITIONS > (first - 1) // SEGMENT_POSITIONS
