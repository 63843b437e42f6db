"""Upper and lower bounds of a text's o200k_base tokens, without the vocabulary.

The window's budget is hard, and derived text (notes, cuts, stubs) has no stored count: it is charged with this bound.

The argument. The encoding cuts text into pieces by a pattern, and each piece into tokens by byte pair encoding (BPE).

1. Within a piece no two neighbouring tokens join to a token (BPE would have joined them). So where all pairs of letters
   are tokens no two single letters are neighbours: a run of L letters has at most (2L + 1) / 3 tokens, and each pair
   that is no token adds a third. Where all runs of a sign up to K are tokens, two neighbours cover more than K signs.
2. On ASCII text `PIECE` finds exactly the pieces of the encoding; a piece that is a token costs one. Digits come in
   threes, each group a token.
3. A token is counted at the first character that begins in it. What a character beyond ASCII can then be charged with,
   whatever stands around it, is finite to work out from the vocabulary: it is tabled.
4. Text may be cut anywhere: near the ends of a stretch of ASCII, where more text could change the pieces, no table is
   used and a token that begins in the stretch and ends behind it is allowed for.

So ``upper_bound_tokens(a) + upper_bound_tokens(b)`` is at least the tokens of ``a + b``, for any cut of any text. The
facts of the vocabulary that the argument uses are in ``token_bounds.json``; ``tests/properties/test_bounds.py`` proves each.

The least is simpler: no token crosses a border of pieces, so there are as many tokens as pieces. What stands beside a stretch
of ASCII can make a part of its first piece its own, or of its last, and no more; beyond ASCII nothing is counted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pkgutil import get_data

_SPACE = " \t\n\x0b\x0c\r"
_STRETCH = re.compile(r"([^\x00-\x7f]+)")
CASELESS, MARK = "\x80", "\x81"
"""A letter without case, and a combining mark, in a text for `PIECE`. Neither is in ASCII."""
_UPPER, _LOWER = f"A-Z{CASELESS}{MARK}", f"a-z{CASELESS}{MARK}"
_BEFORE, _AFTER = f"[^\r\nA-Za-z0-9{CASELESS}]?", "(?:'(?i:s|t|re|ve|m|ll|d))?"
PIECE = re.compile(
    f"{_BEFORE}[{_UPPER}]*[{_LOWER}]+{_AFTER}"
    f"|{_BEFORE}[{_UPPER}]+[{_LOWER}]*{_AFTER}"
    "|[0-9]{1,3}"
    f"| ?[^ \t\n\x0b\x0c\rA-Za-z0-9{CASELESS}]+[\r\n/]*"
    "|[ \t\n\x0b\x0c\r]*[\r\n]+"
    "|[ \t\n\x0b\x0c\r]+(?![^ \t\n\x0b\x0c\r])"
    "|[ \t\n\x0b\x0c\r]+",
    re.ASCII,
)
"""The encoding's pattern, as it reads on ASCII, `CASELESS` and `MARK` (openai/tiktoken, tiktoken_ext/openai_public.py)."""
_SAME = re.compile(r"(.)\1*", re.DOTALL)
LONGEST_RUN = {" ": 79, "\t": 20, "\n": 10, "-": 16, "=": 16, ".": 10, "*": 8, "_": 8, "#": 6, "!": 6} | dict.fromkeys(
    "\"%'()+,/:;<>?|~", 4
)
"""Sign -> length up to which all its runs are tokens."""
_CUT_CONTRACTIONS = ("lL", "rE", "vE")
"""Beginnings that are two pieces, but one after an apostrophe."""


def upper_bound_tokens(text: str) -> int:
    """Return at least the number of o200k_base tokens of ``text``, also where ``text`` is a part of a longer text.

    Holds for every string; a lone surrogate counts as the replacement character that encodes it. Pure, linear in the length.
    About 1.6 times the count on English prose and code, 1.3 times on JSON and Chinese; never below the count.
    """
    bound = 0
    for index, stretch in enumerate(_STRETCH.split(text)):
        if index % 2:
            bound += sum(map(CHARACTER_BOUNDS.__getitem__, stretch))
        elif stretch:
            bound += _ascii(stretch)
    return bound


def lower_bound_tokens(text: str) -> int:
    """Return at most the number of o200k_base tokens of ``text`` as a text by itself.

    Holds for every string. Pure, linear in the length. About nine tenths of the count on English prose, code and JSON; close to
    zero on other scripts.
    """
    stretches = _STRETCH.split(text)
    bound, last = 0, len(stretches) - 1
    for index in range(0, len(stretches), 2):
        pieces = len(PIECE.findall(stretches[index]))
        bound += max(0, pieces - (index > 0) - (index < last))
    return bound


def _ascii(stretch: str) -> int:
    pieces = PIECE.findall(stretch)
    bound = sum(map(PIECE_BOUNDS.__getitem__, pieces))
    # What more text in front can change: a run of newlines after a sign is the sign's, an apostrophe takes two letters.
    left = max(3, len(stretch) - len(stretch.lstrip("\r\n/")))
    first, position = 0, 0
    while first < len(pieces) and position < left:
        bound += bound_of_piece(pieces[first], end=False) - PIECE_BOUNDS[pieces[first]]
        position += len(pieces[first])
        first += 1
    # What more text behind can change: the last piece, all white space, a contraction that is half there.
    right = min(len(stretch) - 2, len(stretch.rstrip(_SPACE)))
    last, position = len(pieces), len(stretch)
    while last > first and position >= right:
        last -= 1
        bound += bound_of_piece(pieces[last], end=False) - PIECE_BOUNDS[pieces[last]]
        position -= len(pieces[last])
    # Digits in front may shift the groups of three.
    return bound + (stretch[0].isdigit() or stretch.startswith(_CUT_CONTRACTIONS))


