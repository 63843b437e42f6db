"""The messages of a session as search sees them: all in view as one list of documents, without reading the log.

Older messages are known by the indexes of their segments, the others are read from the log; then the commits of what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from turnlog.core.calls import MessageOutline, Pairing, pair
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import Stretch
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL
from turnlog.core.refs import Ref
from turnlog.log.commits import Commit
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.log.parallel import in_parallel
from turnlog.log.payloads import is_blob
from turnlog.log.reading import Located, located, newest_pages, shown_text
from turnlog.ports import TermDocuments
from turnlog.search.index import Index, IndexedMessage, SearchIndexes
from turnlog.search.models import SearchQuery
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.segments import Segment, Segments

KEPT = 1_024
"""So many of the newest messages are held while they are searched; older ones that are found are read again."""
PARALLEL = 8


@lazy_dataclass(frozen=True, slots=True)
class Searched:
    """A session that is searched. ``kept`` are its newest messages as they are; ``left`` segments were not read."""

    keys: SessionKeys
    header: Header
    stretches: Sequence[Stretch]
    whole: SessionCorpus
    kept: dict[int, Located] = field(repr=False)
    left: int = 0


class SearchedSessions:
    """Reads sessions for a search: a request for the list of segments, one for each index, one for each 1 MB of commits that no
    segment has, and one or two for the texts of what was found and is not among those."""

    def __init__(self, log: SessionLog, segments: Segments, indexes: SearchIndexes) -> None:
        self._log = log
        self._segments = segments
        self._indexes = indexes

    def read(self, keys: SessionKeys, *, most_segments: int | None = None) -> Searched:
        """``most_segments``: only so many of the newest."""
        segments = list(self._segments.list(keys))
        end = segments[-1].last if segments else 0
        header, stretches, newest, kept = self._unsealed(keys, end)
        left = max(0, len(segments) - most_segments) if most_segments is not None else 0
        if left:
            # What lies before is as if it were not in view.
            first = segments[left].first
            stretches = [(max(begin, first), last) for begin, last in stretches if last >= first]
        parts = [*self._sealed(keys, segments[left:], stretches, segments[left - 1].last if left else 0), *newest]
        return Searched(keys, header, stretches, SessionCorpus(parts, stretches), kept, left)

    def texts(self, searched: Searched, entries: Sequence[IndexedMessage]) -> list[str]:
        """The texts of messages, with the payloads that are beside their commits."""
        keys, kept = searched.keys, searched.kept
        found = {one.position: kept[one.position] for one in entries if one.position in kept}
        begins = sorted({one.commit for one in entries if one.position not in found})
        commits = self._log.commits.at(keys, begins) if begins else []
        found |= {one.event.position: one for one in located(self._log.commits, keys, commits)}
        shown = [found[one.position] for one in entries]
        beside = [one.event for one in shown if one.event.payload is not None and not is_blob(one.event.payload)]
        bodies = self._log.commits.fetch(keys, beside)
        shown = [replace(one, event=bodies.get(one.event.position, one.event)) for one in shown]
        return [shown_text(one, one.facts) for one in shown]

    def _unsealed(
        self, keys: SessionKeys, end: int
    ) -> tuple[Header, Sequence[Stretch], list[Index], dict[int, Located]]:
        """What is in view, the messages behind position ``end``, and the newest of them as they are."""
        header, stretches = None, list[Stretch]()
        pages, kept = list[Index](), dict[int, Located]()
        for commits in newest_pages(self._log.commits, keys, pages=None, first=max(1, end)):
            if header is None:
                header = commits[-1].header
                stretches = list(self._log.commits.view(keys, header).up_to(header.last))
            messages = self.messages(keys, commits, end + 1)
            pages.append(Index.of(self._indexes.engine, messages))
            for one, _ in reversed(messages):
                if len(kept) < KEPT:
                    kept[one.event.position] = one
        assert header is not None  # noqa: S101 - a session has a first commit
        return header, stretches, pages[::-1], kept

    def messages(
        self, keys: SessionKeys, commits: Sequence[Commit], first: int, last: int | None = None
    ) -> list[tuple[Located, int]]:
        """Those from position ``first`` on, each with its commit's first position."""
        begins = {at: one.header.first for one in commits for at in range(one.header.first, one.header.last + 1)}
        found = [(one, begins[one.event.position]) for one in located(self._log.commits, keys, commits)]
        return [one for one in found if first <= one[0].event.position <= (last or one[0].event.position)]

    def _sealed(
        self, keys: SessionKeys, segments: Sequence[Segment], stretches: Sequence[Stretch], at: int
    ) -> list[Index]:
        """The indexes of segments that have something in view, and of what is missing between two, behind position ``at``."""
        wanted = list[Callable[[], Index]]()
        for segment in segments:
            if segment.first > at + 1:
                wanted.append(lambda first=at + 1, last=segment.first - 1: self._between(keys, first, last))  # type: ignore[misc]
            at = segment.last
            if any(first <= segment.last and segment.first <= last for first, last in stretches):
                wanted.append(lambda one=segment: self._index(keys, one))  # type: ignore[misc]
        if len(wanted) <= 1:
            return [read() for read in wanted]
        return in_parallel(lambda read: read(), wanted, threads=PARALLEL)

    def _index(self, keys: SessionKeys, segment: Segment) -> Index:
        found = self._indexes.read(keys, segment)
        if found is not None:
            return found
        return Index.of(self._indexes.engine, self._segments.placed(keys, self._segments.commits(keys, segment)))

    def _between(self, keys: SessionKeys, first: int, last: int) -> Index:
        commits = self._log.commits.range(keys, first, last)
        return Index.of(self._indexes.engine, self.messages(keys, commits, first, last))


