"""Search over an owner's sessions: titles, summaries and messages, without reading every log.

First it is found which sessions to look into: by what is known of their words, a small item each, and the newest of those of which
that is not known, or not up to date. Then these are searched as `SearchSession` does it, as one list of messages. What is not known
yet is made by a job, which such a search starts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TypeVar

from turnlog.core.errors import NotFoundError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.text import snippet
from turnlog.jobs.worker import StartJobs
from turnlog.log.parallel import in_parallel
from turnlog.log.summary_cache import CurrentSummary
from turnlog.ports import SearchEngine, TermDocuments
from turnlog.search.corpus import PARALLEL, Searched, SearchedSessions
from turnlog.search.index import IndexedMessage
from turnlog.search.models import FoundInSessions, SearchQuery, SearchSessionsAnswer
from turnlog.search.owner_sessions import Listed, OwnerSessions, Words, is_behind, word_hash
from turnlog.search.session import Reranker, Reranking, check_question, invalid, within
from turnlog.sessions.session_log import SessionLog

SCANNED = 16
"""So many of the newest sessions whose words are not known, or not up to date, are looked into whatever is asked."""
LOOKED_INTO = 8
"""So many of the others are, those whose words match best."""
MAX_SEGMENTS = 64
"""Of all sessions that are looked into; of each the newest."""
TITLE_WEIGHT = 4
"""What a word of the title counts, when it is found out where to look."""
JOB_MS = 5 * 60 * 1000
"""At most one job is started in such a time for the same sessions."""
_A = TypeVar("_A")
_T = TypeVar("_T")


@lazy_dataclass(frozen=True, slots=True)
class _Hit:
    """``row`` is one of the session's messages; None for its title, or its summary where there is one."""

    score: float
    listed: Listed
    searched: Searched | None = None
    row: int | None = None
    summary: CurrentSummary | None = None


