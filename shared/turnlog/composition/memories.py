"""Long-term memory: which engine keeps it, and what is handed to it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from turnlog.composition.base import Parts

if TYPE_CHECKING:
    from turnlog.log.offloads import Offloads
    from turnlog.services.memories import ForgetMemories, ListMemories
    from turnlog.services.offload import AskForOffloads, OffloadCopies, OffloadSessions


class Memories(Parts):
    """The use cases of what is known of a person beyond a session."""

    @cached_property
    def _offloads(self) -> Offloads:
        from turnlog.log.offloads import Offloads

        return Offloads(self._items)

    @cached_property
    def _ask_offload(self) -> AskForOffloads:
        from turnlog.services.offload import AskForOffloads

        return AskForOffloads(self._log, self._offloads, self._start_job, is_on=self._has_memory)

    @cached_property
    def _offload_copies(self) -> OffloadCopies:
        from turnlog.services.offload import OffloadCopies

        return OffloadCopies(self._log, self.engine.blobs, self._offloads)

    @cached_property
    def offload_session(self) -> OffloadSessions:
        from turnlog.services.offload import OffloadSessions

        return OffloadSessions(self._log, self._offloads, self._offload_copies, self.memory)

    @cached_property
    def list_memories(self) -> ListMemories:
        from turnlog.services.memories import ListMemories

        return ListMemories(self._log, self._told_memory)

    @cached_property
    def forget_memory(self) -> ForgetMemories:
        from turnlog.services.memories import ForgetMemories

        return ForgetMemories(self.memory)
