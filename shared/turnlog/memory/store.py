"""The embedded engine's facts: one item for each part of a session, in the partition of the person.

What a part told is written once, so a part that comes again changes nothing, also when facts of it were forgotten since. Parts of
several sessions never write to the same item. What is merged and replaced is made by who reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from turnlog.core.errors import ConflictError, CorruptError, NewerSchemaError
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import Memory, MemoryFact, Offloaded
from turnlog.core.session_settings import SCHEMA_VERSION
from turnlog.log.headers import item_name
from turnlog.log.keys import OwnerKeys
from turnlog.log.packing import decoding, pack, unpack_json
from turnlog.memory.profile import SessionFact, least_worth, memories_of, normal
from turnlog.ports import Absent, Equal, Item, ItemTable, Key, Query

MAX_PART_FACTS = 100
"""Of one part; the first ones are kept. Packed they take a few KB."""
MAX_FACTS = 500
"""Of one person: beyond it those that were replaced go, then the least confirmed, of equals the oldest."""
MAX_TEXT_CHARS, MAX_SUBJECT_CHARS = 300, 80
_TRIES = 10


@lazy_dataclass(frozen=True, slots=True)
class _Part:
    item: Item
    session_id: str
    facts: tuple[MemoryFact, ...]


class Memories:
    """Stores and reads facts of people."""

    def __init__(self, items: ItemTable) -> None:
        self._items = items

    def told(self, part: Offloaded) -> int | None:
        """How many facts there are of a part that was told before; None: it was not."""
        key = OwnerKeys(part.owner).memories(part.session_id, part.id)
        item = self._items.get_many([key]).get(key)
        return len(_part(item).facts) if item is not None else None

    def add(self, part: Offloaded, facts: Sequence[MemoryFact]) -> int:
        """Keeps what a part told, unless it was told before; how many facts that are."""
        key = OwnerKeys(part.owner).memories(part.session_id, part.id)
        kept = [_cut(fact) for fact in facts[:MAX_PART_FACTS]]
        lost = self._items.put(_item(key, kept, revision=1), condition=Absent())
        if lost is not None:
            return len(_part(lost.existing).facts) if lost.existing is not None else 0
        self._trim(part.owner)
        return len(kept)

    def of(self, owner: Owner) -> list[Memory]:
        """All that is known of a person, newest first."""
        return memories_of(_told(self._parts(owner)), _id_of(owner))

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> int:
        """Those facts are no more, in any part; how many there were."""
        wanted, id_of = set(memory_ids), _id_of(owner)
        return self._keep(self._parts(owner), lambda fact: id_of(normal(fact.text)) not in wanted)

    def erase_message(self, owner: Owner, session_id: str, position: int) -> int:
        """Nothing is known from a message any more; how many facts there were."""
        return self._keep(self._parts(owner, session_id), lambda fact: fact.position != position)

    def erase(self, owner: Owner, session_id: str | None = None) -> int:
        """Nothing is left of a session's parts, or of a person's; how many facts there were."""
        erased, keys = 0, list[Key]()
        for part in self._parts(owner, session_id):
            keys.append(_key(part.item))
            erased += len(part.facts)
        self._items.delete_many(keys)
        return erased

    # ------------------------------------------------------------ steps

    def _trim(self, owner: Owner) -> None:
        parts = list(self._parts(owner))
        if sum(len(part.facts) for part in parts) <= MAX_FACTS:
            return
        known, id_of = memories_of(_told(parts), _id_of(owner)), _id_of(owner)
        gone = {one.id for one in least_worth(known, len(known) - MAX_FACTS)}
        # Said a hundred times is told once and counted: no more than that can be over the limit.
        self._keep(parts, lambda fact: id_of(normal(fact.text)) not in gone)

    def _keep(self, parts: Iterator[_Part] | list[_Part], is_kept: Callable[[MemoryFact], bool]) -> int:
        return sum(self._keep_of(part, is_kept) for part in parts)

    def _keep_of(self, part: _Part, is_kept: Callable[[MemoryFact], bool]) -> int:
        """Writes a part without some facts. It stays when it has none: else it would be told again."""
        for _ in range(_TRIES):
            kept = [fact for fact in part.facts if is_kept(fact)]
            if len(kept) == len(part.facts):
                return 0
            revision = _number(part.item, "n")
            item = _item(_key(part.item), kept, revision=revision + 1)
            lost = self._items.put(item, condition=Equal("n", revision))
            if lost is None:
                return len(part.facts) - len(kept)
            if lost.existing is None:
                return 0
            part = _part(lost.existing)
        raise ConflictError("others change the same memories; try again", retry_after_seconds=1)

    def _parts(self, owner: Owner, session_id: str | None = None) -> Iterator[_Part]:
        keys, after = OwnerKeys(owner), None
        low, high = keys.memory_bounds(session_id)
        while True:
            page = self._items.query(Query(keys.partition, low, high, after=after))
            yield from map(_part, page.items)
            after = page.next
            if after is None:
                return


def _told(parts: Iterator[_Part] | list[_Part]) -> Iterator[SessionFact]:
    return (SessionFact(fact, part.session_id) for part in parts for fact in part.facts)


def _id_of(owner: Owner) -> Callable[[str], str]:
    """Ids are the same in every process, and another owner's are others."""
    beside = f"{owner.tenant_id} {owner.user_id} "
    return lambda text: hashlib.sha256((beside + text).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _cut(fact: MemoryFact) -> MemoryFact:
    return MemoryFact(
        fact.kind, fact.text[:MAX_TEXT_CHARS], fact.subject[:MAX_SUBJECT_CHARS], fact.position, fact.time_ms
    )


def _item(key: Key, facts: Sequence[MemoryFact], *, revision: int) -> Item:
    rows = [[one.kind, one.text, one.subject, one.position, one.time_ms] for one in facts]
    return {"pk": key.pk, "sk": key.sk, "v": SCHEMA_VERSION, "n": revision, "b": pack(encode_json(rows))}


def _part(item: Item) -> _Part:
    name = item_name(item)
    version = _number(item, "v")
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version} is newer than {SCHEMA_VERSION}", item=name)
    packed = item.get("b")
    if not isinstance(packed, bytes):
        raise CorruptError("memories without content", item=name)
    rows = unpack_json(packed, item=name)
    with decoding(name):
        return _Part(item, name.split("#")[1], tuple(MemoryFact(*row) for row in rows))


def _key(item: Mapping[str, object]) -> Key:
    return Key(str(item["pk"]), str(item["sk"]))


def _number(item: Item, name: str) -> int:
    value = item.get(name)
    if not isinstance(value, int):
        raise CorruptError(f"attribute {name!r} is not a number", item=item_name(item))
    return value
