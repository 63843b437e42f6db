"""Search over an owner's sessions: titles, summaries and messages, without reading every log.

The search first selects sessions by their stored words, one small item for each session. It also selects the newest sessions whose
words are missing or outdated. It then searches the selected sessions as `SearchSession` does, as one list of messages. If other
sessions have missing or outdated words, it starts a job that indexes them.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from turnlog.core.errors import InvalidInputError, NotFoundError, TurnlogError, UnavailableError
from turnlog.core.events import NO_ENVELOPE, LoggedMessage, MessageEvent
from turnlog.core.identity import Owner
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.positions import SEGMENT_POSITIONS
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.jobs.worker import StartJobs
from turnlog.log.headers import short_hash
from turnlog.log.keys import SessionKeys
from turnlog.log.payloads import in_parallel
from turnlog.memory.bootstrap import known_in_time, text_of
from turnlog.ports import MAX_COUNT, NEIGHBOUR_REACH, MemoryReader, Ranking, SearchEngine, TermDocuments
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.search.corpus import PARALLEL, SearchedSession, SessionReader
from turnlog.search.days import with_days
from turnlog.search.index import IndexedMessage
from turnlog.search.models import MAX_QUESTION_CHARS, FoundInSessions, SearchQuery, SearchSessionsAnswer
from turnlog.search.session import (
    RECALL_SECONDS,
    Reranker,
    Reranking,
    check_question,
    dated,
    with_neighbours,
    within,
)
from turnlog.search.session_words import JOB_MS, ListedSession, OwnerSessions, Words, word_hash
from turnlog.search.text_parts import snippet
from turnlog.sessions.models import Bootstrap
from turnlog.sessions.session_log import SessionLog
from turnlog.summaries.store import CurrentSummary, Summaries
from turnlog.windows.plan import entry_of
from turnlog.windows.recalled import Question, RecallHit, RecallSearch
from turnlog.windows.view import Entry

SCANNED = 16
"""Number of newest sessions with missing or outdated words that every search reads, whatever the question."""
LOOKED_INTO = 8
"""Number of other sessions that a search reads: those whose stored words match best."""
MAX_SEGMENTS = 64
"""Segments that one search reads at most, over all its sessions; of each session as many of the newest positions."""
FEW = 100
"""Number of texts from which on the rarity of a word says enough."""
MAX_MEMORIES = 5
"""Memories that a window recalls at most."""
TITLE_WEIGHT = 4
"""Weight of a word of the title when sessions are selected; a word of a message has weight 1."""
_EMPTY = (0,) * NEIGHBOUR_REACH
_NO_WORDS = Words.from_counts({}, position=0, read_ms=0)
_log = logging.getLogger("turnlog")


@lazy_dataclass(frozen=True, slots=True)
class _Hit:
    """A match: the message at ``row`` of the session's corpus, else the session's ``summary``, else its title.

    ``highest`` is the score that the question could have.
    """

    score: float
    highest: float
    listed: ListedSession
    searched: SearchedSession | None = None
    row: int | None = None
    summary: CurrentSummary | None = None

    @property
    def share(self) -> float:
        """The share of the score that the question could have."""
        return min(1.0, self.score / self.highest)


class _Reach(NamedTuple):
    """Limits of a search: sessions that it reads without stored words, sessions that it reads for their words, segments that it
    reads of all, seconds in which it reads them, and the newest sessions that it lists.
    """

    scanned: int
    looked_into: int
    segments: int
    seconds: float = math.inf
    listed: int | None = None


OF_A_WINDOW = _Reach(4, 4, 8, RECALL_SECONDS, 100)


class _Selection(NamedTuple):
    """An owner's sessions with their titles' terms, and those that are read. ``left`` are unindexed, ``gone`` are not there."""

    listed: Sequence[ListedSession]
    is_more: bool
    titles: Sequence[Sequence[str]]
    read: Sequence[tuple[ListedSession, SearchedSession]]
    left: Collection[str]
    gone: Collection[str]
    unknown: Collection[str]


@lazy_dataclass(frozen=True, slots=True)
class SearchSessions:
    """Use case: search an owner's sessions.

    Takes one request for the list of sessions, one or two for the words of each 100 sessions, and those of a search in each
    selected session. Long logs add no requests beyond `MAX_SEGMENTS` indexes. ``alone`` is an engine like ``engine`` that ranks
    each text without the text before it.
    """

    log: SessionLog
    owners: OwnerSessions
    sessions: SessionReader
    engine: SearchEngine
    alone: SearchEngine
    rerank: Reranker
    start_job: StartJobs

    def __call__(self, owner: Owner, query: SearchQuery) -> SearchSessionsAnswer:
        check_question(query.q)
        for name, value in (("after", query.after), ("before", query.before)):
            if isinstance(value, int):
                message = f"{name} must be a time (RFC 3339) in a search over sessions, not a position"
                raise InvalidInputError.at(f"/query/{name}", message)
        selected = self._select(owner, query.q, _Reach(SCANNED, LOOKED_INTO, MAX_SEGMENTS))
        results, reranking = self._results(query, self._hits(query, selected)[: self.rerank.wanted(query.limit)])
        is_cut = any(searched.is_cut for _, searched in selected.read)
        return SearchSessionsAnswer(
            results=results,
            sessions=len(selected.listed) - len(selected.gone),
            unindexed=len(selected.left),
            is_complete=not (selected.left or selected.is_more or is_cut),
            reranking=reranking,
        )

    def recalled(self, keys: SessionKeys, question: Question, search: RecallSearch) -> list[RecallHit]:
        """Return what the owner's other sessions have on a question: titles, summaries, and messages up to its time, each with its
        neighbours. `OF_A_WINDOW` limits the number of requests.
        """
        query = SearchQuery(q=with_days(question.text, question.day)[:MAX_QUESTION_CHARS])
        selected = self._select(keys.owner, query.q, OF_A_WINDOW, without=keys.session_id, time_ms=question.time_ms)
        hits = (hit for hit in self._hits(query, selected) if hit.score >= question.min_score * hit.highest)
        recalled, messages = list[RecallHit](), defaultdict[str, list[_Hit]](list)
        for hit in islice(hits, search.limit):
            if hit.row is None:
                recalled.append(_text_hit(hit))
            else:
                messages[hit.listed.session_id].append(hit)
        for of_session in messages.values():
            recalled += self._with_neighbours(of_session, question, search.neighbours)
        return recalled

    def _with_neighbours(self, hits: Sequence[_Hit], question: Question, neighbours: int) -> Iterator[RecallHit]:
        """Yield messages of one session and their neighbours, up to the time of a question."""
        searched, place = hits[0].searched, _place_of(hits[0].listed)
        assert searched is not None  # noqa: S101 - the hits are messages
        entries, rows = searched.corpus.entries, [(hit.row or 0, hit.share) for hit in hits]
        values = with_neighbours(rows, neighbours, len(entries))
        said = {row: entries[row] for row in values if entries[row].time_ms <= question.time_ms}
        for row, message in zip(said, self.sessions.located(searched, list(said.values())), strict=True):
            entry = entry_of(message)
            yield RecallHit(entry, values[row], (), place, searched.keys.session_id)

    def _select(
        self, owner: Owner, question: str, reach: _Reach, *, without: str = "", time_ms: float = math.inf
    ) -> _Selection:
        """Read the sessions that match a question best, and start indexing those that a search does not know.

        Those that are silent since ``time_ms`` come first, so what others say later moves none of them out.
        """
        newest, is_more = self.owners.newest(owner, reach.listed)
        listed = [session for session in newest if session.session_id != without]
        listed.sort(key=lambda session: session.active_ms > time_ms)
        words = self.owners.words(listed)
        titles = self.alone.terms([session.title or "" for session in listed])
        behind = self.owners.behind(listed, words)
        scanned = [session for session in listed if session.session_id in behind][: reach.scanned]
        scanned_ids = {session.session_id for session in scanned}
        left = behind - scanned_ids
        matching = self._matching(question, listed, words, titles)
        best = [session for session in matching if session.session_id not in scanned_ids]
        selected = [*scanned, *best[: reach.looked_into]]
        read = self._read(selected, reach)
        gone = {session.session_id for session in selected} - {session.session_id for session, _ in read}
        unknown = {session.session_id for session in listed if not session.is_there and session not in selected}
        if due := self.owners.due(left, words):
            self._start_indexing(owner, due)
        return _Selection(listed, is_more, titles, read, left, gone, gone | unknown)

    def _hits(self, query: SearchQuery, selected: _Selection) -> list[_Hit]:
        """Return all matches, best first."""
        hits = list(self._in_messages(query, selected.read))
        if _is_of_all_kinds(query):
            hits += self._in_titles(query.q, selected)
        return sorted(hits, key=lambda hit: -hit.score)

    def _matching(
        self,
        question: str,
        listed: Sequence[ListedSession],
        words: Mapping[str, Words],
        titles: Sequence[Sequence[str]],
    ) -> list[ListedSession]:
        """Return the sessions by how well their words and titles match, the best first."""
        known = [words.get(session.session_id, _NO_WORDS) for session in listed]
        pairs = list(zip(known, titles, strict=True))
        lengths = [session_words.length + TITLE_WEIGHT * len(title) for session_words, title in pairs]

        def counts_of(terms: Collection[str]) -> dict[str, list[int]]:
            return {
                term: [min(MAX_COUNT, words.count(hashed) + TITLE_WEIGHT * title.count(term)) for words, title in pairs]
                for term, hashed in zip(terms, map(word_hash, terms), strict=True)
            }

        return [listed[row] for row, _ in self.alone.rank(TermDocuments(lengths, counts_of), question).rows]

    def _read(self, wanted: Sequence[ListedSession], reach: _Reach) -> list[tuple[ListedSession, SearchedSession]]:
        """Read the sessions that still exist, each with an equal share of the segments that the search may read."""
        share = SEGMENT_POSITIONS * max(1, reach.segments // max(1, len(wanted)))
        until = time.monotonic() + reach.seconds

        def read(session: ListedSession) -> tuple[ListedSession, SearchedSession] | None:
            with suppress(NotFoundError):
                return session, self.sessions.read(session.keys, newest=share, until=until)
            return None

        return [pair for pair in in_parallel(read, wanted, threads=PARALLEL) if pair is not None]

    def _in_messages(self, query: SearchQuery, read: Sequence[tuple[ListedSession, SearchedSession]]) -> Iterator[_Hit]:
        """Yield matches in the messages and summaries of sessions, ranked as one list of documents."""
        summarised = self._summarised(read)
        texts = self.engine.terms([summary.event.text for _, _, summary in summarised])
        documents, starts, first_summary = _one_list([searched.corpus.documents for _, searched in read], texts)
        is_within, place_of = within(query), _places(starts, [len(searched.corpus.entries) for _, searched in read])
        question = dated(query.q, *(searched.corpus for _, searched in read))
        rows, highest = _ranked(self.engine, documents, question)
        for row, score in rows:
            if row >= first_summary:
                index, place_in_gap = divmod(row - first_summary, 1 + NEIGHBOUR_REACH)
                if not place_in_gap and _is_of_all_kinds(query):
                    session, searched, summary = summarised[index]
                    yield _Hit(score, highest, session, searched, None, summary)
                continue
            place = place_of(row)
            if place is None:
                continue
            (session, searched), inner = read[place[0]], place[1]
            corpus = searched.corpus
            if not corpus.matches(inner, query) or not is_within(corpus.entries[inner]):
                continue
            if query.tool is not None or not corpus.is_echo(inner):
                yield _Hit(score, highest, session, searched, inner)

    def _summarised(
        self, read: Sequence[tuple[ListedSession, SearchedSession]]
    ) -> list[tuple[ListedSession, SearchedSession, CurrentSummary]]:
        """Return the sessions that have a summary, each with its current summary."""
        with_summary = [(session, searched) for session, searched in read if searched.header.summary is not None]

        def current(searched: SearchedSession) -> CurrentSummary | None:
            return Summaries(self.log).current(searched.keys, searched.header.summary)

        summaries = in_parallel(current, [searched for _, searched in with_summary], threads=PARALLEL)
        return [(*pair, summary) for pair, summary in zip(with_summary, summaries, strict=True) if summary is not None]

    def _in_titles(self, question: str, selected: _Selection) -> Iterator[_Hit]:
        documents = TermDocuments.from_terms(selected.titles)
        rows, highest = _ranked(self.alone, documents, question)
        for row, score in rows:
            session = selected.listed[row]
            if session.session_id not in selected.unknown:
                yield _Hit(score, highest, session)

    def _results(self, query: SearchQuery, hits: Sequence[_Hit]) -> tuple[list[FoundInSessions], Reranking]:
        texts = dict[int, str]()
        by_session: dict[str, list[int]] = {}
        for index, hit in enumerate(hits):
            if hit.searched is None:
                texts[index] = hit.listed.title or ""
            elif hit.summary is not None:
                texts[index] = hit.summary.event.text
            else:
                by_session.setdefault(hit.listed.session_id, []).append(index)

        def read(indexes: list[int]) -> dict[int, str]:
            searched = hits[indexes[0]].searched
            assert searched is not None  # noqa: S101 - the hit is a message
            entries = [_entry(hits[index]) for index in indexes]
            return dict(zip(indexes, self.sessions.texts(searched, entries), strict=True))

        for message_texts in in_parallel(read, list(by_session.values()), threads=PARALLEL):
            texts |= message_texts
        reranked = self.rerank(query.q, [texts[index] for index in range(len(hits))], [hit.score for hit in hits])
        best = [(replace(hits[index], score=score), texts[index]) for index, score in reranked.order[: query.limit]]
        spans = self.engine.spans([text for _, text in best], query.q)
        return [_answer(hit, text, marks, query) for (hit, text), marks in zip(best, spans, strict=True)], reranked.how

    def _start_indexing(self, owner: Owner, due: Collection[str]) -> None:
        """Start the job that indexes the sessions ``due``. If it can't be started, a later search tries again."""
        now = self.log.clock.now_ms()
        names = " ".join(sorted(due))
        job_id = f"{now - now % JOB_MS:013d}-{short_hash(f'index {names}').hex()}"
        with suppress(UnavailableError):
            self.start_job(owner, "index", "", {}, job_id=job_id)


