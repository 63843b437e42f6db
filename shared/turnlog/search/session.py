"""Search in one session: rank its visible messages by the words of a question, and rerank the best by an embedder.

Messages in segments come from the segments' stored indexes; newer messages are read from the log. Texts are read for results only.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import repeat
from typing import Literal, TypeAlias, cast

from turnlog.core.calls import MessageOutline, Pairing, Ref, pair
from turnlog.core.errors import EmbedderConfigError, InvalidInputError, UnavailableError
from turnlog.core.events import MessageEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import Stretch, subtract
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL
from turnlog.core.times import milliseconds_of
from turnlog.log.commit import Commit, checked_chain, event_at, header_in
from turnlog.log.commit_items import is_tombstone
from turnlog.log.headers import Header
from turnlog.log.keys import COMMITS_TO, MAX_POSITION, ORDERS_TO, QUESTION_DIGITS, SessionKeys, commit_sort_key
from turnlog.log.payloads import in_parallel, is_blob
from turnlog.log.reading import Located, located, newest_pages, searchable_text
from turnlog.ports import Absent, Embedder, Item, ItemTable, Key, Query, SearchEngine, TermDocuments
from turnlog.search.days import with_days
from turnlog.search.index import Index, IndexedMessage, SearchIndexes
from turnlog.search.models import SearchAnswer, SearchQuery, SearchResult
from turnlog.search.text_parts import snippet
from turnlog.sessions.session_history import WarmSessions
from turnlog.sessions.session_log import SessionLog
from turnlog.snapshots.segments import Segment, Segments
from turnlog.windows.plan import Source, entry_of
from turnlog.windows.recalled import Question, RecallHit, RecallSearch
from turnlog.windows.view import RankedBy

KEPT = 1_024
"""Number of newest messages that stay in memory during a search; an older message is read again when it is a result."""
INDEX_BYTES = 32 * 1024 * 1024
"""Estimated memory of the indexes that a process remembers: of some 50,000 messages of 600 characters."""
PART_MESSAGES = 4_096
"""Number of messages after which a new part of an index begins."""
PARALLEL = 8
"""Number of indexes or sessions that are read at the same time."""
RERANKED = 20
"""Number of best results by words that are reranked; more if the query's limit is higher."""
TEXT_CHARS = 2_000
"""Characters of each text, from its beginning, that the embedder gets."""
WORDS_WEIGHT = 0.5
"""Weight of the score by words; the embedder's similarity has the rest."""
MAX_QUESTION_CHARS = 1_000
RECALL_SECONDS = 2.0
"""Time in which the index of a session must have been read for a window; else the window goes without what is recalled."""
MAX_COMMITS = 40
"""Commits that are read for what a window recalls for a question: 20 read units, when none is larger than 4 KB."""
DECAY = 0.8
"""Share of a message's score that its neighbour has when messages are recalled; for each further one again."""
Rows: TypeAlias = "Sequence[tuple[int, float]]"
"""Rows of messages with their scores, best by words first."""


@lazy_dataclass(frozen=True, slots=True)
class SearchedSession:
    """A session that has been read for a search.

    ``kept`` maps a position to its message, for the newest messages that were read from the log. ``is_cut``: older messages are
    left out.
    """

    keys: SessionKeys
    header: Header
    stretches: Sequence[Stretch]
    corpus: SessionCorpus
    kept: dict[int, Located] = field(repr=False)
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

    @property
    def size_bytes(self) -> int:
        """The estimated memory of the indexes."""
        return sum(part.size_bytes for part in self.parts)


