"""What is known of a person: listed, and forgotten one by one."""

from __future__ import annotations

from collections.abc import Iterable

from turnlog.contracts.cursors import Cursors
from turnlog.contracts.memories import Forgotten, MemoryList, StoredMemory
from turnlog.domain.errors import NotFoundError
from turnlog.domain.identity import Owner
from turnlog.domain.memory import Memory
from turnlog.domain.times import rfc3339
from turnlog.log.keys import OwnerKeys
from turnlog.log.sessions import SessionLog
from turnlog.log.tombstones import is_cache_tombstone, keeps_snapshots
from turnlog.ports import MemoryEngine

MAX_LIMIT = 100


class ListMemories:
    """The use case: a page, newest first. From the moment a session or person is erased nothing of it is listed, though the job
    that erases it in the engine be still on its way."""

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
            memories=[memory_answer(one) for one in self._living(owner, page.memories)],
            next_cursor=cursors.write({"after": page.next}, scope=scope) if page.next is not None else None,
        )

    def _living(self, owner: Owner, memories: Iterable[Memory]) -> list[Memory]:
        """Those of no session that has been erased."""
        keys, found = OwnerKeys(owner), list(memories)
        entries = {one.session_id: keys.directory(one.session_id) for one in found if one.session_id is not None}
        if not found:
            return []
        items = self._log.items.get_many([keys.erasing, *entries.values()])
        if keys.erasing in items:
            return []
        gone = {
            session_id
            for session_id, key in entries.items()
            if key in items and is_cache_tombstone(items[key]) and not keeps_snapshots(items[key])
        }
        return [one for one in found if one.session_id not in gone]


class ForgetMemories:
    """The use case: it is gone for good, and not made again of what it came from. Repeated, it is the same answer."""

    def __init__(self, memory: MemoryEngine | None) -> None:
        self._memory = memory

    def __call__(self, owner: Owner, memory_id: str) -> Forgotten:
        if self._memory is None:
            raise NotFoundError("long-term memory is off")
        self._memory.forget(owner, [memory_id])
        return Forgotten(memory_id=memory_id)


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
