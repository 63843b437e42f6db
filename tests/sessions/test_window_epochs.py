"""Epochs of a session's windows: named in the manifest, given back with an append, and broken by changes of the session."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import Session, Turnlog

LONG = "The quick brown fox jumps over the lazy dog. " * 40


@pytest.fixture
def session() -> Session:
    return Turnlog.open("memory://").sessions.create("epochs", system="Be brief.")


def answer(number: int) -> dict[str, Any]:
    thinking = {"type": "thinking", "thinking": f"thought {number}", "signature": f"signature {number}"}
    return {"role": "assistant", "content": [thinking, {"type": "text", "text": f"answer {number}"}]}


def ask(session: Session, number: int, **window: Any) -> Any:
    """Ask, build a window, and append the answer."""
    session.append({"role": "user", "content": f"question {number}: {LONG}"})
    made = session.context(format="anthropic", **window)
    session.append(answer(number), format="anthropic")
    return made


def test_windows_of_one_epoch_have_one_name_and_a_crossing_begins_another(session: Session) -> None:
    made = [ask(session, number, budget=3_000) for number in range(12)]
    epochs = [window.manifest.epoch.id for window in made]
    reasons = [window.prefix.reason for window in made]
    assert 2 <= len(set(epochs)) <= 5
    assert reasons[0] == "first"
    for before, after, reason in zip(epochs, epochs[1:], reasons[1:], strict=False):
        assert (before == after) == (reason is None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"system": "Be long."}, "system"),
        ({"policy": "turns(3)"}, "policy"),
        ({"model": "gpt-4o"}, "budget"),
        ({"tools": [{"name": "look", "input_schema": {"type": "object"}}]}, "tools"),
    ],
)
def test_a_change_of_what_a_window_begins_with_begins_an_epoch(
    session: Session, changes: dict[str, Any], reason: str
) -> None:
    ask(session, 1)
    before = session.context(format="anthropic")
    session.update(**changes)
    after = session.context(format="anthropic")
    assert before.manifest.epoch.id != after.manifest.epoch.id
    assert after.prefix.reason == reason
    assert "thought" not in str(after.messages), "what was signed behind another beginning is not sent behind this one"


def test_a_change_of_the_title_begins_none(session: Session) -> None:
    ask(session, 1)
    before = session.context(format="anthropic")
    session.update(title="Another title")
    after = session.context(format="anthropic")
    assert before.manifest.epoch == after.manifest.epoch
    assert after.messages == before.messages


def test_an_answer_made_under_another_budget_is_known_by_the_epoch_that_came_with_it(session: Session) -> None:
    for number in range(8):
        ask(session, number, budget=100_000)
    session.append({"role": "user", "content": "And now?"})
    small = session.context(format="anthropic", budget=2_000)
    window = {"position": small.head, "tokens": small.tokens, "epoch": small.manifest.epoch.id}
    session.append(answer(8), format="anthropic", window=window)
    session.append({"role": "user", "content": "Go on."})
    large = session.context(format="anthropic", budget=100_000)
    assert "thought" not in str(large.messages), "the answer is bound to the small window"
    again = session.context(format="anthropic", budget=2_000)
    assert "thought 8" in str(again.messages)


def test_without_it_an_answer_counts_as_made_under_the_same_request(session: Session) -> None:
    for number in range(3):
        ask(session, number)
    session.append({"role": "user", "content": "Go on."})
    assert str(session.context(format="anthropic").messages).count("'thinking': 'thought") == 3
