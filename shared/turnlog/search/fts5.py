"""`SearchEngine` with the tokenizer of SQLite's FTS5 (Porter stemming; part of Python's standard library), ranked by BM25.

BM25 is computed here, not by FTS5: FTS5 ranks by the statistics of its own table, and search needs those of a session's history.
Before FTS5 tokenizes a text, stop words are removed. Runs of Chinese, Japanese and Korean characters, which have no spaces between
words, are split into overlapping pairs.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

from turnlog.ports import TermDocuments

MAX_QUESTION_WORDS = 64
OWN_WEIGHT, BEFORE_WEIGHT = 1.0, 0.5
"""Weights of a word in the message itself, and of a word in the message before it."""
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0002fa1f"
_WORD = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(f"[{_CJK}]")
_STOP = (
    "a about after all also am an and any are as at be because been before being but by can could did do does "
    "doing for from had has have having he her here hers him his how i if in into is it its just let me more "
    "most my no nor not of on or our ours out over own she should so some such than that the their them then "
    "there these they this those to too up was we were what when where which while who whom why will with "
    "would you your yours d ll m re s t ve don doesn didn isn aren wasn weren hasn haven hadn won wouldn "
    "couldn shouldn"
)
STOP_WORDS = frozenset(_STOP.split())


K1, B = 1.2, 0.75
"""The usual parameters of BM25: saturation of term frequency, and length normalisation."""


class Fts5SearchEngine:
    """Implements `SearchEngine`. `terms` builds an FTS5 table in memory: some milliseconds for 256 messages.

    `rank` builds a table for the question alone.
    """

    name = "fts5-porter-1"

    def __init__(self, *, before_weight: float = BEFORE_WEIGHT) -> None:
        """``before_weight`` is the weight of a word in the message before; with 0 each text is ranked by its own words."""
        self._before = before_weight

    def terms(self, texts: Sequence[str]) -> list[dict[str, int]]:
        return _stemmed([_words(text) for text in texts])

    def rank(self, documents: TermDocuments, question: str) -> list[tuple[int, float]]:
        lengths = documents.lengths
        if not lengths:
            return []
        sizes = list(lengths)
        if self._before:
            sizes = [length + before for length, before in zip(lengths, (0, *lengths), strict=False)]
        mean, total, scores = sum(sizes) / len(sizes) or 1.0, len(sizes), dict[int, float]()
        for term in self._question_terms(question):
            weights = dict[int, float]()
            for row, count in documents.rows_of(term):
                weights[row] = weights.get(row, 0.0) + OWN_WEIGHT * count
                if self._before and row + 1 < total:
                    weights[row + 1] = weights.get(row + 1, 0.0) + self._before * count
            rarity = math.log(1 + (total - len(weights) + 0.5) / (len(weights) + 0.5))
            for row, weight in weights.items():
                saturated = weight * (K1 + 1) / (weight + K1 * (1 - B + B * sizes[row] / mean))
                scores[row] = scores.get(row, 0.0) + rarity * saturated
        return sorted(scores.items(), key=lambda row_score: (-row_score[1], -row_score[0]))

    def spans(self, texts: Sequence[str], question: str) -> list[list[tuple[int, int]]]:
        asked = frozenset(self._question_terms(question))
        words = list({match[0].lower() for text in texts for match in _WORD.finditer(text)})
        stems = zip(words, _stemmed([[] if _IS_CJK.match(word) else [word] for word in words]), strict=True)
        matching = {word for word, terms in stems if word not in STOP_WORDS and asked.intersection(terms)}
        return [_joined(text, _spans(text, matching, asked)) for text in texts]

    def _question_terms(self, question: str) -> list[str]:
        words = list(dict.fromkeys(_words(question)))[:MAX_QUESTION_WORDS]
        return list(_stemmed([words])[0])


def _spans(text: str, matching: Collection[str], asked: Collection[str]) -> Iterator[tuple[int, int]]:
    for match in _WORD.finditer(text):
        if match[0].lower() in matching or match[0] in asked:
            yield match.span()
        elif _IS_CJK.match(match[0]):
            for begin in range(match.start(), match.end() - 1):
                if text[begin : begin + 2] in asked:
                    yield begin, begin + 2


def _joined(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that overlap, or that one character other than a space separates: an id like ``a-17`` is one span."""
    joined = list[tuple[int, int]]()
    for begin, end in spans:
        between = text[joined[-1][1] : begin] if joined else " "
        if not between or (len(between) == 1 and not between.isspace()):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined


def _stemmed(texts: Sequence[Sequence[str]]) -> list[dict[str, int]]:
    """Return the terms that FTS5 indexes for each text, with their counts, sorted by term."""
    counts: list[dict[str, int]] = [{} for _ in texts]
    database = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.execute("CREATE VIRTUAL TABLE t USING fts5(own, tokenize='porter unicode61 remove_diacritics 2')")
        database.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
        database.execute("BEGIN")
        rows = ((row, " ".join(words)) for row, words in enumerate(texts) if words)
        database.executemany("INSERT INTO t(rowid, own) VALUES (?, ?)", rows)
        for term, row in database.execute("SELECT term, doc FROM v"):
            counts[row][term] = counts[row].get(term, 0) + 1
    finally:
        database.close()
    return counts


def _words(text: str) -> list[str]:
    """Return the words of a text without stop words; a run of CJK characters becomes its overlapping pairs."""
    words = list[str]()
    for word in _WORD.findall(text.lower()):
        if _IS_CJK.match(word):
            words += [word[begin : begin + 2] for begin in range(len(word) - 1)] or [word]
        elif word not in STOP_WORDS:
            words.append(word)
    return words
