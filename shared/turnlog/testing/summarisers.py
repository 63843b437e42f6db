"""A summariser that does what a test tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from turnlog.domain.errors import TurnlogError
from turnlog.domain.summaries import Summarised, SummaryRequest

Outcome: TypeAlias = "str | Summarised | TurnlogError | Callable[[SummaryRequest], Outcome]"
"""A text, a text with its cost, an error to raise, or what makes one of them of the request."""


class ScriptedSummariser:
    """`Summariser` that has one outcome for each request, in order. ``requests`` are those that were made.

    A request too many is an `AssertionError`, unless ``then`` is what every later one gets.
    """

    def __init__(
        self, outcomes: Sequence[Outcome] = (), *, then: Outcome | None = None, name: str = "scripted"
    ) -> None:
        self.name = name
        self.requests: list[SummaryRequest] = []
        self._outcomes = list(outcomes)
        self._then = then

    def summarise(self, request: SummaryRequest) -> Summarised:
        self.requests.append(request)
        outcome = self._outcomes.pop(0) if self._outcomes else self._then
        while callable(outcome):
            outcome = outcome(request)
        if outcome is None:
            raise AssertionError(f"request {len(self.requests)} has no outcome in the script")
        if isinstance(outcome, TurnlogError):
            raise outcome
        return Summarised(outcome, self.name) if isinstance(outcome, str) else outcome

    @property
    def is_done(self) -> bool:
        """Whether every outcome of the script has been given."""
        return not self._outcomes
