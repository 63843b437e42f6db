"""An owner's newest sessions as the list knows them, without their logs: what a search over all of them begins with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

from turnlog.core.errors import NotFoundError
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import DAY_MS
from turnlog.jobs.worker import Later
from turnlog.log.caches import active_of, is_touch, read_meta, session_id_of, status_of
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.parallel import in_parallel
from turnlog.log.tombstones import is_cache_tombstone
from turnlog.ports import AttributeValue, Item, ItemTable, Less, Query, SearchEngine
from turnlog.search.corpus import SearchedSessions
from turnlog.sessions.session_log import SessionLog

VERSION = 1
MAX_WORDS = 30_000
"""Of a session; rarer ones are left out."""
_BYTES = 3
_CLASSES = ((8, "w8"), (4, "w4"), (2, "w2"), (1, "w1"))
"""How often a word stands there at least, and the attribute that has such words."""


@lazy_dataclass(frozen=True, slots=True)
class Words:
    """The words of a session as of a position, read at a time. ``length`` counts all of them, repeated ones too."""

    position: int
    read_ms: int
    length: int
    classes: tuple[bytes, ...]

    @classmethod
    def of(cls, counts: Mapping[str, int], *, position: int, read_ms: int) -> Words:
        found: list[list[bytes]] = [[] for _ in _CLASSES]
        often = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MAX_WORDS]
        for word, count in often:
            found[next(at for at, (least, _) in enumerate(_CLASSES) if count >= least)].append(word_hash(word))
        return cls(position, read_ms, sum(counts.values()), tuple(b"".join(sorted(one)) for one in found))

    def count(self, hashed: bytes) -> int:
        """How often a word stands there, at least; 0 for one that does not."""
        for (least, _), words in zip(_CLASSES, self.classes, strict=True):
            at = words.find(hashed)
            while at >= 0 and at % _BYTES:
                at = words.find(hashed, at + 1)
            if at >= 0:
                return least
        return 0


def word_hash(word: str) -> bytes:
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:_BYTES]


class SessionWords:
    """Reads and writes what is known of sessions' words."""

    def __init__(self, items: ItemTable, engine: str) -> None:
        """``engine`` is the name of the search engine that has cut the words."""
        self._items = items
        self._engine = engine

    def read(self, sessions: Sequence[SessionKeys]) -> dict[str, Words]:
        """By session; those of another engine or version are as if they were not there."""
        found = self._items.get_many([keys.words for keys in sessions], consistent=False)
        read = {keys.session_id: found.get(keys.words) for keys in sessions}
        return {
            session_id: words
            for session_id, item in read.items()
            if item is not None and (words := self._read(item)) is not None
        }

    def write(self, keys: SessionKeys, words: Words) -> None:
        """Unless what is there was read later, or the session has been erased."""
        classes: dict[str, AttributeValue] = {
            name: found for (_, name), found in zip(_CLASSES, words.classes, strict=True) if found
        }
        place: dict[str, AttributeValue] = {"pk": keys.words.pk, "sk": keys.words.sk, "pos": words.position}
        item = {**place, "v": VERSION, "e": self._engine, "c": words.read_ms, "n": words.length, **classes}
        self._items.put(item, condition=Less("c", words.read_ms + 1))

    def _read(self, item: Item) -> Words | None:
        if is_cache_tombstone(item) or (item.get("v"), item.get("e")) != (VERSION, self._engine):
            return None
        position, read_ms, length = item.get("pos"), item.get("c"), item.get("n")
        classes = [item.get(name, b"") for _, name in _CLASSES]
        if not isinstance(position, int) or not isinstance(read_ms, int) or not isinstance(length, int):
            return None
        return Words(position, read_ms, length, tuple(one for one in classes if isinstance(one, bytes)))


MAX_SESSIONS = 2_000
"""So many of the newest are looked through."""
_AT_A_TIME, _PARALLEL = 100, 8


@lazy_dataclass(frozen=True, slots=True)
class Listed:
    """An entry of the list: the head's position, or one of the last activity's five minutes; ``active_ms`` is of these too."""

    keys: SessionKeys
    title: str | None
    active_ms: int
    position: int
    is_there: bool
    """False while it is being created, as far as the list knows."""


class OwnerSessions:
    """Lists sessions, and reads what is known of their words."""

    def __init__(self, log: SessionLog, words: SessionWords) -> None:
        self._log = log
        self._words = words

    def newest(self, owner: Owner) -> tuple[list[Listed], bool]:
        """At most `MAX_SESSIONS`, newest activity first, one request for some 1,500 of them; and whether there are older ones."""
        found, partition, now = list[Listed](), OwnerKeys(owner).partition, self._log.clock.now_ms()
        after: Mapping[str, str] | None = None
        while True:
            query = Query(
                partition,
                "",
                "~",
                descending=True,
                limit=MAX_SESSIONS + 1 - len(found),
                index="activity",
                consistent=False,
                after=after,
            )
            page = self._log.items.query(query)
            found += [one for one in (_listed(owner, item, now) for item in page.items) if one is not None]
            after = page.next
            if after is None or len(found) > MAX_SESSIONS:
                return found[:MAX_SESSIONS], after is not None or len(found) > MAX_SESSIONS

    def words(self, listed: Sequence[Listed]) -> dict[str, Words]:
        """By session: 100 a request, eight at a time."""
        keys = [one.keys for one in listed]
        parts = [keys[at : at + _AT_A_TIME] for at in range(0, len(keys), _AT_A_TIME)]
        if len(parts) <= 1:
            return self._words.read(keys)
        read = in_parallel(self._words.read, parts, threads=_PARALLEL)
        return {name: words for found in read for name, words in found.items()}


def is_behind(one: Listed, words: Words | None) -> bool:
    """Whether a session may have messages that are not among its known words.

    An entry of the list follows the first commit of each five minutes. So words that were read in later ones than those of the
    entry are all there are; those that were read in the same may not be.
    """
    return _is_older(one, words) or (words is not None and not _is_later(one, words.read_ms))


def is_due(one: Listed, words: Words | None, now_ms: int) -> bool:
    """Whether words are to be read: not again and again in five minutes in which more is said."""
    return _is_older(one, words) or (is_behind(one, words) and _is_later(one, now_ms))


def _is_later(one: Listed, time_ms: int) -> bool:
    """Whether a time is in later five minutes than those of an entry."""
    return is_touch(one.active_ms, time_ms) and time_ms > one.active_ms


def _is_older(one: Listed, words: Words | None) -> bool:
    return words is None or words.position < one.position


def _listed(owner: Owner, item: Item, now_ms: int) -> Listed | None:
    """None for a session that has expired."""
    meta, active = read_meta(item), active_of(item)
    ttl_days = meta.settings.ttl_days
    if ttl_days and now_ms >= active + ttl_days * DAY_MS:
        return None
    keys = SessionKeys(owner, session_id_of(item))
    is_there = status_of(item) != "creating"
    return Listed(keys, meta.settings.title, active, meta.position, is_there)


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
