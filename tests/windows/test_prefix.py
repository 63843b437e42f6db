"""Every reason for which a window's beginning is not what was sent before, provoked; and what is named as stable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.properties.building import COUNTER, Asked, request, stored
from tests.properties.histories import Body
from tests.support.prefix_laws import assert_prefix
from tests.support.window_messages import calling, given, result, said
from turnlog import build_window
from turnlog.core.window_parts import PrefixAnswer
from turnlog.windows import prefix as prefixes
from turnlog.windows.build import build
from turnlog.windows.plan import MessageList
from turnlog.windows.policy import policy_of


def grown(*messages: Body, policy: str = "default", budget: int = 1_000_000, **asked: Any) -> PrefixAnswer:
    """The prefix of the window over the messages, checked against what is really the same."""
    return assert_prefix(stored(given(*messages)), Asked(policy, budget, **asked)).prefix


LONG = "a long result " * 50


def loops(count: int, words: int = 40) -> list[Body]:
    return [
        said(role, f"{role} {at} " + "says this and that " * words)
        for at in range(count)
        for role in ("user", "assistant")
    ]


def test_before_the_first_answer_there_is_nothing_to_compare_with() -> None:
    assert grown(said("user")) == PrefixAnswer(0, None, "first")
    assert grown() == PrefixAnswer(0, None, "first")


def test_the_line_that_nothing_has_been_said_gives_way_to_the_first_message() -> None:
    assert grown(said("assistant"), said("user")) == PrefixAnswer(0, None, "first")


def test_so_does_the_line_of_a_format_that_begins_with_the_user() -> None:
    messages = [said("system", "A"), said("assistant", ""), said("user")]
    assert grown(*messages, format="anthropic").reason in ("first", None)
    assert grown(said("user", []), said("assistant"), format="openai_responses").reason == "first"


def test_what_was_sent_is_still_there() -> None:
    messages = [said("user"), calling("a"), result("a", LONG), said("assistant"), said("user")]
    outcome = grown(*messages, system="Be brief.")
    sent = build_window(messages[:3], system="Be brief.")
    assert outcome == PrefixAnswer(sent.tokens - 3, None, None)


def test_a_result_of_before_is_cut_when_newer_ones_come() -> None:
    policy = '{"steps": [{"step": "stub_tool_results", "keep_newest": 1, "over_tokens": 100}]}'
    messages = [calling("a"), result("a", LONG), calling("b"), result("b", LONG)]
    assert grown(said("user"), *messages, policy=policy) == PrefixAnswer(0, "base", "stub")
    assert grown(said("user"), *messages, said("assistant"), policy=policy).reason is None


def test_the_answer_of_the_api_has_it() -> None:
    answer = build_window([said("user"), said("assistant"), said("user", "more")])
    assert answer.prefix == PrefixAnswer(6, None, None)


def test_a_call_that_waited_is_sent_before_what_was_sent_then() -> None:
    messages = [said("user"), calling("a"), said("system", "note"), said("assistant"), result("a")]
    outcome = grown(*messages)
    assert (outcome.broke_at, outcome.reason) == (2, "late_result")


def test_or_with_a_neutral_result() -> None:
    messages = [said("user"), calling("a"), said("system", "note"), said("assistant")]
    outcome = grown(*messages)
    assert (outcome.broke_at, outcome.reason) == (2, "late_result")


def test_a_users_own_call_that_waited() -> None:
    own = calling("a", role="user") | {"content": "run it"}
    assert grown(own, said("assistant"), result("a")).reason == "late_result"
    assert grown(own, said("assistant")).reason == "late_result"


def test_a_late_result_takes_the_place_of_the_neutral_text() -> None:
    messages = [said("user"), calling("a"), said("user", "well?"), said("assistant"), result("a")]
    outcome = grown(*messages)
    assert (outcome.broke_at, outcome.reason) == (2, "late_result")
    assert 0 < outcome.stable_tokens < 20, "the call itself is as it was"


def test_a_second_result_too() -> None:
    messages = [said("user"), calling("a"), result("a"), said("assistant"), result("a", "better")]
    assert grown(*messages).reason == "late_result"


def test_a_crossing_of_the_high_mark() -> None:
    messages = [*loops(24), said("user")]
    reasons = [grown(*messages[:count], budget=4_000).reason for count in range(1, len(messages) + 1, 2)]
    assert set(reasons) == {"first", None, "crossing"}
    assert 2 <= reasons.count("crossing") <= 6


def test_a_loop_that_has_ended_becomes_a_digest() -> None:
    messages = [*loops(3, words=200), said("user")]
    outcome = grown(*messages, policy="run_loops")
    assert (outcome.broke_at, outcome.reason) == ("base", "past_loop")


def test_a_loop_that_is_too_old() -> None:
    outcome = built_with(*loops(2), said("user"), step={"step": "loops", "max_age_seconds": 2})
    assert (outcome.broke_at, outcome.reason) == ("base", "past_loop")


def built_with(*messages: Body, step: Any) -> PrefixAnswer:
    held, policy = stored(given(*messages)), policy_of({"steps": [step]})
    asked = replace(request(Asked()), policy=policy)
    return build(MessageList(held.sources, held.total), asked).prefix


@pytest.mark.parametrize("policy", ["turns(1)", "messages(2)", "tokens(50)"])
def test_a_loop_that_gives_way_to_newer_ones(policy: str) -> None:
    outcome = grown(*loops(4, words=3), said("user"), policy=policy)
    assert outcome.reason == "past_loop"


def test_one_loop_more_than_a_step_takes() -> None:
    outcome = built_with(*loops(4), said("user"), step={"step": "loops", "max": 3, "whole": 9})
    assert (outcome.broke_at, outcome.reason) == ("base", "past_loop")


def test_what_is_made_to_fit_is_no_more_what_it_was() -> None:
    messages = [*loops(5), said("user", "x" * 400)]
    fits = build_window(messages[:9], policy="full").tokens + 20
    outcome = grown(*messages, policy="full", budget=fits)
    assert (outcome.broke_at, outcome.reason) == ("base", "crossing")


def test_more_of_a_message_is_no_break() -> None:
    """Converse joins neighbours of one role: what was sent is still there, block by block."""
    outcome = grown(said("user", "first"), calling("a"), said("system", "note"), format="bedrock_converse")
    assert outcome == PrefixAnswer(COUNTER.count("first") + 4, None, None)


# ---------------------------------------------------------------- a fault would be seen


def test_tokens_that_are_not_the_same_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "least_of_turn", lambda turn, bodies, codec: COUNTER.count(str(bodies)))
    with pytest.raises(AssertionError):
        grown(said("user"), said("assistant"), said("user"))
