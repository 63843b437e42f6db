"""Search indexes: the terms, positions and times of messages, and most messages themselves. A segment's index is stored in a blob
beside the segment.

An index is a cache of its segment; its name contains the segment's hash. A reader that finds it missing, damaged or made by another
engine builds it from the segment in memory. Only the worker that seals segments stores indexes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, cast

from turnlog.core.calls import CallOutline, MessageOutline, ResultOutline
from turnlog.core.errors import CorruptError
from turnlog.core.events import MessageEvent
from turnlog.core.json_values import encode_ascii_json, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Role
from turnlog.core.times import caller_time, milliseconds_since_epoch
from turnlog.log.keys import SessionKeys
from turnlog.log.lines import encode_line, stored_line
from turnlog.log.packing import pack, unpack
from turnlog.log.read_lines import read_event
from turnlog.log.reading import Located, message_time, searchable_text
from turnlog.ports import MAX_COUNT, BlobStore, SearchEngine
from turnlog.search.days import may_be_of_day, named_days, written_day
from turnlog.snapshots.segments import Segment

VERSION, _WITHOUT_LINES = 3, 2
"""Version of the stored format, and of that before, without messages; an index with another version is not read."""
_ASKED_TERMS = 64
"""Number of terms whose counts are remembered."""
_TERMS = b',"w":'
"""What stands before the terms of a stored index: its last field, in the order of the terms' bytes."""
_BLOCK_BYTES = 4_096
"""Size of the parts of the text of a stored index, of which one is searched for a term."""
_ENTRY_BYTES, _PAIRED_BYTES, _EVENT_BYTES = 300, 500, 800
"""Estimated memory of an entry, of a call or result that is paired, and of an added message's event without its text."""
# It takes half the time of `json.loads`, which looks for an encoding and for spaces.
_parsed = json.JSONDecoder().raw_decode
_ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
_BARE = [MessageOutline(role=role, head=head, chars=0) for head in (".", "") for role in _ROLES]


@lazy_dataclass(frozen=True, slots=True)
class IndexedMessage:
    """A message in an index.

    ``commit`` is the first position of the message's commit. ``time_ms`` is the caller's own time if the message has one, else the
    commit's. ``tokens`` is its token count, 0 in an index that an earlier version has stored. ``facts`` can pair tool calls with
    results; their ``head`` says only whether the message has text. ``stored`` is the message or its stored line; None where only
    the log has it: for a message with a payload out of line that is not fetched, and in earlier versions.
    """

    position: int
    commit: int
    loop: int
    time_ms: int
    tokens: int
    facts: MessageOutline
    stored: MessageEvent | bytes | None = field(default=None, compare=False, repr=False)

    @property
    def event(self) -> MessageEvent | None:
        """The message, as the log had it when it was indexed."""
        if not isinstance(self.stored, bytes):
            return self.stored
        event = read_event(json.loads(self.stored), position=self.position, payload=None, parts=None)
        return cast("MessageEvent", event)


class StoredTerms:
    """The terms of a stored index, as they are stored: most are never asked for, and objects take six times the memory.

    ``text``: a JSON object of the rows by term, in the order of the terms' bytes.
    """

    def __init__(self, text: bytes = b"{}") -> None:
        self.size_bytes = len(text)
        self._text = b"," + text[1:]  # so that a comma and a quote stand before each term, and nowhere else

    def parsed(self) -> dict[str, list[int]]:
        """Return the rows of all terms."""
        terms: dict[str, list[int]] = json.loads(b"{" + self._text[1:])
        return terms

    def are_words_of(self, engine: SearchEngine) -> bool:
        """Return whether an engine makes the same terms as the older engine that made these. Terms of ASCII never changed."""
        foreign = {term for term in self.parsed() if not term.isascii()}
        return foreign <= set(engine.words([" ".join(foreign)])[0].split())

    def rows_of(self, term: str) -> Sequence[int]:
        """Return the rows of a term; none when no message has it."""
        firsts, begins = self._blocks
        key = _encoded(term, is_ascii=self._is_ascii)
        block = bisect_right(firsts, key[1:-1])
        place = self._text.find(b",%b:[" % key, begins[block - 1], begins[block])
        return self._rows_at(place + len(key) + 2) if place >= 0 else ()

    def with_prefix(self, prefix: str) -> Sequence[int]:
        """Return the rows of all terms that are longer than a prefix and begin with it."""
        firsts, begins = self._blocks
        key, rows = _encoded(prefix, is_ascii=self._is_ascii)[:-1], list[int]()
        begin, end = bisect_right(firsts, key[1:]), bisect_right(firsts, key[1:] + b"\xff")
        place, lead = begins[begin - 1], b"," + key
        while (place := self._text.find(lead, place, begins[end])) >= 0:
            place = self._text.index(b'":[', end_of_prefix := place + len(lead))
            if place > end_of_prefix:
                rows += self._rows_at(place + 2)
        return sorted(rows)

    def _rows_at(self, start: int) -> list[int]:
        """Return the rows that stand at a place of the text."""
        rows: list[int]
        rows, _ = _parsed(self._text[start : self._text.index(b"]", start) + 1].decode("ascii"))
        return rows

    @cached_property
    def _is_ascii(self) -> bool:
        return self._text.isascii()

    @cached_property
    def _blocks(self) -> tuple[list[bytes], list[int]]:
        """The first term of each block of the text; where each block begins, and the text's end."""
        text, begins, place = self._text, [0], _BLOCK_BYTES
        # Where terms have escapes, the order of the text is not theirs, and all of it is one block.
        while b"\\" not in text and (place := text.find(b'],"', place)) >= 0:
            begins.append(place + 1)
            place += _BLOCK_BYTES
        return [b"", *(text[begin + 2 : text.index(b'":', begin)] for begin in begins[1:])], [*begins, len(text)]


