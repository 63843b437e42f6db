"""Patterns: the same lines as `re` finds, in a number of steps that no pattern and no text can blow up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import is_full
from turnlog.core.patterns import MAX_PATTERN_CHARS, Pattern, PatternError

KNOWN = [
    "error",
    "a.c",
    "^a",
    "c$",
    "^$",
    "a|bc|",
    "(ab)+c",
    "(?:ab|c){2,3}",
    "a{2}",
    "a{,2}b",
    "a{1,}?b",
    "^a{1,2}b",
    r'{"a": 1}',
    "a{x}",
    "[a-c]x",
    "[^a-c]",
    r"[\d\-]+",
    r"[\b\]\n^-]",
    "[]a]",
    "[a-]",
    r"\bab\b",
    r"\Bb",
    r"\d{3}\s\w+",
    r"\D\S\W",
    r"\.\*\\",
    r"\x41\u00e9",
    "(?i)ERR[A-F]",
    "(?i)[^x]y",
    "(?i)[é-ü]\\u00C9|ſ",
    "(?P<n>a*)*b",
    "(a*)*$",
    "(|a)+b",
    r"\Aa.*c\Z",
    "é+",
    "日本",
]
LINES = [
    "",
    "a",
    "abc",
    "aabcab",
    "aaab",
    "ababc c",
    "error: no such file",
    'ERRa {"a": 1} a{x}',
    "123 four",
    "a-b c.d*\\",
    "Aé日本語",
    "x\ty",
    "]-",
    "bx XY xy",
]


@pytest.mark.parametrize("pattern", KNOWN)
def test_the_lines_are_those_of_re(pattern: str) -> None:
    wanted = [at for at, line in enumerate(LINES) if re.search(pattern, line)]
    assert list(Pattern(pattern).lines(LINES).lines) == wanted


def test_a_set_has_the_characters_that_it_lists_without_operators() -> None:
    assert Pattern("^[[a&&b~~c||d]$").lines([*"[a&~|", "e", "]"]).lines == (0, 1, 2, 3, 4)
    assert Pattern(r"^[\d-z\\]$").lines([*"7-z", "d", "\\"]).lines == (0, 1, 2, 4)


pieces = st.sampled_from(
    [
        "a",
        "b",
        "c",
        ".",
        "^",
        "$",
        "[ab]",
        "[^a]",
        r"\b",
        r"\B",
        r"\w",
        r"\s",
        "(a|b)",
        "(ab)",
        "(?:a|)",
        " ",
        "(a*)",
        "(?:b+|c)",
    ]
)
repeats = st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,2}", "*?"])


@settings(max_examples=600 if is_full() else 100, deadline=None, derandomize=not is_full())
@given(
    st.lists(st.tuples(pieces, repeats), min_size=1, max_size=6),
    st.lists(st.text("abc ", min_size=1, max_size=8), min_size=1, max_size=6),
)
def test_drawn_patterns_match_as_with_re(drawn: list[tuple[str, str]], lines: list[str]) -> None:
    pattern = "".join(piece + ("" if piece in ("^", "$", r"\b", r"\B") else repeat) for piece, repeat in drawn)
    assert list(Pattern(pattern).lines(lines).lines) == [
        at for at, line in enumerate(lines) if re.search(pattern, line)
    ]


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[a", "*", "a**", "a{2}{3}", "a++", r"\1", r"(a)\1", "(?=a)", "(?<!a)b", "(?#x)", r"\q", "[z-a]",
     "a{3,2}", "\\", "^*", r"\x4", "x" * (MAX_PATTERN_CHARS + 1), "(" * 40 + ")" * 40, "((a{99}){99}){99}", "(){9999}"],
)  # fmt: skip
def test_what_is_not_known_is_refused_and_the_message_shows_no_text(pattern: str) -> None:
    with pytest.raises(PatternError) as caught:
        Pattern(pattern)
    assert len(str(caught.value)) < 80


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        ("x" * MAX_PATTERN_CHARS, "x" * (MAX_PATTERN_CHARS + 1)),
        ("(" * 31 + "x" + ")" * 31, "(" * 32 + "x" + ")" * 32),
        ("(x)" * 40, "(" * 32 + "x" + ")" * 32),
        ("(x|y){399}abcd", "(x|y){399}abcde"),
        ("x{999}y", "x{999}yy"),
        ("x{500,999}y", "x{500,999}yy"),
    ],
)
def test_a_pattern_has_limits_for_its_characters_its_groups_and_its_states(largest: str, larger: str) -> None:
    assert Pattern(largest).lines([""]).read == 1
    with pytest.raises(PatternError):
        Pattern(larger)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("(a+)+$", "a" * 50_000 + "b"),
        ("^(a|a)*$", "a" * 50_000 + "b"),
        ("(.*a){20}$", "a" * 20_000 + "b"),
        (".*.*.*x", "y" * 50_000),
        (r"(\w+\s?)*:$", "word " * 10_000),
        ("(a?){50}a{50}$", "a" * 49 + "b"),
        ("(x+x+)+y", "x" * 50_000),
    ],
)
def test_no_pattern_is_slow(pattern: str, line: str) -> None:
    """Steps are counted: a state that is looked at, once for each set of states that a text leads to."""
    lines = Pattern(pattern).lines([line], max_steps=200_000)
    assert (lines.lines, lines.read) == ((), 1)


def test_a_set_costs_what_it_looks_at() -> None:
    """Ranges are looked at one by one, so that a pattern of many is not cheap by its few states."""
    ranges = "".join(f"{chr(at)}-{chr(at + 1)}" for at in range(0x100, 0x1A0, 2))
    lines = ["".join(map(chr, range(at, at + 200))) for at in range(0x4E00, 0x9000, 200)]
    few, many = Pattern("[^ā-ă]é"), Pattern(f"[^{ranges}]é")
    assert few.lines(lines, max_steps=100_000).read == len(lines)
    assert many.lines(lines, max_steps=100_000).read < len(lines) / 4
    singles = "".join(map(chr, range(0x100, 0x1A0)))
    assert Pattern(f"[^{singles}]é").lines(lines, max_steps=100_000).read == len(lines)


def test_a_search_that_takes_too_many_steps_says_how_far_it_came() -> None:
    lines = [f"{at} abcdefghij" for at in range(1000)]
    result = Pattern("[0-9a-j ]{1,400}z").lines(lines, max_steps=2_000)
    assert result.lines == () and 0 < result.read < 1000