class SessionReader:
    """Reads sessions for a search, and remembers their indexes: the next search in the process reads what is new.

    The first search takes one request for the list of segments, one for each index, and one for each 1 MB of commits outside
    segments. A later one takes one request, and one for the list of segments if a message is known by its card only. Texts of
    results that are not in memory take one or two more.
    """

    def __init__(self, log: SessionLog, segments: Segments, indexes: SearchIndexes) -> None:
        self._log = log
        self._segments = segments
        self._indexes = indexes
        self._warm = WarmSessions[WarmIndex](INDEX_BYTES)

    def read(self, keys: SessionKeys, *, newest: int = MAX_POSITION, until: float = math.inf) -> SearchedSession:
        """Read a session's corpus, of the ``newest`` positions at most; raise `NotFoundError` without a session.

        Raises `UnavailableError` when the log, of which no index is known, is not read ``until`` a time of `time.monotonic`.
        """
        kept = dict[int, Located]()
        warm = self._warm.take(keys)
        index = self._extended(keys, warm, kept) if warm is not None else None
        stretches, is_complete = self._stretches(keys, index.header) if index is not None else (), True
        # A rewind may bring back what an earlier rewind had hidden.
        if index is None or subtract(stretches, index.covered):
            index = self._built(keys, newest, kept, until=until)
            stretches, is_complete = index.covered, newest >= index.header.last
        header, first = index.header, max(1, index.header.last - newest + 1)
        shown = [(max(begin, first), last) for begin, last in stretches if last >= first]
        searched = SearchedSession(
            keys, header, shown, SessionCorpus(index.parts, shown), kept, shown[0] != stretches[0]
        )
        if is_complete:
            self._remember(keys, index)
        return searched

    def read_before(
        self, keys: SessionKeys, header: Header, position: int, commits: Sequence[Commit], *, seconds: float = math.inf
    ) -> SearchedSession:
        """Read the corpus of the messages before a position that are in view at a header.

        Raises `UnavailableError` when the log, of which no index is known, is not read within ``seconds``.
        ``commits`` are the newest ones up to the header, as far as they are known. No request when they follow the known index.
        """
        kept, warm = dict[int, Located](), self._warm.take(keys)
        index = self._followed(keys, warm, header, commits, kept) if warm is not None else None
        if index is None and warm is not None:
            index = self._extended(keys, warm, kept)
        stretches = [
            (first, min(last, position - 1)) for first, last in self._stretches(keys, header) if first < position
        ]
        if index is None or subtract(stretches, index.covered):
            index = self._built(keys, MAX_POSITION, kept, stretches, until=time.monotonic() + seconds)
        searched = SearchedSession(keys, header, stretches, SessionCorpus(index.parts, stretches), kept)
        self._remember(keys, index)
        return searched

    def _remember(self, keys: SessionKeys, index: WarmIndex) -> None:
        # A redaction is noted in forks after it is answered, so what a fork reads of another log is not remembered.
        if not any(part.is_shared for part in index.parts):
            self._warm.put(keys, index)

    def _followed(
        self, keys: SessionKeys, warm: WarmIndex, header: Header, commits: Sequence[Commit], kept: dict[int, Located]
    ) -> WarmIndex | None:
        """Return a known index with the commits behind it; None when it is not known that they follow it."""
        known = warm.header
        start = next((index for index, commit in enumerate(commits) if commit.header.hash == known.hash), None)
        if start is None or known.view != header.view or commits[-1].header.hash != header.hash:
            return None
        return self._grown(keys, warm, commits[start:], kept)

    def _extended(self, keys: SessionKeys, warm: WarmIndex, kept: dict[int, Located]) -> WarmIndex | None:
        """Return a known index with the messages behind it; None when the log before has changed."""
        known, items = warm.header, list[Item]()
        query, after = Query(keys.partition, commit_sort_key(known.first), COMMITS_TO), None
        while not items or after is not None:
            page = self._log.items.query(replace(query, after=after))
            if not page.items:
                break
            items, after = [*items, *page.items], page.next
        if not items or is_tombstone(items) or header_in(items[0]).hash != known.hash:
            return None
        commits = checked_chain(items)
        header = commits[-1].header
        self._log.commits.check_alive(keys, header)
        return self._grown(keys, warm, commits, kept)

    def _grown(
        self, keys: SessionKeys, warm: WarmIndex, commits: Sequence[Commit], kept: dict[int, Located]
    ) -> WarmIndex | None:
        """Return a known index with newer commits, the first of which it has; None when the log before has changed."""
        known, header = warm.header, commits[-1].header
        messages = self.messages(keys, commits[1:], known.last + 1)
        first_card = _keep(kept, messages)
        if header.redacted != known.redacted or self._is_sealed(keys, warm.first_card or first_card):
            return None
        if not warm.parts or len(warm.parts[-1].entries) >= PART_MESSAGES:
            warm.parts.append(Index())
        warm.parts[-1].add(self._indexes.engine, messages)
        covered = (*warm.covered[:-1], (warm.covered[-1][0], header.last))
        return WarmIndex(header, warm.parts, covered, warm.first_card or first_card)

    def _stretches(self, keys: SessionKeys, header: Header) -> Sequence[Stretch]:
        return self._log.commits.view(keys, header).up_to(header.last)

    def _is_sealed(self, keys: SessionKeys, position: int) -> bool:
        return position > 0 and any(segment.last >= position for segment in self._segments.list(keys))

    def texts(self, searched: SearchedSession, entries: Sequence[IndexedMessage]) -> list[str]:
        """Return the texts of messages, in order. Payloads in items of their own are fetched; payloads in blobs are not."""
        messages = self.located(searched, entries)
        events = [message.event for message in messages]
        beside = [event for event in events if event.payload is not None and not is_blob(event.payload)]
        bodies = self._log.commits.fetch(searched.keys, beside)
        messages = [replace(message, event=bodies.get(message.event.position, message.event)) for message in messages]
        return [searchable_text(message, message.message, message.facts) for message in messages]

    def located(self, searched: SearchedSession, entries: Sequence[IndexedMessage]) -> list[Located]:
        """Return messages in order. Takes one request if one of them is not in memory; payloads are not fetched."""
        keys, kept = searched.keys, searched.kept
        by_position = {entry.position: kept[entry.position] for entry in entries if entry.position in kept}
        missing = [entry for entry in entries if entry.position not in by_position]
        begins = sorted({entry.commit for entry in missing})
        read = self._log.commits.at(keys, begins, consistent=False) if begins else []
        commits = dict(zip(begins, read, strict=True))
        events = [cast("MessageEvent", event_at(commits[entry.commit], entry.position, {})) for entry in missing]
        bodies = self._log.commits.fetch(keys, [event for event in events if event.body is None and not event.facts])
        for entry, event in zip(missing, events, strict=True):
            body = bodies.get(entry.position, event)
            by_position[entry.position] = Located(body, entry.loop, commits[entry.commit].header.time_ms)
        return [by_position[entry.position] for entry in entries]

    def _built(
        self,
        keys: SessionKeys,
        newest: int,
        kept: dict[int, Located],
        others: Sequence[Stretch] = (),
        *,
        until: float = math.inf,
    ) -> WarmIndex:
        """Return the index of a session's ``newest`` positions at least, from its segments' indexes and the log.

        It has what is in view, and the ``others``, which were in view before a rewind.
        """
        segments = list(self._segments.list(keys))
        end, first, first_card = segments[-1].last if segments else 0, 1, 0
        header, pages = None, list[Index]()
        for commits in newest_pages(self._log.commits, keys, pages=None, first=max(1, end)):
            if header is None:
                header = commits[-1].header
                first = max(1, header.last - newest + 1)
            _check_time(until)
            messages = self.messages(keys, commits, end + 1)
            pages.append(self._indexes.build(messages, is_shared=_is_shared(keys, commits)))
            first_card = _keep(kept, messages) or first_card
            if commits[0].header.first <= first:
                break
        assert header is not None  # noqa: S101 - a session has a first commit
        stretches = self._stretches(keys, header)
        if hidden := subtract(others, stretches):
            stretches = sorted([*stretches, *hidden])
        shown = [stretch for stretch in stretches if stretch[1] >= first]
        sealed = self._sealed(keys, segments, shown, first, until=until)
        return WarmIndex(header, [*sealed, *pages[::-1]], stretches, first_card)

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
        index = self._indexes.read(keys, segment)
        if index is not None:
            return index
        return self._indexes.build(self._segments.placed(keys, self._segments.commits(keys, segment)))

    def _between(self, keys: SessionKeys, first: int, last: int) -> Index:
        commits = self._log.commits.range(keys, first, last)
        return self._indexes.build(self.messages(keys, commits, first, last), is_shared=_is_shared(keys, commits))