@lru_cache(maxsize=_ASKED_TERMS)
def _encoded(term: str, *, is_ascii: bool) -> bytes:
    """Return a term as it stands in the text of a stored index."""
    return encode_ascii_json(term) if is_ascii else encode_json(term)


def _counted(counts: bytearray, rows: Sequence[int], size: int) -> bytearray:
    """Return counts of ``size`` messages with one more for each of the rows; empty when there are none."""
    if not counts and not rows:
        return counts
    counts = counts + bytes(size - len(counts))
    for row in rows:
        counts[row] += counts[row] < MAX_COUNT
    return counts


class _Words:
    """The words of messages as one text, and the place in it where each message begins."""

    def __init__(self) -> None:
        self.text, self.begins = "", list[int]()

    def add(self, words: Sequence[str]) -> None:
        """Add the words of newer messages, each word between two spaces."""
        self.begins += [*accumulate(map(len, words), initial=len(self.text))][:-1]
        self.text += "".join(words)


class Index:
    """Messages in order of position, with their terms.

    A stored index has for each term the rows of the messages that contain it, a row for each occurrence. Messages that were added
    have their words in one text: to look up a few terms in it costs less than to make the terms of all words, most of which nobody
    asks for. The days that they name are found when a day is asked for. ``is_shared``: some messages come from the log of another
    session. Large messages have the words of their cards, as the log has them. ``whole`` indexes the same messages with the whole
    of their texts; None where the log has no more.
    """

    def __init__(self, engine: SearchEngine, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self.whole: Index | None = None
        self.entries = list[IndexedMessage]()
        self.lengths, self.calling = list[int](), list[int]()
        """About the number of words of each entry, and the rows of those with calls or results."""
        self._engine = engine
        self._stored = StoredTerms()
        self._first_added = self._lines_bytes = 0
        self._words, self._days, self._dating = _Words(), _Words(), Lock()
        """The words of the added messages; and of the days that they name, once a day was asked for."""
        self._texts = list[tuple[str, str | None, int]]()
        """The added texts, each with the caller's time and the commit's."""
        self._asked: dict[str, tuple[bytearray, tuple[int, int]]] = {}
        """The counts of terms that were asked for, and how far `_words` and `_days` were searched for them."""

    def add(self, messages: Iterable[tuple[Located, int]]) -> None:
        """Add newer messages, each given with its commit's first position.

        Messages of an unknown role, and messages with an origin (not said in this session), are left out.
        """
        entries, texts = list[IndexedMessage](), list[str]()
        for located, commit in messages:
            message, envelope = located.message, located.event.envelope
            facts = located.outline_of(message)
            if facts.role == "unknown" or envelope.origin is not None:
                continue
            time_ms = located.time_ms
            if envelope.created_at is not None:
                time_ms = milliseconds_since_epoch(message_time(located))
            event, pairing = located.event, _facts(*_coded(facts))
            # A payload without a home was read from a segment: only the log says where it is.
            stored = event if event.payload is None or (event.body is None and event.payload.home) else None
            entries.append(IndexedMessage(event.position, commit, located.loop, time_ms, event.tokens, pairing, stored))
            texts.append(f"{facts.name} {searchable_text(located, message, facts)}")
            self._texts.append((texts[-1], envelope.created_at, located.time_ms))
        words = self._engine.words(texts)
        self._enter(entries, [text.count(" ") for text in words])
        self._words.add(words)

    def _days_named(self, first: int) -> Iterator[str]:
        """Yield the day of each added message, from number ``first`` on, with the days that its text names."""
        for text, created_at, time_ms in self._texts[first : len(self._words.begins)]:
            day = caller_time(created_at, time_ms).date()
            yield " ".join((written_day(day), *named_days(text.lower(), day)))

    def _enter(self, entries: Sequence[IndexedMessage], lengths: Sequence[int]) -> None:
        rows = enumerate(entries, len(self.entries))
        self.calling += [row for row, entry in rows if entry.facts.calls or entry.facts.results]
        self.lengths += lengths
        self.entries += entries

    def _shared_with(self, whole: Index, lengths: list[int]) -> Index:
        """Return the index of whole texts with these messages; only the ``lengths`` of the texts are its own."""
        whole.entries, whole.calling, whole.lengths = self.entries, self.calling, lengths
        return whole

    @property
    def size_bytes(self) -> int:
        """The estimated memory of the index, without the counts of terms that were asked for: at most 64 bytes a message."""
        added = 3 * len(self._words.text) + len(self._days.text) + _EVENT_BYTES * len(self._texts)
        entries = _ENTRY_BYTES * len(self.entries) + _PAIRED_BYTES * len(self.calling)
        of_whole = self.whole.size_bytes if self.whole is not None else 0
        return self._stored.size_bytes + self._lines_bytes + added + entries + of_whole

    @property
    def terms(self) -> Mapping[str, Sequence[int]]:
        """All terms, each with the rows of the messages that contain it, a row for each occurrence."""
        terms = defaultdict[str, list[int]](list, self._stored.parsed())
        texts = [f"{text} {days}" for (text, *_), days in zip(self._texts, self._days_named(0), strict=False)]
        for row, row_terms in enumerate(self._engine.terms(texts), self._first_added):
            for term in row_terms:
                terms[term].append(row)
        return terms

    def counts_of(self, terms: Collection[str]) -> Mapping[str, bytearray]:
        """Return how often each message has each term, for ``prefix*`` a longer one, at most `MAX_COUNT`; empty if none has it."""
        asked = {term: self._asked.get(term) or (self._stored_counts(term), (0, 0)) for term in terms}
        if self._texts and any(map(may_be_of_day, terms)):
            with self._dating:
                self._days.add(self._engine.words([*self._days_named(len(self._days.begins))]))
        ends, first = (len(self._words.text), len(self._days.text)), self._first_added - 1
        size = self._first_added + len(self._words.begins)
        for starts in {starts for _, starts in asked.values()} - {ends}:
            rows = {term: list[int]() for term, (_, its_starts) in asked.items() if its_starts == starts}
            for words, start, end in zip((self._words, self._days), starts, ends, strict=True):
                for term, places in self._engine.places(words.text[start:end], rows).items():
                    rows[term] += [first + bisect_right(words.begins, start + place) for place in places]
            asked |= {term: (_counted(asked[term][0], added, size), ends) for term, added in rows.items()}
        if len(self._asked) >= _ASKED_TERMS:
            self._asked.clear()
        self._asked.update(asked)
        return {term: counts for term, (counts, _) in asked.items()}

    def _stored_counts(self, term: str) -> bytearray:
        is_prefix = term.endswith("*")  # no term of an engine ends so
        rows = self._stored.with_prefix(term[:-1]) if is_prefix else self._stored.rows_of(term)
        return _counted(bytearray(), rows, self._first_added)

    def encode(self, engine: str) -> bytes:
        """Return the stored form: a line of JSON, with the name of the search engine that made the terms, and the messages' lines.

        The line of a message with a payload out of line is empty. Behind a zero byte stands what `whole` has of its own.
        """
        entries, coded = self.entries, [_coded(entry.facts) for entry in self.entries]
        events = (entry.event for entry in entries)
        lines = (encode_line(stored_line(event, None)) if event and event.payload is None else b"" for event in events)
        record = encode_json(
            {
                "v": VERSION,
                "e": engine,
                "p": _steps(entry.position for entry in entries),
                "c": [entry.position - entry.commit for entry in entries],
                "o": _steps(entry.loop for entry in entries),
                "t": _steps(entry.time_ms for entry in entries),
                "l": self.lengths,
                "n": [entry.tokens for entry in entries],
                "r": [role for role, _ in coded],
                "f": {row: [calls, results] for row, (_, (calls, results)) in enumerate(coded) if calls or results},
                "w": self._sorted_terms(),
            }
        )
        whole = self.whole and encode_json({"l": self.whole.lengths, "w": self.whole._sorted_terms()})
        return b"\n".join((record, *lines)) + (b"\0" + whole if whole else b"")

    def _sorted_terms(self) -> dict[str, list[int]]:
        return {term: list(rows) for term, rows in sorted(self.terms.items())}

    @classmethod
    def decode(cls, data: bytes, engine: SearchEngine) -> Index | None:
        """Read a stored index; return None for one of another version, or with terms that this engine would not make."""
        own, _, whole = data.partition(b"\0")
        head, *lines = own.split(b"\n")
        end = head.index(_TERMS)
        record: dict[str, Any] = json.loads(head[:end] + b"}")
        if record["v"] not in (VERSION, _WITHOUT_LINES) or record["e"] not in engine.reads:
            return None
        positions, loops, times = accumulate(record["p"]), accumulate(record["o"]), accumulate(record["t"])
        tokens = record.get("n", [0] * len(record["l"]))
        stored = [line or None for line in lines] or [None] * len(record["l"])
        rows = zip(positions, record["c"], loops, times, tokens, record["r"], stored, strict=True)
        index, pairings = cls(engine), record["f"]
        entries = [
            IndexedMessage(
                *(position, position - back, loop, time_ms, tokens, _facts(role, pairings.get(str(row), ((), ())))),
                line,
            )
            for row, (position, back, loop, time_ms, tokens, role, line) in enumerate(rows)
        ]
        index._enter(entries, record["l"])
        index._stored, index._first_added = StoredTerms(head[end + len(_TERMS) : -1]), len(index.entries)
        index._lines_bytes = len(own) - len(head)
        if whole:
            end = whole.index(_TERMS)
            index.whole = index._shared_with(cls(engine), json.loads(whole[:end] + b"}")["l"])
            index.whole._stored = StoredTerms(whole[end + len(_TERMS) : -1])
            index.whole._first_added = len(index.entries)
        return index if record["e"] == engine.name or index._stored.are_words_of(engine) else None


class SearchIndexes:
    """Stores and reads the search indexes of segments."""

    def __init__(self, blobs: BlobStore, engine: SearchEngine) -> None:
        self._blobs = blobs
        self.engine = engine

    def store(self, keys: SessionKeys, segment: Segment, messages: Iterable[tuple[Located, int]]) -> str:
        """Build and store the index of a segment from its messages, each given with its commit's first position.

        Returns the SHA-256 of what is stored.
        """
        packed = pack(self.build(messages).encode(self.engine.name))
        self._blobs.put(index_blob(keys, segment), packed)
        return sha256(packed).hexdigest()

    def build(self, messages: Iterable[tuple[Located, int]], *, is_shared: bool = False) -> Index:
        """Return an index of messages, each given with its commit's first position. Bodies of payloads are in `Index.whole`."""
        index, read = Index(self.engine, is_shared=is_shared), list(messages)
        logged = [(_as_logged(message), commit) for message, commit in read]
        index.add(logged)
        if any(message is not stored for (message, _), (stored, _) in zip(read, logged, strict=True)):
            whole = Index(self.engine)
            whole.add(read)
            index.whole = index._shared_with(whole, whole.lengths)
        return index

    def read(self, keys: SessionKeys, segment: Segment) -> Index | None:
        """Return the index of a segment, or None if it is missing, damaged or of another engine; takes one request.

        It has messages only when it is the index that the segment's entry names.
        """
        name = index_blob(keys, segment)
        packed = self._blobs.get(name)
        if packed is None:
            return None
        try:
            content = unpack(packed, item=name)
            if sha256(packed).hexdigest() != segment.index_sha256:
                content = content.partition(b"\n")[0]
            return Index.decode(content, self.engine)
        except (CorruptError, ValueError, KeyError, TypeError, IndexError, OverflowError):
            return None


def _as_logged(message: Located) -> Located:
    """Return a message as the log has it: without a body from its payload where a card says what is in it."""
    event = message.event
    if event.payload is None or event.facts is None or event.body is None:
        return message
    return replace(message, event=replace(event, body=None))


def index_blob(keys: SessionKeys, segment: Segment) -> str:
    """Return the blob name of a segment's index. Code that deletes a segment must delete this blob too."""
    return keys.index_blob(segment.first, segment.last, segment.sha256)


def _coded(facts: MessageOutline) -> tuple[int, tuple[list[Any], list[Any]]]:
    """Return what an index stores of a message: a number for its role and whether it has text, its calls, and its results."""
    calls = [[call.key, call.name] for call in facts.calls]
    results = [[result.key, result.name, int(result.by_name)] for result in facts.results]
    return _ROLES.index(facts.role) + (0 if facts.head else 4), (calls, results)


def _facts(role: int, pairing: Sequence[Sequence[Any]]) -> MessageOutline:
    calls, results = pairing
    if not calls and not results:
        return _BARE[role]
    return MessageOutline(
        role=_ROLES[role % 4],
        head="." if role < 4 else "",
        chars=0,
        calls=tuple(CallOutline(key, name, "") for key, name in calls),
        results=tuple(ResultOutline(key, name, bool(by_name), False) for key, name, by_name in results),
    )


def _steps(values: Iterable[int]) -> list[int]:
    return [value - before for before, value in pairwise((0, *values))]
