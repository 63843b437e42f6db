"""Summaries by a model within a budget, and by a summariser that needs none where the model may not or does not make them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from turnlog.core.errors import CorruptError, SummaryRefusedError, TurnlogError, UnavailableError
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.summaries import TIMED_OUT, UNREADABLE, Spent, Summarised, SummaryRequest
from turnlog.core.times import rfc3339
from turnlog.log.headers import item_name
from turnlog.log.keys import TenantKeys
from turnlog.ports import (
    Absent,
    Clock,
    Condition,
    Equal,
    IdSource,
    Item,
    ItemTable,
    Key,
    SignalName,
    Signals,
    Summariser,
    TokenCounter,
)

_DAY_MS = 24 * 3600 * 1000
_KEPT_DAYS = 8
_MAX_TRIES = 10
_PAUSE_SECONDS = 0.05


@lazy_dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens that were set aside, and where: it is settled on its own day, whenever the call ends."""

    key: Key
    ttl: int
    tokens: int
    item: Item


class Spending:
    """Reserves and settles tokens: a get and a put before a call, a put after it, while nobody else is at it."""

    def __init__(self, items: ItemTable, clock: Clock, ids: IdSource) -> None:
        self._items = items
        self._clock = clock
        self._ids = ids

    def of_day(self, tenant_id: str, now_ms: int) -> Spent:
        """What has been spent on the day (UTC) of a time."""
        key = TenantKeys(tenant_id).spending(_day(now_ms))
        return _spent(self._items.get_many([key]).get(key))

    def reserve(self, tenant_id: str, tokens: int, *, limit: int) -> Reservation | None:
        """Sets tokens of today aside; None when there are not so many left."""
        now_ms = self._clock.now_ms()
        key = TenantKeys(tenant_id).spending(_day(now_ms))
        ttl = (now_ms // _DAY_MS + _KEPT_DAYS) * _DAY_MS // 1000
        before = self._items.get_many([key]).get(key)
        item = self._change(key, ttl, before, lambda spent: spent.reserve(tokens, limit=limit))
        return Reservation(key, ttl, tokens, item) if item is not None else None

    def settle(self, reservation: Reservation, *, input_tokens: int, output_tokens: int) -> None:
        """Puts what the call took in place of what was set aside. Left undone, the reservation counts as spent."""
        self._change(
            reservation.key,
            reservation.ttl,
            reservation.item,
            lambda spent: spent.settle(reservation.tokens, input_tokens=input_tokens, output_tokens=output_tokens),
        )

    def _change(self, key: Key, ttl: int, before: Item | None, change: Callable[[Spent], Spent | None]) -> Item | None:
        """The item as it was written, or None where there was nothing to change to."""
        for _ in range(_MAX_TRIES):
            after = change(_spent(before))
            if after is None:
                return None
            revision = _count(before, "n") if before is not None else 0
            item: Item = {
                "pk": key.pk,
                "sk": key.sk,
                "n": revision + 1,
                "c": after.calls,
                "i": after.input_tokens,
                "o": after.output_tokens,
                "r": after.reserved,
                "ttl": ttl,
            }
            condition: Condition = Equal("n", revision) if before is not None else Absent()
            lost = self._items.put(item, condition=condition)
            if lost is None:
                return item
            before = lost.existing
            self._clock.sleep(_PAUSE_SECONDS * self._ids.jitter())
        raise UnavailableError("other summaries of this tenant were counted every time", code="busy")


def _day(now_ms: int) -> str:
    return rfc3339(now_ms)[:10]


def _spent(item: Item | None) -> Spent:
    if item is None:
        return Spent()
    return Spent(_count(item, "c"), _count(item, "i"), _count(item, "o"), _count(item, "r"))


def _count(item: Item, name: str) -> int:
    value = item.get(name)
    if not isinstance(value, int):
        raise CorruptError(f"attribute {name!r} is not a number", item=item_name(item))
    return value


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
            self._settle(reservation, _summarise_spent(error, "input_tokens"), _summarise_spent(error, "output_tokens"))
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


def _summarise_spent(error: SummaryRefusedError, name: str) -> int:
    return int(error.details.get(name, 0))
