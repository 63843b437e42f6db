"""What is known of a person: listed, and forgotten one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from turnlog.core.errors import NotFoundError
from turnlog.core.identity import Owner
from turnlog.core.memory import Memory, MemoryPage, Offloaded
from turnlog.core.models import Cursors
from turnlog.core.times import rfc3339
from turnlog.log.keys import OwnerKeys
from turnlog.log.tombstones import is_cache_tombstone, keeps_snapshots
from turnlog.memory.models import Forgotten, MemoryList, StoredMemory
from turnlog.ports import ItemTable, MemoryEngine
from turnlog.sessions.session_log import SessionLog


class VisibleMemories:
    """Implements `MemoryEngine` by another one, which tells of what is `visible_memories`."""

    def __init__(self, engine: MemoryEngine, items: ItemTable) -> None:
        self._engine = engine
        self._items = items

    @property
    def name(self) -> str:
        return self._engine.name

    def remember(self, part: Offloaded) -> int:
        return self._engine.remember(part)

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        found = self._engine.known(owner, question, limit=limit, timeout_seconds=timeout_seconds)
        return visible_memories(self._items, owner, found)

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """Short of what is being erased."""
        page = self._engine.page(owner, limit=limit, after=after)
        return MemoryPage(tuple(visible_memories(self._items, owner, page.memories)), page.next)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        self._engine.forget(owner, memory_ids)

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        return self._engine.erase(owner, session_id, position=position)


class ListMemories:
    """The use case: a page, newest first."""

    def __init__(self, log: SessionLog, memory: MemoryEngine | None) -> None:
        self._log = log
        self._memory = memory

    def __call__(self, owner: Owner, *, limit: int = 20, cursor: str | None = None) -> MemoryList:
        if self._memory is None:
            return MemoryList(engine=None, memories=[], next_cursor=None)
        cursors = Cursors(self._log.cursor_secret())
        scope = f"memories {owner.tenant_id} {owner.user_id} {self._memory.name}"
        after = cursors.read(cursor, scope=scope)["after"] if cursor is not None else None
        page = self._memory.page(owner, limit=limit, after=after)
        return MemoryList(
            engine=self._memory.name,
            memories=[memory_answer(one) for one in page.memories],
            next_cursor=cursors.write({"after": page.next}, scope=scope) if page.next is not None else None,
        )


class ForgetMemories:
    """The use case: it is gone for good, and not made again of what it came from. Repeated, it is the same answer."""

    def __init__(self, memory: MemoryEngine | None) -> None:
        self._memory = memory

    def __call__(self, owner: Owner, memory_id: str) -> Forgotten:
        if self._memory is None:
            raise NotFoundError("long-term memory is off")
        self._memory.forget(owner, [memory_id])
        return Forgotten(memory_id=memory_id)


def visible_memories(items: ItemTable, owner: Owner, memories: Sequence[Memory]) -> list[Memory]:
    """Those of no session that has been erased: from the moment it is asked for nothing of it is told any more, though the job that
    erases it in the engine be still on its way. One request, for as many as there are.
    """
    if not memories:
        return []
    keys = OwnerKeys(owner)
    entries = {one.session_id: keys.directory(one.session_id) for one in memories if one.session_id is not None}
    found = items.get_many([keys.erasing, *entries.values()])
    if keys.erasing in found:
        return []
    gone = {
        session_id
        for session_id, key in entries.items()
        if key in found and is_cache_tombstone(found[key]) and not keeps_snapshots(found[key])
    }
    return [one for one in memories if one.session_id not in gone]


def memory_answer(memory: Memory) -> StoredMemory:
    return StoredMemory(
        memory_id=memory.id,
        kind=memory.kind,
        text=memory.text,
        created_at=rfc3339(memory.created_ms),
        session_id=memory.session_id,
        position=memory.position,
        confirmations=memory.confirmations,
        replaced_by=memory.replaced_by,
    )
