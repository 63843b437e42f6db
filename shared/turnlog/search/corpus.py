"""The corpus of a session for search: its messages with their terms, read once and then extended with what is new.

Messages in segments come from the segments' stored indexes; newer messages are read from the log. Texts are read for results only.
"""

from __future__ import annotations

import gc
import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, cast

from turnlog.core.calls import Pairing, Ref, pair
from turnlog.core.errors import CorruptError, UnavailableError
from turnlog.core.events import MessageEvent
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import MAX_POSITION
from turnlog.core.positions import Stretch, subtract
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL
from turnlog.log.commit import Commit, checked_chain, event_at, header_in
from turnlog.log.commit_items import is_tombstone
from turnlog.log.headers import Header
from turnlog.log.keys import COMMITS_TO, SessionKeys, commit_sort_key
from turnlog.log.payloads import in_parallel, is_blob
from turnlog.log.reading import Located, located, newest_pages, searchable_text, with_bodies
from turnlog.ports import Query, TermDocuments, pages
from turnlog.search.index import Index, IndexedMessage, SearchIndexes
from turnlog.search.models import SearchQuery
from turnlog.sessions.session_history import WarmSessions
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.segments import Segment, Segments

INDEX_BYTES = 32 * 1024 * 1024
"""Estimated memory of the indexes that a process remembers: of some 40,000 messages of 600 characters."""
PART_MESSAGES = 4_096
"""Number of messages after which a new part of an index begins."""
PARALLEL = 8
"""Number of indexes or sessions that are read at the same time."""
_position = attrgetter("position")


@lazy_dataclass(frozen=True, slots=True)
class SearchedSession:
    """A session that has been read for a search. ``is_cut``: older messages are left out."""

    keys: SessionKeys
    header: Header
    stretches: Sequence[Stretch]
    corpus: SessionCorpus
    is_cut: bool = False


@lazy_dataclass(frozen=True, slots=True)
class WarmIndex:
    """The indexes of all messages of a session up to a header, which the next search extends.

    ``covered`` are the positions whose messages are indexed: those in view at the first search, and everything since.
    ``first_card`` is the position of the first message that is indexed by its card, until it is sealed; 0 for none.
    """

    header: Header
    parts: list[Index]
    covered: Sequence[Stretch]
    first_card: int
    paired: PairedCalls

    @property
    def size_bytes(self) -> int:
        """The estimated memory of the indexes."""
        return sum(part.size_bytes for part in self.parts)


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Pause Python's garbage collector: it would look through the new objects of an index again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class PairedCalls:
    """Remembers the pairing of calls and results of a session's messages, which takes longer than to search in them."""

    def __init__(self) -> None:
        self._known: tuple[Sequence[IndexedMessage], Pairing, Mapping[Ref, str]] = (), pair(()), {}

    def of(self, messages: Sequence[IndexedMessage]) -> tuple[Pairing, Mapping[Ref, str]]:
        """Return the pairing of messages in order, and the names of the calls. Both may include newer messages."""
        known, pairing, names = self._known
        shared = min(len(known), len(messages))
        if known[:shared] != messages[:shared]:  # of other views, before or after a rewind
            known, pairing, names = (), pair(()), {}
        if newer := messages[len(known) :]:
            pairing = pair(((message.position, message.facts) for message in newer), behind=pairing)
            calls = ((message.position, *call) for message in newer for call in enumerate(message.facts.calls))
            names = {**names, **{Ref(position, index): call.name for position, index, call in calls}}
            self._known = messages, pairing, names
        return pairing, names


