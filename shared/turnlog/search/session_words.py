"""An owner's newest sessions with their stored words, read without their logs; a search over sessions selects from these."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from turnlog.core.errors import NotFoundError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import DAY_MS
from turnlog.jobs.worker import Later
from turnlog.log.caches import active_of, is_listing_due, read_meta, session_id_of, status_of
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.payloads import in_parallel
from turnlog.log.tombstones import is_cache_tombstone
from turnlog.ports import AttributeValue, Item, ItemTable, Key, Less, Query, SearchEngine
from turnlog.search.corpus import SessionReader
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.store import Summaries

VERSION = 1
MAX_WORDS = 30_000
"""Distinct words that are stored for a session; rarer words are left out."""
_BYTES = 3
"""Bytes of a word's hash."""
_CLASSES = ((8, "w8"), (4, "w4"), (2, "w2"), (1, "w1"))
"""Classes of words: the least number of occurrences, and the attribute that holds the hashes of such words."""
MAX_SESSIONS = 2_000
"""Number of an owner's newest sessions that a search considers."""
_BATCH, _PARALLEL = 100, 8
JOB_MS = 60 * 1000
"""Period in which a job reads a session again at most once, and at most one job is started for the same sessions."""
MAX_MS = 5_000
"""Time after which one run of the job begins no further session."""


@lazy_dataclass(frozen=True, slots=True)
class Words:
    """The words of a session up to ``position``, read at ``read_ms``. ``length`` counts all occurrences.

    ``classes`` are the sorted hashes of the words, one string of bytes for each class of `_CLASSES`.
    """

    position: int
    read_ms: int
    length: int
    classes: tuple[bytes, ...]

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, position: int, read_ms: int) -> Words:
        """Build the words of a session from the number of occurrences of each word; the most frequent `MAX_WORDS` are kept."""
        classes: list[list[bytes]] = [[] for _ in _CLASSES]
        most_frequent = sorted(counts.items(), key=lambda word_count: (-word_count[1], word_count[0]))[:MAX_WORDS]
        for word, count in most_frequent:
            index = next(index for index, (least, _) in enumerate(_CLASSES) if count >= least)
            classes[index].append(word_hash(word))
        return cls(position, read_ms, sum(counts.values()), tuple(b"".join(sorted(hashes)) for hashes in classes))

    def count(self, hashed: bytes) -> int:
        """Return the least number of occurrences of a word's class; 0 for a word that is not stored."""
        for (least, _), words in zip(_CLASSES, self.classes, strict=True):
            offset = words.find(hashed)
            while offset >= 0 and offset % _BYTES:
                offset = words.find(hashed, offset + 1)
            if offset >= 0:
                return least
        return 0


def word_hash(word: str) -> bytes:
    """Return the first bytes of a word's SHA-256. Two words may share them; such a session is read without a match."""
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:_BYTES]


class SessionWords:
    """Reads and writes the stored words of sessions."""

    def __init__(self, items: ItemTable, engine: SearchEngine) -> None:
        """``engine`` makes the words; those of another engine are not read, and made anew like missing ones."""
        self._items = items
        self._engine = engine

    def read(self, sessions: Sequence[SessionKeys]) -> dict[str, Words]:
        """Return the words of sessions by session id; words of another engine or version count as missing."""
        items = self._items.get_many([keys.words for keys in sessions], consistent=False)
        by_session = {keys.session_id: self._read(items.get(keys.words)) for keys in sessions}
        return {session_id: words for session_id, words in by_session.items() if words is not None}

    def write(self, keys: SessionKeys, words: Words) -> None:
        """Store the words of a session, unless the stored words were read later or the session has been erased."""
        classes: dict[str, AttributeValue] = {
            name: hashes for (_, name), hashes in zip(_CLASSES, words.classes, strict=True) if hashes
        }
        place: dict[str, AttributeValue] = {"pk": keys.words.pk, "sk": keys.words.sk, "pos": words.position}
        item = {**place, "v": VERSION, "e": self._engine.name, "c": words.read_ms, "n": words.length, **classes}
        self._items.put(item, condition=Less("c", words.read_ms + 1))

    def _read(self, item: Item | None) -> Words | None:
        if item is None or is_cache_tombstone(item):
            return None
        # They are hashes: of an older engine's, nobody can say which words they are of.
        if item.get("v") != VERSION or item.get("e") != self._engine.name:
            return None
        position, read_ms, length = item.get("pos"), item.get("c"), item.get("n")
        classes = [item.get(name, b"") for _, name in _CLASSES]
        if not isinstance(position, int) or not isinstance(read_ms, int) or not isinstance(length, int):
            return None
        return Words(position, read_ms, length, tuple(hashes for hashes in classes if isinstance(hashes, bytes)))


