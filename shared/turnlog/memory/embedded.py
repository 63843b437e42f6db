"""The embedded memory engine: facts in Turnlog's own table, made by rules or by a model within a token budget."""

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
"""Makes facts of messages for a tenant, whose budget pays for a model's tokens."""
_log = logging.getLogger("turnlog")


class EmbeddedMemory:
    """Implements `MemoryEngine`: rules or a model make facts, and a search engine ranks them."""

    name = "embedded"

    def __init__(self, memories: Memories, make: MakeFacts, search: SearchEngine) -> None:
        self._memories = memories
        self._make = make
        self._search = search

    def remember(self, part: Offloaded) -> int:
        """Make and store the facts of a part; return their number. A part that has facts already costs no model call."""
        existing = self._memories.fact_count(part)
        if existing is not None:
            return existing
        made = self._make(part.owner.tenant_id, part.said())
        stored = self._memories.add(part, made.facts)
        if len(made.facts) > stored:
            _log.info("of %d facts of a part %d were kept", len(made.facts), stored)
        return stored

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """Return memories that share words with the question, best first; then the others, the most often confirmed first.

        One query to the table.
        """
        memories = [memory for memory in self._memories.of(owner) if memory.replaced_by is None]
        memories.sort(key=lambda memory: (memory.confirmations, *newest_first(memory)), reverse=True)
        ranked = self._ranked(memories, question)
        rows = {row for row, _ in ranked}
        rest = [memory for row, memory in enumerate(memories) if row not in rows]
        return [*(replace(memories[row], score=round(score, 4)) for row, score in ranked), *rest][:limit]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """Return a page of memories, newest first. ``after`` is the ``next`` of the page before."""
        memories = self._memories.of(owner)
        if after is not None:
            place = _place(after)
            memories = [memory for memory in memories if newest_first(memory) < place]
        shown = tuple(memories[:limit])
        following = ".".join(map(str, newest_first(shown[-1]))) if len(memories) > limit else None
        return MemoryPage(shown, following)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        """Delete memories from every session they came from."""
        self._memories.forget(owner, memory_ids)

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        """Delete the facts of an owner, a session or a message; return their number."""
        if session_id is not None and position is not None:
            return self._memories.erase_message(owner, session_id, position)
        return self._memories.erase(owner, session_id)

    def _ranked(self, memories: Sequence[Memory], question: str) -> list[tuple[int, float]]:
        """Return the index and score of memories that share words with the question, best first."""
        if not question.strip() or not memories:
            return []
        terms = self._search.terms([memory.text for memory in memories])

        def rows_of(term: str) -> list[tuple[int, int]]:
            return [(row, counts[term]) for row, counts in enumerate(terms) if term in counts]

        return self._search.rank(TermDocuments([sum(counts.values()) for counts in terms], rows_of), question)


def by(maker: FactMaker) -> MakeFacts:
    """Return a maker of facts that costs no tokens, such as rules."""
    return lambda _tenant_id, said: maker.facts(said)


def _place(after: str) -> tuple[int, int, str]:
    created, _, rest = after.partition(".")
    position, _, memory_id = rest.partition(".")
    if not (created.isdecimal() and position.isdecimal() and memory_id):
        raise InvalidInputError("the cursor is no place in a list of memories", code="malformed")
    return int(created), int(position), memory_id


STRETCH_CHARS = 60_000
"""Characters of messages in one model call; of each message at most `MESSAGE_CHARS` count."""
MAX_CALLS = 2
"""Model calls for one part of a session, within the worker's time. Rules read the rest of the part."""
MESSAGE_CHARS = 600
_PROMPT_TOKENS, _ANSWER_TOKENS, _LINE_TOKENS = 500, 1_000, 6
_facts_log = logging.getLogger("turnlog")


class FactsWithinBudget:
    """Makes facts with ``model``; with ``rules`` when the tenant's daily tokens are spent or the answer is refused.

    Outages and wrong settings are raised: facts that rules have made are never made again by the model.
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
        """Return the facts of messages, with the tokens spent on them."""
        facts, spent = list[MemoryFact](), [0, 0]
        for number, stretch in enumerate(stretches(said)):
            made = self._facts_of_stretch(tenant_id, stretch) if number < MAX_CALLS else self._rules.facts(stretch)
            facts += made.facts
            spent = [spent[0] + made.input_tokens, spent[1] + made.output_tokens]
        return MadeFacts(tuple(facts), *spent)

    def _facts_of_stretch(self, tenant_id: str, said: list[SpokenMessage]) -> MadeFacts:
        tokens = _PROMPT_TOKENS + _ANSWER_TOKENS
        tokens += sum(self._counter.count(message.text[:MESSAGE_CHARS]) + _LINE_TOKENS for message in said)
        reservation = self._spending.reserve(tenant_id, tokens, limit=self._tokens_per_day)
        if reservation is None:
            return self._by_rules(said, "over_budget")
        try:
            made = self._model.facts(said)
        except SummaryRefusedError as error:
            self._settle(reservation, int(error.details["input_tokens"]), int(error.details["output_tokens"]))
            return self._by_rules(said, error.reason)
        except TurnlogError as error:
            if error.error_code not in (TIMED_OUT, UNREADABLE):  # otherwise the reservation counts as the cost
                self._settle(reservation, 0, 0)
            raise
        self._settle(reservation, made.input_tokens, made.output_tokens)
        return made

    def _by_rules(self, said: list[SpokenMessage], reason: str) -> MadeFacts:
        _facts_log.info("facts are not by %s: %s", self._model.name, reason)
        return self._rules.facts(said)

    def _settle(self, reservation: Reservation, input_tokens: int, output_tokens: int) -> None:
        with suppress(UnavailableError):  # keep the facts that were paid for: the reservation counts as their cost
            self._spending.settle(reservation, input_tokens=input_tokens, output_tokens=output_tokens)


def stretches(said: Iterable[SpokenMessage]) -> Iterator[list[SpokenMessage]]:
    """Yield the messages in runs that fit into one model call."""
    run, size = list[SpokenMessage](), 0
    for message in said:
        chars = min(len(message.text), MESSAGE_CHARS)
        if run and size + chars > STRETCH_CHARS:
            yield run
            run, size = [], 0
        run.append(message)
        size += chars
    if run:
        yield run
