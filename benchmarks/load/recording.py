"""What clients have seen: how long each call took, what was answered, what was acknowledged."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

QUANTILES = (50, 90, 99, 100)
"""In per cent; the last is the slowest."""


@dataclass
class Records:
    """Of one client, or of several together. Can be sent between processes.

    ``seconds`` of calls by kind, with all their tries; ``counts`` of answers; ``acknowledged``: the id that a message carries and
    the position that its writer was told, by session; ``seen``: what readers read, position and id; ``errors`` by what was said.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[str, set[tuple[int, str]]] = field(default_factory=lambda: defaultdict(set))
    errors: Counter[str] = field(default_factory=Counter)
    begun: float = math.inf
    ended: float = -math.inf

    def add(self, other: Records) -> None:
        for kind, seconds in other.seconds.items():
            self.seconds[kind] = [*self.seconds.get(kind, ()), *seconds]
        for session, acknowledged in other.acknowledged.items():
            self.acknowledged[session] = [*self.acknowledged.get(session, ()), *acknowledged]
        for session, seen in other.seen.items():
            self.seen[session] = self.seen.get(session, set()) | seen
        self.counts.update(other.counts)
        self.errors.update(other.errors)
        self.begun, self.ended = min(self.begun, other.begun), max(self.ended, other.ended)

    def plain(self) -> Records:
        """Return it without what can't be pickled."""
        return Records(
            dict(self.seconds),
            self.counts,
            dict(self.acknowledged),
            dict(self.seen),
            self.errors,
            self.begun,
            self.ended,
        )


def together(records: Iterable[Records]) -> Records:
    whole = Records()
    for record in records:
        whole.add(record)
    return whole.plain()


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Return the values at `QUANTILES`, each one that was measured; none where there are none."""
    ordered = sorted(values)
    return (
        tuple(ordered[max(0, math.ceil(len(ordered) * quantile / 100) - 1)] for quantile in QUANTILES)
        if ordered
        else ()
    )