class FindElsewhere:
    """Use case: add what the user's other sessions and long-term memory have to what a window recalls of its own session."""

    def __init__(
        self, sessions: SearchSessions, memory: Callable[[], MemoryReader | None], release: Callable[[], None]
    ) -> None:
        """Set the parts. ``release`` frees what a thread holds after it has asked ``memory``."""
        self._sessions, self._memory, self._release = sessions, memory, release

    def __call__(
        self, keys: SessionKeys, search: RecallSearch, own: Sequence[Sequence[RecallHit]]
    ) -> list[list[RecallHit]] | None:
        """Return hits for each question, best first; None when the sessions cannot be read, may not be, or not in time."""
        results = list[list[RecallHit]]()
        try:
            for question, hits in zip(search.questions, own, strict=True):
                beside = [*self._known(keys.owner, question), *self._sessions.recalled(keys, question, search)]
                results.append(sorted([*hits, *beside], key=lambda hit: -hit.score))
        except UnavailableError as error:
            _log.warning("nothing is recalled: %s", error.error_code)
            return None
        return results

    def _known(self, owner: Owner, question: Question) -> Iterator[RecallHit]:
        """Yield the memories that match a question; none while the memory engine gives no answer."""
        ask = Bootstrap(question=question.text, limit=MAX_MEMORIES)
        try:
            memory = self._memory()
            known = known_in_time(memory, owner, ask, self._release) if memory is not None else []
        except TurnlogError as error:
            known = error.error_code
        if not isinstance(known, list):
            _log.warning("no memories are recalled: %s", known)
            return
        for fact in known:
            if fact.score is not None and fact.created_ms <= question.time_ms:
                yield RecallHit(_entry_of("memory", text_of(fact), fact.created_ms), 1.0, (), "known of the user")


