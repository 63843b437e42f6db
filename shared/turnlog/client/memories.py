"""What long-term memory knows of an owner."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.client.backend import OfOwner
from turnlog.client.paging import Paged
from turnlog.contracts.memories import Forgotten, MemoryList, StoredMemory


class MemoryCalls(OfOwner):
    """Listing and forgetting."""

    def memory(self) -> Paged[StoredMemory]:
        """All that is known, newest first, page by page; what a newer one replaced is marked."""

        def fetch(cursor: str | None) -> tuple[Sequence[StoredMemory], str | None]:
            page = self.memory_page(limit=100, cursor=cursor)
            return page.memories, page.next_cursor

        return Paged(fetch)

    def memory_page(self, *, limit: int = 20, cursor: str | None = None) -> MemoryList:
        """One page, and which engine keeps it."""
        answer: MemoryList = self._backend.call("list_memories", query={"limit": limit, "cursor": cursor})
        return answer

    def forget(self, memory_id: str) -> Forgotten:
        """Deletes one memory for good: it is not made again of what it came from. One that is not there is no error."""
        answer: Forgotten = self._backend.call("forget_memory", path={"memory_id": memory_id})
        return answer
