"""What must hold after any load: nothing that was acknowledged is lost, moved or there twice, and nothing has no place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from benchmarks.load.recording import Records

FIRST = 2
"""The position of a session's first message: its creation has the first."""
OTHER = "(an event that is no message)"
Reading = Mapping[str, Sequence[tuple[int, str]]]
"""Sessions as read from their beginning to their end: position of each message, and the id that it carries. Summaries and whatever
else has a position among them are `OTHER`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Counts, all of which must be 0.

    ``lost``: acknowledged, and not there. ``moved``: at another position than acknowledged. ``twice``: ids that are there more
    than once. ``strange``: never sent. ``gaps``: positions that are skipped, or do not rise. ``differing``: messages that two
    readings, or a reader under way, have at different positions.
    """

    lost: int = 0
    moved: int = 0
    twice: int = 0
    strange: int = 0
    gaps: int = 0
    differing: int = 0

    @property
    def is_clean(self) -> bool:
        return not any(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: Checked) -> Checked:
        return Checked(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


def check(records: Records, sent: Mapping[str, set[str]], readings: Sequence[Reading]) -> Checked:
    """Everything that was acknowledged and seen, against what was read back once or several times.

    ``sent`` are the ids of all messages that writers tried to append, by session: one without an answer may be there, once.
    """
    whole = Checked()
    for session in sorted({*sent, *records.acknowledged, *(name for reading in readings for name in reading)}):
        for reading in readings:
            whole += _session(records, session, sent.get(session, set()), reading.get(session, ()))
        first, *seen = [_messages(reading.get(session, ())) for reading in readings] or [set[tuple[int, str]]()]
        whole += Checked(
            differing=sum(len(first ^ other) for other in seen) + len(set(records.seen.get(session, ())) - first)
        )
    return whole


def _messages(read: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
    return {item for item in read if item[1] != OTHER}


def _session(records: Records, session: str, sent: set[str], read: Sequence[tuple[int, str]]) -> Checked:
    places, counts = {name: position for position, name in read}, Counter(name for _, name in read if name != OTHER)
    acknowledged = records.acknowledged.get(session, ())
    return Checked(
        lost=sum(name not in places for name, _ in acknowledged),
        moved=sum(name in places and places[name] != position for name, position in acknowledged),
        twice=sum(count - 1 for count in counts.values()),
        strange=sum(name not in sent for name in counts),
        gaps=sum(position != FIRST + at for at, (position, _) in enumerate(read)),
    )
