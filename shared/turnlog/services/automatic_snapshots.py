"""Snapshots that a session makes by itself, where its settings ask for them: a ``ref`` whenever so many loops have ended.

It costs the append that begins the next loop one conditional put, and the clean-up of old ones; other appends, and sessions
without the setting, nothing. It comes after the append is durable, and what goes wrong with it is no matter of the append.
"""

from __future__ import annotations

from contextlib import suppress

from turnlog.contracts.sessions import SnapshotPolicy
from turnlog.domain.errors import UnavailableError
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import encode_json
from turnlog.domain.session import Settings
from turnlog.log.headers import Header, short_hash
from turnlog.log.keys import SessionKeys
from turnlog.log.records import Record
from turnlog.log.sessions import SessionLog
from turnlog.services.delete_snapshots import SnapshotCleaner
from turnlog.services.snapshots import ref_content


class AutomaticSnapshots:
    """Decides from the headers of an append and of the commit before it."""

    def __init__(self, log: SessionLog, clean: SnapshotCleaner) -> None:
        self._log = log
        self._clean = clean

    def __call__(self, owner: Owner, session_id: str, header: Header, before: Header, settings: Settings) -> None:
        """Again for the same append: the same snapshot. It points to the commit before the loop that begins."""
        keys = SessionKeys(owner, session_id)
        if before.last + 1 != header.first:
            # Said again: what followed is the log's end now, and not what went before.
            found = self._log.commits.containing(keys, header.first - 1)
            before = found.header if found is not None else header
        policy = SnapshotPolicy.model_validate_json(encode_json(settings.snapshots))
        if _ended(header) // policy.every_loops <= _ended(before) // policy.every_loops:
            return
        record_id = f"{header.time_ms:013d}-{short_hash(f'automatic {session_id} {header.first}').hex()}"
        content = ref_content(before) | {"name": None, "agent": None, "metadata": {"automatic": True}, "auto": True}
        with suppress(UnavailableError):
            self._log.records.create(keys.snapshots, Record(record_id, header.time_ms, "ready", content))
            self._clean.older(keys, kind="ref", agent=None, keep=policy.keep, automatic=True)


def _ended(header: Header) -> int:
    """How many loops have ended for certain: those before the newest."""
    return max(0, header.flow.loop.number - 1)
