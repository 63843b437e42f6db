"""Search: the messages of a session by the words of a question."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Literal

from turnlog.core.errors import EmbedderConfigError, InvalidInputError, Problem, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.text import snippet
from turnlog.core.times import milliseconds_of
from turnlog.log.keys import SessionKeys
from turnlog.ports import Embedder, SearchEngine
from turnlog.search.corpus import SearchedSessions
from turnlog.search.index import IndexedMessage
from turnlog.search.models import SearchAnswer, SearchQuery, SearchResult

RERANKED = 20
"""So many of the best by words are reranked, or as many as are asked for."""
TEXT_CHARS = 2_000
"""Of each text, from its beginning."""
WORDS_WEIGHT = 0.5
_log = logging.getLogger("turnlog")

Reranking = Literal["off", "done", "failed"]


@lazy_dataclass(frozen=True, slots=True)
class Reranked:
    """``order`` are places among the texts that were given, best first, each with its score."""

    order: Sequence[tuple[int, float]]
    how: Reranking


class Reranker:
    """``embedder``: None leaves all as it is."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder

    def wanted(self, limit: int) -> int:
        """How many of the best by words are to be given."""
        return max(RERANKED, limit) if self._embedder is not None else limit

    def __call__(self, question: str, texts: Sequence[str], scores: Sequence[float]) -> Reranked:
        """``scores`` are those by words, the best first."""
        by_words = list(enumerate(scores))
        if self._embedder is None:
            return Reranked(by_words, "off")
        if len(texts) <= 1:
            return Reranked(by_words, "done")
        try:
            (asked,) = self._embedder.embed([question], as_question=True)
            found = self._embedder.embed([text[:TEXT_CHARS] or "." for text in texts])
            cosines = [_cosine(asked, one) for one in found]
        except (UnavailableError, EmbedderConfigError) as error:
            _log.warning("search results are in the order of their words: %s", error.error_code)
            return Reranked(by_words, "failed")
        best = max(scores)
        mixed = [
            WORDS_WEIGHT * score / best + (1 - WORDS_WEIGHT) * max(0.0, cosine)
            for score, cosine in zip(scores, cosines, strict=True)
        ]
        return Reranked(sorted(enumerate(mixed), key=lambda one: -one[1]), "done")


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


MAX_QUESTION_CHARS = 1_000


class SearchSession:
    """The use case. Calls of the recall tools themselves come last: they have the words that were looked for, and no more than was
    found."""

    def __init__(self, sessions: SearchedSessions, engine: SearchEngine, rerank: Reranker) -> None:
        self._sessions = sessions
        self._engine = engine
        self._rerank = rerank

    def __call__(self, owner: Owner, session_id: str, query: SearchQuery) -> SearchAnswer:
        check_question(query.q)
        is_within = within(query)
        searched = self._sessions.read(SessionKeys(owner, session_id))
        whole, found = searched.whole, list[tuple[int, float]]()
        wanted = self._rerank.wanted(query.limit)
        ranked = self._engine.rank(whole.documents, query.q)
        if query.tool is None:
            ranked.sort(key=lambda one: whole.is_echo(one[0]))
        for row, score in ranked:
            if whole.is_asked_for(row, query) and is_within(whole.entries[row]):
                found.append((row, score))
            if len(found) == wanted:
                break
        read = self._sessions.texts(searched, [whole.entries[row] for row, _ in found])
        reranked = self._rerank(query.q, read, [score for _, score in found])
        best = [(found[at][0], score, read[at]) for at, score in reranked.order[: query.limit]]
        spans = self._engine.spans([text for _, _, text in best], query.q)
        results = list[SearchResult]()
        for (row, score, text), marks in zip(best, spans, strict=True):
            entry, refs = whole.entries[row], whole.refs(row, query.tool)
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
    if not q.strip() or len(q) > MAX_QUESTION_CHARS:
        raise invalid("q", f"q has 1 to {MAX_QUESTION_CHARS} characters")


def within(query: SearchQuery) -> Callable[[IndexedMessage], bool]:
    """Whether a message is where the question wants it."""
    after, before = bound("after", query.after), bound("before", query.before)
    first = query.after + 1 if isinstance(query.after, int) else 0

    def is_within(one: IndexedMessage) -> bool:
        if isinstance(query.before, int) and one.position >= query.before:
            return False
        return (
            one.position >= first
            and (after is None or one.time_ms >= after)
            and (before is None or one.time_ms < before)
        )

    return is_within


def bound(name: str, given: int | str | None) -> int | None:
    """A time in milliseconds; None for a position."""
    if not isinstance(given, str):
        return None
    try:
        return milliseconds_of(given)
    except ValueError as error:
        raise invalid(name, f"{given[:64]!r} is neither a position nor a time of RFC 3339") from error


def invalid(name: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, problems=[Problem("invalid_parameter", f"/query/{name}", message)])
