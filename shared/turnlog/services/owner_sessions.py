"""An owner's newest sessions as the list knows them, without their logs: what a search over all of them begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnlog.domain.identity import Owner
from turnlog.domain.times import DAY_MS
from turnlog.domain.values import dataclass
from turnlog.log.caches import active_of, is_touch, read_meta, session_id_of, status_of
from turnlog.log.keys import OwnerKeys, SessionKeys
from turnlog.log.parallel import in_parallel
from turnlog.log.sessions import SessionLog
from turnlog.log.words import SessionWords, Words
from turnlog.ports import Item, Query

MAX_SESSIONS = 2_000
"""So many of the newest are looked through."""
_AT_A_TIME, _PARALLEL = 100, 8


@dataclass(frozen=True, slots=True)
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
