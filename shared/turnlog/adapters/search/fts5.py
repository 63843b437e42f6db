"""`SearchEngine` on SQLite's FTS5, in memory: BM25 with Porter's stemming. In Python's standard library.

What FTS5 can't do is done to the texts before: stop words go, and runs of Chinese, Japanese and Korean, which have no
spaces between words, become pairs of characters.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

MAX_QUESTION_WORDS = 64
OWN_WEIGHT, BEFORE_WEIGHT = 1.0, 0.5
"""What a word of the message itself counts, and one of the message before it."""
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


class Fts5SearchEngine:
    """Builds a table for each call: some milliseconds for a thousand messages."""

    def rank(self, texts: Sequence[str], question: str) -> list[tuple[int, float]]:
        words = list(dict.fromkeys(_words(question)))[:MAX_QUESTION_WORDS]
        if not words or not texts:
            return []
        database = sqlite3.connect(":memory:", isolation_level=None)
        try:
            database.execute(
                "CREATE VIRTUAL TABLE t USING fts5(own, before, tokenize='porter unicode61 remove_diacritics 2')"
            )
            made = [" ".join(_words(text)) for text in texts]
            database.execute("BEGIN")
            database.executemany(
                "INSERT INTO t(rowid, own, before) VALUES (?, ?, ?)",
                ((at, own, made[at - 1] if at else "") for at, own in enumerate(made)),
            )
            found = database.execute(
                "SELECT rowid, bm25(t, ?, ?) AS rank FROM t WHERE t MATCH ? ORDER BY rank, rowid DESC",
                (OWN_WEIGHT, BEFORE_WEIGHT, " OR ".join(f'"{word}"' for word in words)),
            )
            return [(int(at), -float(rank)) for at, rank in found]
        finally:
            database.close()


def _words(text: str) -> list[str]:
    """Words without stop words; of a run of characters without spaces its pairs."""
    found = list[str]()
    for word in _WORD.findall(text.lower()):
        if _IS_CJK.match(word):
            found += [word[at : at + 2] for at in range(len(word) - 1)] or [word]
        elif word not in STOP_WORDS:
            found.append(word)
    return found
