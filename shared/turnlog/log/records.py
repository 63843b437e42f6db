"""Records beside the log: jobs and snapshots, listed newest first. A request with an idempotency key makes at most one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from turnlog.core.errors import CorruptError, NotFoundError
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.headers import attribute, check_version, item_name
from turnlog.log.keys import RecordKeys, SessionKeys, item_at
from turnlog.log.packing import json_in, pack
from turnlog.log.request_keys import RequestKey
from turnlog.log.tombstones import is_cache_tombstone, keeps_snapshots
from turnlog.ports import Absent, AttributeValue, Clock, Equal, IdSource, Item, ItemTable, Less, Query, get_item, pages

DELETED = "deleted"
"""Status of a deleted record. Callers no longer see it; its content names the blobs that are still to be swept."""
DELETED_TTL_SECONDS = 2 * 24 * 3600
_PAGE_RECORDS = 1_000
_RANDOM_CHARS = 22
_NAME_HELD_MS = 60_000


@lazy_dataclass(frozen=True, slots=True)
class Record:
    """A record. ``status`` can be a condition of the next write; ``content`` is any JSON object."""

    id: str
    created_ms: int
    status: str
    content: JsonObject


class Records:
    """Reads and writes records: items beside the log for jobs, snapshots and other results of requests, each with an id."""

    def __init__(self, items: ItemTable, clock: Clock, ids: IdSource) -> None:
        self._items = items
        self._clock = clock
        self._ids = ids

    def claim(self, record_keys: RecordKeys, request: RequestKey | None, *, ttl_seconds: int | None = None) -> str:
        """Return the id for the record of a request: always the same for a key, a new one without a key.

        Raises `IdempotencyMismatchError` for the same key with another payload.
        """
        record_id = f"{self._clock.now_ms():013d}-{self._ids.new_id()[:_RANDOM_CHARS]}"
        return self.choose(record_keys, record_id, request, ttl_seconds=ttl_seconds)

    def claimed(self, record_keys: RecordKeys, request: RequestKey | None) -> Record | None:
        """Return the record that an earlier request with this key has made, or None."""
        record_id = self.earlier_choice(record_keys, request)
        return self.get(record_keys, record_id) if record_id is not None else None

    def check_there(self, keys: SessionKeys) -> None:
        """Raise `NotFoundError` for an erased session, whose records may still exist. An expired session keeps some records."""
        meta = get_item(self._items, keys.meta)
        if meta is not None and is_cache_tombstone(meta) and not keeps_snapshots(meta):
            raise NotFoundError(f"no session {keys.session_id!r}")

    def create(self, record_keys: RecordKeys, record: Record, *, ttl_seconds: int | None = None) -> Record:
        """Store a record and return it, or return the existing record when the request is repeated."""
        lost = self._items.put(self._item(record_keys, record, ttl_seconds), condition=Absent())
        return record if lost is None or lost.existing is None else _record(lost.existing)

    def replace(
        self, record_keys: RecordKeys, record: Record, *, while_status: str, ttl_seconds: int | None = None
    ) -> bool:
        """Replace a record if it has status ``while_status``. Return whether it was replaced."""
        item = self._item(record_keys, record, ttl_seconds)
        return self._items.put(item, condition=Equal("st", while_status)) is None

    def exchange(self, record_keys: RecordKeys, before: Record, after: Record) -> bool:
        """Replace a record if its content is still that of ``before``. Return whether it was replaced.

        The new record has no ttl; it stays as long as its session.
        """
        item = self._item(record_keys, after, None)
        return self._items.put(item, condition=Equal("b", pack(encode_json(before.content)))) is None

    def get(self, record_keys: RecordKeys, record_id: str) -> Record | None:
        """Return a record, or None when it does not exist or is deleted."""
        record = self.get_any(record_keys, record_id)
        return record if record is not None and record.status != DELETED else None

    def get_any(self, record_keys: RecordKeys, record_id: str) -> Record | None:
        """Return a record, also a deleted one, or None."""
        item = get_item(self._items, record_keys.record(record_id))
        return _record(item) if item is not None else None

    def page(
        self, record_keys: RecordKeys, *, limit: int, after: Mapping[str, str] | None = None
    ) -> tuple[list[Record], Mapping[str, str] | None]:
        """Return a page of records, newest first, and the start of the next page.

        A page may have fewer than ``limit`` records, because deleted ones are left out.
        """
        low, high = record_keys.bounds
        page = self._items.query(Query(record_keys.partition, low, high, descending=True, limit=limit, after=after))
        records = [_record(item) for item in page.items]
        return [record for record in records if record.status != DELETED], page.next

    def every(self, record_keys: RecordKeys, *, deleted: bool = False) -> Iterator[Record]:
        """Yield all records, newest first; with ``deleted``, the deleted ones instead."""
        low, high = record_keys.bounds
        for items in pages(self._items, Query(record_keys.partition, low, high, descending=True, limit=_PAGE_RECORDS)):
            yield from (record for record in map(_record, items) if (record.status == DELETED) == deleted)

    # ------------------------------------------------------------ deleting

    def delete(self, record_keys: RecordKeys, record: Record, *, left: JsonObject | None = None) -> None:
        """Overwrite a record as deleted. ``left`` becomes its content and names what is still to be swept.

        Without ``left`` the record expires by its ttl. A request that is repeated before then does not create it again.
        """
        gone = Record(record.id, record.created_ms, DELETED, left or {})
        self._items.put(self._item(record_keys, gone, None if left else DELETED_TTL_SECONDS))

    def choose(
        self,
        record_keys: RecordKeys,
        record_id: str,
        request: RequestKey | None,
        *,
        ttl_seconds: int | None = DELETED_TTL_SECONDS,
    ) -> str:
        """Return the id that the first try of a request with this key chose: ``record_id`` for the first try, and without a key.

        A retry keeps its choice, because a name may point to another record meanwhile.
        """
        if request is None:
            return record_id
        item = item_at(record_keys.request(request.key_hash), {"id": record_id, "ik": request.stamp})
        lost = self._items.put(item | self._ttl(ttl_seconds), condition=Absent())
        return record_id if lost is None or lost.existing is None else _made_by(lost.existing, request)

    def earlier_choice(self, record_keys: RecordKeys, request: RequestKey | None) -> str | None:
        """Return the record that an earlier try of the same request chose, or None."""
        if request is None:
            return None
        item = get_item(self._items, record_keys.request(request.key_hash))
        return _made_by(item, request) if item is not None else None

    # ------------------------------------------------------------ names

    def take_name(self, record_keys: RecordKeys, name: str, record: Record) -> bool:
        """Give an unused name to a record that is about to be stored. Return False when another record has the name.

        When the record was never stored because its request failed, the name is free again after a minute. No request that
        may store the record is left by then.
        """
        item = item_at(record_keys.name(name), {"id": record.id, "c": record.created_ms})
        lost = self._items.put(item, condition=Absent())
        if lost is None or lost.existing is None or lost.existing.get("id") == record.id:
            return True
        holder_id, taken_ms = attribute(lost.existing, "id", str), lost.existing["c"]
        is_held = isinstance(taken_ms, int) and self._clock.now_ms() - taken_ms < _NAME_HELD_MS
        holder = self.get_any(record_keys, holder_id)
        if holder is not None:
            is_held = holder.status != DELETED or self.named(record_keys, name) is not None
        return not is_held and self._items.put(item, condition=Equal("id", holder_id)) is None

    def point_name(self, record_keys: RecordKeys, name: str, record: Record) -> None:
        """Point a name to this record, unless it points to a newer one."""
        item = item_at(record_keys.name(name), {"id": record.id, "c": record.created_ms})
        self._items.put(item, condition=Less("c", record.created_ms))

    def named(self, record_keys: RecordKeys, name: str) -> Record | None:
        """Return the newest record of that name that is not deleted, or None.

        Takes a scan of the records when the newest one was deleted.
        """
        item = get_item(self._items, record_keys.name(name))
        if item is None:
            return None
        newest = self.get_any(record_keys, attribute(item, "id", str))
        if newest is None or newest.status != DELETED:
            return newest
        return next((record for record in self.every(record_keys) if record.content.get("name") == name), None)

    def _item(self, record_keys: RecordKeys, record: Record, ttl_seconds: int | None) -> Item:
        content = pack(encode_json(record.content))
        key, ttl = record_keys.record(record.id), self._ttl(ttl_seconds)
        return item_at(key, {"v": SCHEMA_VERSION, "c": record.created_ms, "st": record.status, "b": content, **ttl})

    def _ttl(self, seconds: int | None) -> dict[str, AttributeValue]:
        return {"ttl": self._clock.now_ms() // 1000 + seconds} if seconds is not None else {}


def _made_by(item: Item, request: RequestKey) -> str:
    """Return the id of the record that a request made. Raises when the key was used with another payload."""
    stamp = item.get("ik")
    if not isinstance(stamp, bytes) or not request.matches(stamp):
        raise CorruptError("the record of an idempotency key is damaged", item=item_name(item))
    return attribute(item, "id", str)


def _record(item: Item) -> Record:
    check_version(item)
    return Record(item_name(item)[2:], attribute(item, "c", int), attribute(item, "st", str), json_in(item))
