"""The counters: exact, robust, and close."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import turnlog_vocabulary as vocabulary
from tests.effort import is_full
from turnlog.engines import token_counters
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.engines.token_estimate import EstimateCounter
from turnlog.ports import TokenCounter

COUNTERS = [TiktokenCounter(), EstimateCounter()]
MILLION = 1_000_000

ENGLISH = (
    "The session log keeps every message as it was given, and the window is what the model is sent. When the budget "
    "presses, the oldest loops are shown as digests: the question, the answer, and one line for each tool that was "
    "called in between. Nothing is ever lost without a note that says so, and a summary never replaces the log."
)
JSON = (
    '{"reservation_id": "ZFA04Y", "user_id": "sara_doe_496", "origin": "SFO", "destination": "JFK", "flights": '
    '[{"flight_number": "HAT170", "date": "2024-05-22", "price": 146.5, "status": "available"}], "cabin": "economy", '
    '"passengers": [{"first_name": "Sara", "last_name": "Doe", "dob": "1985-07-03"}], "insurance": "no"}'
)
CHINESE = (
    "你好，我想预订一间酒店的房间，最好离地铁站近一点，价格在五百元左右。请问附近有没有评分比较高的餐馆？"
    "好的，我为您找到了三家酒店，都在市中心，步行十分钟可以到达地铁站，其中两家提供免费早餐和停车位。"
)
KOREAN = (
    "안녕하세요. 내일 저녁에 네 명이 식사할 수 있는 식당을 예약하고 싶습니다. 가격은 중간 정도면 좋겠고, 주차가 가능한 "
    "곳이면 더 좋겠습니다. 네, 조건에 맞는 식당을 두 곳 찾았습니다. 어느 곳으로 예약해 드릴까요?"
)


LONG_WORD = "z" * 1_000
"""A text that only tiktoken counts."""


@pytest.fixture(scope="module")
def encoding() -> tiktoken.Encoding:
    return tiktoken.Encoding(
        vocabulary.NAME,
        pat_str=vocabulary.PATTERN,
        mergeable_ranks=vocabulary.mergeable_ranks(),
        special_tokens=vocabulary.SPECIAL_TOKENS,
    )


@pytest.mark.parametrize(("counter", "name"), [(TiktokenCounter(), "o200k_base"), (EstimateCounter(), "estimate")])
def test_a_counter_is_named_and_counts_nothing_for_nothing(counter: TokenCounter, name: str) -> None:
    assert counter.name == name
    assert counter.count("") == 0
    assert counter.count("a") == 1


@pytest.mark.parametrize("text", [ENGLISH, JSON, CHINESE, KOREAN, "<|endoftext|>", "\r\n\t  x"])
def test_tiktoken_counts_exactly_and_knows_no_special_tokens(encoding: tiktoken.Encoding, text: str) -> None:
    assert TiktokenCounter().count(text) == len(encoding.encode_ordinary(text))


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\ude00\ud83d", "\ud83d" * 70_000])
@pytest.mark.parametrize("counter", COUNTERS)
def test_lone_surrogates_are_counted(counter: TokenCounter, text: str) -> None:
    assert counter.count(text) >= 1


def test_a_lone_surrogate_counts_as_the_replacement_character_and_a_pair_as_its_character() -> None:
    count = TiktokenCounter().count
    assert count("x\ud83dy") == count("x\ufffdy")
    assert count("\ud83d\ude00") == count("\U0001f600")
    long = "word " * 20_000
    assert count(long + "\ud83d\ude00") == count(long + "\U0001f600")


REPEATED = ["a", " ", "\n", "\t", "-", "7", "aB", "中", "😀", "é", " \n", "\u3000", "a\u0301", "'"]


@pytest.mark.parametrize("unit", REPEATED)
@pytest.mark.parametrize("counter", COUNTERS)
def test_a_million_characters_without_a_break_are_counted(counter: TokenCounter, unit: str) -> None:
    size = MILLION if is_full() else MILLION // 5
    assert 0 < counter.count((unit * size)[:size]) <= size * 2


@pytest.mark.parametrize("unit", ["a", "\n", "-", "7", "aB", "中", "é", " \n"])
def test_forced_cuts_never_undercount_and_add_little(encoding: tiktoken.Encoding, unit: str) -> None:
    text = (unit * 600_000)[: 600_000 if is_full() else 100_000]
    real = len(encoding.encode_ordinary(text))
    assert real <= TiktokenCounter().count(text) <= real + 12 * -(-len(text) // 16_384)


@pytest.mark.parametrize("unit", ["a", " ", "=", "etaoin", "漢", "0१"])
def test_no_call_of_the_encoder_gets_a_piece_that_is_slow_for_its_length(
    encoding: tiktoken.Encoding, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    sizes, encode = list[int](), encoding.encode_ordinary

    class Encoder:
        def encode_ordinary(self, text: str) -> list[int]:
            sizes.append(len(text))
            return encode(text)

    monkeypatch.setattr(token_counters, "_encodings", [Encoder()])
    TiktokenCounter().count(unit * (300_000 // len(unit)))
    assert max(sizes) <= 16_384
    assert sum(sizes) == 300_000
    assert len(sizes) <= 300_000 // 14_000


@pytest.mark.parametrize(
    "text", [(bytes(range(256)) * 500).hex(), "camelCaseName" * 20_000, '"ключ":"значение",' * 8_000]
)
def test_long_data_without_white_space_is_counted_exactly(encoding: tiktoken.Encoding, text: str) -> None:
    assert len(text) > 100_000
    assert TiktokenCounter().count(text) == len(encoding.encode_ordinary(text))


@pytest.mark.parametrize("text", [ENGLISH, JSON, CHINESE, KOREAN])
def test_long_real_text_is_counted_exactly(encoding: tiktoken.Encoding, text: str) -> None:
    long = "\n".join([text] * 1000)
    assert TiktokenCounter().count(long) == len(encoding.encode_ordinary(long))


PARTS = ["a", "Bc", "é", "中", "，", "1", "23", " ", "  ", "\n", "\t", "'", "'s", "ll", "-", "(", "/", "\r", "あ"]
PARTS += ["lL", "rE", "VE", "sT", "I", "Я", "я", "½", "²", "ſ", "ˈ", "Ⅷ"]
PARTS += ["\u0301", "😀", "\u3000", "٣", "\x1c", "“", "_", "{"]


@given(st.lists(st.sampled_from(PARTS), max_size=40).map("".join), st.integers(1, 10))
def test_safe_cuts_do_not_change_the_count(text: str, size: int) -> None:
    chunks = list(token_counters.chunks_of(text, size=size, longest=1000))
    assert "".join(chunk for chunk, _ in chunks) == text
    count = TiktokenCounter().count
    assert sum(count(chunk) for chunk, _ in chunks) == count(text)


@given(
    st.sampled_from(["ab", " \n", "-=", "中国我", "etaoin", "😀é", " \t", "0१", "1½"]).flatmap(
        lambda a: st.text(a, max_size=200)
    )
)
def test_forced_cuts_hide_less_than_they_add(text: str) -> None:
    chunks = list(token_counters.chunks_of(text, size=20, longest=30))
    assert "".join(chunk for chunk, _ in chunks) == text
    count = TiktokenCounter().count
    assert sum(count(chunk) + extra for chunk, extra in chunks) >= count(text)


def test_the_vocabulary_is_loaded_once_and_shared_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    original = vocabulary.mergeable_ranks

    def counted() -> dict[bytes, int]:
        loads.append(1)
        return original()

    monkeypatch.setattr(vocabulary, "mergeable_ranks", counted)
    monkeypatch.setattr(token_counters, "_encodings", [])
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: TiktokenCounter().count(LONG_WORD), range(16)))
    assert len(set(counts)) == 1
    assert loads == [1]


def test_counting_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counters, "_encodings", [])
    monkeypatch.setitem(sys.modules, "tiktoken.load", None)
    assert TiktokenCounter().count("offline words") == 2
    assert TiktokenCounter().count(LONG_WORD) >= 1


@pytest.mark.parametrize("text", [ENGLISH, JSON, CHINESE, KOREAN])
def test_the_estimate_is_within_15_percent(text: str) -> None:
    real = TiktokenCounter().count(text)
    assert abs(EstimateCounter().count(text) - real) <= 0.15 * real


ESTIMATES = {
    " a": 105,
    " Session": 105,
    " sessions": 108,
    " internationally": 130,
    " it's": 105,
    " they'll": 105,
    "a\n": 179,
    "hello\n": 179,
    "hellos\n": 199,
    "internationally\n": 378,
    " A": 100,
    " AB": 130,
    " ABC": 130,
    " ABCD": 150,
    " ABCDEFGH": 231,
    "A-": 153,
    "ABCDEF-": 243,
    " 1": 206,
    " 123": 206,
    " 1234": 320,
    "1234567-": 397,
    "中": 77,
    "か": 75,
    " 안": 96,
    " 안녕하세요": 375,
    "안녕-": 193,
    "!": 3,
    "!!": 5,
    "!?": 41,
    "!?!?!?!?": 161,
    "\n": 1,
    "—": 61,
    " é": 134,
    "éàü": 70,
    "абвгд": 116,
    "\x01": 150,
}
"""The estimate of 100 copies of a text. A unit without a space, sign or line between joins its copies to one run."""


@pytest.mark.parametrize("text", ESTIMATES)
def test_w8_the_estimate_of_a_text_stays_the_same(text: str) -> None:
    """Windows are cut by estimates, so a change of them changes windows."""
    assert EstimateCounter().count(text * 100) == ESTIMATES[text]


@pytest.mark.parametrize(
    ("unit", "length", "tokens"),
    [
        ("a", 16_384, 2_048),
        ("a", 16_385, 2_057),
        ("a", 32_768, 4_104),
        ("a", 32_769, 4_113),
        ("a", 100_000, 12_548),
        ("7", 16_384, 5_462),
        ("7", 32_768, 10_939),
        ("7", 100_000, 33_382),
        (" ", 100_000, 830),
        ("aB", 100_000, 50_055),
        ("中", 100_000, 100_048),
        ("é", 100_000, 100_048),
    ],
)
def test_w8_a_long_text_without_a_safe_cut_has_always_the_same_count(unit: str, length: int, tokens: int) -> None:
    assert TiktokenCounter().count(unit * (length // len(unit))) == tokens


@given(st.text())
def test_the_estimate_takes_any_text_and_does_not_explode(text: str) -> None:
    assert 0 <= EstimateCounter().count(text) <= 3 * len(text)