def _text_hit(hit: _Hit) -> RecallHit:
    """Return a match in a summary or a title as a recalled message."""
    session, event = hit.listed, hit.summary.event if hit.summary is not None else None
    name, text, position = ("summary", event.text, event.position) if event else ("title", session.title or "", 0)
    entry = _entry_of(name, text, session.active_ms, position)
    return RecallHit(entry, hit.share, (), _place_of(session), session.session_id)


def _entry_of(name: str, text: str, time_ms: int, position: int = 0) -> Entry:
    """Return an entry with a message in which ``name`` says the text."""
    body: JsonObject = {"role": "user", "name": name, "content": text}
    tokens = upper_bound_tokens(f"{name}: {text}") + MESSAGE_OVERHEAD
    event = MessageEvent(position=position, format="openai_chat", tokens=tokens, envelope=NO_ENVELOPE, body=body)
    return entry_of(LoggedMessage(event, 0, time_ms))


def _place_of(session: ListedSession) -> str:
    """Return the words that say in which session a message was said."""
    title = " ".join((session.title or "").split())[:80]
    return f"in another conversation, {session.session_id}" + (f" ({title})" if title else "")


def _answer(hit: _Hit, text: str, marks: Sequence[tuple[int, int]], query: SearchQuery) -> FoundInSessions:
    answer = FoundInSessions(
        session_id=hit.listed.session_id,
        title=hit.listed.title,
        where="title",
        snippet=snippet(text, marks),
        score=float(f"{hit.score:.6g}"),
    )
    if hit.summary is not None:
        return answer.model_copy(update={"where": "summary", "position": hit.summary.event.position})
    if hit.searched is None or hit.row is None:
        return answer
    return answer.model_copy(update={"where": "message", **hit.searched.corpus.place(hit.row, query.tool)})