class SessionReader:
    """Reads sessions for a search, and remembers their indexes: the next search in the process reads what is new.

    The first search takes one request for the list of segments, one for each index, and one for each 1 MB of commits outside
    segments. A later one takes one request, and one for the list of segments if a message is known by its card only. Results that
    the index does not have, such as large ones, take one or two more.
    """

    def __init__(self, log: SessionLog, segments: Segments, indexes: SearchIndexes) -> None:
        self._log = log
        self._segments = segments
        self._indexes = indexes
        self.warm_sessions = WarmSessions[WarmIndex](INDEX_BYTES)

    def read(self, keys: SessionKeys, *, newest: int = MAX_POSITION, until: float = math.inf) -> SearchedSession:
        """Read a session's corpus, of the ``newest`` positions at most; raise `NotFoundError` without a session.

        Raises `UnavailableError` when the log, of which no index is known, is not read ``until`` a time of `time.monotonic`.
        """
        warm = self.warm_sessions.take(keys)
        index = self._grown(keys, warm, self._behind(keys, warm.header)) if warm is not None else None
        stretches, is_complete = self._stretches(keys, index.header) if index is not None else (), True
        # A rewind may bring back what an earlier rewind had hidden.
        if index is None or subtract(stretches, index.covered):
            index = self._built(keys, newest, until=until)
            stretches, is_complete = index.covered, newest >= index.header.last
        header, first = index.header, max(1, index.header.last - newest + 1)
        shown = [(max(begin, first), last) for begin, last in stretches if last >= first]
        corpus = SessionCorpus([part.whole or part for part in index.parts], shown, index.paired)
        searched = SearchedSession(keys, header, shown, corpus, shown[0] != stretches[0])
        if is_complete:
            self._remember(keys, index)
        return searched

    def read_before(
        self, keys: SessionKeys, header: Header, position: int, commits: Sequence[Commit], *, seconds: float = math.inf
    ) -> SearchedSession:
        """Read the corpus of the messages before a position that are in view at a header. Of a large message its card counts.

        Raises `UnavailableError` when the log, of which no index is known, is not read within ``seconds``.
        ``commits`` are the newest ones up to the header, as far as they are known. No request when they follow the known index.
        """
        index, warm = None, self.warm_sessions.take(keys)
        if warm is not None:
            places = {commit.header.hash: place for place, commit in enumerate(commits)}
            start, is_known = places.get(warm.header.hash), places.get(header.hash) == len(commits) - 1
            is_known = is_known and start is not None and warm.header.view == header.view
            newer = commits[start:] if is_known else self._behind(keys, warm.header)
            index = self._grown(keys, warm, newer)
        stretches = [
            (first, min(last, position - 1)) for first, last in self._stretches(keys, header) if first < position
        ]
        if index is None or subtract(stretches, index.covered):
            index = self._built(keys, MAX_POSITION, stretches, until=time.monotonic() + seconds)
        corpus = SessionCorpus(index.parts, stretches, index.paired)
        searched = SearchedSession(keys, index.header, stretches, corpus)
        self._remember(keys, index)
        return searched

    def _remember(self, keys: SessionKeys, index: WarmIndex) -> None:
        # A redaction is noted in forks after it is answered, so what a fork reads of another log is not remembered.
        if not any(part.is_shared for part in index.parts):
            self.warm_sessions.put(keys, index)

    def _behind(self, keys: SessionKeys, known: Header) -> Sequence[Commit]:
        """Read the commits from a known one on; return none when the log has changed."""
        query = Query(keys.partition, commit_sort_key(known.first), COMMITS_TO)
        items = list(chain.from_iterable(pages(self._log.items, query)))
        if not items or is_tombstone(items) or header_in(items[0]).hash != known.hash:
            return ()
        commits = checked_chain(items)
        self._log.commits.check_alive(keys, commits[-1].header)
        return commits

    def _grown(self, keys: SessionKeys, warm: WarmIndex, commits: Sequence[Commit]) -> WarmIndex | None:
        """Return an index with newer commits, the first of which it has; None without commits, or when older ones changed."""
        if not commits:
            return None
        known, header = warm.header, commits[-1].header
        messages = self.messages(keys, commits[1:], known.last + 1)
        card = warm.first_card or _first_card(messages)
        is_sealed = card and any(segment.last >= card for segment in self._segments.list(keys))
        if header.redacted != known.redacted or is_sealed:
            return None
        if not warm.parts or warm.parts[-1].whole or len(warm.parts[-1].entries) >= PART_MESSAGES:
            warm.parts.append(Index(self._indexes.engine))
        warm.parts[-1].add(messages)
        covered = (*warm.covered[:-1], (warm.covered[-1][0], header.last))
        return WarmIndex(header, warm.parts, covered, card, warm.paired)

    def _stretches(self, keys: SessionKeys, header: Header) -> Sequence[Stretch]:
        return self._log.commits.view(keys, header).up_to(header.last)

    def texts(self, searched: SearchedSession, entries: Sequence[IndexedMessage]) -> list[str]:
        """Return the texts of messages, in order. Payloads in items of their own are fetched; payloads in blobs are not."""

        def is_item(message: Located) -> bool:
            return message.event.payload is not None and not is_blob(message.event.payload)

        messages = with_bodies(self._log.commits, searched.keys, self.located(searched, entries), is_item)
        return [searchable_text(message, message.message, message.facts) for message in messages]

    def located(self, searched: SearchedSession, entries: Sequence[IndexedMessage]) -> list[Located]:
        """Return messages in order. Takes one request if the index does not have one of them; payloads are not fetched."""
        # Before a redaction, and before a fork (or a later rewind), a message may have been redacted since it was indexed.
        oldest = 1 + max(searched.header.redacted, searched.header.rewound)
        events = {entry.position: entry.event if entry.position >= oldest else None for entry in entries}
        others = [entry for entry in entries if events[entry.position] is None]
        if others:
            begins = sorted({entry.commit for entry in others})
            read = self._log.commits.at(searched.keys, begins, only={entry.position for entry in others})
            commits = dict(zip(begins, read, strict=True))
            for entry in others:
                events[entry.position] = cast("MessageEvent", event_at(commits[entry.commit], entry.position, {}))
        messages = [
            Located(cast("MessageEvent", events[entry.position]), entry.loop, entry.time_ms) for entry in entries
        ]
        return with_bodies(self._log.commits, searched.keys, messages, lambda message: message.event.facts is None)

    @_collecting_no_garbage()
    def _built(
        self,
        keys: SessionKeys,
        newest: int,
        others: Sequence[Stretch] = (),
        *,
        until: float = math.inf,
    ) -> WarmIndex:
        """Return the index of a session's ``newest`` positions at least, from its segments' indexes and the log.

        It has what is in view, and the ``others``, which were in view before a rewind.
        """
        segments = list(self._segments.list(keys))
        end, first, first_card = segments[-1].last if segments else 0, 1, 0
        header, newer = None, list[tuple[int, Index]]()
        for commits in newest_pages(self._log.commits, keys, pages=None, first=max(1, end)):
            if header is None:
                header = commits[-1].header
                first = max(1, header.last - newest + 1)
            _check_time(until)
            messages = self.messages(keys, commits, end + 1)
            index = self._indexes.build(messages, is_shared=_is_shared(keys, commits))
            newer.append((commits[0].header.first, index))
            first_card = _first_card(messages) or first_card
            if commits[0].header.first <= first:
                break
        assert header is not None  # noqa: S101 - a session has a first commit
        stretches = self._stretches(keys, header)
        if hidden := subtract(others, stretches):
            stretches = sorted([*stretches, *hidden])
        for begin, last in hidden:
            if last > end:
                _check_time(until)
                newer.append((begin, self._between(keys, max(begin, end + 1), last)))
        shown = [stretch for stretch in stretches if stretch[1] >= first]
        sealed = self._sealed(keys, segments, shown, first, until=until)
        parts = [index for _, index in sorted(newer, key=itemgetter(0))]
        return WarmIndex(header, [*sealed, *parts], stretches, first_card, PairedCalls())

    def messages(
        self, keys: SessionKeys, commits: Sequence[Commit], first: int, last: int | None = None
    ) -> list[tuple[Located, int]]:
        """Return the messages of ``commits`` from position ``first`` to ``last``, each with its commit's first position."""
        headers = [commit.header for commit in commits]
        begins = {position: header.first for header in headers for position in range(header.first, header.last + 1)}
        messages = located(self._log.commits, keys, commits)
        return [
            (message, begins[message.event.position])
            for message in messages
            if first <= message.event.position <= (last or message.event.position)
        ]

    def _sealed(
        self, keys: SessionKeys, segments: Sequence[Segment], stretches: Sequence[Stretch], first: int, *, until: float
    ) -> list[Index]:
        """Return indexes of the segments with visible messages, and of the gaps between segments, from a position on."""
        reads, end = list[Callable[[], Index]](), first - 1
        for segment in segments:
            if segment.last < first:
                continue
            if segment.first > end + 1:
                reads.append(lambda first=end + 1, last=segment.first - 1: self._between(keys, first, last))  # type: ignore[misc]
            end = segment.last
            if any(first <= segment.last and segment.first <= last for first, last in stretches):
                reads.append(lambda segment=segment: self._index(keys, segment))  # type: ignore[misc]

        def in_time(read: Callable[[], Index]) -> Index:
            _check_time(until)
            return read()

        return in_parallel(in_time, reads, threads=PARALLEL)

    def _index(self, keys: SessionKeys, segment: Segment) -> Index:
        if segment.is_redacted:  # its index, and until a job has replaced it the segment too, have the words of before
            return self._between(keys, segment.first, segment.last)
        index = self._indexes.read(keys, segment)
        if index is not None:
            return index
        with suppress(CorruptError):  # damaged, or replaced after a redaction
            return self._indexes.build(self._segments.placed(keys, self._segments.commits(keys, segment)))
        return self._between(keys, segment.first, segment.last)

    def _between(self, keys: SessionKeys, first: int, last: int) -> Index:
        commits = self._log.commits.range(keys, first, last)
        return self._indexes.build(self.messages(keys, commits, first, last), is_shared=_is_shared(keys, commits))