def _check_time(until: float) -> None:
    if time.monotonic() >= until:
        raise UnavailableError("the session's index was not read in time")


def _is_shared(keys: SessionKeys, commits: Sequence[Commit]) -> bool:
    """Return whether a session reads commits of another session's log."""
    return any(commit.home != keys.partition for commit in commits)


def _keep(kept: dict[int, Located], messages: Sequence[tuple[Located, int]]) -> int:
    """Keep the newest messages, and return the first position that is known by a card only until it is sealed; 0 for none."""
    for message, _ in reversed(messages):
        if len(kept) < KEPT:
            kept[message.event.position] = message
    cards = (message.event for message, _ in messages if message.event.body is None)
    return next((event.position for event in cards if event.payload is not None and not is_blob(event.payload)), 0)


class SessionCorpus:
    """The visible messages of a session as one list of documents, with the refs of their tool calls."""

    def __init__(self, parts: Sequence[Index], stretches: Sequence[Stretch]) -> None:
        self.entries = list[IndexedMessage]()
        self._lengths, self._asked = list[int](), dict[str, Mapping[int, int]]()
        self._parts = list[tuple[Index, Sequence[int]]]()
        for part in parts:
            if part.entries:
                self._add(part, stretches)
        self.documents = TermDocuments(self._lengths, self._rows_of)

    def _add(self, part: Index, stretches: Sequence[Stretch]) -> None:
        """Add the visible messages of a part; its rows map to rows of the corpus, -1 for a message that is not visible."""
        begin, end, start = part.entries[0].position, part.entries[-1].position, len(self.entries)
        near = [(first, last) for first, last in stretches if first <= end and begin <= last]
        if near and near[0][0] <= begin and end <= near[0][1]:
            self.entries += part.entries
            self._lengths += part.lengths
            self._parts.append((part, range(start, len(self.entries))))
            return
        rows = list[int]()
        for entry in part.entries:
            is_shown = any(first <= entry.position <= last for first, last in near)
            rows.append(len(self.entries) if is_shown else -1)
            if is_shown:
                self.entries.append(entry)
                self._lengths.append(entry.length)
        self._parts.append((part, rows))

    @cached_property
    def _calling(self) -> list[IndexedMessage]:
        """The messages with calls or results."""
        rows = (rows[row] for part, rows in self._parts for row in part.calling if row < len(rows))
        return [self.entries[row] for row in rows if row >= 0]

    @cached_property
    def _pairing(self) -> Pairing:
        return pair((entry.position, entry.facts) for entry in self._calling)

    @cached_property
    def _names(self) -> dict[Ref, str]:
        return {
            Ref(entry.position, index): call.name
            for entry in self._calling
            for index, call in enumerate(entry.facts.calls)
        }

    @cached_property
    def has_echoes(self) -> bool:
        """Whether any message calls the recall and search tools."""
        return not {RECALL_TOOL, SEARCH_TOOL}.isdisjoint(self._names.values())

    def _rows_of(self, term: str) -> Mapping[int, int]:
        if (known := self._asked.get(term)) is not None:
            return known
        counts = self._asked[term] = dict[int, int]()
        for part, rows in self._parts:
            # A part that another search has extended meanwhile has rows which are not of this corpus.
            size, matches = len(rows), part.rows_of(term).items()
            counts.update((rows[row], count) for row, count in matches if row < size and rows[row] >= 0)
        return counts

    def word_counts(self) -> Counter[str]:
        """Return the number of occurrences of each term in the visible messages."""
        counts = Counter[str]()
        for part, rows in self._parts:
            size = len(rows)
            for term, term_rows in part.terms.items():
                counts[term] += sum(row < size and rows[row] >= 0 for row in term_rows)
        return +counts

    def refs(self, row: int, tool: str | None = None) -> list[Ref]:
        """Return the tool calls that a message makes, then the calls that it answers; with ``tool`` only calls of that tool."""
        position, facts = self.entries[row].position, self.entries[row].facts
        made = [Ref(position, index) for index in range(len(facts.calls))]
        answered = [self._pairing.call_of.get((position, index)) for index in range(len(facts.results))]
        refs = [*made, *(ref for ref in answered if ref is not None)]
        return [ref for ref in refs if tool is None or self._names.get(ref) == tool]

    def is_echo(self, row: int) -> bool:
        """Return whether a message only calls the recall and search tools, or only holds their results.

        Such messages repeat the words of other messages.
        """
        facts: MessageOutline = self.entries[row].facts
        if facts.head or not (facts.calls or facts.results):
            return False
        refs = self.refs(row)
        return bool(refs) and all(self._names.get(ref) in (RECALL_TOOL, SEARCH_TOOL) for ref in refs)

    def matches(self, row: int, query: SearchQuery) -> bool:
        """Return whether a message has the role, the loop and the tool that the query names."""
        entry = self.entries[row]
        if query.role not in (None, entry.facts.role) or query.loop not in (None, entry.loop):
            return False
        return query.tool is None or bool(self.refs(row, query.tool))


