"""Indexing: which words an owner's sessions have, made where that is missing or behind, as a job. Nothing needs it but speed."""

from __future__ import annotations

from typing import cast

from turnlog.domain.errors import NotFoundError
from turnlog.domain.identity import Owner
from turnlog.domain.jsonvalue import JsonObject
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.log.words import SessionWords, Words
from turnlog.ports import SearchEngine
from turnlog.services.jobs import Later
from turnlog.services.owner_sessions import OwnerSessions, is_due
from turnlog.services.searched import SearchedSessions

MAX_MS = 5_000
"""A part of a job begins no further session after that time."""


class IndexSessions:
    """The use case of the worker. Doing it again, or twice at once, changes nothing."""

    def __init__(
        self,
        log: SessionLog,
        owners: OwnerSessions,
        sessions: SearchedSessions,
        words: SessionWords,
        engine: SearchEngine,
    ) -> None:
        self._log = log
        self._owners = owners
        self._sessions = sessions
        self._words = words
        self._engine = engine

    def run(self, owner: Owner, _session_id: str, options: JsonObject) -> JsonObject | Later:
        """A part of a job's work: how many sessions were indexed so far."""
        done = cast("int", options.get("done", 0))
        deadline = self._log.clock.now_ms() + MAX_MS
        listed, _ = self._owners.newest(owner)
        known = self._owners.words(listed)
        now = self._log.clock.now_ms()
        waiting = [one.keys for one in listed if is_due(one, known.get(one.keys.session_id), now)]
        for at, keys in enumerate(waiting):
            if at and self._log.clock.now_ms() >= deadline:
                return Later({"sessions": done}, {"done": done})
            done += self._index(keys)
        return {"sessions": done}

    def _index(self, keys: SessionKeys) -> int:
        read_ms = self._log.clock.now_ms()
        try:
            searched = self._sessions.read(keys)
        except NotFoundError:
            return 0
        header = searched.header
        summary = self._log.summaries.in_force(keys, header.summary)
        counts = searched.whole.word_counts()
        if summary is not None:
            for word, count in self._engine.terms([summary.event.text])[0].items():
                counts[word] = counts.get(word, 0) + count
        self._words.write(keys, Words.of(counts, position=header.last, read_ms=read_ms))
        return 1
