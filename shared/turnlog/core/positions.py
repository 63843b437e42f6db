"""What of a log is in view after rewinds: stretches of positions, the newest of them open at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from turnlog.core.lazy_dataclass import lazy_dataclass

KEPT = 16
"""So many closed stretches stand in a header; older ones in the event of the newest rewind."""
MOST_STRETCHES = 5_000
Stretch: TypeAlias = tuple[int, int]
"""First and last position."""


@lazy_dataclass(frozen=True, slots=True)
class VisibleRanges:
    """The closed stretches, oldest first, and all positions from ``since`` on. ``is_cut``: there are older stretches."""

    closed: tuple[Stretch, ...] = ()
    since: int = 1
    is_cut: bool = False

    def up_to(self, last: int) -> tuple[Stretch, ...]:
        """The stretches as if the log ended at a position, oldest first."""
        found = [(first, min(end, last)) for first, end in (*self.closed, (self.since, last)) if first <= last]
        return tuple(found)

    def shows(self, position: int) -> bool:
        return position >= self.since or any(first <= position <= last for first, last in self.closed)

    def rewound(self, to: int, *, at: int) -> VisibleRanges:
        """The view after an event at position ``at`` that goes back to position ``to`` of this view."""
        closed = self.up_to(to)
        if closed and closed[-1][1] + 1 == at:
            return VisibleRanges(closed[:-1], closed[-1][0], self.is_cut)
        return VisibleRanges(closed, at, self.is_cut)

    def cut(self) -> VisibleRanges:
        """With as many stretches as a header holds."""
        if len(self.closed) <= KEPT:
            return self
        return VisibleRanges(self.closed[-KEPT:], self.since, True)

    def encode(self) -> str:
        """Empty for a log without rewinds."""
        if not self.closed and self.since == 1:
            return ""
        parts = [f"{first}-{last}" for first, last in self.closed]
        return " ".join([*(["~"] if self.is_cut else []), *parts, str(self.since)])

    @classmethod
    def decode(cls, text: str) -> VisibleRanges:
        *parts, since = text.split(" ")
        is_cut = parts[:1] == ["~"]
        closed = tuple(_stretch(part) for part in parts[int(is_cut) :])
        return cls(closed, int(since), is_cut)


def without(stretches: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """The positions of the one that are not among the others, both in order."""
    found = list[Stretch]()
    for first, last in stretches:
        at = first
        for start, end in others:
            if end < at or start > last:
                continue
            if start > at:
                found.append((at, start - 1))
            at = end + 1
        if at <= last:
            found.append((at, last))
    return found


def _stretch(text: str) -> Stretch:
    first, last = text.split("-")
    return int(first), int(last)


SEGMENT_POSITIONS = 256


def stretch_of(position: int) -> int:
    """The number of the stretch, from 0, that a commit with this first position belongs to."""
    return (position - 1) // SEGMENT_POSITIONS


def last_of_stretch(stretch: int) -> int:
    """The stretch is complete once the log has this position; no commit that begins later belongs to it."""
    return (stretch + 1) * SEGMENT_POSITIONS


def completes_stretch(first: int, last: int) -> bool:
    """Whether the commit of these positions is a stretch's last."""
    return last // SEGMENT_POSITIONS > (first - 1) // SEGMENT_POSITIONS
