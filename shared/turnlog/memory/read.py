"""List the memories of a person, and forget single ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnlog.core.errors import NotFoundError
from turnlog.core.identity import Owner
from turnlog.core.memory import Memory, MemoryPage
from turnlog.core.models import Cursors
from turnlog.core.times import rfc3339
from turnlog.log.keys import OwnerKeys
from turnlog.log.tombstones import is_being_erased, is_cache_tombstone, keeps_snapshots
from turnlog.memory.routes import Forgotten, MemoryList, StoredMemory
from turnlog.ports import ItemTable, MemoryEngine, MemoryReader
from turnlog.sessions.session_log import SessionLog


class VisibleMemories:
    """Implements `MemoryReader`: hides memories of users and sessions under erasure."""

    def __init__(self, engine: MemoryReader, items: ItemTable) -> None:
        self._engine = engine
        self._items = items

    @property
    def name(self) -> str:
        return self._engine.name

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        memories = self._engine.known(owner, question, limit=limit, timeout_seconds=timeout_seconds)
        return visible_memories(self._items, owner, memories)

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """Return a page of visible memories; it may be shorter than ``limit``."""
        page = self._engine.page(owner, limit=limit, after=after)
        return MemoryPage(tuple(visible_memories(self._items, owner, page.memories)), page.next)


_MAX_QUERY_CHARS, _SEARCH_SECONDS = 1_000, 10.0


class ListMemories:
    """Use case: list the memories of a person, newest first, a page at a time; or find those that fit words."""

    def __init__(self, log: SessionLog, get_memory: Callable[[], MemoryReader | None]) -> None:
        self._log = log
        self._get_memory = get_memory

    def __call__(self, owner: Owner, *, limit: int = 20, cursor: str | None = None, q: str | None = None) -> MemoryList:
        memory = self._get_memory()
        if memory is None:
            return MemoryList(engine=None, memories=[], next_cursor=None)
        if q is not None and q.strip():
            known = memory.known(owner, q[:_MAX_QUERY_CHARS], limit=limit, timeout_seconds=_SEARCH_SECONDS)
            matches = [memory_answer(match) for match in known if match.score is not None]
            return MemoryList(engine=memory.name, memories=matches, next_cursor=None)
        cursors = Cursors(self._log.cursor_secret())
        scope = f"memories {owner.tenant_id} {owner.user_id} {memory.name}"
        after = cursors.read(cursor, scope=scope)["after"] if cursor is not None else None
        page = memory.page(owner, limit=limit, after=after)
        return MemoryList(
            engine=memory.name,
            memories=[memory_answer(listed) for listed in page.memories],
            next_cursor=cursors.write({"after": page.next}, scope=scope) if page.next is not None else None,
        )


class ForgetMemories:
    """Use case: forget a memory for good; it is not made again of the same messages. Repeated, the answer is the same."""

    def __init__(self, memory: MemoryEngine | None) -> None:
        self._memory = memory

    def __call__(self, owner: Owner, memory_id: str) -> Forgotten:
        if self._memory is None:
            raise NotFoundError("long-term memory is off")
        self._memory.forget(owner, [memory_id])
        return Forgotten(memory_id=memory_id)


def visible_memories(items: ItemTable, owner: Owner, memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories without those of erased sessions and users. One request.

    They are hidden from the moment the erasure is requested, while its job still deletes them from the engine.
    """
    if not memories:
        return []
    keys = OwnerKeys(owner)
    entry_keys = {
        memory.session_id: keys.directory(memory.session_id) for memory in memories if memory.session_id is not None
    }
    items_by_key = items.get_many([keys.erasing, *entry_keys.values()])
    if is_being_erased(items, owner, items_by_key.get(keys.erasing)):
        return []
    gone = {
        session_id
        for session_id, key in entry_keys.items()
        if key in items_by_key and is_cache_tombstone(items_by_key[key]) and not keeps_snapshots(items_by_key[key])
    }
    return [memory for memory in memories if memory.session_id not in gone]


def memory_answer(memory: Memory) -> StoredMemory:
    """Return a memory as the API shows it."""
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