_log = logging.getLogger("turnlog")
Reranking = Literal["off", "done", "failed"]


@lazy_dataclass(frozen=True, slots=True)
class Reranked:
    """The order of reranked texts: ``order`` lists indexes into the texts, best first, each with its score."""

    order: Sequence[tuple[int, float]]
    how: Reranking


class Reranker:
    """Reorders search results by the similarity of meaning that an embedder measures."""

    def __init__(self, embedder: Embedder | None) -> None:
        """Without an ``embedder`` the order by words stays."""
        self._embedder = embedder
        self.is_on = embedder is not None

    def wanted(self, limit: int) -> int:
        """Return the number of best results by words that reranking needs for ``limit`` results."""
        return max(RERANKED, limit) if self.is_on else limit

    def __call__(self, question: str, texts: Sequence[str], scores: Sequence[float]) -> Reranked:
        """Rerank texts by score and similarity to the question; ``scores`` are the scores by words, best first.

        If the embedder gives no answer, the order by words stays and a warning is logged.
        """
        by_words = list(enumerate(scores))
        if self._embedder is None:
            return Reranked(by_words, "off")
        if len(texts) <= 1:
            return Reranked(by_words, "done")
        try:
            (question_vector,) = self._embedder.embed([question], as_question=True)
            text_vectors = self._embedder.embed([text[:TEXT_CHARS] or "." for text in texts])
            cosines = [_cosine(question_vector, vector) for vector in text_vectors]
        except (UnavailableError, EmbedderConfigError) as error:
            _log.warning("search results are in the order of their words: %s", error.error_code)
            return Reranked(by_words, "failed")
        best = max(scores)
        mixed = [
            WORDS_WEIGHT * score / best + (1 - WORDS_WEIGHT) * max(0.0, cosine)
            for score, cosine in zip(scores, cosines, strict=True)
        ]
        return Reranked(sorted(enumerate(mixed), key=lambda index_score: -index_score[1]), "done")


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    lengths = math.hypot(*first) * math.hypot(*second)
    return sum(a * b for a, b in zip(first, second, strict=True)) / lengths if lengths else 0.0


