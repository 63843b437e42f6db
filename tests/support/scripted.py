"""A memory engine and a summariser that answer from the test's script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from turnlog.app import Application
from turnlog.core.errors import TurnlogError
from turnlog.core.identity import Owner
from turnlog.core.memory import Memory, MemoryPage, Offloaded
from turnlog.core.summaries import Summarised, SummaryRequest
from turnlog.ports import Summariser

Says: TypeAlias = "Sequence[Memory] | Exception | Callable[[Owner, str], Says]"
"""Memories to return, an error to raise, or a function from owner and question to one of them."""


def summarise_with(app: Application, summariser: Summariser) -> None:
    """Let a summariser write the summaries of an application from now on."""
    app.summariser = summariser
    vars(app).pop("compress_session", None)  # made with the new one at its next use


class ScriptedMemory:
    """A `MemoryEngine` with scripted answers.

    ``asked`` collects the owners and questions of calls, ``told`` the ids of parts passed to `remember`.
    """

    name = "scripted"

    def __init__(self, says: Says = ()) -> None:
        self.says = says
        self.asked: list[tuple[Owner, str]] = []
        self.told: list[str] = []

    def remember(self, part: Offloaded) -> int:
        self.told.append(part.id)
        return 0

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        self.asked.append((owner, question))
        answer = self.says
        while callable(answer):
            answer = answer(owner, question)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)[:limit]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        return MemoryPage(tuple(self.known(owner, "", limit=limit, timeout_seconds=1)))

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        if not callable(self.says) and not isinstance(self.says, Exception):
            self.says = [memory for memory in self.says if memory.id not in memory_ids]

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        return 0


Outcome: TypeAlias = "str | Summarised | TurnlogError | Callable[[SummaryRequest], Outcome]"
"""A summary text, a text with its cost, an error to raise, or a function from the request to one of them."""


class ScriptedSummariser:
    """A `Summariser` with one scripted outcome for each request, in order. ``requests`` collects the requests.

    A request beyond the script gets the outcome ``then``, or raises `AssertionError` without it.
    """

    def __init__(
        self, outcomes: Sequence[Outcome] = (), *, then: Outcome | None = None, name: str = "scripted"
    ) -> None:
        self.name = name
        self.requests: list[SummaryRequest] = []
        self.outcomes = list(outcomes)
        self._then = then

    def summarise(self, request: SummaryRequest) -> Summarised:
        self.requests.append(request)
        outcome = self.outcomes.pop(0) if self.outcomes else self._then
        while callable(outcome):
            outcome = outcome(request)
        if outcome is None:
            raise AssertionError(f"request {len(self.requests)} has no outcome in the script")
        if isinstance(outcome, TurnlogError):
            raise outcome
        return Summarised(outcome, self.name) if isinstance(outcome, str) else outcome

    @property
    def is_done(self) -> bool:
        """Whether every outcome of the script has been used."""
        return not self.outcomes
