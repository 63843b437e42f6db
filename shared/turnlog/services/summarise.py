"""Summaries by a model within a budget, and by a summariser that needs none where the model may not or does not make them."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from turnlog.domain.errors import SummaryRefusedError, TurnlogError, UnavailableError
from turnlog.domain.summaries import TIMED_OUT, UNREADABLE, Summarised, SummaryRequest
from turnlog.log.spending import Reservation, Spending
from turnlog.ports import SignalName, Signals, Summariser, TokenCounter

_PROMPT_TOKENS = 600
_LINE_TOKENS = 8
_log = logging.getLogger("turnlog")


class SummariseWithinBudget:
    """Implements `Summariser`: ``model``, or ``fallback`` when the tenant's tokens of the day are spent (its name is then
    followed by ``(over_budget)``) or the model's answer is refused (``(refused: REASON)``).

    Outages and wrong settings are raised: a fall-back would hide them, and what it wrote would never be written again.
    """

    def __init__(
        self,
        model: Summariser,
        fallback: Summariser,
        spending: Spending,
        counter: TokenCounter,
        *,
        tokens_per_day: int,
        signals: Signals | None = None,
    ) -> None:
        self._model = model
        self._fallback = fallback
        self._spending = spending
        self._counter = counter
        self._tokens_per_day = tokens_per_day
        self._signals = signals

    @property
    def name(self) -> str:
        return self._model.name

    def summarise(self, request: SummaryRequest) -> Summarised:
        if not request.tenant_id:
            return self._checked(request)
        reservation = self._spending.reserve(request.tenant_id, self._estimate(request), limit=self._tokens_per_day)
        if reservation is None:
            self._tell("summary_over_budget", 1)
            return self._extracted(request, "over_budget")
        try:
            made = self._model.summarise(request)
        except SummaryRefusedError as error:
            self._settle(reservation, _spent(error, "input_tokens"), _spent(error, "output_tokens"))
            return self._extracted(request, f"refused: {error.reason}")
        except TurnlogError as error:
            if error.error_code not in (TIMED_OUT, UNREADABLE):  # else what was set aside stands for what it cost
                self._settle(reservation, 0, 0)
            raise
        self._settle(reservation, made.input_tokens, made.output_tokens)
        return made

    def _checked(self, request: SummaryRequest) -> Summarised:
        try:
            return self._model.summarise(request)
        except SummaryRefusedError as error:
            return self._extracted(request, f"refused: {error.reason}")

    def _extracted(self, request: SummaryRequest, reason: str) -> Summarised:
        _log.info("a summary is not by %s: %s", self._model.name, reason)
        made = self._fallback.summarise(request)
        return replace(made, summariser=f"{made.summariser} ({reason})")

    def _estimate(self, request: SummaryRequest) -> int:
        """About what a call takes; what it took replaces it."""
        texts = [request.previous, *request.parts]
        texts += [text for loop in request.loops for text in (loop.asked, loop.reply, *loop.calls)]
        told = sum(self._counter.count(text) + _LINE_TOKENS for text in texts if text)
        return _PROMPT_TOKENS + told + request.max_tokens

    def _settle(self, reservation: Reservation, input_tokens: int, output_tokens: int) -> None:
        if input_tokens or output_tokens:
            self._tell("summary_tokens", input_tokens + output_tokens)
            _log.info("a summary took %d tokens in, %d out of %s", input_tokens, output_tokens, self._model.name)
        with suppress(
            UnavailableError
        ):  # a text that was paid for is not thrown away: the reservation counts in its place
            self._spending.settle(reservation, input_tokens=input_tokens, output_tokens=output_tokens)

    def _tell(self, name: SignalName, value: int) -> None:
        if self._signals is not None:
            self._signals.count(name, value)


def _spent(error: SummaryRefusedError, name: str) -> int:
    return int(error.details.get(name, 0))
