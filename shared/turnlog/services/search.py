"""Search: the messages of a session by the words of a question.

Older messages are known by the indexes of their segments, the others are read from the log; then the commits of what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from turnlog.contracts.recall import SearchAnswer, SearchQuery, SearchResult
from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.facts import Facts
from turnlog.domain.identity import Owner
from turnlog.domain.pairing import Pairing, pair
from turnlog.domain.recall_calls import RECALL_TOOL, SEARCH_TOOL
from turnlog.domain.refs import Ref
from turnlog.domain.snippets import snippet
from turnlog.domain.times import milliseconds_of
from turnlog.domain.view import Stretch
from turnlog.log.commits import Commit
from turnlog.log.keys import SessionKeys
from turnlog.log.newest import newest_pages
from turnlog.log.payloads import is_blob
from turnlog.log.reading import Located, located
from turnlog.log.search_index import Entry, Index, SearchIndexes, shown_text
from turnlog.log.segments import Segment, Segments
from turnlog.log.sessions import SessionLog
from turnlog.ports import Documents

MAX_QUESTION_CHARS = 1_000
KEPT = 1_024
"""So many of the newest messages are held while they are searched; older ones that are found are read again."""
_PARALLEL = 8


class SearchSession:
    """The use case: a request for the list of segments, one for each index, one for each 1 MB of commits that no segment has, and
    one or two for what was found and is not among those.

    Calls of the recall tools themselves come last: they have the words that were looked for, and no more than was found.
    """

    def __init__(self, log: SessionLog, segments: Segments, indexes: SearchIndexes) -> None:
        self._log = log
        self._segments = segments
        self._indexes = indexes

    def __call__(self, owner: Owner, session_id: str, query: SearchQuery) -> SearchAnswer:
        keys = SessionKeys(owner, session_id)
        if not query.q.strip() or len(query.q) > MAX_QUESTION_CHARS:
            raise _invalid("q", f"q has 1 to {MAX_QUESTION_CHARS} characters")
        is_within = _within(query)
        segments = list(self._segments.list(keys))
        end = segments[-1].last if segments else 0
        stretches, newest, kept = self._unsealed(keys, end)
        whole = _Whole([*self._sealed(keys, segments, stretches), *newest], stretches)
        found = list[tuple[int, float]]()
        ranked = self._indexes.engine.rank(whole.documents, query.q)
        if query.tool is None:
            ranked.sort(key=lambda one: whole.is_echo(one[0]))
        for row, score in ranked:
            if whole.is_asked_for(row, query) and is_within(whole.entries[row]):
                found.append((row, score))
            if len(found) == query.limit:
                break
        texts = self._texts(keys, [whole.entries[row] for row, _ in found], kept)
        results = list[SearchResult]()
        for (row, score), text, spans in zip(found, texts, self._indexes.engine.spans(texts, query.q), strict=True):
            entry, refs = whole.entries[row], whole.refs(row, query.tool)
            results.append(
                SearchResult(
                    position=entry.position,
                    loop=entry.loop or None,
                    role=entry.facts.role,
                    ref=str(refs[0]) if refs else None,
                    snippet=snippet(text, spans),
                    score=float(f"{score:.6g}"),
                )
            )
        return SearchAnswer(results=results, searched_from=stretches[0][0])

    def _unsealed(self, keys: SessionKeys, end: int) -> tuple[Sequence[Stretch], list[Index], dict[int, Located]]:
        """What is in view, the messages behind position ``end``, and the newest of them as they are."""
        stretches: Sequence[Stretch] = ()
        pages, kept = list[Index](), dict[int, Located]()
        for commits in newest_pages(self._log.commits, keys, pages=None, first=max(1, end)):
            if not stretches:
                header = commits[-1].header
                stretches = self._log.commits.view(keys, header).up_to(header.last)
            messages = self._messages(keys, commits, end + 1)
            pages.append(Index.of(self._indexes.engine, messages))
            for one, _ in reversed(messages):
                if len(kept) < KEPT:
                    kept[one.event.position] = one
        return stretches, pages[::-1], kept

    def _messages(
        self, keys: SessionKeys, commits: Sequence[Commit], first: int, last: int | None = None
    ) -> list[tuple[Located, int]]:
        """Those from position ``first`` on, each with its commit's first position."""
        begins = {at: one.header.first for one in commits for at in range(one.header.first, one.header.last + 1)}
        found = [(one, begins[one.event.position]) for one in located(self._log.commits, keys, commits)]
        return [one for one in found if first <= one[0].event.position <= (last or one[0].event.position)]

    def _sealed(self, keys: SessionKeys, segments: Sequence[Segment], stretches: Sequence[Stretch]) -> list[Index]:
        """The indexes of segments that have something in view, and of what is missing between two."""
        wanted, at = list[Callable[[], Index]](), 0
        for segment in segments:
            if segment.first > at + 1:
                wanted.append(lambda first=at + 1, last=segment.first - 1: self._between(keys, first, last))  # type: ignore[misc]
            at = segment.last
            if any(first <= segment.last and segment.first <= last for first, last in stretches):
                wanted.append(lambda one=segment: self._index(keys, one))  # type: ignore[misc]
        if len(wanted) <= 1:
            return [read() for read in wanted]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_PARALLEL) as pool:
            return list(pool.map(lambda read: read(), wanted))

    def _index(self, keys: SessionKeys, segment: Segment) -> Index:
        found = self._indexes.read(keys, segment)
        if found is not None:
            return found
        return Index.of(self._indexes.engine, self._segments.placed(keys, self._segments.commits(keys, segment)))

    def _between(self, keys: SessionKeys, first: int, last: int) -> Index:
        commits = self._log.commits.range(keys, first, last)
        return Index.of(self._indexes.engine, self._messages(keys, commits, first, last))

    def _texts(self, keys: SessionKeys, entries: Sequence[Entry], kept: dict[int, Located]) -> list[str]:
        """The texts of messages, with the payloads that are beside their commits."""
        found = {one.position: kept[one.position] for one in entries if one.position in kept}
        begins = sorted({one.commit for one in entries if one.position not in found})
        commits = self._log.commits.at(keys, begins) if begins else []
        found |= {one.event.position: one for one in located(self._log.commits, keys, commits)}
        shown = [found[one.position] for one in entries]
        beside = [one.event for one in shown if one.event.payload is not None and not is_blob(one.event.payload)]
        bodies = self._log.commits.fetch(keys, beside)
        shown = [replace(one, event=bodies.get(one.event.position, one.event)) for one in shown]
        return [shown_text(one, one.facts) for one in shown]


