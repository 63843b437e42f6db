"""The embedded memory engine: facts of the same table as everything else, made by rules or by a model within a budget."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from turnlog.domain.errors import InvalidInputError
from turnlog.domain.identity import Owner
from turnlog.domain.memory import MadeFacts, Memory, MemoryPage, Offloaded, Said
from turnlog.domain.profile import newest_first
from turnlog.log.memories import Memories
from turnlog.ports import Documents, FactMaker, SearchEngine

MakeFacts = Callable[[str, Iterable[Said]], MadeFacts]
"""Facts for a tenant: of a maker, or of one whose tokens are paid for by the tenant."""
_log = logging.getLogger("turnlog")


class EmbeddedMemory:
    """Implements `MemoryEngine` with rules or a model that make facts, and a search engine that ranks them."""

    name = "embedded"

    def __init__(self, memories: Memories, make: MakeFacts, search: SearchEngine) -> None:
        self._memories = memories
        self._make = make
        self._search = search

    def remember(self, part: Offloaded) -> int:
        """The facts of a part, made once: of a part that was told before none is made, nor a model asked."""
        before = self._memories.told(part)
        if before is not None:
            return before
        made = self._make(part.owner.tenant_id, part.said())
        kept = self._memories.add(part, made.facts)
        if len(made.facts) > kept:
            _log.info("of %d facts of a part %d were kept", len(made.facts), kept)
        return kept

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """What shares words with the question, best first; then the others, those said most often first. It takes one query."""
        found = [one for one in self._memories.of(owner) if one.replaced_by is None]
        found.sort(key=lambda one: (one.confirmations, *newest_first(one)), reverse=True)
        asked = self._ranked(found, question)
        rows = {row for row, _ in asked}
        rest = [one for row, one in enumerate(found) if row not in rows]
        return [*(replace(found[row], score=round(score, 4)) for row, score in asked), *rest][:limit]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        found = self._memories.of(owner)
        if after is not None:
            place = _place(after)
            found = [one for one in found if newest_first(one) < place]
        shown = tuple(found[:limit])
        following = ".".join(map(str, newest_first(shown[-1]))) if len(found) > limit else None
        return MemoryPage(shown, following)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        self._memories.forget(owner, memory_ids)

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        if session_id is not None and position is not None:
            return self._memories.erase_message(owner, session_id, position)
        return self._memories.erase(owner, session_id)

    def _ranked(self, found: Sequence[Memory], question: str) -> list[tuple[int, float]]:
        if not question.strip() or not found:
            return []
        terms = self._search.terms([one.text for one in found])

        def rows_of(term: str) -> list[tuple[int, int]]:
            return [(row, counts[term]) for row, counts in enumerate(terms) if term in counts]

        return self._search.rank(Documents([sum(counts.values()) for counts in terms], rows_of), question)


def by(maker: FactMaker) -> MakeFacts:
    """A maker that costs nobody anything."""
    return lambda _tenant_id, said: maker.facts(said)


def _place(after: str) -> tuple[int, int, str]:
    created, _, rest = after.partition(".")
    position, _, memory_id = rest.partition(".")
    if not (created.isdecimal() and position.isdecimal() and memory_id):
        raise InvalidInputError("this is no place in a list of memories", code="malformed")
    return int(created), int(position), memory_id
