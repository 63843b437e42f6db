"""The counter in Python counts as tiktoken does, and gives up where tiktoken is the better one."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.token_texts import NASTY, count, ranks
from turnlog.core.json_values import sendable_text
from turnlog.engines import piece_counter
from turnlog.engines.piece_counter import PieceCounter
from turnlog_vocabulary import NO_TOKEN, TokenTable

PARTS = [
    *NASTY,
    "Bc",
    "é",
    "中",
    "，",
    "あ",
    "Я",
    "ǅ",
    "½",
    "²",
    "ſ",
    "'ſ",
    "ˈ",
    "Ⅷ",
    "K",
    "İ",
    "\u0301",
    "😀",
    "\u3000",
    "٣",
    "\x1c",
]
COUNTER = PieceCounter()
PARTS += ["“", "\x85", "\xa0", "\u2028", "\u200d", "ก", "नी", "안녕", "\ue000", "ﬁ", "\ufffd"]


@given(st.lists(st.sampled_from(PARTS) | st.characters(exclude_categories=["Cn", "Cs"]), max_size=20).map("".join))
@example("\u0301A's\u0301 -\u0301sT")
def test_a_text_has_the_tokens_that_tiktoken_counts(text: str) -> None:
    text = sendable_text(text)  # the counter is not for lone surrogates
    assert PieceCounter().count(text) == count(text)


@given(
    st.lists(st.sampled_from(["a", "Bc", "1", ".", "'s", " ", "  ", "\n", "\t", "\x1c", "\u3000", "é"]), max_size=12)
)
def test_words_between_spaces_are_counted_as_in_their_text(parts: list[str]) -> None:
    text = "".join(parts)
    assert COUNTER.count(f"a {text} b") == count(f"a {text} b")
    assert COUNTER.count(text) == count(text)


def test_the_counts_of_words_are_kept_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = PieceCounter()
    monkeypatch.setattr(piece_counter, "NEW_BYTES", 1_000)
    texts = [f"a {number // 100}.{number // 10 % 10}.{number % 10} a" for number in range(1_000)]
    assert [counter.count(text) for text in texts] == [count(text) for text in texts]
    assert 0 < len(counter.words) < 250


def test_characters_of_every_kind_are_read_as_tiktoken_reads_them() -> None:
    counter = PieceCounter()
    characters = (chr(code) for code in range(0, 0x110000, 101))
    known = [character for character in characters if unicodedata.category(character) not in ("Cn", "Co", "Cs")]
    text = "".join(f"a{character}B's{character} {character}\n1" for character in known)
    pieces = [text[begin:end] for begin, end in pairwise((*range(0, len(text), 500), len(text)))]
    assert [counter.count(piece) for piece in pieces] == [count(piece) for piece in pieces]


def test_a_token_of_lower_rank_has_a_lower_place() -> None:
    table = TokenTable()
    places = [table.place(token) for token in ranks() if len(token) > 1]
    assert places == sorted(set(places))
    assert places[-1] < NO_TOKEN
    assert {table.place(token) for token in (b"", b"zq\xff", b"qzqzqz", b"\xff\xff")} == {NO_TOKEN}


@pytest.mark.parametrize("text", ["a" * 513, "\U0003fffd", "word \u0378"])
def test_long_pieces_and_unassigned_characters_are_left_to_tiktoken(text: str) -> None:
    counter = PieceCounter()
    assert counter.count(text) is None
    assert counter.count("a" * 512) == count("a" * 512)


def test_many_different_words_are_left_to_tiktoken_and_counted_the_same() -> None:
    texts = [f"Wörter {sha256(str(number).encode()).hexdigest()}" for number in range(100)]
    code = (
        "import json, sys\n"
        "from turnlog.engines import piece_counter\n"
        "from turnlog.engines.token_counters import TiktokenCounter\n"
        "piece_counter.NEW_BYTES, counter = 1_000, TiktokenCounter()\n"
        "print(json.dumps([(counter.count(text), 'tiktoken' in sys.modules) for text in json.load(sys.stdin)]))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    counts, loaded = zip(*json.loads(process.stdout), strict=True)
    assert counts == tuple(map(count, texts))
    assert list(loaded) == sorted(loaded)
    assert {*loaded} == {False, True}


def test_known_words_never_need_tiktoken() -> None:
    counter = PieceCounter()
    assert {counter.count("the same words again") for _ in range(10_000)} == {4}


def test_a_process_that_appends_a_little_loads_no_tiktoken(tmp_path: Path) -> None:
    code = (
        "import sys, turnlog\n"
        "with turnlog.Turnlog.open(sys.argv[1]) as log:\n"
        "    session = log.sessions.create()\n"
        "    session.append({'role': 'user', 'content': 'Grüße, 世界! ' * 50})\n"
        "    tokens = session.context(budget=8_000).tokens\n"
        "print(sorted({'tiktoken', 'regex', 'requests'} & sys.modules.keys()), tokens > 0)\n"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{tmp_path / 'agent.db'}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[] True\n"