def _ranked(engine: SearchEngine, documents: TermDocuments, question: str) -> Ranking:
    """Rank documents; of fewer than `FEW` the highest score that a question could have counts in part."""
    rows, highest = engine.rank(documents, question)
    return Ranking(rows, highest * min(1.0, len(documents.lengths) / FEW))


def _entry(hit: _Hit) -> IndexedMessage:
    assert hit.searched is not None  # noqa: S101 - the hit is a message
    assert hit.row is not None  # noqa: S101 - the hit is a message
    return hit.searched.corpus.entries[hit.row]


def _is_of_all_kinds(query: SearchQuery) -> bool:
    """Return whether titles and summaries match too; they have no role, tool or time, so such a filter excludes them."""
    return query.role is None and query.tool is None and query.after is None and query.before is None


def _one_list(
    sessions: Sequence[TermDocuments], summaries: Sequence[Sequence[str]]
) -> tuple[TermDocuments, list[int], int]:
    """Return the documents of sessions and summaries as one list, the first row of each session, and the first row of a summary.

    Empty documents end each session and follow each summary: the engine also weighs a document's neighbours, which must not belong
    to another session.
    """
    lengths, starts = list[int](), list[int]()
    for documents in sessions:
        starts.append(len(lengths))
        lengths += [*documents.lengths, *_EMPTY]
    first_summary = len(lengths)
    for terms in summaries:
        lengths += [len(terms), *_EMPTY]

    def counts_of(terms: Collection[str]) -> dict[str, bytearray]:
        counts = {term: bytearray(len(lengths)) for term in terms}
        for start, documents in zip(starts, sessions, strict=True):
            for term, its_counts in documents.counts_of(terms).items():
                counts[term][start : start + len(its_counts)] = its_counts
        for term, rows in counts.items():
            rows[first_summary :: 1 + NEIGHBOUR_REACH] = bytes(min(MAX_COUNT, text.count(term)) for text in summaries)
        return counts

    return TermDocuments(lengths, counts_of), starts, first_summary


def _places(starts: Sequence[int], sizes: Sequence[int]) -> Callable[[int], tuple[int, int] | None]:
    """Return a function from a row to a session's index and the row in that session, None for the empty row after a session."""

    def place(row: int) -> tuple[int, int] | None:
        index = bisect_right(starts, row) - 1
        return (index, row - starts[index]) if row - starts[index] < sizes[index] else None

    return place
