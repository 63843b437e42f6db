"""Sealing: complete stretches of a session's log become segments, in order, as a job. Nothing waits for it and nothing needs it."""

from __future__ import annotations

from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject
from turnlog.domain.segments import last_of_stretch, stretch_of
from turnlog.log.keys import SessionKeys
from turnlog.log.segments import Segments
from turnlog.log.sessions import SessionLog

MAX_MS = 5_000
"""A job begins no further segment after that time, so that it ends before its worker does. The next job goes on from there."""


class SealSessions:
    """The use case of the worker: seals what is complete and not sealed yet. Doing it again, or twice at once, changes nothing."""

    def __init__(self, log: SessionLog, segments: Segments) -> None:
        self._log = log
        self._segments = segments

    def run(self, owner: Owner, session_id: str, _options: JsonObject) -> JsonObject:
        """A job's work: how many segments there are more, and the position up to which there are segments."""
        keys = SessionKeys(owner, session_id)
        deadline = self._log.clock.now_ms() + MAX_MS
        head = self._log.commits.tail(keys).header.last
        newest = self._segments.newest(keys)
        sealed, last = 0, newest.last if newest is not None else 0
        stretch = stretch_of(newest.first) + 1 if newest is not None else 0
        while head >= last_of_stretch(stretch) and (not sealed or self._log.clock.now_ms() < deadline):
            made = self._segments.seal(keys, stretch)
            if made is None:
                break
            sealed, last, stretch = sealed + 1, made.last, stretch + 1
        return {"segments": sealed, "last": last}
