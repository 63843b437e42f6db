"""Which values of calls and results the ledger takes, at the borders of what it takes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from turnlog.core.calls import outline_of
from turnlog.core.events import Envelope, MessageEvent
from turnlog.core.messages import Message, Text, ToolCall, ToolResult
from turnlog.log.payloads import make_card
from turnlog.log.reading import Located
from turnlog.windows.ledger import (
    bounded,
    chosen,
    distinct,
    is_identifier,
    is_name,
    is_said,
    ledger_of_facts,
    values_of,
)
from turnlog.windows.plan import entry_of


def values(text: str) -> list[str]:
    return list(values_of(text))


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [
        ("A123", False),
        ("A1234", True),
        ("A" * 79 + "1", True),
        ("A" * 80 + "1", True),
        ("A" * 1023 + "1", True),
        ("A" * 1024 + "1", False),
        ("a@b.cd", True),
        ("a@bcdef", False),
        ("/srv/app", True),
        ("/srvapp", False),
        ("~/notes/a.txt", True),
        ("abcdef", False),
        ("order-no", False),
        ("_12345", True),
        ("#12345", True),
        (".12345", False),
        ("src/app.py", True),
        ("src/", False),
        ("src/test/", True),
        ("a/b/c", True),
        ("./run", True),
        ("and/or", False),
        ("1234/5678/90", False),
        ("C:\\Users\\ada\\notes.txt", True),
        ("s3://bucket/key", True),
        ("https://example.org/a?page=2&sort=up#top", True),
        ("https://en.wikipedia.org/wiki/Ada_(name)", True),
        ("https://...", False),
    ],
)
def test_a_word_of_prose_is_taken_when_it_is_an_identifier(value: str, is_taken: bool) -> None:
    assert (value in values(f"before {value} behind")) == is_taken
    assert is_identifier(value) == is_taken


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("at src/app.py:12: error in `lib/x.ts`, see", ["src/app.py", "lib/x.ts"]),
        ("file:src/app.py --out=/srv/app/ A1234/B1234", ["src/app.py", "/srv/app/", "A1234", "B1234"]),
        ("[docs](https://example.org/a), (https://example.org/b).", ["https://example.org/a", "https://example.org/b"]),
        ("见https://example.org/a，打开/srv/app/a.txt文件", ["https://example.org/a", "/srv/app/a.txt"]),
        ("first\\nsrc/app.py", ["src/app.py"]),
    ],
)
def test_a_path_and_a_url_end_where_the_sentence_goes_on(text: str, taken: list[str]) -> None:
    assert values(text) == taken


@pytest.mark.parametrize(
    "text", ['the answer: {"order12": "A1234"', "{'order12': 'A1234'}", '{\\"order12\\": \\"A1234\\"}']
)
def test_a_key_of_json_is_no_identifier(text: str) -> None:
    assert values(text) == ["A1234"]
    assert values(json.dumps({"order12": {"B1234": "A1234"}})) == ["A1234"]


@pytest.mark.parametrize(
    "part", ["a_", "a1", "a-", "a/", "a@", "a.", "a+", ".", "-", "://", "a://", ")", "'", "'a", "~/", "a\\"]
)
def test_the_work_for_a_hostile_text_grows_with_its_length(part: str) -> None:
    # Quadratic work would take minutes here, and the test's time limit ends it.
    assert len(values(part * (200_000 // len(part)))) <= 1
    assert values("https://a1" + part * 40_000 + " A1234")[-1] == "A1234"


@pytest.mark.parametrize("behind", [".", ":", "-", ".:-"])
def test_marks_behind_an_identifier_are_not_of_it(behind: str) -> None:
    assert values(f"see A1234{behind}") == ["A1234"]


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("a", []),
        ("ab", ["ab"]),
        ("a b", ["a b"]),
        ("a" * 80, ["a" * 80]),
        ("a" * 81, ["a" * 81]),
        ("a" * 1024, ["a" * 1024]),
        ("a" * 1025, []),
        ("a " * 40, ["a " * 40]),
        ("a " * 40 + "a", []),
        (json.dumps({"first": "a b", "then": ["word " * 20, "cc"]}) + " " * 80, ["a b", "cc"]),
        ("see order A1234 " * 6, ["A1234"] * 6),
        ("a1234\nb1234", ["a1234", "b1234"]),
        (7, []),
        (12, ["12"]),
        (1.5, ["1.5"]),
        (True, []),
        (None, []),
        ({"b": "bb", "a": ["cc", {"d": "dd"}, 12]}, ["bb", "cc", "dd", "12"]),
    ],
)
def test_of_json_the_short_scalars_are_taken_in_order_and_the_identifiers_in_long_texts(
    value: object, taken: list[str]
) -> None:
    assert values(json.dumps([value])) == values("  \n" + json.dumps({"key": value})) == taken


def test_what_only_looks_like_json_is_prose() -> None:
    assert values('{"id": "ab", A1234') == ["A1234"]
    assert values("[" * 100_000 + " A1234") == ["A1234"], "too deep to be read as JSON"
    assert values('"A1234"') == ["A1234"], "a text alone is no object and no list"


def test_the_beginning_of_a_very_long_text_is_read_and_no_more() -> None:
    assert values("x " * 99_997 + "A12345")[-1:] == ["A12345"]
    assert values("x " * 99_997 + "A123456")[-1:] == ["A12345"], "200,000 characters"


def message(count: int) -> Message:
    call = ToolCall("a", "f", json.dumps([f"A-{number:04d}" for number in range(count // 2)]))
    result = ToolResult("a", (Text(json.dumps([f"A-{number:04d}" for number in range(count // 2 - 1, count)])),))
    return Message("assistant", tool_calls=(call,), tool_results=(result,))


@pytest.mark.parametrize(("count", "taken"), [(4, 4), (100, 100), (101, 100), (300, 100)])
def test_a_message_has_each_value_once_and_the_first_hundred(count: int, taken: int) -> None:
    first = tuple(f"A-{number:04d}" for number in range(taken))
    assert ledger_of_facts(outline_of(message(count))) == first


def test_the_first_of_distinct_values_are_taken() -> None:
    assert distinct("abcabd", 3) == ("a", "b", "c")
    assert distinct("abcabd", 4) == distinct("abcabd", 9) == ("a", "b", "c", "d")


def test_a_card_has_values_up_to_two_kilobytes_of_utf_8() -> None:
    assert bounded(["a" * 1024, "b" * 1024, "c"]) == ("a" * 1024, "b" * 1024)
    assert bounded(["a" * 1024, "b" * 1025, "c"]) == ("a" * 1024,), "in order: none behind it"
    assert bounded(["é" * 1024]) == ("é" * 1024,)
    assert bounded(["é" * 1024 + "a"]) == ()
    assert bounded(["\ud83d"]) == ("\ud83d",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", True),
        ("a 12 b", True),
        ("(12)", True),
        ("112", False),
        ("121", False),
        ("a12", False),
        ("121 12", True),
        ("112 x12 12x", False),
        ("", False),
    ],
)
def test_a_value_is_said_where_it_stands_as_a_whole_word(text: str, expected: bool) -> None:
    assert is_said("12", text) == expected


def test_identifiers_are_chosen_first_and_order_stays() -> None:
    listed = ["plain", "A1234", "other", "B1234"]
    assert chosen(listed, 4) == listed
    assert chosen(listed, 3) == ["plain", "A1234", "B1234"]
    assert chosen(listed, 1) == ["A1234"]
    assert chosen(listed, 0) == []


def test_a_word_that_was_an_argument_is_chosen_with_the_identifiers() -> None:
    assert chosen(["plain", "orders", "A1234"], 2, names={"orders"}) == ["orders", "A1234"]
    words = ["orders", "ab", "two words", "   ", "123", "北京饭店"]
    assert [word for word in words if is_name(word)] == ["orders", "北京饭店"]


def test_d5_a_card_tells_the_version_of_what_chose_its_values() -> None:
    facts = outline_of(Message("assistant", (), tool_calls=(ToolCall("a", "f", '{"order": "A1234"}'),)))
    card = make_card(facts)
    assert card is not None and (card["l"], card["lv"]) == (["A1234"], 2)
    plain = make_card(outline_of(Message("user", (Text("hello"),))))
    assert plain is not None and "lv" not in plain


def test_a_card_of_an_older_extractor_keeps_its_values_when_the_body_is_read() -> None:
    body = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
    }
    card = replace(outline_of(Message("assistant")), ledger=("A1234",))
    event = MessageEvent(position=1, format="openai_chat", tokens=9, envelope=Envelope(), body=body, facts=card)
    assert tuple(entry_of(Located(event, 1, 0)).values()) == ("A1234",)
    assert tuple(entry_of(Located(replace(event, body=None), 1, 0)).values()) == ("A1234",)
    assert tuple(entry_of(Located(replace(event, facts=None), 1, 0)).values()) == ()