class RecalledOrders:
    """Orders what windows recall by an embedder. It is asked once for a question; its answer, or that there was none, is stored.

    So all processes have the same order. The embedder is not asked for a question once a newer one has an order: the older question
    keeps its stored order, or its order by words.
    """

    def __init__(self, items: ItemTable, sessions: SessionReader, rerank: Reranker) -> None:
        self._items = items
        self._sessions = sessions
        self._rerank = rerank
        self.wanted = rerank.wanted

    def __call__(
        self, searched: SearchedSession, questions: Sequence[Question], rows: Sequence[Rows]
    ) -> list[tuple[Rows, RankedBy]]:
        """Return the rows that match each question with the scores that an embedder has given them.

        Takes one request, and for a new question another one and those of `SessionReader.texts`.
        """
        if not self._rerank.is_on:
            return [(matching, "") for matching in rows]
        keys = [searched.keys.recalled(question.position, question.text) for question in questions]
        page = self._items.query(Query(keys[0].pk, keys[0].sk[:-QUESTION_DIGITS], ORDERS_TO))
        items, newest = {str(item["sk"]): item for item in page.items}, keys[-1].sk
        is_newest = max(items, default="")[:-QUESTION_DIGITS] <= newest[:-QUESTION_DIGITS]
        if len(rows[-1]) > 1 and is_newest and newest not in items:
            items[newest] = self._stored(keys[-1], searched, questions[-1], rows[-1][:RERANKED])
        entries = searched.corpus.entries
        return [_ranked(entries, matching, items.get(key.sk)) for matching, key in zip(rows, keys, strict=True)]

    def _stored(self, key: Key, searched: SearchedSession, question: Question, rows: Rows) -> Item:
        """Ask the embedder and store its answer; return what is stored, which may be another process's."""
        entries = [searched.corpus.entries[row] for row, _ in rows]
        reranked = self._rerank(question.text, self._sessions.texts(searched, entries), [score for _, score in rows])
        order = reranked.order if reranked.how == "done" else ()
        shares = {str(entries[index].position): round(share, 3) for index, share in order}
        item: Item = {"pk": key.pk, "sk": key.sk, "b": encode_json(shares).decode("ascii")}
        lost = self._items.put(item, condition=Absent())
        return item if lost is None or lost.existing is None else lost.existing


