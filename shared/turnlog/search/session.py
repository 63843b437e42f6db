"""Search in one session, for a question and for windows: rank its messages by words; an embedder may order the best ones.

What windows recall are the messages that match their questions best, with neighbours. An embedder's order of them is stored.
"""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate, islice, repeat
from typing import Literal, TypeAlias

from turnlog.core.errors import EmbedderConfigError, InvalidInputError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import milliseconds_of
from turnlog.log.commit import Commit
from turnlog.log.headers import Header
from turnlog.log.keys import ORDERS_TO, QUESTION_DIGITS, SessionKeys
from turnlog.log.reading import Located
from turnlog.ports import Absent, Embedder, Item, ItemTable, Key, Query, SearchEngine
from turnlog.search.corpus import SearchedSession, SessionCorpus, SessionReader
from turnlog.search.days import with_days
from turnlog.search.index import Index, IndexedMessage
from turnlog.search.models import MAX_QUESTION_CHARS, SearchAnswer, SearchQuery, SearchResult
from turnlog.search.text_parts import snippet
from turnlog.windows.plan import entry_of
from turnlog.windows.recalled import SHARE_OF_MESSAGE, Question, RecallHit, RecallSearch
from turnlog.windows.view import RankedBy

RERANKED = 20
"""Number of best results by words that are reranked; more if the query's limit is higher."""
TEXT_CHARS = 2_000
"""Characters of each text, from its beginning, that the embedder gets."""
WORDS_WEIGHT = 0.5
"""Weight of the score by words; the embedder's similarity has the rest."""
RECALL_SECONDS = 2.0
"""Time in which the index of a session must have been read for a window; else the window goes without what is recalled."""
MAX_COMMITS = 100
"""Commits whose messages a window recalls for a question at most. The log is asked for those that the index does not have: one
request, 50 read units at most when no commit is larger than 4 KB."""
SPARE = 1.5
"""How many times the tokens that fit are read for a window: some messages are not sent, because a summary has them."""
MOST_OF_WORD = 4
"""Tokens of a message for each of its words. What has more is not text, such as a picture, and a window only names it."""
DECAY = 0.8
"""Share of a message's score that its neighbour has when messages are recalled; for each further one again."""
Rows: TypeAlias = "Sequence[tuple[int, float]]"
"""Rows of messages with their scores, best by words first."""
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
            cosines = [cosine_similarity(question_vector, vector) for vector in text_vectors]
        except (UnavailableError, EmbedderConfigError) as error:
            _log.warning("search results are in the order of their words: %s", error.error_code)
            return Reranked(by_words, "failed")
        best = max(scores)
        mixed = [
            WORDS_WEIGHT * score / best + (1 - WORDS_WEIGHT) * max(0.0, cosine)
            for score, cosine in zip(scores, cosines, strict=True)
        ]
        return Reranked(sorted(enumerate(mixed), key=lambda index_score: -index_score[1]), "done")