class _Whole:
    """All messages in view as one list of documents, with the refs of their calls."""

    def __init__(self, parts: Sequence[Index], stretches: Sequence[Stretch]) -> None:
        self.entries = list[Entry]()
        self._parts = list[tuple[Index, list[int]]]()
        for part in parts:
            rows = list[int]()
            for entry in part.entries:
                is_shown = any(first <= entry.position <= last for first, last in stretches)
                rows.append(len(self.entries) if is_shown else -1)
                if is_shown:
                    self.entries.append(entry)
            self._parts.append((part, rows))
        self.documents = Documents([one.length for one in self.entries], self._rows_of)
        self._pairing: Pairing = pair((one.position, one.facts) for one in self.entries)
        self._names = {
            Ref(one.position, at): call.name for one in self.entries for at, call in enumerate(one.facts.calls)
        }

    def _rows_of(self, term: str) -> list[tuple[int, int]]:
        found = ((rows[row], count) for part, rows in self._parts for row, count in part.rows_of(term))
        return [one for one in found if one[0] >= 0]

    def refs(self, row: int, tool: str | None = None) -> list[Ref]:
        """The calls that a message makes, then those that it answers; only of one tool."""
        position, facts = self.entries[row].position, self.entries[row].facts
        answered = (self._pairing.call_of.get((position, at)) for at in range(len(facts.results)))
        found = [*(Ref(position, at) for at in range(len(facts.calls))), *(ref for ref in answered if ref is not None)]
        return [ref for ref in found if tool is None or self._names.get(ref) == tool]

    def is_echo(self, row: int) -> bool:
        """Whether it is nothing but a call of the recall tools or its result: these repeat what stands elsewhere."""
        facts: Facts = self.entries[row].facts
        if facts.head or not (facts.calls or facts.results):
            return False
        refs = self.refs(row)
        return bool(refs) and all(self._names.get(ref) in (RECALL_TOOL, SEARCH_TOOL) for ref in refs)

    def is_asked_for(self, row: int, query: SearchQuery) -> bool:
        entry = self.entries[row]
        if query.role not in (None, entry.facts.role) or query.loop not in (None, entry.loop):
            return False
        return query.tool is None or bool(self.refs(row, query.tool))


def _within(query: SearchQuery) -> Callable[[Entry], bool]:
    """Whether a message is where the question wants it."""
    after, before = _bound("after", query.after), _bound("before", query.before)
    first = query.after + 1 if isinstance(query.after, int) else 0

    def is_within(one: Entry) -> bool:
        if isinstance(query.before, int) and one.position >= query.before:
            return False
        return (
            one.position >= first
            and (after is None or one.time_ms >= after)
            and (before is None or one.time_ms < before)
        )

    return is_within


def _bound(name: str, given: int | str | None) -> int | None:
    """A time in milliseconds; None for a position."""
    if not isinstance(given, str):
        return None
    try:
        return milliseconds_of(given)
    except ValueError as error:
        raise _invalid(name, f"{given[:64]!r} is neither a position nor a time of RFC 3339") from error


def _invalid(name: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", f"/query/{name}", message)])
