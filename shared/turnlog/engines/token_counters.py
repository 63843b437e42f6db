"""Token counters: an estimate by script, without a vocabulary; and tiktoken with the vocabulary that ships with Turnlog."""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken


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
_CHUNK, _LONGEST_CHUNK = 14_336, 16_384
"""Characters of a text that is encoded in one call. A longer text is cut at the first safe place after `_CHUNK` characters, or at
`_LONGEST_CHUNK` where none is safe. A longer word takes more time for each of its letters, three times as much with 262,144."""
_FORCED_CUT_TOKENS = 8
"""Tokens added for each cut at a place that is not safe. The largest error seen is 3; `_forced_cut` avoids larger ones."""

_SAFE_CUT = re.compile(
    r"(?<=\S)(?=[ \t])"
    r"|(?<=[^\W_])(?=[!-&(-/:-@\[-`{-~\r\n])"
    r"|(?<=[A-Za-z])(?=[0-9])"
    r"|(?<=[0-9])(?=[A-Za-z])"
    r"|(?<=[a-z][a-z])(?=[A-Z])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])(?=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
)
"""Places where the encoding's pattern always ends a piece, so that a cut does not change the count. Two small letters before a
capital: one alone may be the begin of a contraction (``'lL``)."""


class EstimateCounter:
    """`TokenCounter` for where no vocabulary can be loaded. No I/O, a few kilobytes, 1 µs a word.

    Fitted to o200k_base: on average within 15 % for English, JSON, code, Chinese and Korean, and roughly right elsewhere; single
    short texts differ more. On average, 1 token is 4.5 characters of English prose, 1.3 of Chinese, 1.6 of Korean, a group of 3
    digits, or half a run of punctuation. For an upper bound see `turnlog.core.token_bounds`.
    """

    @property
    def name(self) -> str:
        return "estimate"

    def count(self, text: str) -> int:
        return math.ceil(sum(map(_cost, _PATTERN.finditer(text))))


def _cost(match: re.Match[str]) -> float:
    kind = match.lastgroup or "rest"
    if kind in _FIXED_COSTS:
        return _FIXED_COSTS[kind]
    part = match[0]
    if kind == "signs":
        return 0.52 + (0.2 * (len(part) - 1) if len(set(part)) > 1 else 0.02 * (len(part) - 1))
    spaced = part[0] == " "
    length = len(part) - spaced
    if kind == "word":
        cost = 1.05 + 0.03 * max(0, length - _WORD_LETTERS)
    elif kind == "bare":
        cost = 0.88 + 0.2 * max(0, length - _BARE_LETTERS)
    elif kind == "capitals":
        cost = (1.3 if length > 1 else 1.0) + 0.2 * max(0, length - _CAPITALS)
    elif kind == "digits":
        cost = 1.15 * math.ceil(length / 3) + 0.9 * spaced
    elif kind == "hangul":
        cost = 0.7 * length + 0.25 * spaced
    else:
        cost = 0.23 * length + 0.2
    return cost


_lock = threading.Lock()
_encodings: list[tiktoken.Encoding] = []


class TiktokenCounter:
    """`TokenCounter` by o200k_base: exact, with special tokens read as plain text. Never uses the network.

    The first count of the process loads the vocabulary (0.3 s, 80 MB), which all counters and threads share. A lone surrogate
    counts as U+FFFD, as providers receive it. Time is linear in the length: 20 ns a byte of prose, at most some 180 ns. A stretch
    with no safe place to cut in 2,048 characters (spaces, or one endless word) counts up to 12 tokens too many per 16,384
    characters, never too few.
    """

    @property
    def name(self) -> str:
        return "o200k_base"

    def count(self, text: str) -> int:
        encode = _encoding().encode_ordinary
        if len(text) <= _LONGEST_CHUNK:
            return len(encode(text))
        return sum(len(encode(chunk)) + extra for chunk, extra in _chunks(_without_surrogates(text)))


def _encoding() -> tiktoken.Encoding:
    if _encodings:
        return _encodings[0]
    with _lock:
        if not _encodings:
            import tiktoken

            import turnlog_vocabulary as vocabulary

            _encodings.append(
                tiktoken.Encoding(
                    vocabulary.NAME,
                    pat_str=vocabulary.PATTERN,
                    mergeable_ranks=vocabulary.mergeable_ranks(),
                    special_tokens=vocabulary.SPECIAL_TOKENS,
                )
            )
        return _encodings[0]


def _without_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, as tiktoken does; done before chunks are cut, which could split a pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _chunks(text: str, *, size: int = _CHUNK, longest: int = _LONGEST_CHUNK) -> Iterator[tuple[str, int]]:
    """Yield a text in chunks of ``size`` to ``longest`` characters, each with the tokens to add for the cut after it."""
    start = 0
    while len(text) - start > size:
        match = _SAFE_CUT.search(text, start + size, min(start + longest, len(text)))
        if match is None and len(text) - start <= longest:
            break
        end, extra = (match.start(), 0) if match else (_forced_cut(text, start, start + longest), _FORCED_CUT_TOKENS)
        yield text[start:end], extra
        start = end
    yield text[start:], 0


def _forced_cut(text: str, start: int, end: int) -> int:
    """Return ``end``, or up to two characters less in a run of numerals, which the pattern groups by three from their first."""
    first = start + len(text[start:end].rstrip("0123456789"))
    while first > start and unicodedata.category(text[first - 1]).startswith("N"):
        first -= 1
    return max(start + 1, end - (end - first) % 3)
