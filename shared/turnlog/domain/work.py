"""Budgets of work: elementary steps that one request may cause, counted and never timed."""

from __future__ import annotations

from turnlog.domain.errors import TooMuchWorkError

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
