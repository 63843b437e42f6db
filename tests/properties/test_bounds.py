"""The upper bound is one: the facts of the vocabulary that it rests on, and the law itself on text of all kinds."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import islice, pairwise, product
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, punctuation

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import is_full
from tests.support.token_texts import (
    CONVERSATIONS,
    NASTY,
    OBJECT,
    PROSE,
    TEXTS,
    count,
    encode_piece,
    encoding,
    ranks,
    real_texts,
)
from turnlog.core import token_bounds
from turnlog.core.token_bounds import (
    ONE_TOKEN_CHARACTERS,
    SIGNS,
    lower_bound_tokens,
    tabled,
    upper_bound_tokens,
    words_of,
)

SIGNS_BEFORE_WORDS = [chr(code) for code in range(128) if chr(code) not in f"{ascii_letters}{digits}\r\n"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]


def count_piece(piece: str | bytes) -> int:
    """Tokens of one piece, the pattern left out."""
    return len(encode_piece(piece if isinstance(piece, bytes) else piece.encode()))


def is_token(text: str) -> bool:
    return text.encode() in ranks()


# The facts.


def test_the_pairs_of_letters_that_are_no_token_are_listed() -> None:
    cases = [(ascii_uppercase, ascii_uppercase), (ascii_uppercase, ascii_lowercase), (ascii_lowercase, ascii_lowercase)]
    pairs = {a + b for first, second in cases for a, b in product(first, second)}
    assert {pair for pair in pairs if not is_token(pair)} == set(tabled("foreign_pairs"))


def test_a_space_makes_a_token_with_a_letter_or_sign() -> None:
    assert all(is_token(f" {character}") for character in ascii_letters + punctuation)


def test_a_space_and_a_sign_are_bounded_by_their_one_token() -> None:
    assert {
        character: token_bounds.bound_of_piece(f" {character}", end=True) for character in punctuation
    } == dict.fromkeys(punctuation, 1)


@pytest.mark.parametrize(("text", "most"), [("hello", 4), ("the file", 6), ("What is this?", 9), ("done.", 4)])
def test_a_short_text_is_bounded_closely(text: str, most: int) -> None:
    assert count(text) <= upper_bound_tokens(text) <= most


BOUNDS = [
    ("a", 1, 1),
    ("the", 2, 1),
    ("The", 2, 1),
    ("THE", 2, 1),
    (" the", 3, 1),
    ("internationalization", 14, 1),
    (" internationalization", 14, 1),
    ("a internationalization b", 17, 3),
    ("qzxv", 4, 1),
    ("a qzxv b", 7, 3),
    ("it's", 3, 1),
    ("IT'S", 3, 1),
    ("it'll", 3, 1),
    ("a it'll b", 6, 3),
    ("a they'Ll b", 10, 3),
    ("don'tx", 4, 2),
    ("(word)", 5, 2),
    ("a (word) b", 7, 5),
    ("camelCaseWord", 8, 3),
    ("123", 2, 1),
    ("1234", 3, 2),
    ("a1b2", 4, 4),
    ("12 34", 4, 3),
    (" ", 1, 1),
    ("    x", 4, 2),
    ("\n", 1, 1),
    ("\n\n\n  x", 5, 3),
    ("\t\tx", 3, 2),
    (" \n x", 4, 2),
    ("!", 1, 1),
    ("!!", 2, 1),
    ("a !?!? b", 8, 3),
    ("-----", 2, 1),
    ("a --- b", 6, 3),
    ("-" * 80, 11, 1),
    (" -", 2, 1),
    (" --", 3, 1),
    ("= =", 3, 2),
    ("a-b_c/d", 7, 4),
    ('{"a": 1}', 7, 6),
    ("é", 1, 0),
    ("naïve", 5, 0),
    ("中文字", 3, 0),
    ("こんにちは", 5, 0),
    ("안녕", 2, 0),
    ("😀", 1, 0),
    ("x́", 2, 0),
    ("\u3000", 1, 0),
    ("\x00", 1, 1),
    ("word " * 50, 56, 51),
    ("a" * 100, 67, 1),
    ("7" * 100, 35, 34),
    ("'s", 2, 1),
    ("a 's b", 6, 4),
    ("x'", 2, 2),
    ("a.b.c", 5, 3),
    ("a\r\nb", 4, 3),
    ("\ud83d", 2, 0),
]


@pytest.mark.parametrize(("text", "upper", "lower"), BOUNDS)
def test_w8_the_bounds_of_a_text_stay_the_same(text: str, upper: int, lower: int) -> None:
    """Windows are cut by bounds, so a change of them changes windows."""
    assert (upper_bound_tokens(text), lower_bound_tokens(text)) == (upper, lower)


def test_w8_the_bounds_of_characters_stay_the_same() -> None:
    bounds_of_one = Counter(upper_bound_tokens(chr(code)) for code in range(0x80, 0x2_0000))
    assert bounds_of_one == {1: 4_698, 2: 34_565, 3: 35_811, 4: 55_870}
    borders = [(0x7FF, 2), (0x8FF, 2), (0xFC0, 2), (0xFC1, 3), (0x113FF, 4), (0x11400, 3), (0x1143F, 3), (0x11440, 4)]
    assert [(code, upper_bound_tokens(chr(code))) for code, _ in borders] == borders


def test_up_to_three_digits_are_a_token() -> None:
    assert all(is_token("".join(group)) for length in (1, 2, 3) for group in product(digits, repeat=length))


def test_runs_of_a_sign_are_tokens_up_to_the_listed_length() -> None:
    for sign, longest in token_bounds.LONGEST_RUN.items():
        assert all(is_token(sign * length) for length in range(1, longest + 1)), sign


def test_words_are_tokens_in_all_their_forms() -> None:
    listed = list(words_of("words"))
    forms = [form for word in listed for form in (word, word.capitalize())] + tabled("capitals")
    assert set(forms) == token_bounds.WORDS
    for form in forms:
        assert is_token(form)
        assert is_token(f" {form}")
        assert all(count_piece(sign + form) <= 2 for sign in SIGNS_BEFORE_WORDS), form
        assert all(count_piece(sign + form + end) <= 2 for sign in ("", " ") for end in CONTRACTIONS), form


@pytest.mark.full
def test_words_between_a_sign_and_a_contraction_are_three_tokens_at_most() -> None:
    for form in token_bounds.WORDS:
        assert all(count_piece(sign + form + end) <= 3 for sign in SIGNS_BEFORE_WORDS for end in CONTRACTIONS), form


def test_the_other_listed_pieces_are_tokens() -> None:
    assert all(is_token(f" {word}") for word in words_of("spaced_words"))
    assert all(is_token(piece.replace("~", " ")) for piece in tabled("affixed"))
    assert all(is_token(piece) for piece in SIGNS)


def test_what_is_tabled_is_a_whole_piece_of_the_pattern() -> None:
    assert all(token_bounds.PIECE.fullmatch(piece) for piece in token_bounds.PIECE_BOUNDS)


def test_contractions_cost_one_token() -> None:
    """All are tokens, and no token ends within one and begins before it; the one exception takes all of " I"."""
    assert all(is_token(end) for end in [*CONTRACTIONS, "'S", "'T", "'M", "'D"])
    assert all(
        is_token(pair.format(*letters)) for pair in ("{}{}",) for letters in ["re", "ve", "ll", "RE", "VE", "LL"]
    )
    cut = re.compile(rb"[A-Za-z]'[lLrRvV]?")
    assert {token for token in ranks() if re.search(rb"[A-Za-z]'[lLrRvV]?$", token) and cut.search(token)} == {b" I'"}


def test_a_token_that_begins_within_a_character_goes_on_with_letters_or_newlines_only() -> None:
    ascii_parts = {match[1] for token in ranks() if (match := re.match(rb"[\x80-\xbf]+([\x00-\x7f]+)", token))}
    assert all(part.isalpha() or not part.strip(b"\n") for part in ascii_parts)


class Costs:
    """The most tokens that a character beyond ASCII can be charged with, whatever stands around it.

    A token is charged to the first character that begins in it, so a character pays for the token that holds its first
    byte, if none begins before in that token, and for each token wholly within its other bytes. All ways to divide its
    bytes are tried; neighbours that BPE would never leave side by side are not a way (`adjacent`).
    """

    def __init__(self) -> None:
        self.ends: dict[bytes, list[bytes]] = {}
        """Tokens that end with the beginning of a character, by that end; a character begins before it."""
        self.continued: dict[bytes, list[bytes]] = {}
        """The same, where only the rest of a character is before it."""
        self.begins: dict[bytes, list[bytes]] = {}
        """Tokens that begin with the rest of a character and hold more, by that rest."""
        for token in ranks():
            body = token.lstrip(bytes(range(0x80, 0xC0)))
            if 0 < len(body) < len(token):
                self.begins.setdefault(token[: len(token) - len(body)], []).append(token)
            last = max((index for index, byte in enumerate(token) if not 0x80 <= byte < 0xC0), default=0)
            if last and token[last] >= 0xC0 and len(token) - last < self.length(token[last]):
                known = self.ends if len(token) - len(body) < last else self.continued
                known.setdefault(token[last:], []).append(token)

    @staticmethod
    def length(first: int) -> int:
        return 2 if first < 0xE0 else 3 if first < 0xF0 else 4

    @cache  # noqa: B019
    def adjacent(self, left: bytes, right: bytes) -> bool:
        return encode_piece(left + right) == [ranks()[left], ranks()[right]]

    @cache  # noqa: B019
    def within(self, rest: bytes, before: tuple[bytes, ...]) -> int:
        """The most tokens within the rest of a character behind one of ``before``; less than zero: no way."""
        if not rest:
            return 0
        best = -9
        if any(self.adjacent(left, right) for left in before for right in self.begins.get(rest, ())):
            best = 0
        for end in range(1, len(rest) + 1):
            token = rest[:end]
            if token in ranks() and any(self.adjacent(left, token) for left in before):
                more = self.within(rest[end:], (token,))
                best = max(best, 1 + more) if more >= 0 else best
        return best

    def most(self, character: str) -> int:
        data = character.encode()
        best = 1
        for end in range(1, len(data)):
            first, rest = data[:end], data[end:]
            alone = [first] if first in ranks() else []
            best = max(best, 1 + self.within(rest, (*alone, *self.continued.get(first, ()))))
            best = max(best, self.within(rest, tuple(self.ends.get(first, ()))))
        return best


def test_no_character_costs_more_than_its_table_says() -> None:
    costs = Costs()
    listed = [
        *range(0x80, 0x800),
        *(code for low, high in token_bounds.TWO_TOKENS + token_bounds.THREE_TOKENS for code in range(low, high + 1)),
    ]
    characters = sorted({*map(chr, listed), *ONE_TOKEN_CHARACTERS, *token_bounds.CHARACTER_BOUNDS.keys(), "\ufffd"})
    for character in characters[:: 1 if is_full() else 7]:
        assert costs.most(character) <= token_bounds.CHARACTER_BOUNDS[character], hex(ord(character))
    assert all(token_bounds.CHARACTER_BOUNDS[character] == 1 for character in ONE_TOKEN_CHARACTERS)


def test_a_character_costs_at_least_what_it_takes_and_at_most_its_bytes() -> None:
    borders = [0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF]
    for code in (*borders, *range(0x900, 0x30000, 0x3FD)):
        character = chr(code)
        size = len(character.encode("utf-8", "surrogatepass"))
        assert count(character * 9) <= upper_bound_tokens(character * 9) <= 9 * size, hex(code)
        assert upper_bound_tokens(character * 9) == 9 * upper_bound_tokens(character), hex(code)


def test_half_a_surrogate_pair_costs_as_much_as_the_half_of_it() -> None:
    for code in (0xD800, 0xDBFF, 0xDC00, 0xDFFF):
        assert upper_bound_tokens(chr(code)) == 2


@pytest.mark.parametrize(("length", "most"), [(24, 30_000), (25, 1)])
def test_the_cache_of_pieces_ends(monkeypatch: pytest.MonkeyPatch, length: int, most: int) -> None:
    """A process that lives long keeps short pieces, and of these a limited number."""
    monkeypatch.setattr(token_bounds, "PIECE_BOUNDS", kept := token_bounds.PieceBounds())
    words = ("".join(ascii_lowercase[int(digit)] for digit in f"{number:05d}") for number in range(31_000))
    upper_bound_tokens("()".join(f"{word:x>{length}}" for word in words))
    assert len(kept) <= most
    assert len(kept) > 20_000 or length > 24


@given(st.text(st.characters(max_codepoint=127), max_size=60))
@example("don'table I'll 'sx IT'S 12345\t\n  \n x  y --a -b\r\n/c")
def test_the_pattern_on_ascii_finds_the_pieces_of_the_encoding(text: str) -> None:
    pieces = token_bounds.PIECE.findall(text)
    assert "".join(pieces) == text
    assert encoding().encode_ordinary(text) == [token for piece in pieces for token in encode_piece(piece.encode())]


# The law.

NASTY += [
    "/",
    "//",
    "{",
    "}",
    '"',
    "1",
    "12",
    "2345",
    "a",
    "A",
    "q",
    "qz",
    "Eo",
    "QJ",
    "é",
    "中",
    "北",
    "京",
    "ş",
    "\x0b",
]
NASTY += [
    "\x00",
    " \x01",
    "\u3000",
    "\u00a0",
    "２",
    "½",
    "😀",
    "\ud83d",
    "\ude00",
    "–",
    "’",
    "\u0301",
    "K",
    "App",
    "Ŝ",
    "가",
]
NASTY += ["====", "-----", "กข", "\x95"]


@pytest.mark.parametrize("kind", TEXTS)
def test_the_bound_holds_for_a_text_and_for_any_cut_of_it(kind: str) -> None:
    @settings(max_examples=150 if is_full() else 50, deadline=None)
    @given(TEXTS[kind], st.lists(st.floats(0, 1), max_size=3))
    def holds(text: str, cuts: list[float]) -> None:
        real = count(text)
        assert upper_bound_tokens(text) >= real
        places = [0, *sorted(int(cut * len(text)) for cut in cuts), len(text)]
        assert sum(upper_bound_tokens(text[start:end]) for start, end in pairwise(places)) >= real

    holds()


def test_the_bound_of_nothing_is_nothing() -> None:
    assert upper_bound_tokens("") == 0


@pytest.mark.parametrize("unit", ["a", " ", "\n", "aB", "-", "'", "中", "\ud83d", " \n", "x ", "1"])
def test_a_million_characters_are_bounded(unit: str) -> None:
    """Two hundred thousand in `make pr`, which shows time that grows with the square, too."""
    size = 1_000_000 if is_full() else 200_000
    assert 0 < upper_bound_tokens((unit * size)[:size]) <= 2 * size


@pytest.mark.parametrize(
    ("text", "ratio"), [(PROSE, 2.0), (OBJECT, 1.6), ("你好，我想预订一间酒店的房间。", 1.6), ("x" * 9, 2.5)]
)
def test_the_bound_is_not_far_off(text: str, ratio: float) -> None:
    assert upper_bound_tokens(text) <= ratio * count(text) + 3


@pytest.mark.skipif(not (CONVERSATIONS / "load.py").exists(), reason="no real conversations at ../shared/data")
def test_the_bound_holds_for_real_conversations() -> None:
    total = bound = 0
    for text in islice(real_texts(), 0, None, 1 if is_full() else 5):
        for part in (text[:500], text[500:2000]):
            real, most = count(part), upper_bound_tokens(part)
            assert most >= real, part
            total, bound = total + real, bound + most
    assert bound < 1.8 * total
