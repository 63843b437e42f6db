"""Records beside the log: jobs and snapshots. Listed newest first; a request with a key makes at most one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from turnlog.core.errors import CorruptError, NewerSchemaError, NotFoundError
from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.headers import item_name
from turnlog.log.keys import SessionKeys, Shelf
from turnlog.log.packing import pack, unpack_json
from turnlog.log.request_keys import RequestKey
from turnlog.log.tombstones import is_cache_tombstone, keeps_snapshots
from turnlog.ports import Absent, AttributeValue, Clock, Condition, Equal, IdSource, Item, ItemTable, Less, Query

DELETED = "deleted"
"""The status of a record that is gone for all who ask. What is left of it names what is still to be swept."""
DELETED_TTL_SECONDS = 2 * 24 * 3600
_PAGE_RECORDS = 100
_RANDOM_CHARS = 22
_NAME_HELD_MS = 60_000


@lazy_dataclass(frozen=True, slots=True)
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

    def claim(self, shelf: Shelf, request: RequestKey | None, *, ttl_seconds: int | None = None) -> str:
        """The id of the record that a request makes: always the same for one key, fresh without a key.

        The same key with another payload is `IdempotencyMismatchError`.
        """
        record_id = f"{self._clock.now_ms():013d}-{self._ids.new_id()[:_RANDOM_CHARS]}"
        if request is None:
            return record_id
        key = shelf.request(request.key_hash)
        item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "id": record_id, "ik": request.stamp}
        lost = self._items.put(item | self._ttl(ttl_seconds), condition=Absent())
        if lost is None or lost.existing is None:
            return record_id
        return _made_by(lost.existing, request)

    def claimed(self, shelf: Shelf, request: RequestKey | None) -> Record | None:
        """The record that an earlier request with this key has made, if any."""
        if request is None:
            return None
        key = shelf.request(request.key_hash)
        item = self._items.get_many([key]).get(key)
        return self.get(shelf, _made_by(item, request)) if item is not None else None

    def check_there(self, keys: SessionKeys) -> None:
        """`NotFoundError` for a session that was erased, whose records may be there still. One that has expired keeps some."""
        meta = self._items.get_many([keys.meta]).get(keys.meta)
        if meta is not None and is_cache_tombstone(meta) and not keeps_snapshots(meta):
            raise NotFoundError(f"no session {keys.session_id!r}")

    def create(self, shelf: Shelf, record: Record, *, ttl_seconds: int | None = None) -> Record:
        """Stores a record; the one that is there already when its request was repeated."""
        lost = self._items.put(self._item(shelf, record, ttl_seconds), condition=Absent())
        return record if lost is None or lost.existing is None else _record(lost.existing)

    def replace(self, shelf: Shelf, record: Record, *, while_status: str, ttl_seconds: int | None = None) -> bool:
        """Whether the record was replaced: only while it has that status."""
        condition: Condition = Equal("st", while_status)
        return self._items.put(self._item(shelf, record, ttl_seconds), condition=condition) is None

    def exchange(self, shelf: Shelf, before: Record, after: Record) -> bool:
        """Whether the record was replaced: only while it is as it was read. One that stays as long as its session."""
        condition: Condition = Equal("b", pack(encode_json(before.content)))
        return self._items.put(self._item(shelf, after, None), condition=condition) is None

    def get(self, shelf: Shelf, record_id: str) -> Record | None:
        """None: there is none, or it has been deleted."""
        found = self.get_any(shelf, record_id)
        return found if found is not None and found.status != DELETED else None

    def get_any(self, shelf: Shelf, record_id: str) -> Record | None:
        """A record, or what is left of a deleted one."""
        key = shelf.record(record_id)
        item = self._items.get_many([key]).get(key)
        return _record(item) if item is not None else None

    def page(
        self, shelf: Shelf, *, limit: int, after: Mapping[str, str] | None = None
    ) -> tuple[list[Record], Mapping[str, str] | None]:
        """Newest first, and where to go on. A page is short by what has been deleted."""
        low, high = shelf.bounds
        page = self._items.query(Query(shelf.partition, low, high, descending=True, limit=limit, after=after))
        found = [_record(item) for item in page.items]
        return [record for record in found if record.status != DELETED], page.next

    def every(self, shelf: Shelf, *, deleted: bool = False) -> Iterator[Record]:
        """All of them, newest first, a page at a time; or what is left of those that have been deleted."""
        low, high = shelf.bounds
        after: Mapping[str, str] | None = None
        while True:
            query = Query(shelf.partition, low, high, descending=True, limit=_PAGE_RECORDS, after=after)
            page = self._items.query(query)
            yield from (one for one in map(_record, page.items) if (one.status == DELETED) == deleted)
            after = page.next
            if after is None:
                return

    # ------------------------------------------------------------ deleting

    def delete(self, shelf: Shelf, record: Record, *, left: JsonObject | None = None) -> None:
        """Overwrites a record; nothing of its content stays but ``left``, which names what is to be swept.

        Without anything left it goes by its ttl: a request that is repeated until then does not make it again.
        """
        gone = Record(record.id, record.created_ms, DELETED, left or {})
        self._items.put(self._item(shelf, gone, None if left else DELETED_TTL_SECONDS))

    def chosen(self, shelf: Shelf, record_id: str, request: RequestKey | None) -> str:
        """The record that a request with a key has chosen the first time: a name may stand for another by then."""
        if request is None:
            return record_id
        key = shelf.request(request.key_hash)
        item: dict[str, AttributeValue] = {"pk": key.pk, "sk": key.sk, "id": record_id, "ik": request.stamp}
        lost = self._items.put(item | self._ttl(DELETED_TTL_SECONDS), condition=Absent())
        if lost is None or lost.existing is None:
            return record_id
        return _made_by(lost.existing, request)

    def chosen_before(self, shelf: Shelf, request: RequestKey | None) -> str | None:
        """What `chosen` has kept of an earlier try of the same request."""
        if request is None:
            return None
        key = shelf.request(request.key_hash)
        item = self._items.get_many([key]).get(key)
        return _made_by(item, request) if item is not None else None

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
        holder, taken_ms = _named(lost.existing), lost.existing["c"]
        is_recent = isinstance(taken_ms, int) and self._clock.now_ms() - taken_ms < _NAME_HELD_MS
        held = self.get_any(shelf, holder)
        if is_recent if held is None else held.status != DELETED or self.named(shelf, name) is not None:
            return False
        return self._items.put(item, condition=Equal("id", holder)) is None

    def point_name(self, shelf: Shelf, name: str, record: Record) -> None:
        """The name stands for this record, unless it stands for a newer one."""
        key = shelf.name(name)
        item: Item = {"pk": key.pk, "sk": key.sk, "id": record.id, "c": record.created_ms}
        self._items.put(item, condition=Less("c", record.created_ms))

    def named(self, shelf: Shelf, name: str) -> Record | None:
        """The newest record of that name. Where that has been deleted, the newest one that is left: one query more."""
        key = shelf.name(name)
        item = self._items.get_many([key]).get(key)
        if item is None:
            return None
        found = self.get_any(shelf, _named(item))
        if found is None or found.status != DELETED:
            return found
        return next((record for record in self.every(shelf) if record.content.get("name") == name), None)

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


def _made_by(item: Item, request: RequestKey) -> str:
    """The record that a request has made, where this is the same request."""
    stamp = item.get("ik")
    if not isinstance(stamp, bytes) or not request.matches(stamp):
        raise CorruptError("the record of an idempotency key is damaged", item=item_name(item))
    return _named(item)


def _named(item: Item) -> str:
    """The record that an item stands for."""
    found = item.get("id")
    if not isinstance(found, str):
        raise CorruptError("a name of a record is damaged", item=item_name(item))
    return found


def _record(item: Item) -> Record:
    version, created, status, packed = item.get("v"), item.get("c"), item.get("st"), item.get("b")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version} is newer than {SCHEMA_VERSION}", item=item_name(item))
    if not isinstance(created, int) or not isinstance(status, str) or not isinstance(packed, bytes):
        raise CorruptError("a record is damaged", item=item_name(item))
    content: JsonObject = unpack_json(packed, item=item_name(item))
    return Record(item_name(item)[2:], created, status, content)
