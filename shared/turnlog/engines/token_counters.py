"""Exact token counts by the vocabulary that ships with Turnlog: in Python at first, which is ready in milliseconds, and by tiktoken
from then on, which takes 0.3 s and 80 MB to load.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from turnlog.core.token_bounds import CASELESS, MARK, PIECE
from turnlog_vocabulary import NO_TOKEN, TokenTable

if TYPE_CHECKING:
    import tiktoken


_CHUNK, _LONGEST_CHUNK = 14_336, 16_384
"""Characters of a text that is encoded in one call. A longer text is cut at the first safe place after `_CHUNK` characters, or at
`_LONGEST_CHUNK` where none is safe. A longer word takes more time for each of its letters, three times as much with 262,144."""
_FORCED_CUT_TOKENS = 8
"""Tokens added for each cut at a place that is not safe. The largest error seen is 3; `_forced_cut` avoids larger ones."""

_SAFE_CUT = (
    r"(?<=\S)(?=[ \t])"
    r"|(?<=[^\W_])(?=[!-&(-/:-@\[-`{-~\r\n])"
    r"|(?<=[A-Za-z])(?=[0-9])"
    r"|(?<=[0-9])(?=[A-Za-z])"
    r"|(?<=[a-z][a-z])(?=[A-Z])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])(?=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
)
"""Places where the encoding's pattern always ends a piece, so that a cut does not change the count. Two small letters before a
capital: one alone may be the begin of a contraction (``'lL``)."""


NEW_BYTES = 131_072
"""Bytes of different pieces that are counted here, which takes about the time that it takes to load tiktoken."""
LONGEST_PIECE = 512
"""Bytes of a piece up to which it is counted here; time grows with the square of its length."""
_OF_CATEGORY = {"Lu": "A", "Lt": "A", "Ll": "a"}
_OF_CATEGORY |= {"Lm": CASELESS, "Lo": CASELESS, "Mn": MARK, "Mc": MARK, "Me": MARK, "Nd": "0", "Nl": "0", "No": "0"}
_EXCEPTIONS = dict.fromkeys([*"\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000", *map(chr, range(0x2000, 0x200B))], "\t")
_EXCEPTIONS["\u017f"] = "s"
"""White space, and the long s: the encoding's pattern reads it as the ``s`` of a contraction."""

_lock = threading.Lock()
_encodings: list[tiktoken.Encoding] = []


class TiktokenCounter:
    """`TokenCounter` by o200k_base: exact, with special tokens read as plain text. Never uses the network.

    The first texts of a process are counted by `PieceCounter`. When these have many different words, tiktoken is loaded (0.3 s,
    80 MB) and shared by all counters and threads; it counts the same. A lone surrogate counts as U+FFFD, as providers receive it.
    Time is linear in the length: 20 ns a byte of prose, at most some 180 ns. A stretch with no safe place to cut in 2,048
    characters (spaces, or one endless word) counts up to 12 tokens too many per 16,384 characters, never too few.
    """

    @property
    def name(self) -> str:
        return "o200k_base"

    def count(self, text: str) -> int:
        text = _without_surrogates(text)
        if len(text) <= _LONGEST_CHUNK:
            return _count(text)
        return sum(_count(chunk) + extra for chunk, extra in _chunks(text))


def _count(text: str) -> int:
    if not _encodings and (tokens := _pieces().count(text)) is not None:
        return tokens
    return len(_encoding().encode_ordinary(text))


@cache
def _pieces() -> PieceCounter:
    return PieceCounter()


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
            _pieces.cache_clear()
        return _encodings[0]


def _without_surrogates(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, as tiktoken does; done before chunks are cut, which could split a pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@cache
def _safe_cut() -> re.Pattern[str]:
    return re.compile(_SAFE_CUT)


def _chunks(text: str, *, size: int = _CHUNK, longest: int = _LONGEST_CHUNK) -> Iterator[tuple[str, int]]:
    """Yield a text in chunks of ``size`` to ``longest`` characters, each with the tokens to add for the cut after it."""
    start = 0
    while len(text) - start > size:
        match = _safe_cut().search(text, start + size, min(start + longest, len(text)))
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


class PieceCounter:
    """Counts tokens exactly, piece by piece, while that costs no more than to load tiktoken. Not for lone surrogates."""

    def __init__(self) -> None:
        self._costs = _Costs()
        self._classes = _Classes()

    def count(self, text: str) -> int | None:
        """Return the tokens of a text; None if tiktoken should count it: from `NEW_BYTES` on, and for an unknown character."""
        cost = self._costs.__getitem__
        try:
            if text.isascii():
                return sum(map(cost, PIECE.findall(text)))
            matches = PIECE.finditer(text.translate(self._classes))
            return sum(cost(text[match.start() : match.end()]) for match in matches)
        except _LeftToTiktokenError:
            return None


class _LeftToTiktokenError(Exception):
    """A text is not counted here."""


class _Costs(dict[str, int]):
    """Piece -> its number of tokens."""

    def __init__(self) -> None:
        self._table = TokenTable()
        self._bytes = 0

    def __missing__(self, piece: str) -> int:
        encoded = piece.encode()
        self._bytes += len(encoded)
        if self._bytes > NEW_BYTES or len(encoded) > LONGEST_PIECE:
            raise _LeftToTiktokenError
        cost = self[piece] = _merged(encoded, self._table)
        return cost


def _merged(piece: bytes, table: TokenTable) -> int:
    """Return the number of tokens of a piece by byte pair encoding: the two neighbours of the lowest rank join, again and again."""
    if len(piece) == 1 or table.place(piece) != NO_TOKEN:
        return 1
    parts = [piece[index : index + 1] for index in range(len(piece))]
    places = [table.place(piece[index : index + 2]) for index in range(len(piece) - 1)]
    while places and (lowest := min(places)) != NO_TOKEN:
        index = places.index(lowest)
        parts[index] += parts.pop(index + 1)
        del places[index]
        for left in (index - 1, index):
            if 0 <= left < len(places):
                places[left] = table.place(parts[left] + parts[left + 1])
    return len(parts)


class _Classes(dict[int, str]):
    """A table for `str.translate`: ASCII stays, another character becomes one that `PIECE` treats as the encoding treats it."""

    def __missing__(self, code: int) -> str:
        self[code] = _class_of(chr(code))
        return self[code]


def _class_of(character: str) -> str:
    if character.isascii():
        return character
    category = unicodedata.category(character)
    if category == "Cn":  # Newer than Python's tables, and perhaps not newer than tiktoken's.
        raise _LeftToTiktokenError
    return _EXCEPTIONS.get(character) or _OF_CATEGORY.get(category, "!")
