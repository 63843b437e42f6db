"""How much of a log a reader takes: the newest commits that have as many events as it needs, and no more."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.memory import memory
from turnlog import Session
from turnlog.core.errors import CorruptError
from turnlog.core.events import Envelope, MessageEvent
from turnlog.core.identity import Owner
from turnlog.log.commits import CommitLog
from turnlog.log.keys import SessionKeys
from turnlog.log.payloads import Payloads, make_card, read_card
from turnlog.log.reading import (
    INDEXED_CHARS,
    Located,
    captions,
    located,
    message_time,
    newest_commits,
    newest_within,
    searchable_text,
)
from turnlog.testing.fixed import FixedClock, SequentialIds


@pytest.mark.parametrize(
    ("events", "count"), [(0, 1), (1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (7, 4), (10, 4), (11, 4), (100, 4)]
)
def test_the_newest_commits_have_at_least_as_many_events_as_needed(events: int, count: int) -> None:
    commits: Any = [SimpleNamespace(lines=[b"x"] * size) for size in (4, 1, 3, 2)]
    assert newest_commits(commits, events=events) == commits[-count:]
    assert list(newest_commits([], events=events)) == []


KEYS = SessionKeys(Owner.of("acme", "ada"), "s")


def with_log() -> tuple[Session, CommitLog, Any]:
    """Return a session of three messages, a reader of its log, and the blobs: the second message is stored as a blob."""
    log, items, blobs = memory()
    session = log.sessions.create("s", recall="never")
    session.append({"role": "user", "content": "go"})
    session.append({"role": "assistant", "content": random.Random(1).randbytes(40_000).hex()})
    session.append({"role": "user", "content": "on"})
    return session, CommitLog(items, Payloads(items, blobs), FixedClock(), SequentialIds()), blobs


def test_large_messages_are_read_as_cards_until_their_bodies_are_asked_for() -> None:
    session, log, blobs = with_log()
    commits = log.range(KEYS, 1, session.info().head)
    bodies = [message.event.body is not None for message in located(log, KEYS, commits)]
    assert bodies == [True, False, True]
    assert [message.event.body is not None for message in located(log, KEYS, commits, fetch=True)] == [True] * 3
    card = located(log, KEYS, commits)[1]
    assert card.message is None
    assert (card.facts.role, card.facts.chars) == ("assistant", 80_000)
    blobs.erase("")
    assert len(located(log, KEYS, commits)) == 3, "no request for what is not needed"
    with pytest.raises(CorruptError, match="missing"):
        located(log, KEYS, commits, fetch=True)


def messages_of(*calls: int) -> list[Located]:
    """Return messages with so many calls each, at positions from 1 on."""
    return [
        Located(
            MessageEvent(
                position=position,
                body={
                    "role": "assistant",
                    "content": "x",
                    "tool_calls": [{"id": f"{index}"} for index in range(count)],
                },
                format="openai",
                tokens=1,
                envelope=Envelope(),
            ),
            loop=1,
            time_ms=0,
        )
        for position, count in enumerate(calls, start=1)
    ]


@pytest.mark.parametrize(
    ("max_messages", "max_calls", "loop_start", "positions"),
    [
        (5, 99, 0, [1, 2, 3, 4, 5]),
        (4, 99, 0, [2, 3, 4, 5]),
        (1, 99, 0, [5]),
        (99, 15, 0, [1, 2, 3, 4, 5]),
        (99, 14, 0, [2, 3, 4, 5]),
        (99, 9, 0, [4, 5]),
        (99, 8, 0, [5]),
        (99, 1, 0, [5]),
        (2, 99, 2, [2, 4, 5]),
        (2, 99, 4, [4, 5]),
        (99, 1, 1, [1, 5]),
    ],
)
def test_the_newest_messages_are_read_up_to_both_limits_with_the_one_that_opens_the_loop(
    max_messages: int, max_calls: int, loop_start: int, positions: list[int]
) -> None:
    newest = newest_within(
        messages_of(1, 2, 3, 4, 5), max_messages=max_messages, max_calls=max_calls, loop_start=loop_start
    )
    assert [message.event.position for message in newest] == positions


@pytest.mark.parametrize(("calls", "positions"), [((3, 0, 0), [2, 3]), ((0, 2, 0), [1, 2, 3])])
def test_messages_without_calls_cost_nothing(calls: tuple[int, ...], positions: list[int]) -> None:
    newest = newest_within(messages_of(*calls), max_messages=9, max_calls=2)
    assert [message.event.position for message in newest] == positions


# ------------------------------------------------------------ a message alone


def message_of(body: Any, *, format: str = "openai_chat", created_at: str | None = None, time_ms: int = 0) -> Located:
    event = MessageEvent(position=1, body=body, format=format, tokens=1, envelope=Envelope(created_at=created_at))
    return Located(event, loop=1, time_ms=time_ms)


@pytest.mark.parametrize(
    ("created_at", "expected"),
    [
        (None, datetime(2026, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("", datetime(2026, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("yesterday", datetime(2026, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("2025-12-31T10:00:00+02:00", datetime(2025, 12, 31, 8, tzinfo=UTC)),
        ("2025-12-31T10:00:00", datetime(2025, 12, 31, 10, tzinfo=UTC)),
    ],
)
def test_a_message_has_the_time_of_its_sender_or_of_its_commit(created_at: str | None, expected: datetime) -> None:
    commit_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000) + 1_500
    assert (
        message_time(message_of({"role": "user", "content": "x"}, created_at=created_at, time_ms=commit_ms)) == expected
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (None, []),
        ({}, []),
        ({"content": "alt"}, []),
        (
            {"content": [{"type": "image", "alt": "a"}, "b", {"caption": "c", "title": "d", "alt_text": "e"}]},
            list("aced"),
        ),
        ({"content": [{"image_url": {"url": "x", "title": "t"}, "caption": 5, "alt": None}]}, ["t"]),
        ({"content": [{"deep": {"deeper": {"alt": "unseen"}}}]}, []),
    ],
)
def test_captions_are_in_the_blocks_and_in_their_parts(body: Any, expected: list[str]) -> None:
    assert captions(body) == expected


CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"q": "boats"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "https://x/y.png", "alt": "a harbour"}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"role": "user", "content": "hello"}, ["hello"]),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, ["find", "boats"]),
        ({"role": "tool", "tool_call_id": "c", "content": "three boats"}, ["three boats"]),
        ({"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]}, ["look", "a harbour"]),
    ],
)
def test_all_that_was_said_can_be_searched(body: Any, words: list[str]) -> None:
    message = message_of(body)
    text = searchable_text(message, message.message, message.facts)
    assert all(word in text for word in words)
    assert not text.startswith("\n") and "\n\n" not in text


def test_a_text_is_searched_up_to_its_limit_and_of_a_body_that_is_not_fetched_what_its_card_has() -> None:
    message = message_of({"role": "tool", "tool_call_id": "c", "content": "word " * INDEXED_CHARS})
    text = searchable_text(message, message.message, message.facts)
    assert len(text) == INDEXED_CHARS and text.startswith("word word")
    card = make_card(message.facts)
    assert card is not None
    outline = read_card(card)
    elsewhere = replace(message, event=replace(message.event, body=None, facts=outline))
    assert searchable_text(elsewhere, elsewhere.message, elsewhere.facts) == outline.results[0].text != ""


def test_d4_a_message_with_neither_body_nor_card_is_told_by_its_name() -> None:
    message = message_of({"role": "user", "content": "x"})
    bare = replace(message, event=replace(message.event, body=None))
    assert bare.message is None
    with pytest.raises(CorruptError) as raised:
        _ = bare.facts
    assert raised.value.details["item"] == "C#000000000001"
