"""Search: the messages of a session by the words of a question."""

from __future__ import annotations

from collections.abc import Callable

from turnlog.contracts.recall import SearchAnswer, SearchQuery, SearchResult
from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.identity import Owner
from turnlog.domain.snippets import snippet
from turnlog.domain.times import milliseconds_of
from turnlog.log.keys import SessionKeys
from turnlog.log.search_index import Entry
from turnlog.ports import SearchEngine
from turnlog.services.reranking import Reranker
from turnlog.services.searched import SearchedSessions

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


def within(query: SearchQuery) -> Callable[[Entry], bool]:
    """Whether a message is where the question wants it."""
    after, before = bound("after", query.after), bound("before", query.before)
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
