"""A token counter without a vocabulary: an estimate by script."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import reduce
from operator import add

_PATTERN = re.compile(
    r"(?P<word> [A-Z]?[a-z]+(?:'[a-z]{1,2}\b)?)"
    r"|(?P<bare>[A-Z]?[a-z]+(?:'[a-z]{1,2}\b)?)"
    r"|(?P<capitals> ?[A-Z]+(?![a-z]))"
    r"|(?P<digits> ?[0-9]+)"
    r"|(?P<han>[\u2e80-\u303f\u3100-\u312f\u3400-\u9fff\uf900-\ufaff\uff00-\uff60])"
    r"|(?P<kana>[\u3040-\u30ff\uff61-\uff9f])"
    r"|(?P<hangul> ?[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]+)"
    r"|(?P<signs>[!-/:-@\[-`{-~]+)"
    r"|(?P<space>\s+)"
    r"|(?P<mark>[\u2000-\u2bff])"
    r"|(?P<letters>[\x80-\U0000ffff]+)"
    r"|(?P<rest>.)",
    re.DOTALL,
)
"""``bare`` words follow a sign, a digit or another word; a lone surrogate is among the letters."""
_WORD_LETTERS, _BARE_LETTERS, _CAPITALS = 7, 5, 3
"""Lengths up to which a word is one token on average."""
_FIXED_COSTS = {"han": 0.76, "kana": 0.75, "mark": 0.6, "rest": 1.5, "space": 0.9}
_COSTS: dict[str, Callable[[int, bool], float]] = {
    "word": lambda length, _: 1.05 + 0.03 * max(0, length - _WORD_LETTERS),
    "bare": lambda length, _: 0.88 + 0.2 * max(0, length - _BARE_LETTERS),
    "capitals": lambda length, _: (1.3 if length > 1 else 1.0) + 0.2 * max(0, length - _CAPITALS),
    "digits": lambda length, spaced: 1.15 * math.ceil(length / 3) + 0.9 * spaced,
    "hangul": lambda length, spaced: 0.7 * length + 0.25 * spaced,
    "letters": lambda length, _: 0.23 * length + 0.2,
}


class EstimateCounter:
    """`TokenCounter` for where no vocabulary can be loaded. No I/O, a few kilobytes, 1 µs a word.

    Fitted to o200k_base: on average within 15 % for English, JSON, code, Chinese and Korean, and roughly right elsewhere; single
    short texts differ more. On average, 1 token is 4.5 characters of English prose, 1.3 of Chinese, 1.6 of Korean, a group of 3
    digits, or half a run of punctuation. For an upper bound see `turnlog.core.token_bounds`.
    """

    name = "estimate"

    def count(self, text: str) -> int:
        # Not `sum`, which rounds otherwise since Python 3.12.
        return math.ceil(reduce(add, map(_cost, _PATTERN.finditer(text)), 0.0))


def _cost(match: re.Match[str]) -> float:
    kind = match.lastgroup or "rest"
    if kind in _FIXED_COSTS:
        return _FIXED_COSTS[kind]
    part = match[0]
    if kind == "signs":
        return 0.52 + (0.2 * (len(part) - 1) if len(set(part)) > 1 else 0.02 * (len(part) - 1))
    spaced = part[0] == " "
    return _COSTS[kind](len(part) - spaced, spaced)
