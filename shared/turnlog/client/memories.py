"""What long-term memory knows of an owner."""

from __future__ import annotations

from collections.abc import Iterator

from turnlog.client.backend import OfOwner
from turnlog.contracts.memories import Forgotten, MemoryList, StoredMemory


class MemoryCalls(OfOwner):
    """Listing and forgetting."""

    def memory(self) -> Iterator[StoredMemory]:
        """All that is known, newest first, page by page; what a newer one replaced is marked."""
        cursor: str | None = None
        while True:
            page = self.memory_page(limit=100, cursor=cursor)
            yield from page.memories
            cursor = page.next_cursor
            if cursor is None:
                return

    def memory_page(self, *, limit: int = 20, cursor: str | None = None) -> MemoryList:
        """One page, and which engine keeps it."""
        answer: MemoryList = self._backend.call("list_memories", query={"limit": limit, "cursor": cursor})
        return answer

    def forget(self, memory_id: str) -> Forgotten:
        """Deletes one memory for good: it is not made again of what it came from. One that is not there is no error."""
        answer: Forgotten = self._backend.call("forget_memory", path={"memory_id": memory_id})
        return answer
