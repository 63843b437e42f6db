"""How far a session has been handed to long-term memory, and that it is to be: two small items beside its log, without contents.

A log is cut into parts, each handed over by itself. A cut is one conditional put, so parts never overlap, and who goes on after a
crash, or comes at the same time, hands over the same part under the same id.
"""

from __future__ import annotations

from turnlog.domain.errors import CorruptError
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.domain.values import dataclass
from turnlog.log.headers import item_name
from turnlog.log.keys import SessionKeys
from turnlog.log.packing import pack, unpack_json
from turnlog.log.tombstones import due_index
from turnlog.ports import Absent, AttributeValue, Condition, Equal, Item, ItemTable


@dataclass(frozen=True, slots=True)
class Cut:
    """Handed over up to ``done``; the part behind it, up to ``end``, is under way where that is greater. ``receipt`` is of the
    newest part that is done. All zeros: nothing has been."""

    done: int = 0
    end: int = 0
    receipt: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A note, put before the commit that ends a session: whatever happens then, a schedule finds it. ``nonce`` is of its writer."""

    nonce: bytes
    reason: str
    noted_ms: int


class Offloads:
    """Reads and writes both."""

    def __init__(self, items: ItemTable) -> None:
        self._items = items

    def read(self, keys: SessionKeys) -> tuple[Cut, Due | None]:
        """In one request."""
        found = self._items.get_many([keys.offloaded, keys.offload_due])
        due = found.get(keys.offload_due)
        return _cut(found.get(keys.offloaded)), read_due(due) if due is not None else None

    def cut(self, keys: SessionKeys, before: Cut, end: int) -> Cut:
        """The part from ``before.done`` to ``end`` begins; or how it is cut already."""
        return self._exchange(keys, before, Cut(before.done, end, before.receipt))

    def finish(self, keys: SessionKeys, before: Cut, receipt: JsonObject) -> Cut:
        """The part is handed over."""
        return self._exchange(keys, before, Cut(before.end, before.end, receipt))

    def note(self, keys: SessionKeys, due: Due, *, due_ms: int) -> None:
        """The session is about to end: looked at then, should nothing come of it."""
        self._items.put(_due_item(keys, due) | due_index(keys, due_ms))

    def put_off(self, keys: SessionKeys, due: Due, *, due_ms: int | None) -> None:
        """Looked at later, or, with None, not any more; unless somebody has noted anew."""
        item = _due_item(keys, due)
        if due_ms is not None:
            item |= due_index(keys, due_ms)
        self._items.put(item, condition=Equal("n", due.nonce))

    def _exchange(self, keys: SessionKeys, before: Cut, after: Cut) -> Cut:
        key = keys.offloaded
        item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "pos": after.done, "end": after.end}
        item["st"] = _state(after)
        if after.receipt is not None:
            item["b"] = pack(encode_json(after.receipt))
        condition: Condition = Equal("st", _state(before)) if before.end else Absent()
        lost = self._items.put(item, condition=condition)
        return after if lost is None else _cut(lost.existing)


def read_due(item: Item) -> Due:
    nonce, reason, noted_ms = item.get("n"), item.get("r"), item.get("c")
    if not isinstance(nonce, bytes) or not isinstance(reason, str) or not isinstance(noted_ms, int):
        raise CorruptError("a note of an offload is damaged", item=item_name(item))
    return Due(nonce, reason, noted_ms)


def _due_item(keys: SessionKeys, due: Due) -> dict[str, AttributeValue]:
    key = keys.offload_due
    return {"pk": key.pk, "sk": key.sk, "n": due.nonce, "r": due.reason, "c": due.noted_ms}


def _cut(item: Item | None) -> Cut:
    if item is None:
        return Cut()
    done, end, packed = item.get("pos"), item.get("end"), item.get("b")
    if not isinstance(done, int) or not isinstance(end, int):
        raise CorruptError("a mark of an offload is damaged", item=item_name(item))
    receipt = unpack_json(packed, item=item_name(item)) if isinstance(packed, bytes) else None
    return Cut(done, end, receipt)


def _state(cut: Cut) -> str:
    return f"{cut.done} {cut.end}"
