"""A memory engine that knows what a test tells it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from turnlog.domain.identity import Owner
from turnlog.domain.memory import Memory, MemoryPage, Offloaded

Says: TypeAlias = "Sequence[Memory] | Exception | Callable[[Owner, str], Says]"
"""What is known, an error to raise, or what makes one of them of an owner and a question."""


class ScriptedMemory:
    """`MemoryEngine` that says the same whenever it is asked. ``asked`` are the owners and questions, ``told`` the ids of parts."""

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
        said = self.says
        while callable(said):
            said = said(owner, question)
        if isinstance(said, Exception):
            raise said
        return list(said)[:limit]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        return MemoryPage(tuple(self.known(owner, "", limit=limit, timeout_seconds=1)))

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        if not callable(self.says) and not isinstance(self.says, Exception):
            self.says = [memory for memory in self.says if memory.id not in memory_ids]

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        return 0
