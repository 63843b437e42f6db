"""The daily token budget of a tenant, and summaries within it: by a model, or beyond it by a summariser that costs nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from turnlog.core.errors import SummaryRefusedError, TurnlogError, UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import MadeFacts
from turnlog.core.summaries import TIMED_OUT, UNREADABLE, Spent, Summarised, SummaryRequest
from turnlog.core.times import DAY_MS, rfc3339
from turnlog.log.headers import attribute
from turnlog.log.keys import TenantKeys
from turnlog.ports import (
    Absent,
    Clock,
    Condition,
    Equal,
    IdSource,
    Item,
    ItemTable,
    Signals,
    Summariser,
    TokenCounter,
    get_item,
)

_KEPT_DAYS = 8
_MAX_TRIES = 10
_PAUSE_SECONDS = 0.05
_log = logging.getLogger("turnlog")
_Result = TypeVar("_Result", Summarised, MadeFacts)


@lazy_dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens that are set aside for a call, in the ``item`` of a day. It is settled on that day, whenever the call ends."""

    item: Item
    tokens: int


class Spending:
    """Charges a tenant for calls of a model, within the tokens of its day (UTC).

    Takes a get and a put before a call and a put after it; more if several calls of a tenant write at the same time.
    """

    def __init__(self, items: ItemTable, clock: Clock, ids: IdSource, signals: Signals) -> None:
        self._items = items
        self._clock = clock
        self._ids = ids
        self._signals = signals

    def of_day(self, tenant_id: str, now_ms: int) -> Spent:
        """Return the tokens that a tenant has spent on the day (UTC) of ``now_ms``."""
        key = TenantKeys(tenant_id).spending(_day(now_ms))
        return _spent(get_item(self._items, key))

    def charge(self, tenant_id: str, estimate: int, call: Callable[[], _Result], *, limit: int) -> _Result | None:
        """Call a model and charge the tenant for what it took; return None without a call if today's ``limit`` is too low for it.

        ``estimate`` are the tokens that the call is expected to take. Raises the errors of the call; a refused answer is paid for.
        """
        reservation = self.reserve(tenant_id, estimate, limit=limit)
        if reservation is None:
            self._signals.count("summary_over_budget")
            _warn(tenant_id, _day(self._clock.now_ms()), limit)
            return None
        try:
            result = call()
        except SummaryRefusedError as error:
            self._settle(reservation, error.input_tokens, error.output_tokens)
            raise
        except TurnlogError as error:
            # After a time-out or an unreadable answer the call may have cost tokens: the reservation then counts as spent.
            if error.error_code not in (TIMED_OUT, UNREADABLE):
                self._settle(reservation, 0, 0)
            raise
        self._settle(reservation, result.input_tokens, result.output_tokens)
        return result

    def _settle(self, reservation: Reservation, input_tokens: int, output_tokens: int) -> None:
        if tokens := input_tokens + output_tokens:
            self._signals.count("summary_tokens", tokens)
            _log.info("the model took %d tokens in, %d out", input_tokens, output_tokens)
        # What was paid for is not thrown away in an outage: the reservation then counts as spent.
        with suppress(UnavailableError):
            self.settle(reservation, input_tokens=input_tokens, output_tokens=output_tokens)

    def reserve(self, tenant_id: str, tokens: int, *, limit: int) -> Reservation | None:
        """Set aside ``tokens`` of today's ``limit``; return None if fewer are left."""
        now_ms = self._clock.now_ms()
        key = TenantKeys(tenant_id).spending(_day(now_ms))
        of_day: Item = {"pk": key.pk, "sk": key.sk, "ttl": (now_ms // DAY_MS + _KEPT_DAYS) * DAY_MS // 1000}
        before = get_item(self._items, key)
        item = self._change(of_day, before, lambda spent: spent.reserve(tokens, limit=limit))
        return Reservation(item, tokens) if item is not None else None

    def settle(self, reservation: Reservation, *, input_tokens: int, output_tokens: int) -> None:
        """Replace a reservation by the tokens that the call took. A reservation that is never settled counts as spent."""
        self._change(
            reservation.item,
            reservation.item,
            lambda spent: spent.settle(reservation.tokens, input_tokens=input_tokens, output_tokens=output_tokens),
        )

    def _change(self, of_day: Item, before: Item | None, change: Callable[[Spent], Spent | None]) -> Item | None:
        """Write the changed item and return it; return None without a write if ``change`` returns None.

        ``of_day`` has the item's key and its ttl.
        If another writer wins, ``change`` is applied to that writer's item, up to `_MAX_TRIES` times; then `UnavailableError`.
        """
        nonce = self._ids.nonce()
        for _ in range(_MAX_TRIES):
            after = change(_spent(before))
            if after is None:
                return None
            revision = attribute(before, "n", int) if before is not None else 0
            item: Item = {
                **of_day,
                "n": revision + 1,
                "c": after.calls,
                "i": after.input_tokens,
                "o": after.output_tokens,
                "r": after.reserved,
                "w": nonce,
            }
            condition: Condition = Equal("n", revision) if before is not None else Absent()
            lost = self._items.put(item, condition=condition)
            # The condition fails on our own item, too: when a put took effect, its answer was lost, and it was sent again.
            if lost is None or (lost.existing or {}).get("w") == nonce:
                return item
            before = lost.existing
            self._clock.sleep(_PAUSE_SECONDS * self._ids.jitter())
        raise UnavailableError(
            f"the tenant's token budget changed during all {_MAX_TRIES} tries to update it", code="busy"
        )


def _day(now_ms: int) -> str:
    return rfc3339(now_ms)[:10]


@lru_cache(maxsize=1_000)
def _warn(_tenant_id: str, day: str, limit: int) -> None:
    """Log that a tenant's tokens of a day are used up: once in each process."""
    _log.warning(
        "the %d tokens of a tenant for %s (summary_tokens_per_day) are used up: its summaries are extracted", limit, day
    )


def _spent(item: Item | None) -> Spent:
    if item is None:
        return Spent()
    return Spent(*(attribute(item, name, int) for name in ("c", "i", "o", "r")))


_PROMPT_TOKENS = 600
_LINE_TOKENS = 8


@lazy_dataclass(frozen=True, slots=True)
class SummariseWithinBudget:
    """Implements `Summariser` by ``model``, and by ``fallback`` if the budget or the checks refuse the model's summary.

    A summary by ``fallback`` names the reason after the summariser: ``(over_budget)`` if the tenant's tokens of the day are
    spent, or ``(refused: REASON)`` if the model's answer fails the checks. Outages and wrong settings are raised. A fall-back
    would hide them, and its summary would never be replaced by the model's.
    """

    model: Summariser
    fallback: Summariser
    spending: Spending
    counter: TokenCounter
    tokens_per_day: int

    @property
    def name(self) -> str:
        return self.model.name

    def summarise(self, request: SummaryRequest) -> Summarised:
        tenant_id = request.tenant_id
        try:
            if not tenant_id:
                return self.model.summarise(request)
            estimate = self._estimate(request)
            summary = self.spending.charge(
                tenant_id, estimate, lambda: self.model.summarise(request), limit=self.tokens_per_day
            )
        except SummaryRefusedError as error:
            return self._extracted(request, f"refused: {error.reason}")
        return summary if summary is not None else self._extracted(request, "over_budget")

    def _extracted(self, request: SummaryRequest, reason: str) -> Summarised:
        _log.info("a summary is not by %s: %s", self.model.name, reason)
        summary = self.fallback.summarise(request)
        return replace(summary, summariser=f"{summary.summariser} ({reason})")

    def _estimate(self, request: SummaryRequest) -> int:
        """Estimate the tokens of a call; the real number replaces the estimate when the call is settled."""
        texts = [request.previous, *request.parts]
        texts += [text for loop in request.loops for text in (loop.asked, loop.reply, *loop.calls)]
        text_tokens = sum(self.counter.count(text) + _LINE_TOKENS for text in texts if text)
        return _PROMPT_TOKENS + text_tokens + request.max_tokens
