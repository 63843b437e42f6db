"""Records beside the log: jobs and snapshots. Listed newest first; a request with a key makes at most one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from turnlog.domain.errors import CorruptError, IdempotencyMismatchError, NewerSchemaError
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.domain.session import SCHEMA_VERSION
from turnlog.log.headers import item_name
from turnlog.log.keys import Shelf
from turnlog.log.packing import pack, unpack
from turnlog.ports import Absent, AttributeValue, Clock, Condition, Equal, IdSource, Item, ItemTable, Less, Query

_RANDOM_CHARS = 22
_NAME_HELD_MS = 60_000


@dataclass(frozen=True, slots=True)
class Record:
    """``status`` can be a condition of the next write; ``content`` is any JSON."""

    id: str
    created_ms: int
    status: str
    content: JsonObject


class Records:
    """Writes and reads records."""

    def __init__(self, items: ItemTable, clock: Clock, ids: IdSource) -> None:
        self._items = items
        self._clock = clock
        self._ids = ids

    def claim(self, shelf: Shelf, *, key_hash: bytes, stamp: bytes, ttl_seconds: int | None = None) -> str:
        """The id of the record that a request makes: always the same for one key, fresh without a key.

        The same key with another payload is `IdempotencyMismatchError`.
        """
        record_id = f"{self._clock.now_ms():013d}-{self._ids.new_id()[:_RANDOM_CHARS]}"
        if not key_hash:
            return record_id
        key = shelf.request(key_hash)
        item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "id": record_id, "ik": stamp}
        lost = self._items.put(item | self._ttl(ttl_seconds), condition=Absent())
        if lost is None or lost.existing is None:
            return record_id
        if lost.existing.get("ik") != stamp:
            raise IdempotencyMismatchError("this idempotency key was used with another payload")
        return str(lost.existing["id"])

    def claimed(self, shelf: Shelf, *, key_hash: bytes, stamp: bytes) -> Record | None:
        """The record that an earlier request with this key has made, if any."""
        if not key_hash:
            return None
        key = shelf.request(key_hash)
        item = self._items.get_many([key]).get(key)
        if item is None:
            return None
        if item.get("ik") != stamp:
            raise IdempotencyMismatchError("this idempotency key was used with another payload")
        return self.get(shelf, str(item["id"]))

    def create(self, shelf: Shelf, record: Record, *, ttl_seconds: int | None = None) -> Record:
        """Stores a record; the one that is there already when its request was repeated."""
        lost = self._items.put(self._item(shelf, record, ttl_seconds), condition=Absent())
        return record if lost is None or lost.existing is None else _record(lost.existing)

    def replace(self, shelf: Shelf, record: Record, *, while_status: str, ttl_seconds: int | None = None) -> bool:
        """Whether the record was replaced: only while it has that status."""
        condition: Condition = Equal("st", while_status)
        return self._items.put(self._item(shelf, record, ttl_seconds), condition=condition) is None

    def get(self, shelf: Shelf, record_id: str) -> Record | None:
        key = shelf.record(record_id)
        item = self._items.get_many([key]).get(key)
        return _record(item) if item is not None else None

    def page(
        self, shelf: Shelf, *, limit: int, after: Mapping[str, str] | None = None
    ) -> tuple[list[Record], Mapping[str, str] | None]:
        """Newest first, and where to go on."""
        low, high = shelf.bounds
        page = self._items.query(Query(shelf.partition, low, high, descending=True, limit=limit, after=after))
        return [_record(item) for item in page.items], page.next

    # ------------------------------------------------------------ names

    def take_name(self, shelf: Shelf, name: str, record: Record) -> bool:
        """Gives an unused name to a record that is about to be stored; False when another record has it.

        A name whose record was never stored (its request ended in between) is free again after a minute, when no request
        that may store it is left.
        """
        key = shelf.name(name)
        item: Item = {"pk": key.pk, "sk": key.sk, "id": record.id, "c": record.created_ms}
        lost = self._items.put(item, condition=Absent())
        if lost is None or lost.existing is None or lost.existing.get("id") == record.id:
            return True
        holder, taken_ms = str(lost.existing["id"]), lost.existing["c"]
        is_recent = isinstance(taken_ms, int) and self._clock.now_ms() - taken_ms < _NAME_HELD_MS
        if is_recent or self.get(shelf, holder) is not None:
            return False
        return self._items.put(item, condition=Equal("id", holder)) is None

    def point_name(self, shelf: Shelf, name: str, record: Record) -> None:
        """The name stands for this record, unless it stands for a newer one."""
        key = shelf.name(name)
        item: Item = {"pk": key.pk, "sk": key.sk, "id": record.id, "c": record.created_ms}
        self._items.put(item, condition=Less("c", record.created_ms))

    def named(self, shelf: Shelf, name: str) -> Record | None:
        """The newest record of that name."""
        key = shelf.name(name)
        item = self._items.get_many([key]).get(key)
        return self.get(shelf, str(item["id"])) if item is not None else None

    def _item(self, shelf: Shelf, record: Record, ttl_seconds: int | None) -> Item:
        key = shelf.record(record.id)
        item: dict[str, AttributeValue] = {
            "pk": key.pk,
            "sk": key.sk,
            "v": SCHEMA_VERSION,
            "c": record.created_ms,
            "st": record.status,
            "b": pack(encode_json(record.content)),
        }
        return item | self._ttl(ttl_seconds)

    def _ttl(self, seconds: int | None) -> dict[str, AttributeValue]:
        return {"ttl": self._clock.now_ms() // 1000 + seconds} if seconds is not None else {}


def _record(item: Item) -> Record:
    version, created, status, packed = item.get("v"), item.get("c"), item.get("st"), item.get("b")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version} is newer than {SCHEMA_VERSION}", item=item_name(item))
    if not isinstance(created, int) or not isinstance(status, str) or not isinstance(packed, bytes):
        raise CorruptError("a record is damaged", item=item_name(item))
    content: JsonObject = json.loads(unpack(packed, item=item_name(item)))
    return Record(item_name(item)[2:], created, status, content)
