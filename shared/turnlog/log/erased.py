"""What a run of the eraser leaves, and how far it has come."""

from __future__ import annotations

import dataclasses
from dataclasses import field, replace

from turnlog.domain.values import dataclass
from turnlog.ports import Clock


@dataclass(frozen=True, slots=True)
class Kept:
    """What erasing leaves where it is: sort keys of items of the session's partition, and names of blobs."""

    items: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.items or self.blobs)


@dataclass(frozen=True, slots=True)
class Erased:
    """How far it has come. ``is_whole``: nothing was left to do. Counts, no contents."""

    is_whole: bool = False
    commits: int = 0
    items: int = 0
    blobs: int = 0
    requests: int = 0


class DeadlineMet(Exception):  # noqa: N818 - a turn of events, not an error
    """There is no time for more."""


@dataclasses.dataclass(slots=True)
class Work:
    """One run: its deadline, and what it has done."""

    clock: Clock
    deadline_ms: int | None
    done: Erased = field(default_factory=Erased)

    def count(self, *, requests: int = 0, commits: int = 0, items: int = 0, blobs: int = 0) -> None:
        done = self.done
        self.done = replace(
            done,
            commits=done.commits + commits,
            items=done.items + items,
            blobs=done.blobs + blobs,
            requests=done.requests + requests,
        )
        if (commits or items) and self.deadline_ms is not None and self.clock.now_ms() >= self.deadline_ms:
            raise DeadlineMet  # after something was done: however little time a run has, it comes further
