"""The tokens of a tenant's day: one small item, replaced only as it was read. No contents, gone a week after its day."""

from __future__ import annotations

from collections.abc import Callable

from turnlog.domain.errors import CorruptError, UnavailableError
from turnlog.domain.spending import Spent
from turnlog.domain.times import rfc3339
from turnlog.domain.values import dataclass
from turnlog.log.headers import item_name
from turnlog.log.keys import TenantKeys
from turnlog.ports import Absent, Clock, Condition, Equal, IdSource, Item, ItemTable, Key

_DAY_MS = 24 * 3600 * 1000
_KEPT_DAYS = 8
_MAX_TRIES = 10
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
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
