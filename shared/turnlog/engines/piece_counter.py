"""Count o200k_base tokens in Python, with the token table that ships with Turnlog: ready in milliseconds, where tiktoken takes
0.3 s and 80 MB."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from contextlib import suppress

from turnlog.core.token_bounds import CASELESS, MARK, PIECE
from turnlog_vocabulary import NO_TOKEN, TokenTable

NEW_BYTES = 131_072
"""Bytes of different pieces that are counted here, which takes about the time that it takes to load tiktoken."""
LONGEST_WORD = 32
"""Characters of a word up to which its count is kept."""
LONGEST_PIECE = 512
"""Bytes of a piece up to which it is counted here; time grows with the square of its length."""
_OF_CATEGORY = {"Lu": "A", "Lt": "A", "Ll": "a"}
_OF_CATEGORY |= {"Lm": CASELESS, "Lo": CASELESS, "Mn": MARK, "Mc": MARK, "Me": MARK, "Nd": "0", "Nl": "0", "No": "0"}
_EXCEPTIONS = dict.fromkeys([*"\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000", *map(chr, range(0x2000, 0x200B))], "\t")
_EXCEPTIONS["\u017f"] = "s"
"""White space, and the long s: the encoding's pattern reads it as the ``s`` of a contraction."""


class PieceCounter:
    """Counts tokens exactly, piece by piece, while that costs no more than to load tiktoken. Not for lone surrogates."""

    def __init__(self) -> None:
        self._costs = _Costs()
        self._classes = _Classes()
        self.words = _Words(self._tokens)

    def count(self, text: str) -> int | None:
        """Return the tokens of a text; None if tiktoken should count it: from `NEW_BYTES` on, and for an unknown character."""
        try:
            # A piece ends where a space follows what is no white space, so words are counted alone, and only once.
            first, *words = text.split(" ")
            if words and "  " not in text and not first[-1:].isspace():
                with suppress(_BesideSpaceError):
                    last = words.pop()
                    tokens = self._tokens(first) + sum(map(self.words.__getitem__, words))
                    # White space at the end of the text is a piece of its own, or the end of the last one.
                    return tokens + (self.words[last] if last[-1:].strip() else self._tokens(f" {last}"))
            return self._tokens(text)
        except _LeftToTiktokenError:
            return None

    def _tokens(self, text: str) -> int:
        """Return the tokens of a text by its pieces."""
        cost = self._costs.__getitem__
        if text.isascii():
            return sum(map(cost, PIECE.findall(text)))
        matches = PIECE.finditer(text.translate(self._classes))
        return sum(cost(text[match.start() : match.end()]) for match in matches)


class _BesideSpaceError(Exception):
    """White space stands beside a space, where a piece may have both."""


class _Words(dict[str, int]):
    """Word between spaces -> the tokens of a space and the word. Begins anew after `NEW_BYTES` of words."""

    def __init__(self, tokens: Callable[[str], int]) -> None:
        self._tokens = tokens
        self._bytes = 0

    def __missing__(self, word: str) -> int:
        if not word or word[0].isspace() or word[-1].isspace():
            raise _BesideSpaceError
        tokens = self._tokens(f" {word}")
        if len(word) <= LONGEST_WORD:
            if self._bytes > NEW_BYTES:
                self.clear()
                self._bytes = 0
            self._bytes += len(word)
            self[word] = tokens
        return tokens


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
        character, category = chr(code), unicodedata.category(chr(code))
        if category == "Cn":  # Newer than Python's tables, and perhaps not newer than tiktoken's.
            raise _LeftToTiktokenError
        plain = character if character.isascii() else _EXCEPTIONS.get(character)
        self[code] = kind = plain or _OF_CATEGORY.get(category, "!")
        return kind
