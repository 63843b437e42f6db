"""How sessions and what is in them come to an end: erasure, redaction, retention."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from turnlog.composition.memories import Memories

if TYPE_CHECKING:
    from turnlog.services.erase_user import EraseUsers
    from turnlog.services.redact import RedactMessages
    from turnlog.services.retention import RetainSessions


class Lifetime(Memories):
    """The use cases of removing things for good."""

    @cached_property
    def erase_user(self) -> EraseUsers:
        from turnlog.services.erase_user import EraseUsers

        return EraseUsers(self._log, self.engine.blobs, self._erasure, self._start_job, self._all_memories)

    @cached_property
    def redact_message(self) -> RedactMessages:
        from turnlog.log.redacted_parts import RedactedParts
        from turnlog.log.redaction import Redaction
        from turnlog.services.redact import RedactMessages

        parts = RedactedParts(self.engine.blobs, self.segments, self._log.records)
        redaction = Redaction(self._log, self.engine.blobs, self._log.forks, parts)
        return RedactMessages(
            self._log, redaction, self._erasure, self._start_job, self._offload_copies, self._all_memories
        )

    @cached_property
    def retain_sessions(self) -> RetainSessions:
        """What a schedule calls, or who serves on one machine."""
        from turnlog.services.retention import RetainSessions

        return RetainSessions(self._log, self._erasure, self._start_job, self._ask_offload)
