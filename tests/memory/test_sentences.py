"""Which sentences say something of a person, and which only look like it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from turnlog.core.memory import MemoryFact, SpokenMessage
from turnlog.memory.facts import SentenceFacts


def facts(*texts: str, role: str = "user") -> list[MemoryFact]:
    return list(SentenceFacts().facts(SpokenMessage(at + 2, role, text, at) for at, text in enumerate(texts)).facts)  # type: ignore[arg-type]


SAID = {
    "My name is Mei Kovacs and my zip code is 28236.": [
        ("entity", "My name is Mei Kovacs", "name"),
        ("entity", "my zip code is 28236", "my zip code"),
    ],
    "I live in Lisbon.": [("entity", "I live in Lisbon", "home")],
    "Well, we just moved house. I've just moved to Porto!": [("entity", "I've just moved to Porto", "home")],
    "I work as a nurse.": [("entity", "I work as a nurse", "work")],
    "I'm a software engineer, btw": [("entity", "I'm a software engineer, btw", "")],
    "I'm allergic to peanuts.": [("entity", "I'm allergic to peanuts", "")],
    "I have two daughters.": [("entity", "I have two daughters", "")],
    "My dog is called Rufus.": [("entity", "My dog is called Rufus", "my dog is called")],
    "I prefer an aisle seat.": [("preference", "I prefer an aisle seat", "")],
    "I love hiking.": [("preference", "I love hiking", "like hiking")],
    "I don't like hiking.": [("preference", "I don't like hiking", "like hiking")],
    "My favourite colour is green.": [("preference", "My favourite colour is green", "my favourite colour")],
    "Always use metric units.": [("preference", "Always use metric units", "")],
    "Never commit to main": [("preference", "Never commit to main", "")],
    "I always book refundable tickets.": [("preference", "I always book refundable tickets", "")],
    "We decided to ship on Fridays.": [("decision", "We decided to ship on Fridays", "")],
    "Let's use Postgres for the orders service.": [
        ("decision", "Let's use Postgres for the orders service", "use for the orders service")
    ],
    'I love films like "I live in Mars. I am vegan".': [
        ("preference", 'I love films like "I live in Mars. I am vegan"', "like films like i live in mars i am vegan")
    ],
    "I am no longer vegetarian.": [("entity", "I am no longer vegetarian", "i am vegetarian")],
    "I'm not vegan any more": [("entity", "I'm not vegan any more", "i am vegan")],
    "I'm not a nurse anymore.": [("entity", "I'm not a nurse anymore", "i am a nurse")],
    "I don't live in Berlin.": [("entity", "I don't live in Berlin", "i live in berlin")],
    "I no longer like hiking.": [("preference", "I no longer like hiking", "like hiking")],
    "我不再住在上海了。": [("entity", "我不再住在上海了", "我住在上海")],
    "我对花生不过敏": [("entity", "我对花生不过敏", "我对花生过敏")],
    "我叫张曼婷。": [("entity", "我叫张曼婷", "name")],
    "我住在上海，在一家银行工作。": [("entity", "我住在上海", "home")],
    "我是一名护士。": [("entity", "我是一名护士", "trade")],
    "我很喜欢徒步、长跑和攀岩。": [("preference", "我很喜欢徒步、长跑和攀岩", "喜欢徒步 长跑和攀岩")],
    "我不喜欢吃香菜。": [("preference", "我不喜欢吃香菜", "喜欢吃香菜")],
    "我对花生过敏": [("entity", "我对花生过敏", "")],
    "我们决定用蓝色的方案。": [("decision", "我们决定用蓝色的方案", "")],
}
NOT_SAID = (
    "Do I live in Lisbon?",
    "I would like to change my order.",
    "I like it a lot.",
    "I love you!",
    "I'm a bit tired.",
    "I'm a big fan of it.",
    "I never knew that.",
    "I always thought so.",
    "Never mind.",
    "Always here to help!",
    "Let's use that.",
    "Let's go with the economy option.",
    "I'm interested in knowing how much it costs.",
    "I prefer flights within that time frame.",
    "We decided to do it.",
    "> I live in Lisbon.",
    '"I live in Lisbon."',
    '"I live in Mars" he said',
    "“I live in Mars. I like tea”, he said",
    "'I live in Mars' he said",
    'He said "I live in Mars. I like tea."',
    'He said: "I live in Mars.\nI like tea."',
    "“我住在火星。我喜欢喝茶”他说",
    "I'm not a lawyer, but",
    "user: I live in Lisbon.",
    "`I live in Lisbon`",
    "```\nI live in Lisbon.\n```",
    "My phone is showing that there is no SIM card.",
    "我喜欢你。",
    "你喜欢喝茶吗？",
    "我在考虑要不要换工作。",
    "我是不是应该去？",
    "我不知道。",
)


@pytest.mark.parametrize("text", SAID)
def test_what_is_said_of_oneself_is_kept_verbatim(text: str) -> None:
    assert [(fact.kind, fact.text, fact.subject) for fact in facts(text)] == SAID[text]


@pytest.mark.parametrize("text", NOT_SAID)
def test_what_only_looks_like_it_is_not(text: str) -> None:
    assert facts(text) == []


@pytest.mark.parametrize("text", SAID)
def test_nobody_else_is_believed(text: str) -> None:
    assert facts(text, role="assistant") == facts(text, role="tool") == facts(text, role="system") == []


def test_a_document_that_was_pasted_says_nothing() -> None:
    assert facts("I live in Lisbon. " * 200) == []


CALL = 'find_user {"user_id": "mia_li_3668", "order_id": "W77", "email": "bob@example.com"}'


def test_an_identifier_that_the_person_gave_and_a_tool_took_is_kept() -> None:
    made = (
        SentenceFacts()
        .facts(
            [
                SpokenMessage(
                    2,
                    "user",
                    "Sure, it's mia_li_3668, and the order is W77. "
                    "Please write to bob@example.com when it leaves, it's for him",
                    1,
                ),
                SpokenMessage(3, "assistant", CALL, 2),
            ]
        )
        .facts
    )
    assert made == ()
    made = (
        SentenceFacts()
        .facts([SpokenMessage(2, "user", "Sure, it's mia_li_3668", 1), SpokenMessage(3, "assistant", CALL, 2)])
        .facts
    )
    assert [(item.text, item.subject, item.position) for item in made] == [("user id: mia_li_3668", "my user id", 2)]
    made = (
        SentenceFacts()
        .facts([SpokenMessage(2, "user", "My user ID is mia_li_3668.", 1), SpokenMessage(3, "assistant", CALL, 2)])
        .facts
    )
    assert [item.text for item in made] == ["My user ID is mia_li_3668"], "once is enough"


@pytest.mark.parametrize(
    ("value", "text"),
    [('"A-1001"', "A-1001"), ("10017", "10017"), ("12", None), ("true", None), ("null", None), ("[10017]", None)],
)
def test_an_identifier_is_a_text_or_a_number_of_some_length(value: str, text: str | None) -> None:
    said = SpokenMessage(2, "user", "It's A-1001, or 10017, or 12; that is True and true.", 1)
    call = SpokenMessage(3, "assistant", f'look_up {{"a": {{"user_id": {value}}}}}', 2)
    made = SentenceFacts().facts([said, call]).facts
    assert [fact.text for fact in made] == ([f"user id: {text}"] if text is not None else [])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.text(max_size=300), max_size=6))
def test_any_text_is_read_twice_the_same(texts: list[str]) -> None:
    assert facts(*texts) == facts(*texts)
    for fact in facts(*texts):
        assert 0 < len(fact.text) <= 200 and fact.position >= 2


@pytest.mark.parametrize(
    "text",
    [
        *(
            word * (2_000 // len(word))
            for word in ("I like ", "I am a ", "well, ", "a - ", "我", "always ", "(", "and I ")
        ),
        "I'm a " + "x " * 900,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    """A pattern that goes back over what it has read would not end within the run."""
    assert len(text) <= 2_000
    assert len(facts(text)) < 50