class SessionCorpus:
    """All messages in view as one list of documents, with the refs of their calls."""

    def __init__(self, parts: Sequence[Index], stretches: Sequence[Stretch]) -> None:
        self.entries = list[IndexedMessage]()
        self._parts = list[tuple[Index, list[int]]]()
        for part in parts:
            rows = list[int]()
            for entry in part.entries:
                is_shown = any(first <= entry.position <= last for first, last in stretches)
                rows.append(len(self.entries) if is_shown else -1)
                if is_shown:
                    self.entries.append(entry)
            self._parts.append((part, rows))
        self.documents = TermDocuments([one.length for one in self.entries], self._rows_of)
        self._pairing: Pairing = pair((one.position, one.facts) for one in self.entries)
        self._names = {
            Ref(one.position, at): call.name for one in self.entries for at, call in enumerate(one.facts.calls)
        }

    def _rows_of(self, term: str) -> list[tuple[int, int]]:
        found = ((rows[row], count) for part, rows in self._parts for row, count in part.rows_of(term))
        return [one for one in found if one[0] >= 0]

    def word_counts(self) -> dict[str, int]:
        """How often each term stands in what is in view."""
        counts = dict[str, int]()
        for part, rows in self._parts:
            for term in part.terms:
                count = sum(often for row, often in part.rows_of(term) if rows[row] >= 0)
                if count:
                    counts[term] = counts.get(term, 0) + count
        return counts

    def refs(self, row: int, tool: str | None = None) -> list[Ref]:
        """The calls that a message makes, then those that it answers; only of one tool."""
        position, facts = self.entries[row].position, self.entries[row].facts
        answered = (self._pairing.call_of.get((position, at)) for at in range(len(facts.results)))
        found = [*(Ref(position, at) for at in range(len(facts.calls))), *(ref for ref in answered if ref is not None)]
        return [ref for ref in found if tool is None or self._names.get(ref) == tool]

    def is_echo(self, row: int) -> bool:
        """Whether it is nothing but a call of the recall tools or its result: these repeat what stands elsewhere."""
        facts: MessageOutline = self.entries[row].facts
        if facts.head or not (facts.calls or facts.results):
            return False
        refs = self.refs(row)
        return bool(refs) and all(self._names.get(ref) in (RECALL_TOOL, SEARCH_TOOL) for ref in refs)

    def is_asked_for(self, row: int, query: SearchQuery) -> bool:
        entry = self.entries[row]
        if query.role not in (None, entry.facts.role) or query.loop not in (None, entry.loop):
            return False
        return query.tool is None or bool(self.refs(row, query.tool))
