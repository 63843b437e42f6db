"""Where the log is cut into segments: every 256 positions, whole commits.

A commit belongs to the stretch in which its first position lies. So the borders follow from the positions alone: nothing has to
be known of the commits before, and what a rewind takes out of view changes nothing.
"""

from __future__ import annotations

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