def _check_time(until: float) -> None:
    if time.monotonic() >= until:
        raise UnavailableError("the session's index was not read in time")


def _is_shared(keys: SessionKeys, commits: Sequence[Commit]) -> bool:
    """Return whether a session reads commits of another session's log."""
    return any(commit.home != keys.partition for commit in commits)


def _first_card(messages: Sequence[tuple[Located, int]]) -> int:
    """Return the first position that is known by a card only until it is sealed; 0 for none."""
    cards = (message.event for message, _ in messages if message.event.body is None)
    return next((event.position for event in cards if event.payload is not None and not is_blob(event.payload)), 0)


class SessionCorpus:
    """The visible messages of a session as one list of documents, with the refs of their tool calls."""

    def __init__(self, parts: Sequence[Index], stretches: Sequence[Stretch], paired: PairedCalls | None = None) -> None:
        """``paired`` remembers calls and results of the same parts."""
        self.entries, lengths, self._paired = list[IndexedMessage](), list[int](), paired or PairedCalls()
        self._parts = list[tuple[Index, list[tuple[int, int, int]]]]()
        """The parts, each with the rows of it that are visible: from one, up to another, and how far these are moved."""
        for part in parts:
            shown, size = list[tuple[int, int, int]](), len(part.entries)  # another search may add some meanwhile
            for first, last in stretches:
                begin = bisect_left(part.entries, first, hi=size, key=_position)
                end = bisect_left(part.entries, last + 1, begin, size, key=_position)
                if begin < end:
                    shown.append((begin, end, len(self.entries) - begin))
                    self.entries += part.entries[begin:end]
                    lengths += part.lengths[begin:end]
            if shown:
                self._parts.append((part, shown))
        self.documents = TermDocuments(lengths, self._counts_of)

    @cached_property
    def _calls(self) -> tuple[Pairing, Mapping[Ref, str]]:
        """The pairing of calls and results, and the names of the calls."""
        return self._paired.of(
            [self.entries[row] for part, shown in self._parts for row in _visible(part.calling, shown)]
        )

    @cached_property
    def has_echoes(self) -> bool:
        """Whether any message calls the recall and search tools."""
        return not {RECALL_TOOL, SEARCH_TOOL}.isdisjoint(self._calls[1].values())

    def _counts_of(self, terms: Collection[str]) -> dict[str, bytearray]:
        parts = [(part.counts_of(terms), shown) for part, shown in self._parts]
        counts = {term: bytearray() for term in terms}
        for term, its_counts in counts.items():
            for by_term, shown in parts if any(by_term[term] for by_term, _ in parts) else ():
                for begin, end, _ in shown:
                    its_counts.extend(by_term[term][begin:end] or bytes(end - begin))
        return counts

    def word_counts(self) -> Counter[str]:
        """Return the number of occurrences of each term in the visible messages."""
        counts = Counter[str]()
        for part, shown in self._parts:
            for term, rows in part.terms.items():
                counts[term] += len(_visible(rows, shown))
        return +counts

    def refs(self, row: int, tool: str | None = None) -> list[Ref]:
        """Return the tool calls that a message makes, then the calls that it answers; with ``tool`` only calls of that tool."""
        position, facts = self.entries[row].position, self.entries[row].facts
        if not (facts.calls or facts.results):
            return []
        pairing, names = self._calls
        made = [Ref(position, index) for index in range(len(facts.calls))]
        answered = [pairing.call_of.get((position, index)) for index in range(len(facts.results))]
        refs = [*made, *(ref for ref in answered if ref is not None)]
        return [ref for ref in refs if tool is None or names.get(ref) == tool]

    def place(self, row: int, tool: str | None) -> dict[str, Any]:
        """Return position, loop, role and ref of a message, as results have them."""
        entry, refs = self.entries[row], self.refs(row, tool)
        ref = str(refs[0]) if refs else None
        return {"position": entry.position, "loop": entry.loop or None, "role": entry.facts.role, "ref": ref}

    def is_echo(self, row: int) -> bool:
        """Return whether a message only calls the recall and search tools, or only holds their results.

        Such messages repeat the words of other messages.
        """
        facts = self.entries[row].facts
        if facts.head or not (facts.calls or facts.results):
            return False
        refs = self.refs(row)
        return bool(refs) and all(self._calls[1].get(ref) in (RECALL_TOOL, SEARCH_TOOL) for ref in refs)

    def matches(self, row: int, query: SearchQuery) -> bool:
        """Return whether a message has the role, the loop and the tool that the query names."""
        entry = self.entries[row]
        if query.role not in (None, entry.facts.role) or query.loop not in (None, entry.loop):
            return False
        return query.tool is None or bool(self.refs(row, query.tool))


def _visible(rows: Sequence[int], shown: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return those of a part's rows that are visible, as rows of the corpus. ``shown`` are the part's ranges of visible rows."""
    visible = list[int]()
    for begin, end, distance in shown if rows else ():
        visible += [row + distance for row in rows[bisect_left(rows, begin) : bisect_left(rows, end)]]
    return visible
