"""Find the messages of a session that windows recall: those that match a question best, with their neighbours.

An embedder may order them. Its answer is stored, so all windows have the same order.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from typing import TypeAlias

from turnlog.core.errors import UnavailableError
from turnlog.core.json_values import encode_json
from turnlog.log.commit import Commit
from turnlog.log.headers import Header
from turnlog.log.keys import ORDERS_TO, QUESTION_DIGITS, SessionKeys
from turnlog.log.reading import Located
from turnlog.ports import Absent, Item, ItemTable, Key, Query, SearchEngine
from turnlog.search.corpus import SearchedSession, SessionCorpus, SessionReader
from turnlog.search.days import with_days
from turnlog.search.index import Index, IndexedMessage
from turnlog.search.session import RERANKED, WORDS_WEIGHT, Reranker
from turnlog.windows.plan import Source, entry_of
from turnlog.windows.recalled import Question, RecallHit, RecallSearch
from turnlog.windows.view import RankedBy

RECALL_SECONDS = 2.0
"""Time in which the index of a session must have been read for a window; else the window goes without what is recalled."""
MAX_COMMITS = 40
"""Commits that are read for what a window recalls for a question: 20 read units, when none is larger than 4 KB."""
DECAY = 0.8
"""Share of a message's score that its neighbour has when messages are recalled; for each further one again."""
Rows: TypeAlias = "Sequence[tuple[int, float]]"
"""Rows of messages with their scores, best by words first."""
_log = logging.getLogger("turnlog")


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