def _ranked(entries: Sequence[IndexedMessage], rows: Rows, item: Item | None) -> tuple[Rows, RankedBy]:
    """Return rows in the stored order, which has shares of their highest score. A row without a share counts as not similar."""
    shares = json.loads(str(item["b"])) if item is not None else {}
    if not shares or not rows:
        return rows, "by_words" if item is not None else ""
    highest = max(score for _, score in rows)
    mixed = [
        (row, highest * shares.get(str(entries[row].position), WORDS_WEIGHT * score / highest)) for row, score in rows
    ]
    return sorted(mixed, key=lambda row_score: -row_score[1]), "by_meaning"


class SearchSession:
    """Use case: search the messages of a session.

    Calls of the recall and search tools, and their results, come last: they only repeat the words of other messages.
    """

    def __init__(self, sessions: SessionReader, engine: SearchEngine, rerank: Reranker) -> None:
        self._sessions = sessions
        self._engine = engine
        self._rerank = rerank

    def __call__(self, owner: Owner, session_id: str, query: SearchQuery) -> SearchAnswer:
        check_question(query.q)
        is_within = within(query)
        searched = self._sessions.read(SessionKeys(owner, session_id))
        corpus, hits = searched.corpus, list[tuple[int, float]]()
        wanted = self._rerank.wanted(query.limit)
        ranked = self._engine.rank(corpus.documents, dated(query.q, corpus))
        if query.tool is None and corpus.has_echoes:
            ranked.sort(key=lambda row_score: corpus.is_echo(row_score[0]))
        for row, score in ranked:
            if corpus.matches(row, query) and is_within(corpus.entries[row]):
                hits.append((row, score))
            if len(hits) == wanted:
                break
        texts = self._sessions.texts(searched, [corpus.entries[row] for row, _ in hits])
        reranked = self._rerank(query.q, texts, [score for _, score in hits])
        best = [(hits[index][0], score, texts[index]) for index, score in reranked.order[: query.limit]]
        spans = self._engine.spans([text for _, _, text in best], query.q)
        results = list[SearchResult]()
        for (row, score, text), marks in zip(best, spans, strict=True):
            entry, refs = corpus.entries[row], corpus.refs(row, query.tool)
            results.append(
                SearchResult(
                    position=entry.position,
                    loop=entry.loop or None,
                    role=entry.facts.role,
                    ref=str(refs[0]) if refs else None,
                    snippet=snippet(text, marks),
                    score=float(f"{score:.6g}"),
                )
            )
        return SearchAnswer(results=results, searched_from=searched.stretches[0][0], reranking=reranked.how)


