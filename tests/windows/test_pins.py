"""The step pin: what it finds stays, wherever it stands in the pipeline, with its calls and results, and is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.support.chat_messages import assistant, user
from tests.support.window_levels import TURNS
from turnlog import Turnlog, build_window
from turnlog.client.model import Session
from turnlog.core.errors import BudgetTooSmallError, InvalidInputError
from turnlog.linter.rules import lint
from turnlog.sessions.context_models import WindowAnswer
from turnlog.windows.policy import policy_of

NOTHING_OF_THE_PAST = {"step": "turns", "n": 0}


def kept(window: WindowAnswer) -> list[int]:
    """The positions of past messages that are sent whole."""
    current = max(part.loop for part in window.manifest.parts if part.loop)
    parts = [part for part in window.manifest.parts if part.kind == "message" and part.loop not in (None, current)]
    return [part.first for part in parts if part.level == "whole" and part.first]


def built(*steps: dict[str, Any], **options: Any) -> WindowAnswer:
    window = build_window(TURNS, policy={"steps": list(steps)}, **options)
    assert lint(window.messages, format="openai_chat") == []
    return window


# ---------------------------------------------------------------- selectors


@pytest.mark.parametrize(
    ("selectors", "positions"),
    [
        ({"first_user": True}, [1]),
        ({"positions": [5, 9]}, [5, 9]),
        ({"positions": [7]}, [6, 7]),
        ({"positions": [6]}, [6, 7]),
        ({"positions": [9999]}, []),
        ({"roles": ["user"]}, list(range(1, 57, 4))),
        ({"roles": ["tool"], "positions": [3, 4]}, [2, 3]),
        ({"roles": ["assistant"], "positions": [2, 4, 5]}, [2, 3, 4]),
        ({"roles": ["assistant", "user"], "positions": [2, 4, 5]}, [2, 3, 4, 5]),
        ({"roles": ["system"]}, []),
        ({"first_user": True, "positions": [2]}, []),
    ],
)
def test_a_message_that_all_selectors_agree_on_stays_with_its_calls_and_results(
    selectors: dict[str, Any], positions: list[int]
) -> None:
    assert kept(built({"step": "pin", **selectors}, NOTHING_OF_THE_PAST)) == positions


def test_several_pins_keep_what_any_of_them_finds() -> None:
    pins = [{"step": "pin", "first_user": True}, {"step": "pin", "positions": [8]}]
    assert kept(built(*pins, NOTHING_OF_THE_PAST)) == [1, 8]


@pytest.fixture
def session() -> Iterator[Session]:
    with Turnlog.open("memory://") as log:
        made = log.sessions.create("s")
        said: list[tuple[str, dict[str, Any]]] = [
            ("user", {"author": "ada"}),
            ("assistant", {"metadata": {"keep": True}}),
            ("user", {"author": "bob", "metadata": {"keep": "yes"}}),
            ("assistant", {"author": "ada", "metadata": {"keep": 1}}),
            ("user", {"author": "ada", "metadata": {"keep": True}}),
            ("assistant", {}),
            ("user", {}),
        ]
        for role, meta in said:
            made.append({"role": role, "content": f"{role} says"}, meta=[meta])
        yield made


@pytest.mark.parametrize(
    ("selectors", "positions"),
    [
        ({"authors": ["ada"]}, [2, 5, 6]),
        ({"authors": ["ada", "bob"]}, [2, 4, 5, 6]),
        ({"authors": ["ada"], "roles": ["user"]}, [2, 6]),
        ({"flag": "keep"}, [3, 6]),
        ({"flag": "keep", "authors": ["ada"]}, [6]),
        ({"flag": "other"}, []),
        ({"first_user": True}, [2]),
    ],
)
def test_selectors_of_envelopes(session: Session, selectors: dict[str, Any], positions: list[int]) -> None:
    assert kept(session.context(policy={"steps": [{"step": "pin", **selectors}, NOTHING_OF_THE_PAST]})) == positions


# ---------------------------------------------------------------- composed


@pytest.mark.parametrize(
    "step",
    [
        NOTHING_OF_THE_PAST,
        {"step": "messages", "n": 0},
        {"step": "tokens", "n": 0},
        {"step": "recent", "messages": 0},
        {"step": "loops", "max": 0},
        {"step": "loops"},
        {"step": "digest_when_full", "high": 0.02, "low": 0.01},
    ],
    ids=str,
)
def test_it_holds_before_and_behind_every_other_step(step: dict[str, Any]) -> None:
    pin = {"step": "pin", "positions": [2, 20]}
    options = {"budget": 2_000 if step["step"] != "digest_when_full" else 300}
    before, behind = built(pin, step, **options), built(step, pin, **options)
    for window in (before, behind):
        assert {2, 3, 20} <= set(kept(window))
        assert [TURNS[1], TURNS[2]] == [message for message in window.messages if "c1" in str(message)]
    assert before.messages == behind.messages


def test_a_pin_in_a_loop_that_is_not_whole_is_told_by_its_reason() -> None:
    window = built({"step": "loops"}, {"step": "pin", "positions": [2]})
    values = {part.first: part.reason for part in window.manifest.parts if part.kind == "message" and part.loop == 1}
    assert values == {2: "pinned", 3: "pinned"}


def test_a_result_that_was_shortened_is_whole_again() -> None:
    long = {**TURNS[2], "content": "the quick brown fox " * 200}
    messages = [*TURNS[:2], long, *TURNS[3:9]]
    steps = [{"step": "stub_tool_results", "keep_newest": 0}, {"step": "pin", "positions": [2]}]
    assert build_window(messages, policy={"steps": steps}).messages == messages
    assert long not in build_window(messages, policy={"steps": steps[:1]}).messages


def test_it_holds_when_the_budget_presses_and_when_it_can_not_the_call_is_refused() -> None:
    pin = {"step": "pin", "first_user": True}
    assert 1 in kept(built(pin, budget=120))
    with pytest.raises(BudgetTooSmallError) as caught:
        built({"step": "pin", "roles": ["tool"]}, budget=120)
    needed = int(caught.value.details["needed"])
    assert len(kept(built({"step": "pin", "roles": ["tool"]}, budget=needed))) == 28


@pytest.mark.parametrize("unsent", [{"status": "interrupted"}, {}], ids=["interrupted", "without a call"])
def test_the_line_about_a_loop_of_which_all_that_could_be_sent_is_pinned_is_within_the_budget(
    unsent: dict[str, Any],
) -> None:
    with Turnlog.open("memory://", worker=False) as log:
        session, pin = log.sessions.create("s", recall="never", policy="turns(1)"), {"pin": True}
        never = (
            {"role": "assistant", "content": "part"}
            if unsent
            else {"role": "tool", "tool_call_id": "no", "content": "r"}
        )
        session.append(user("first"), never, assistant("answer"), meta=[pin, unsent, pin])
        session.append(user("second"), assistant("answer"))
        session.append(user("now?"))
        built = 0
        for budget in range(5, 120):
            with suppress(BudgetTooSmallError):
                window = session.context(budget=budget)
                assert window.tokens <= budget
                assert window.messages == session.context(build=window.manifest.build).messages
                built += 1
        assert built > 20


def test_what_is_pinned_is_not_told_again_in_its_digest() -> None:
    for steps in (["pin", "loops"], ["loops", "pin"]):
        window = built(*({"step": step, **({"positions": [2]} if step == "pin" else {})} for step in steps))
        assert "5.0 f" not in str(window.messages)
        assert "kind='notes on exchange 1'" not in str(window.messages)


def test_limits_do_not_count_what_is_pinned() -> None:
    pin, two = {"step": "pin", "positions": [56]}, {"step": "messages", "n": 2}
    assert kept(built(pin, two)) == [54, 55, 56]
    assert kept(built(two)) == [56], "a pair that would be parted is out"


# ---------------------------------------------------------------- as data


@pytest.mark.parametrize(
    ("selectors", "pointer"),
    [
        ({}, "/policy/steps/0"),
        ({"first_user": False}, "/policy/steps/0"),
        ({"roles": []}, "/policy/steps/0/roles"),
        ({"roles": ["critic"]}, "/policy/steps/0/roles/0"),
        ({"roles": "user"}, "/policy/steps/0/roles"),
        ({"positions": [0]}, "/policy/steps/0/positions/0"),
        ({"positions": list(range(1, 102))}, "/policy/steps/0/positions"),
        ({"flag": ""}, "/policy/steps/0/flag"),
        ({"flags": "keep"}, "/policy/steps/0/flags"),
    ],
)
def test_what_selects_nothing_is_refused_at_its_place(selectors: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        policy_of({"steps": [{"step": "pin", **selectors}]})
    assert caught.value.problems[0].pointer == pointer


# ---------------------------------------------------------------- beyond a summary

KEEPING = {"steps": [{"step": "summary"}, {"step": "pin", "first_user": True}, {"step": "pin", "flag": "keep"}]}


@pytest.fixture
def compressed() -> Iterator[Session]:
    """Ten loops; the policy pins the first user message and a call of loop 3, and a summary covers eight of them, in rounds."""
    with Turnlog.open("memory://") as log:
        made = log.sessions.create("s", policy=KEEPING, recall="never")
        made.append({"role": "system", "content": "Be brief."})
        for number in range(10):
            turn = [dict(message) for message in TURNS[4 * number : 4 * number + 4]]
            turn[0]["content"] += " please" * 40
            turn[3]["content"] += " indeed" * 200
            meta = [{"metadata": {"keep": True}} if number == 2 and at == 2 else {} for at in range(4)]
            made.append(*turn, meta=meta)
            if number in (5, 9):
                assert made.compress(keep_loops=1, max_tokens=500).status == "published"
        yield made


def test_a_summary_keeps_what_the_sessions_policy_pins(compressed: Session) -> None:
    window = compressed.context()
    assert [part.kind for part in window.manifest.parts if part.kind == "summary"] == ["summary"]
    assert kept(window)[:3] == [3, 12, 13]
    assert window.messages[0] == {"role": "system", "content": "Be brief."}
    assert [message["role"] for message in window.messages[1:5]] == ["user", "user", "assistant", "tool"]
    assert window.messages[2]["content"] == TURNS[0]["content"] + " please" * 40
    assert "not shown here]" not in str(window.messages)
    assert not window.summary_stale


def test_under_another_policy_it_is_covered_like_the_rest(compressed: Session) -> None:
    window = compressed.context(policy="default")
    summary = compressed.summary()
    assert summary is not None
    assert [position for position in kept(window) if position <= summary.last] == []
    assert "not shown here]" not in str(window.messages)
    assert not window.summary_stale


@pytest.mark.parametrize("policy", ["default", KEEPING], ids=["default", "keeping"])
def test_a_summary_without_room_is_counted_without_what_is_shown(compressed: Session, policy: Any) -> None:
    with pytest.raises(BudgetTooSmallError) as caught:
        compressed.context(policy=policy, budget=1)
    window = compressed.context(policy=policy, budget=int(caught.value.details["needed"]))
    assert "summary" not in {part.kind for part in window.manifest.parts}
    line = next(message["content"] for message in window.messages if "not shown here]" in str(message))
    left = 41 - len(kept(window)) - 1 - 4
    assert line.startswith(f"[{left} earlier messages")


def test_a_pin_and_the_same_window_of_the_past(compressed: Session) -> None:
    window = compressed.context()
    compressed.append(*TURNS[40:44])
    assert window.manifest.build is not None
    assert compressed.context(build=window.manifest.build) == window
    assert compressed.context(at=window.head).messages == window.messages