@lazy_dataclass(frozen=True, slots=True)
class ListedSession:
    """A session's entry in the list of sessions.

    The entry is updated by the first commit of each five minutes. So ``position`` and ``active_ms`` are those of the newest commit,
    or of an earlier commit in the same five minutes.
    """

    keys: SessionKeys
    title: str | None
    active_ms: int
    position: int
    is_there: bool
    """False while the list has the session as being created."""

    @property
    def session_id(self) -> str:
        return self.keys.session_id


class OwnerSessions:
    """Lists an owner's sessions, and reads their stored words."""

    def __init__(self, log: SessionLog, words: SessionWords) -> None:
        self._log = log
        self._words = words

    def newest(self, owner: Owner, most: int | None = None) -> tuple[list[ListedSession], bool]:
        """Return at most ``most`` sessions (`MAX_SESSIONS`), newest activity first, and whether there are older ones.

        Takes one request for each 1,500 sessions or so.
        """
        most = most or MAX_SESSIONS
        sessions, partition, now = list[ListedSession](), OwnerKeys(owner).partition, self._log.clock.now_ms()
        after: Mapping[str, str] | None = None
        query = Query(partition, "", "~", descending=True, index="activity")
        while True:
            page = self._log.items.query(replace(query, limit=most + 1 - len(sessions), after=after))
            sessions += [entry for entry in (_listed(owner, item, now) for item in page.items) if entry is not None]
            after = page.next
            if after is None or len(sessions) > most:
                return sessions[:most], after is not None or len(sessions) > most

    def words(self, listed: Sequence[ListedSession]) -> dict[str, Words]:
        """Return the stored words of sessions by session id: 100 sessions a request, eight requests at a time."""
        keys = [session.keys for session in listed]
        batches = [keys[first : first + _BATCH] for first in range(0, len(keys), _BATCH)]
        answers = in_parallel(self._words.read, batches, threads=_PARALLEL)
        return {session_id: words for answer in answers for session_id, words in answer.items()}

    def behind(self, listed: Sequence[ListedSession], words: Mapping[str, Words]) -> set[str]:
        """Return the ids of the sessions with commits that their stored words don't include.

        The entry in the list is updated by the first commit of each five minutes. Words that were read within the entry's five
        minutes are complete if no commit follows their position: one request for each 100 such sessions.
        """
        behind, slots = set[str](), dict[Key, str]()
        for session in listed:
            known = words.get(session.session_id)
            if known is None or known.position < session.position:
                behind.add(session.session_id)
            elif known.read_ms <= session.active_ms or not is_listing_due(session.active_ms, known.read_ms):
                # Read before the end of the five minutes in which the session's entry is not updated.
                slots[session.keys.commit(known.position + 1)] = session.session_id
        return behind | {slots[key] for key in self._log.items.get_many(list(slots), consistent=False)}

    def due(self, behind: Collection[str], words: Mapping[str, Words]) -> set[str]:
        """Return those of the sessions that no job has read within `JOB_MS`."""
        read_before = self._log.clock.now_ms() - JOB_MS
        return {name for name in behind if name not in words or words[name].read_ms <= read_before}


def _listed(owner: Owner, item: Item, now_ms: int) -> ListedSession | None:
    """Return the entry of an item of the list, or None if the session has expired."""
    meta, active = read_meta(item), active_of(item)
    ttl_days = meta.settings.ttl_days
    if ttl_days and now_ms >= active + ttl_days * DAY_MS:
        return None
    keys = SessionKeys(owner, session_id_of(item))
    is_there = status_of(item) != "creating"
    return ListedSession(keys, meta.settings.title, active, meta.position, is_there)


class IndexSessions:
    """Use case of the worker: store the words of an owner's sessions. Repeated and concurrent runs are harmless."""

    def __init__(
        self, log: SessionLog, owners: OwnerSessions, sessions: SessionReader, words: SessionWords, engine: SearchEngine
    ) -> None:
        self._log = log
        self._owners = owners
        self._sessions = sessions
        self._words = words
        self._engine = engine

    def run(self, owner: Owner, _session_id: str, options: JsonObject) -> JsonObject | Later:
        """Index sessions for `MAX_MS`; return the number of sessions indexed so far, as `Later` if more are due."""
        done = cast("int", options.get("done", 0))
        deadline = self._log.clock.now_ms() + MAX_MS
        listed, _ = self._owners.newest(owner)
        known = self._owners.words(listed)
        due = self._owners.due(self._owners.behind(listed, known), known)
        waiting = [session.keys for session in listed if session.session_id in due]
        for index, keys in enumerate(waiting):
            if index and self._log.clock.now_ms() >= deadline:
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
        summary = Summaries(self._log).current(keys, header.summary)
        counts = searched.corpus.word_counts()
        if summary is not None:
            counts.update(self._engine.terms([summary.event.text])[0])
        self._words.write(keys, Words.from_counts(counts, position=header.last, read_ms=read_ms))
        return 1
