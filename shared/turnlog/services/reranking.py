"""Reranking: what words have found is put in order by meaning too, where an embedder is set. Words alone decide what is found.

The order is by the mean of two numbers between 0 and 1: a text's score by words as a part of the best one's, and the cosine between
its vector and the question's (below 0: 0). An embedder that fails changes nothing but the answer's word for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Literal

from turnlog.domain.errors import EmbedderConfigError, UnavailableError
from turnlog.domain.values import dataclass
from turnlog.ports import Embedder

RERANKED = 20
"""So many of the best by words are reranked, or as many as are asked for."""
TEXT_CHARS = 2_000
"""Of each text, from its beginning."""
WORDS_WEIGHT = 0.5
_log = logging.getLogger("turnlog")

Reranking = Literal["off", "done", "failed"]


@dataclass(frozen=True, slots=True)
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