class FindMessages:
    """Use case: find the messages before a position that are about questions, for the step recall of a window.

    Ranks the log before the position by its own statistics, so newer messages change nothing.
    """

    def __init__(self, sessions: SessionReader, engine: SearchEngine, orders: RecalledOrders) -> None:
        self._sessions = sessions
        self._engine = engine
        self._orders = orders

    def in_session(
        self, keys: SessionKeys, header: Header, commits: Sequence[Commit], search: RecallSearch
    ) -> list[list[RecallHit]] | None:
        """Return messages that are in view at a header; None when the log cannot be read, or not in time.

        ``commits`` are the newest ones up to the header, as far as they are known.
        """
        try:
            searched = self._sessions.read_before(keys, header, search.before, commits, seconds=RECALL_SECONDS)
            corpus = searched.corpus
            wider = replace(search, limit=self._orders.wanted(search.limit))
            matching = [_matching(self._engine, corpus, wider, question) for question in search.questions]
            ranked = self._orders(searched, search.questions, matching)
            scores = [_chosen(corpus, search, rows[: search.limit], MAX_COMMITS) for rows, _ in ranked]
            rows = sorted(set[int]().union(*scores))
            messages = self._sessions.located(searched, [corpus.entries[row] for row in rows])
        except UnavailableError as error:
            _log.warning("nothing is recalled: %s", error.error_code)
            return None
        return _hits(corpus, scores, dict(zip(rows, messages, strict=True)), [by for _, by in ranked])


class ListSearch:
    """Finds messages of a list for the step recall. The list is indexed once."""

    def __init__(self, engine: SearchEngine, sources: Sequence[Source]) -> None:
        self._engine = engine
        self._sources = sources

    @cached_property
    def _index(self) -> tuple[Index, dict[int, Located]]:
        messages = [Located(source.event, source.loop, source.time_ms) for source in self._sources]
        index = Index()
        index.add(self._engine, ((message, message.event.position) for message in messages))
        return index, {message.event.position: message for message in messages}

    def __call__(self, search: RecallSearch) -> list[list[RecallHit]]:
        index, messages = self._index
        corpus = SessionCorpus([index], [(1, search.before - 1)])
        matching = (_matching(self._engine, corpus, search, question) for question in search.questions)
        scores = [_chosen(corpus, search, rows) for rows in matching]
        rows = {row: messages[corpus.entries[row].position] for values in scores for row in values}
        return _hits(corpus, scores, rows, repeat(""))


def _matching(engine: SearchEngine, corpus: SessionCorpus, search: RecallSearch, question: Question) -> Rows:
    """Return the rows of the messages that match a question best; none when the best has too low a score."""
    documents, text = corpus.documents, with_days(question.text.lower(), question.day)
    ranked = engine.rank(documents, text) if corpus.entries else []
    if not ranked or ranked[0][1] < question.min_score * engine.highest_score(documents, text):
        return []
    share = 1 / engine.highest_score(documents, text) if search.of_user else 1
    best = ranked[: search.limit]
    return [(row, score * share) for row, score in best if not (corpus.has_echoes and corpus.is_echo(row))]


