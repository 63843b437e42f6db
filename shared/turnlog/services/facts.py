"""Facts by a model within a tenant's budget, and by rules where the model may not or does not make them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress

from turnlog.domain.errors import SummaryRefusedError, TurnlogError, UnavailableError
from turnlog.domain.memory import Fact, MadeFacts, Said
from turnlog.domain.summaries import TIMED_OUT, UNREADABLE
from turnlog.log.spending import Reservation, Spending
from turnlog.ports import FactMaker, TokenCounter

STRETCH_CHARS = 60_000
"""Of what was said, in one call of a model; of a message no more counts than `MESSAGE_CHARS`."""
MAX_CALLS = 2
"""Of one part of a session: what lies behind is read by rules. Within the worker's time."""
MESSAGE_CHARS = 600
_PROMPT_TOKENS, _ANSWER_TOKENS, _LINE_TOKENS = 500, 1_000, 6
_log = logging.getLogger("turnlog")


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

    def __call__(self, tenant_id: str, said: Iterable[Said]) -> MadeFacts:
        found, spent = list[Fact](), [0, 0]
        for number, stretch in enumerate(stretches(said)):
            made = self._of_stretch(tenant_id, stretch) if number < MAX_CALLS else self._rules.facts(stretch)
            found += made.facts
            spent = [spent[0] + made.input_tokens, spent[1] + made.output_tokens]
        return MadeFacts(tuple(found), *spent)

    def _of_stretch(self, tenant_id: str, said: list[Said]) -> MadeFacts:
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

    def _by_rules(self, said: list[Said], reason: str) -> MadeFacts:
        _log.info("facts are not by %s: %s", self._model.name, reason)
        return self._rules.facts(said)

    def _settle(self, reservation: Reservation, input_tokens: int, output_tokens: int) -> None:
        with suppress(UnavailableError):  # what was paid for is not thrown away: the reservation counts in its place
            self._spending.settle(reservation, input_tokens=input_tokens, output_tokens=output_tokens)


def stretches(said: Iterable[Said]) -> Iterator[list[Said]]:
    """What was said in runs that a model takes at once."""
    held, size = list[Said](), 0
    for one in said:
        chars = min(len(one.text), MESSAGE_CHARS)
        if held and size + chars > STRETCH_CHARS:
            yield held
            held, size = [], 0
        held.append(one)
        size += chars
    if held:
        yield held
