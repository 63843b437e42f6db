"""The embedded memory engine: facts of the same table as everything else, made by rules or by a model within a budget."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from turnlog.core.errors import InvalidInputError, SummaryRefusedError, TurnlogError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.memory import MadeFacts, Memory, MemoryFact, MemoryPage, Offloaded, SpokenMessage
from turnlog.core.summaries import TIMED_OUT, UNREADABLE
from turnlog.memory.profile import newest_first
from turnlog.memory.store import Memories
from turnlog.ports import FactMaker, SearchEngine, TermDocuments, TokenCounter
from turnlog.summaries.budget import Reservation, Spending

MakeFacts = Callable[[str, Iterable[SpokenMessage]], MadeFacts]
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

        return self._search.rank(TermDocuments([sum(counts.values()) for counts in terms], rows_of), question)


def by(maker: FactMaker) -> MakeFacts:
    """A maker that costs nobody anything."""
    return lambda _tenant_id, said: maker.facts(said)


def _place(after: str) -> tuple[int, int, str]:
    created, _, rest = after.partition(".")
    position, _, memory_id = rest.partition(".")
    if not (created.isdecimal() and position.isdecimal() and memory_id):
        raise InvalidInputError("this is no place in a list of memories", code="malformed")
    return int(created), int(position), memory_id


STRETCH_CHARS = 60_000
"""Of what was said, in one call of a model; of a message no more counts than `MESSAGE_CHARS`."""
MAX_CALLS = 2
"""Of one part of a session: what lies behind is read by rules. Within the worker's time."""
MESSAGE_CHARS = 600
_PROMPT_TOKENS, _ANSWER_TOKENS, _LINE_TOKENS = 500, 1_000, 6
_facts_log = logging.getLogger("turnlog")


class FactsWithinBudget:
    """Makes facts with ``model``, or with ``rules`` when the tenant's tokens of the day are spent or its answer is refused.

    Outages and wrong settings are raised, for what rules have made is never made again.
    """

    def __init__(
        self, model: FactMaker, rules: FactMaker, spending: Spending, counter: TokenCounter, *, tokens_per_day: int
    ) -> None:
        self._model = model
        self._rules = rules
        self._spending = spending
        self._counter = counter
        self._tokens_per_day = tokens_per_day

    def __call__(self, tenant_id: str, said: Iterable[SpokenMessage]) -> MadeFacts:
        found, spent = list[MemoryFact](), [0, 0]
        for number, stretch in enumerate(stretches(said)):
            made = self._of_stretch(tenant_id, stretch) if number < MAX_CALLS else self._rules.facts(stretch)
            found += made.facts
            spent = [spent[0] + made.input_tokens, spent[1] + made.output_tokens]
        return MadeFacts(tuple(found), *spent)

    def _of_stretch(self, tenant_id: str, said: list[SpokenMessage]) -> MadeFacts:
        tokens = _PROMPT_TOKENS + _ANSWER_TOKENS
        tokens += sum(self._counter.count(one.text[:MESSAGE_CHARS]) + _LINE_TOKENS for one in said)
        reservation = self._spending.reserve(tenant_id, tokens, limit=self._tokens_per_day)
        if reservation is None:
            return self._by_rules(said, "over_budget")
        try:
            made = self._model.facts(said)
        except SummaryRefusedError as error:
            self._settle(reservation, int(error.details["input_tokens"]), int(error.details["output_tokens"]))
            return self._by_rules(said, error.reason)
        except TurnlogError as error:
            if error.error_code not in (TIMED_OUT, UNREADABLE):  # else what was set aside stands for what it cost
                self._settle(reservation, 0, 0)
            raise
        self._settle(reservation, made.input_tokens, made.output_tokens)
        return made

    def _by_rules(self, said: list[SpokenMessage], reason: str) -> MadeFacts:
        _facts_log.info("facts are not by %s: %s", self._model.name, reason)
        return self._rules.facts(said)

    def _settle(self, reservation: Reservation, input_tokens: int, output_tokens: int) -> None:
        with suppress(UnavailableError):  # what was paid for is not thrown away: the reservation counts in its place
            self._spending.settle(reservation, input_tokens=input_tokens, output_tokens=output_tokens)


def stretches(said: Iterable[SpokenMessage]) -> Iterator[list[SpokenMessage]]:
    """What was said in runs that a model takes at once."""
    held, size = list[SpokenMessage](), 0
    for one in said:
        chars = min(len(one.text), MESSAGE_CHARS)
        if held and size + chars > STRETCH_CHARS:
            yield held
            held, size = [], 0
        held.append(one)
        size += chars
    if held:
        yield held
