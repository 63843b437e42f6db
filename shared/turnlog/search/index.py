"""What search knows of messages: their terms, and where and when they stand. Of a segment it is kept in a blob beside it.

An index is a cache: it follows from its segment, under a name with that one's hash. One that is missing, damaged or made by
another engine is made anew from the segment by who reads it, and stored by nobody but the worker that seals.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any

from turnlog.core.calls import CallFact, MessageOutline, ResultFact
from turnlog.core.errors import CorruptError
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Role
from turnlog.log.keys import SessionKeys
from turnlog.log.packing import pack, unpack
from turnlog.log.reading import Located, said_at, shown_text
from turnlog.ports import BlobStore, SearchEngine
from turnlog.snapshots.segments import Segment

VERSION = 1
"""Of each message, from its beginning."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@lazy_dataclass(frozen=True, slots=True)
class IndexedMessage:
    """One message. ``commit`` is its commit's first position; ``time_ms`` the caller's own time where there is one. ``facts`` are
    enough to pair its calls and results; their text says only whether there is any."""

    position: int
    commit: int
    loop: int
    time_ms: int
    length: int
    facts: MessageOutline


@dataclasses.dataclass(slots=True)
class Index:
    """Messages in order of position, and for each term, packed, the rows that have it, with how often."""

    entries: list[IndexedMessage] = field(default_factory=list)
    terms: dict[str, list[Any]] = field(default_factory=dict)

    def rows_of(self, term: str) -> list[tuple[int, int]]:
        packed = self.terms.get(term)
        if packed is None:
            return []
        steps, counts = packed if isinstance(packed[0], list) else (packed, [1] * len(packed))
        return list(zip(_sums(steps), counts, strict=True))

    @classmethod
    def of(cls, engine: SearchEngine, messages: Iterable[tuple[Located, int]]) -> Index:
        """Of messages, each with its commit's first position. Those of an unknown role are never found,
        nor what nobody has said here."""
        index, rows_of = cls(), dict[str, list[tuple[int, int]]]()
        found = [(one, commit, one.facts) for one, commit in messages]
        found = [one for one in found if one[2].role != "unknown" and one[0].event.envelope.origin is None]
        texts = [indexed_text(one, facts) for one, _, facts in found]
        for row, ((one, commit, facts), terms) in enumerate(zip(found, engine.terms(texts), strict=True)):
            time_ms = (said_at(one) - _EPOCH) // timedelta(milliseconds=1)
            place = one.event.position, commit, one.loop, time_ms
            index.entries.append(IndexedMessage(*place, sum(terms.values()), _outline(facts)))
            for term, count in terms.items():
                rows_of.setdefault(term, []).append((row, count))
        index.terms = {term: _packed(rows_of[term]) for term in sorted(rows_of)}
        return index

    def encode(self, engine: str) -> bytes:
        entries = self.entries
        return encode_json(
            {
                "v": VERSION,
                "e": engine,
                "p": _steps(one.position for one in entries),
                "c": [one.position - one.commit for one in entries],
                "o": _steps(one.loop for one in entries),
                "t": _steps(one.time_ms for one in entries),
                "l": [one.length for one in entries],
                "r": [_ROLES.index(one.facts.role) + (0 if one.facts.head else 4) for one in entries],
                "f": {row: _told(one.facts) for row, one in enumerate(entries) if one.facts.calls or one.facts.results},
                "w": self.terms,
            }
        )

    @classmethod
    def decode(cls, data: bytes, engine: str) -> Index | None:
        """None for one of another engine or version."""
        found: dict[str, Any] = json.loads(data)
        if (found["v"], found["e"]) != (VERSION, engine):
            return None
        rows = zip(
            *(_sums(found["p"]), found["c"], _sums(found["o"]), _sums(found["t"]), found["l"], found["r"]), strict=True
        )
        told: Mapping[Any, Any] = found["f"]
        told = {int(row): facts for row, facts in told.items()}
        entries = [
            IndexedMessage(position, position - back, loop, time_ms, length, _facts(role, told.get(row, ((), ()))))
            for row, (position, back, loop, time_ms, length, role) in enumerate(rows)
        ]
        return cls(entries, found["w"])


class SearchIndexes:
    """Stores and reads the indexes of segments."""

    def __init__(self, blobs: BlobStore, engine: SearchEngine) -> None:
        self._blobs = blobs
        self.engine = engine

    def store(self, keys: SessionKeys, segment: Segment, messages: Iterable[tuple[Located, int]]) -> None:
        content = Index.of(self.engine, messages).encode(self.engine.name)
        self._blobs.put(index_blob(keys, segment), pack(content))

    def read(self, keys: SessionKeys, segment: Segment) -> Index | None:
        """One request; None where there is none that can be used."""
        name = index_blob(keys, segment)
        packed = self._blobs.get(name)
        if packed is None:
            return None
        try:
            return Index.decode(unpack(packed, item=name), self.engine.name)
        except (CorruptError, ValueError, KeyError, TypeError, IndexError):
            return None


def index_blob(keys: SessionKeys, segment: Segment) -> str:
    """The name of a segment's index: whoever takes a segment out of the way takes this with it."""
    return keys.index_blob(segment.first, segment.last, segment.sha256)


# ------------------------------------------------------------ texts


def indexed_text(one: Located, facts: MessageOutline) -> str:
    """With the day it was said on, as people write it, and who said it."""
    day = said_at(one)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year} {facts.name} {shown_text(one, facts)}"


# ------------------------------------------------------------ packing


def _outline(facts: MessageOutline) -> MessageOutline:
    return MessageOutline(
        role=facts.role,
        head="." if facts.head else "",
        chars=0,
        calls=tuple(CallFact(call.key, call.name, "") for call in facts.calls),
        results=tuple(ResultFact(one.key, one.name, one.by_name, False) for one in facts.results),
    )


def _told(facts: MessageOutline) -> list[list[Any]]:
    calls = [[call.key, call.name] for call in facts.calls]
    return [calls, [[one.key, one.name, int(one.by_name)] for one in facts.results]]


def _facts(role: int, told: Sequence[Sequence[Any]]) -> MessageOutline:
    calls, results = told
    if not calls and not results:
        return _BARE[role]
    return MessageOutline(
        role=_ROLES[role % 4],
        head="." if role < 4 else "",
        chars=0,
        calls=tuple(CallFact(key, name, "") for key, name in calls),
        results=tuple(ResultFact(key, name, bool(by_name), False) for key, name, by_name in results),
    )


_BARE = [MessageOutline(role=role, head=head, chars=0) for head in (".", "") for role in _ROLES]


def _packed(rows: Sequence[tuple[int, int]]) -> list[Any]:
    """Steps between rows; counts after them where one is not 1."""
    steps = _steps(row for row, _ in rows)
    counts = [count for _, count in rows]
    return steps if max(counts) == 1 else [steps, counts]


def _steps(values: Iterable[int]) -> list[int]:
    found, before = list[int](), 0
    for value in values:
        found.append(value - before)
        before = value
    return found


def _sums(steps: Iterable[int]) -> Iterator[int]:
    total = 0
    for step in steps:
        total += step
        yield total
