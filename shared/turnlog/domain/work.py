"""Budgets of work: elementary steps that one request may cause, counted and never timed."""

from __future__ import annotations

from turnlog.domain.errors import TooMuchWorkError
from turnlog.domain.jsonvalue import JsonValue

UNLIMITED = 2**63


class Work:
    """Count steps of one task; `TooMuchWorkError` names the task and its limit."""

    def __init__(self, task: str, *, limit: int = UNLIMITED) -> None:
        self.steps = 0
        self.limit = limit
        self._task = task

    @property
    def left(self) -> int:
        return self.limit - self.steps

    def spend(self, steps: int = 1) -> None:
        """Add steps. Called before the work is done, so that what is refused is not done."""
        self.steps += steps
        if self.steps > self.limit:
            raise TooMuchWorkError(
                f"{self._task} takes more than {self.limit} steps of work", details={"limit": self.limit}
            )


def measured(value: JsonValue) -> tuple[int, int]:
    """Return how many values a value consists of, itself among them, and how many objects and lists stand inside one another.

    Level by level, without recursion: any depth, and some 30 ns a value.
    """
    count, depth, level = 1, 0, [value] if isinstance(value, (dict, list)) else []
    while level:
        depth += 1
        children = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        count += len(children)
        level = [child for child in children if isinstance(child, (dict, list))]
    return count, depth