def cosine_similarity(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the similarity of two vectors, from -1 to 1; 0 when one of them is zero."""
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
        corpus = searched.corpus
        wanted = self._rerank.wanted(query.limit)
        is_filtered = query != SearchQuery(q=query.q, limit=query.limit) or corpus.has_echoes
        ranked, _ = self._engine.rank(corpus.documents, dated(query.q, corpus), None if is_filtered else wanted)
        if query.tool is None and corpus.has_echoes:
            ranked.sort(key=lambda row_score: corpus.is_echo(row_score[0]))
        matching = (hit for hit in ranked if corpus.matches(hit[0], query) and is_within(corpus.entries[hit[0]]))
        hits = list(islice(matching, wanted))
        texts = self._sessions.texts(searched, [corpus.entries[row] for row, _ in hits])
        reranked = self._rerank(query.q, texts, [score for _, score in hits])
        best = [(hits[index][0], score, texts[index]) for index, score in reranked.order[: query.limit]]
        spans = self._engine.spans([text for _, _, text in best], query.q)
        results = [
            SearchResult(**corpus.place(row, query.tool), snippet=snippet(text, marks), score=float(f"{score:.6g}"))
            for (row, score, text), marks in zip(best, spans, strict=True)
        ]
        return SearchAnswer(results=results, searched_from=searched.stretches[0][0], reranking=reranked.how)


def check_question(q: str) -> None:
    """Raise `InvalidInputError` if the question is blank or longer than `MAX_QUESTION_CHARS`."""
    if not q.strip() or len(q) > MAX_QUESTION_CHARS:
        raise InvalidInputError.at("/query/q", f"q must have 1 to {MAX_QUESTION_CHARS} characters")


def dated(question: str, *corpora: SessionCorpus) -> str:
    """Return a question with the days that it names as an index has them; "yesterday" is the day before the newest message's."""
    newest_ms = max((corpus.entries[-1].time_ms for corpus in corpora if corpus.entries), default=0)
    return with_days(question, datetime.fromtimestamp(newest_ms / 1000, UTC).date())


def within(query: SearchQuery) -> Callable[[IndexedMessage], bool]:
    """Return a function that says whether a message passes the query's ``after`` and ``before``; raise `InvalidInputError`."""
    after, before = bound("after", query.after), bound("before", query.before)
    first = query.after + 1 if isinstance(query.after, int) else 0
    end = query.before if isinstance(query.before, int) else math.inf

    def is_within(message: IndexedMessage) -> bool:
        return (
            first <= message.position < end
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
            scores = [_chosen(corpus, search, rows[: search.limit]) for rows, _ in ranked]
            rows = sorted(set[int]().union(*scores))
            messages = self._sessions.located(searched, [corpus.entries[row] for row in rows])
        except UnavailableError as error:
            _log.warning("nothing is recalled: %s", error.error_code)
            return None
        return _hits(corpus, scores, dict(zip(rows, messages, strict=True)), [by for _, by in ranked])


class ListSearch:
    """Finds messages of a list for the step recall. The list is indexed once."""

    def __init__(self, engine: SearchEngine, messages: Sequence[Located]) -> None:
        self._engine = engine
        self._messages = messages

    @cached_property
    def _index(self) -> tuple[Index, dict[int, Located]]:
        index = Index(self._engine)
        index.add((message, message.event.position) for message in self._messages)
        return index, {message.event.position: message for message in self._messages}

    def __call__(self, search: RecallSearch) -> list[list[RecallHit]]:
        index, messages = self._index
        corpus = SessionCorpus([index], [(1, search.before - 1)])
        matching = (_matching(self._engine, corpus, search, question) for question in search.questions)
        scores = [_chosen(corpus, search, rows) for rows in matching]
        rows = {row: messages[corpus.entries[row].position] for values in scores for row in values}
        return _hits(corpus, scores, rows, repeat(""))


def _matching(engine: SearchEngine, corpus: SessionCorpus, search: RecallSearch, question: Question) -> Rows:
    """Return the rows of the messages that match a question best; none when the best has too low a score."""
    text = with_days(question.text, question.day)
    ranked, highest = engine.rank(corpus.documents, text, search.limit)
    if not ranked or ranked[0][1] < question.min_score * highest:
        return []
    share = 1 / highest if search.of_user else 1
    return [(row, score * share) for row, score in ranked if not corpus.is_echo(row)]


def _chosen(corpus: SessionCorpus, search: RecallSearch, rows: Rows) -> dict[int, float]:
    """Return the rows of the messages that matter most and are not shown yet, best first, each with its score.

    They are those of the commits that come first and fill the window's room, `MAX_COMMITS` at most. A neighbour of a message has a
    share of that message's score, so it comes before what matters less than both.
    """
    entries, lengths, sizes = corpus.entries, corpus.documents.lengths, defaultdict[int, float](float)
    values = with_neighbours(rows, search.neighbours, len(entries))
    chosen = sorted(sorted(values), key=values.__getitem__, reverse=True)
    left_out = list(islice((row for row in chosen if entries[row].position not in search.shown), search.limit))
    for row in left_out:
        # Long messages are cut, and media are only named.
        entry = entries[row]
        sizes[entry.commit] += min(entry.tokens, MOST_OF_WORD * lengths[row], search.room / SHARE_OF_MESSAGE)
    before = zip(islice(sizes, MAX_COMMITS), accumulate(sizes.values(), initial=0), strict=False)
    read = {commit for commit, size in before if size < SPARE * search.room}
    return {row: values[row] for row in left_out if entries[row].commit in read}


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
    entries = {row: entry_of(message) for row, message in messages.items()}
    refs = {row: tuple(corpus.refs(row)[len(entry.facts.calls) :]) for row, entry in entries.items()}
    return [
        [RecallHit(entries[row], float(f"{score:.6g}"), refs[row], ranked=by) for row, score in values.items()]
        for values, by in zip(scores, ranked, strict=False)
    ]