class SearchSessions:
    """The use case: a request for the list, one for the words of 100 sessions, and for each session that is looked into what a
    search of it takes. None of that grows with the length of the logs beyond `MAX_SEGMENTS` indexes."""

    def __init__(
        self,
        log: SessionLog,
        owners: OwnerSessions,
        sessions: SearchedSessions,
        engine: SearchEngine,
        alone: SearchEngine,
        rerank: Reranker,
        start_job: StartJobs,
    ) -> None:
        """``alone`` ranks each text by itself; else as ``engine``."""
        self._log = log
        self._owners = owners
        self._sessions = sessions
        self._engine = engine
        self._alone = alone
        self._rerank = rerank
        self._start_job = start_job

    def __call__(self, owner: Owner, query: SearchQuery) -> SearchSessionsAnswer:
        check_question(query.q)
        for name, given in (("after", query.after), ("before", query.before)):
            if isinstance(given, int):
                raise invalid(name, f"{name} is a time (RFC 3339) where many sessions are searched")
        listed, is_more = self._owners.newest(owner)
        words = self._owners.words(listed)
        titles = self._alone.terms([one.title or "" for one in listed])
        behind = {one.keys.session_id for one in listed if is_behind(one, words.get(one.keys.session_id))}
        scanned = [one for one in listed if one.keys.session_id in behind][:SCANNED]
        left = behind - {one.keys.session_id for one in scanned}
        looked_into = [*scanned, *self._best(query.q, listed, words, titles, without=scanned)]
        read = self._read(looked_into)
        gone = {one.keys.session_id for one in looked_into} - {one.keys.session_id for one, _ in read}
        hits = list(self._in_messages(query, read))
        if _is_of_all_kinds(query):
            unknown = {one.keys.session_id for one in listed if not one.is_there and one not in looked_into}
            hits += self._in_titles(query.q, listed, titles, gone | unknown)
        hits.sort(key=lambda hit: -hit.score)
        if left:
            self._ask(owner, left)
        results, reranking = self._results(query, hits[: self._rerank.wanted(query.limit)])
        segments_left = sum(searched.left for _, searched in read)
        return SearchSessionsAnswer(
            results=results,
            sessions=len(listed) - len(gone),
            unindexed=len(left),
            is_complete=not (left or is_more or segments_left),
            reranking=reranking,
        )

    # ------------------------------------------------------------ where to look

    def _best(
        self,
        question: str,
        listed: Sequence[Listed],
        words: Mapping[str, Words],
        titles: Sequence[Mapping[str, int]],
        *,
        without: Sequence[Listed],
    ) -> list[Listed]:
        """The sessions whose words match best, those left out that are looked into in any case."""
        known = [words.get(one.keys.session_id) for one in listed]
        lengths = [
            (one.length if one is not None else 0) + TITLE_WEIGHT * sum(title.values())
            for one, title in zip(known, titles, strict=True)
        ]

        def rows_of(term: str) -> Iterator[tuple[int, int]]:
            hashed = word_hash(term)
            for row, (one, title) in enumerate(zip(known, titles, strict=True)):
                count = (one.count(hashed) if one is not None else 0) + TITLE_WEIGHT * title.get(term, 0)
                if count:
                    yield row, count

        ranked = self._alone.rank(TermDocuments(lengths, lambda term: list(rows_of(term))), question)
        found = (listed[row] for row, _ in ranked)
        left_out = {one.keys.session_id for one in without}
        return [one for one in found if one.keys.session_id not in left_out][:LOOKED_INTO]

    def _read(self, wanted: Sequence[Listed]) -> list[tuple[Listed, Searched]]:
        """Those that are there. Indexes are shared out: each session gets as many as are left for it and those behind it."""
        share = max(1, MAX_SEGMENTS // max(1, len(wanted)))

        def read(one: Listed) -> tuple[Listed, Searched] | None:
            with suppress(NotFoundError):
                return one, self._sessions.read(one.keys, most_segments=share)
            return None

        return [one for one in _parallel(read, wanted) if one is not None]

    # ------------------------------------------------------------ looking

    def _in_messages(self, query: SearchQuery, read: Sequence[tuple[Listed, Searched]]) -> Iterator[_Hit]:
        """Messages of all these sessions, and their summaries, as one list of documents, with nothing before a session's first."""
        with_summary = [(one, searched) for one, searched in read if searched.header.summary is not None]
        summaries = _parallel(self._summary, with_summary)
        told = [
            (*found, summary) for found, summary in zip(with_summary, summaries, strict=True) if summary is not None
        ]
        texts = self._engine.terms([summary.event.text for _, _, summary in told])
        lengths, starts = list[int](), list[int]()
        for _, searched in read:
            starts.append(len(lengths))
            lengths += [*searched.whole.documents.lengths, 0]
        first_summary = len(lengths)
        for terms in texts:
            lengths += [sum(terms.values()), 0]

        def rows_of(term: str) -> list[tuple[int, int]]:
            found = list[tuple[int, int]]()
            for start, (_, searched) in zip(starts, read, strict=True):
                found += [(start + row, count) for row, count in searched.whole.documents.rows_of(term)]
            found += [(first_summary + 2 * at, terms[term]) for at, terms in enumerate(texts) if term in terms]
            return found

        is_within, at_row = within(query), _places(starts, [len(searched.whole.entries) for _, searched in read])
        for row, score in self._engine.rank(TermDocuments(lengths, rows_of), query.q):
            if row >= first_summary:
                at, is_gap = divmod(row - first_summary, 2)
                if not is_gap and _is_of_all_kinds(query):
                    one, searched, summary = told[at]
                    yield _Hit(score, one, searched, None, summary)
                continue
            place = at_row(row)
            if place is None:
                continue
            (one, searched), inner = read[place[0]], place[1]
            whole = searched.whole
            if whole.is_asked_for(inner, query) and is_within(whole.entries[inner]):
                if query.tool is None and whole.is_echo(inner):
                    continue
                yield _Hit(score, one, searched, inner)

    def _summary(self, found: tuple[Listed, Searched]) -> CurrentSummary | None:
        return self._log.summaries.in_force(found[1].keys, found[1].header.summary)

    def _in_titles(
        self, question: str, listed: Sequence[Listed], titles: Sequence[Mapping[str, int]], gone: set[str]
    ) -> Iterator[_Hit]:
        lengths = [sum(title.values()) for title in titles]

        def rows_of(term: str) -> list[tuple[int, int]]:
            return [(row, title[term]) for row, title in enumerate(titles) if term in title]

        for row, score in self._alone.rank(TermDocuments(lengths, rows_of), question):
            if listed[row].keys.session_id not in gone:
                yield _Hit(score, listed[row])

    # ------------------------------------------------------------ telling

    def _results(self, query: SearchQuery, hits: Sequence[_Hit]) -> tuple[list[FoundInSessions], Reranking]:
        texts = dict[int, str]()
        by_session: dict[str, list[int]] = {}
        for at, hit in enumerate(hits):
            if hit.searched is None:
                texts[at] = hit.listed.title or ""
            elif hit.summary is not None:
                texts[at] = hit.summary.event.text
            else:
                by_session.setdefault(hit.listed.keys.session_id, []).append(at)

        def read(rows: list[int]) -> dict[int, str]:
            searched = hits[rows[0]].searched
            assert searched is not None  # noqa: S101 - of a message
            return dict(zip(rows, self._sessions.texts(searched, [_entry(hits[at]) for at in rows]), strict=True))

        for found in _parallel(read, list(by_session.values())):
            texts |= found
        reranked = self._rerank(query.q, [texts[at] for at in range(len(hits))], [hit.score for hit in hits])
        best = [(replace(hits[at], score=score), texts[at]) for at, score in reranked.order[: query.limit]]
        spans = self._engine.spans([text for _, text in best], query.q)
        return [_told(hit, text, marks, query) for (hit, text), marks in zip(best, spans, strict=True)], reranked.how

    def _ask(self, owner: Owner, left: Collection[str]) -> None:
        """The job that makes what is not known. Nobody waits for it: where it can't be started, a later search tries again."""
        now = self._log.clock.now_ms()
        names = " ".join(sorted(left))
        job_id = f"{now - now % JOB_MS:013d}-{sha256(f'index {names}'.encode()).hexdigest()[:32]}"
        with suppress(UnavailableError):
            self._start_job(owner, "index", "", {}, job_id=job_id)


def _told(hit: _Hit, text: str, marks: Sequence[tuple[int, int]], query: SearchQuery) -> FoundInSessions:
    answer = FoundInSessions(
        session_id=hit.listed.keys.session_id,
        title=hit.listed.title,
        where="title",
        snippet=snippet(text, marks),
        score=float(f"{hit.score:.6g}"),
    )
    if hit.summary is not None:
        return answer.model_copy(update={"where": "summary", "position": hit.summary.event.position})
    if hit.searched is None or hit.row is None:
        return answer
    entry, refs = _entry(hit), hit.searched.whole.refs(hit.row, query.tool)
    place = {"position": entry.position, "loop": entry.loop or None, "role": entry.facts.role}
    return answer.model_copy(update={"where": "message", **place, "ref": str(refs[0]) if refs else None})


def _entry(hit: _Hit) -> IndexedMessage:
    assert hit.searched is not None  # noqa: S101 - of a message
    assert hit.row is not None  # noqa: S101 - of a message
    return hit.searched.whole.entries[hit.row]


def _is_of_all_kinds(query: SearchQuery) -> bool:
    """Whether titles and summaries answer too: they are of no role, tool or moment."""
    return query.role is None and query.tool is None and query.after is None and query.before is None


def _places(starts: Sequence[int], sizes: Sequence[int]) -> Callable[[int], tuple[int, int] | None]:
    def place(row: int) -> tuple[int, int] | None:
        at = bisect_right(starts, row) - 1
        return (at, row - starts[at]) if row - starts[at] < sizes[at] else None

    return place


def _parallel(work: Callable[[_A], _T], given: Sequence[_A]) -> list[_T]:
    if len(given) <= 1:
        return [work(one) for one in given]
    return in_parallel(work, given, threads=PARALLEL)
