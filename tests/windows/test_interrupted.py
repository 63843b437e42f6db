"""Past loops without a reply: a digest that says so, or out and declared."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.window_levels import TURNS, levels
from turnlog import build_window
from turnlog.core.errors import InvalidInputError
from turnlog.windows.policy import policy_of

BROKEN = [*TURNS[:3], *TURNS[4:11], *TURNS[12:16]]
"""Loops 1 and 3 have a call and its result, and no reply; 4 is the current one."""


def test_such_a_loop_is_marked_or_dropped() -> None:
    options: dict[str, Any] = {"budget": 2_500}
    step = {"step": "loops"}
    marked = build_window(BROKEN, policy={"steps": [step]}, **options)
    assert str(marked.messages).count("(interrupted: no final reply)") == 2
    assert "not shown here" not in str(marked.messages)
    dropped = build_window(BROKEN, policy={"steps": [{**step, "interrupted": "drop"}]}, **options)
    assert {loop: level for loop, level in levels(dropped).items() if level[0] == "out"} == {
        1: ("out", "no_reply"),
        3: ("out", "no_reply"),
    }
    assert "[6 earlier messages (2 earlier exchanges) of this conversation not shown here]" in str(dropped.messages)
    assert "question 3" not in str(dropped.messages)


def test_so_it_is_where_the_budget_makes_digests() -> None:
    long = [{**message, "content": "word " * 300} if message["role"] == "assistant" else message for message in BROKEN]
    for choice, reason in (("mark", "high_mark"), ("drop", "no_reply")):
        step = {"step": "digest_when_full", "interrupted": choice}
        made = build_window(long, policy={"steps": [step]}, budget=1_200)
        assert {loop: levels(made)[loop][1] for loop in (1, 3)} == {1: reason, 3: reason}


def test_the_newest_loops_that_stay_whole_stay_so() -> None:
    kept = build_window(BROKEN, policy={"steps": [{"step": "loops", "whole": 1, "interrupted": "drop"}]})
    assert levels(kept)[3] == ("whole", None)
    assert levels(kept)[1] == ("out", "no_reply")


def test_what_is_pinned_in_it_stays() -> None:
    steps = [{"step": "pin", "positions": [1]}, {"step": "loops", "interrupted": "drop"}]
    window = build_window(BROKEN, policy={"steps": steps})
    assert window.messages[1] == BROKEN[0]
    assert "[5 earlier messages (1 earlier exchange)" in str(window.messages[0])


def test_only_these_two_are_known() -> None:
    with pytest.raises(InvalidInputError, match="'mark' or 'drop'") as caught:
        policy_of({"steps": [{"step": "loops", "interrupted": "keep"}]})
    assert caught.value.problems[0].pointer == "/policy/steps/0/interrupted"