def _chosen(corpus: SessionCorpus, search: RecallSearch, rows: Rows, commits: int | None = None) -> dict[int, float]:
    """Return the rows of the messages that matter most and are not shown yet, best first, each with its score.

    They are of ``commits`` commits at most. A neighbour of a message has a share of that message's score, so it comes before
    what matters less than both.
    """
    values = with_neighbours(rows, search.neighbours, len(corpus.entries))
    chosen = sorted(values, key=lambda row: (-values[row], row))
    left_out = [row for row in chosen if corpus.entries[row].position not in search.shown][: search.limit]
    read = set(list(dict.fromkeys(corpus.entries[row].commit for row in left_out))[:commits])
    return {row: values[row] for row in left_out if corpus.entries[row].commit in read}


def with_neighbours(scores: Iterable[tuple[int, float]], neighbours: int, total: int) -> dict[int, float]:
    """Return rows with their neighbours among ``total`` rows; a neighbour has a share of the score, if it has no better one."""
    values = dict[int, float]()
    for row, score in scores:
        for distance in range(-neighbours, neighbours + 1):
            near, value = row + distance, score * DECAY ** abs(distance)
            if 0 <= near < total and value > values.get(near, 0.0):
                values[near] = value
    return values


def _hits(
    corpus: SessionCorpus,
    scores: Sequence[Mapping[int, float]],
    messages: Mapping[int, Located],
    ranked: Iterable[RankedBy],
) -> list[list[RecallHit]]:
    entries = {row: entry_of(Source(message.event, message.loop, message.time_ms)) for row, message in messages.items()}
    refs = {row: tuple(corpus.refs(row)[len(entry.facts.calls) :]) for row, entry in entries.items()}
    return [
        [RecallHit(entries[row], float(f"{score:.6g}"), refs[row], ranked=by) for row, score in values.items()]
        for values, by in zip(scores, ranked, strict=False)
    ]


def check_question(q: str) -> None:
    """Raise `InvalidInputError` if the question is blank or longer than `MAX_QUESTION_CHARS`."""
    if not q.strip() or len(q) > MAX_QUESTION_CHARS:
        raise InvalidInputError.at("/query/q", f"q must have 1 to {MAX_QUESTION_CHARS} characters")


def dated(question: str, *corpora: SessionCorpus) -> str:
    """Return a question with the days that it names as an index has them; "yesterday" is the day before the newest message's."""
    newest_ms = max((corpus.entries[-1].time_ms for corpus in corpora if corpus.entries), default=0)
    return with_days(question.lower(), datetime.fromtimestamp(newest_ms / 1000, UTC).date())


def within(query: SearchQuery) -> Callable[[IndexedMessage], bool]:
    """Return a function that says whether a message passes the query's ``after`` and ``before``; raise `InvalidInputError`."""
    after, before = bound("after", query.after), bound("before", query.before)
    first = query.after + 1 if isinstance(query.after, int) else 0

    def is_within(message: IndexedMessage) -> bool:
        if isinstance(query.before, int) and message.position >= query.before:
            return False
        return (
            message.position >= first
            and (after is None or message.time_ms >= after)
            and (before is None or message.time_ms < before)
        )

    return is_within


def bound(name: str, value: int | str | None) -> int | None:
    """Return a time of RFC 3339 in milliseconds, or None if the value is a position; raise `InvalidInputError`."""
    if not isinstance(value, str):
        return None
    try:
        return milliseconds_of(value)
    except ValueError as error:
        message = f"{value[:64]!r} is neither a position nor a time such as 2026-01-31T12:00:00Z"
        raise InvalidInputError.at(f"/query/{name}", message) from error
