"""Search in one session: rank its visible messages by the words of a question, and rerank the best by an embedder."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

from turnlog.core.errors import EmbedderConfigError, InvalidInputError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import milliseconds_of
from turnlog.log.keys import SessionKeys
from turnlog.ports import Embedder, SearchEngine
from turnlog.search.corpus import SessionCorpus, SessionReader
from turnlog.search.days import with_days
from turnlog.search.index import IndexedMessage
from turnlog.search.models import SearchAnswer, SearchQuery, SearchResult
from turnlog.search.text_parts import snippet

RERANKED = 20
"""Number of best results by words that are reranked; more if the query's limit is higher."""
TEXT_CHARS = 2_000
"""Characters of each text, from its beginning, that the embedder gets."""
WORDS_WEIGHT = 0.5
"""Weight of the score by words; the embedder's similarity has the rest."""
MAX_QUESTION_CHARS = 1_000
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