def bound_of_piece(piece: str, *, end: bool) -> int:
    """Return the bound of a piece. ``end``: the piece certainly ends here; otherwise it may begin a longer one."""
    last = piece[-1]
    if last.isalpha():
        return _word(piece, end=end)
    if last.isdigit():
        return 1
    if piece[0] != " " or len(piece) == 1 or piece[1] in _SPACE:
        return _signs(piece, end=end)
    # A space and a printable sign are a token: they are no neighbours, unless the sign's token is longer.
    joined = piece[1].isprintable() and piece[1] != piece[2:3] and end
    return _signs(piece[1:], end=end) + (not joined)


def _word(piece: str, *, end: bool) -> int:
    """Return the bound of letters after at most one sign and before at most one contraction."""
    sign = "" if piece[0].isalpha() else piece[0]
    letters, apostrophe, contraction = piece[len(sign) :].partition("'")
    bound = int(sign not in ("", " "))
    if apostrophe:
        bound += 1 if len(contraction) == 1 or contraction.islower() else 1 + len(contraction)
    if end and letters in WORDS:
        return bound + 1
    length = len(letters) + (sign == " ")
    foreign = sum(first + second in _FOREIGN_PAIRS for first, second in pairwise(letters))
    return bound + min(length, (2 * length + foreign + (1 if end else 2)) // 3)


def _signs(piece: str, *, end: bool) -> int:
    """Return the bound of white space and signs: run by run of one sign, with one more token for a border that one may cross."""
    bound = 0
    for run in _SAME.finditer(piece):
        length = run.end() - run.start()
        inside = 1 + 2 * (length - 1) // (LONGEST_RUN.get(run[1], 1) + 1)
        bound += inside if end and run.end() == len(piece) else min(length, inside + 1)
    return bound


class PieceBounds(dict[str, int]):
    """Piece -> its bound: the tabled pieces, and a bounded cache of others."""

    def __missing__(self, piece: str) -> int:
        bound = bound_of_piece(piece, end=True)
        if len(piece) <= 24 and len(self) < 30_000:
            self[piece] = bound
        return bound


class CharacterBounds(dict[str, int]):
    """Character beyond ASCII -> its bound: one token for each byte unless tabled. A surrogate may be half of four bytes."""

    def __missing__(self, character: str) -> int:
        code = ord(character)
        if code < 0x800 or 0xD800 <= code < 0xE000 or _within(TWO_TOKENS, code):
            return 2
        return 3 if code < 0x10000 or _within(THREE_TOKENS, code) else 4


def _within(ranges: list[tuple[int, int]], code: int) -> bool:
    index = bisect_right(ranges, (code, 0x110000)) - 1
    return index >= 0 and ranges[index][1] >= code


_TABLES: dict[str, dict[str, list[str]]] = json.loads(get_data(__package__, "token_bounds.json") or b"")


def tabled(name: str) -> list[str]:
    """Return the facts of a table, which white space separates."""
    return " ".join(_TABLES[name]["text"]).split()


def words_of(name: str) -> Iterator[str]:
    """Yield the words of a table: each is the number of letters that it shares with the word before, and its other letters."""
    word = ""
    for shared, letters in re.findall(r"(\d)(\D+)", "".join(_TABLES[name]["text"])):
        word = word[: int(shared)] + letters
        yield word


def _codes(name: str) -> Iterator[int]:
    """Return the code points of a table, which has the gaps between them."""
    return accumulate(map(int, tabled(name)))


def _ranges(name: str) -> list[tuple[int, int]]:
    codes = _codes(name)
    return list(zip(codes, codes, strict=True))


SIGNS = "".join(_TABLES["signs"]["text"]).split("A")
ONE_TOKEN_CHARACTERS = "".join(map(chr, _codes("han_and_hangul")))
_FOREIGN_PAIRS = frozenset(tabled("foreign_pairs"))
WORDS = {form for word in words_of("words") for form in (word, word.capitalize())} | set(tabled("capitals"))
PIECE_BOUNDS = PieceBounds.fromkeys([*WORDS, *(f" {word}" for word in WORDS)], 1)
PIECE_BOUNDS.update(dict.fromkeys((f" {word}" for word in words_of("spaced_words")), 1))
PIECE_BOUNDS.update(dict.fromkeys((piece.replace("~", " ") for piece in tabled("affixed")), 1))
PIECE_BOUNDS.update(dict.fromkeys(SIGNS, 1))
TWO_TOKENS, THREE_TOKENS = _ranges("two"), _ranges("three")
"""Ranges of characters of at most two tokens, and of three. Those that no table has take one token for each byte."""
CHARACTER_BOUNDS = CharacterBounds.fromkeys(ONE_TOKEN_CHARACTERS, 1)
CHARACTER_BOUNDS.update((chr(code), 1) for low, high in _ranges("one") for code in range(low, high + 1))
