"""`classic`: all of the past until a limit is crossed, then what is recent; behind a summary, or without one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.window_levels import counted, levels, past_in
from turnlog import Turnlog, build_window
from turnlog.core.errors import InvalidInputError
from turnlog.windows.policy import PRESETS, Policy, classic, policy_of
from turnlog.windows.steps import Recent, Summary
from turnlog.windows.triggers import Clause, Trigger


def turn(number: int, *, words: int = 1, calls: int = 0) -> list[dict[str, Any]]:
    """A loop of 2 messages, or of 3 and more with parallel calls."""
    made: list[dict[str, Any]] = [{"role": "user", "content": f"question {number} " + "please " * words}]
    ids = [f"c{number}-{at}" for at in range(calls)]
    if calls:
        listed = [{"id": item, "type": "function", "function": {"name": "f", "arguments": "{}"}} for item in ids]
        made.append({"role": "assistant", "content": None, "tool_calls": listed})
        made += [{"role": "tool", "tool_call_id": item, "content": f"result {item}"} for item in ids]
    return [*made, {"role": "assistant", "content": f"answer {number}"}]


def history(turns: int, **shape: Any) -> list[dict[str, Any]]:
    """Past loops, and a current one that has asked and called already."""
    past = [message for number in range(1, turns + 1) for message in turn(number, **shape)]
    return [*past, *turn(turns + 1, calls=2)[:-1]]


# ---------------------------------------------------------------- the limits


def test_up_to_its_limits_everything_is_in() -> None:
    messages = history(15)
    assert build_window(messages, policy="classic").messages == messages, "30 past messages are not more than 30"


def test_beyond_30_messages_the_newest_20_stay_and_system_and_current_loop_are_not_counted() -> None:
    system = {"role": "system", "content": "Be brief. " * 40}
    messages = [system, *history(16)]
    window = build_window(messages, policy="classic")
    assert [part.loop for part in past_in(window, 17)] == [loop for loop in range(7, 17) for _ in range(2)]
    assert window.messages[0] == system
    assert (
        window.messages[1]["content"]
        == "[12 earlier messages (6 earlier exchanges) of this conversation not shown here]"
    )
    assert window.messages[2:] == messages[13:]
    assert set(levels(window).values()) == {("whole", None), ("out", "messages")}


def test_beyond_3000_tokens_at_most_4000_stay_though_the_messages_are_few() -> None:
    messages = history(6, words=700)
    window = build_window(messages, policy="classic")
    past = past_in(window, 7)
    assert [part.loop for part in past] == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert 3000 < sum(part.tokens for part in past) <= 4000
    assert [(part.first, part.reason) for part in window.manifest.parts if part.level == "out"] == [(1, "tokens")]


@pytest.mark.parametrize("turns", range(1, 40, 3))
@pytest.mark.parametrize("shape", [{"words": 1}, {"words": 200}, {"words": 120, "calls": 3}, {"calls": 18}])
def test_both_limits_hold_once_one_is_crossed_and_no_pair_is_parted(turns: int, shape: dict[str, int]) -> None:
    messages = history(turns, **shape)
    window = build_window(messages, policy="classic")
    whole = build_window(messages, policy="full")
    counted_past = past_in(whole, turns + 1)
    past = past_in(window, turns + 1)
    if len(counted_past) <= 30 and sum(part.tokens for part in counted_past) <= 3000:
        assert window.messages == messages
    else:
        assert len(past) <= 20
        assert sum(part.tokens for part in past) <= 4000
    called = {call["id"] for message in window.messages for call in message.get("tool_calls") or ()}
    assert called == {message["tool_call_id"] for message in window.messages if "tool_call_id" in message}
    assert window.messages[-4:] == messages[-4:], "the current loop stays, whatever is before it"


def test_a_pair_that_no_limit_has_room_for_is_out_with_what_is_before_it() -> None:
    messages = [*history(3, calls=25)[:-4], *turn(4), *turn(5)[:1]]
    window = build_window(messages, policy="classic")
    assert [part.loop for part in past_in(window, 5)] == [3, 4, 4], "the reply of loop 3 is newer than its calls"


# ---------------------------------------------------------------- behind a summary


def test_with_a_summary_in_force_the_window_is_the_summary_and_what_came_since() -> None:
    with Turnlog.open("memory://", worker=False) as log:
        session = log.sessions.create("s", policy="classic", system="Be brief.", recall="never")
        for number in range(1, 19):
            session.append(*turn(number, words=30))
        before = session.context()
        assert (len(past_in(before, 18)), before.summary_stale) == (20, True)
        session.compress(keep_loops=4, max_tokens=400)
        after = session.context()
        assert not after.summary_stale
        assert [part.kind for part in after.manifest.parts[:2]] == ["system", "summary"]
        assert len(past_in(after, 18)) == 8, "since the summary there are 8 past messages: below the limits"
        for number in range(19, 32):
            session.append(*turn(number, words=30))
        again = session.context()
        assert len(past_in(again, 31)) == 20
        assert sum(part.tokens for part in past_in(again, 31)) <= 4000
        assert [part.kind for part in again.manifest.parts[:2]] == ["system", "summary"]


def test_without_one_the_policy_takes_none() -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        for number in range(1, 19):
            session.append(*turn(number, words=30))
        session.compress(keep_loops=4, max_tokens=400)
        window = session.context(policy=classic(summary=False).model_dump(mode="json"))
        assert len(past_in(window, 18)) == 20
        assert "summary" not in {part.kind for part in window.manifest.parts}
        assert not window.summary_stale


# ---------------------------------------------------------------- as data


def test_the_preset_is_a_summary_and_what_is_recent() -> None:
    over = (Clause(messages_over=30), Clause(tokens_over=3000))
    assert PRESETS["classic"] == Policy(
        steps=(Summary(), Recent(messages=20, tokens=4000, once=over)), compress=Trigger(any=over, counts="past")
    )
    assert policy_of("classic") == classic()


def test_recent_is_usable_alone_and_with_one_limit() -> None:
    messages = history(6)
    assert counted(build_window(messages, policy={"steps": [{"step": "recent", "messages": 4}]}))["whole"] == 3
    only_tokens = {"steps": [{"step": "recent", "messages": None, "tokens": 0}]}
    assert counted(build_window(messages, policy=only_tokens)) == {"whole": 1, "digest": 0, "out": 6}
    share = {"steps": [{"step": "recent", "messages": 2, "once": [{"fraction_over": 0.5}]}]}
    assert counted(build_window(messages, policy=share))["out"] == 0
    assert counted(build_window(messages, policy=share, budget=170))["out"] > 0


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"messages": None, "tokens": None}, "/policy/steps/0"),
        ({"messages": -1}, "/policy/steps/0/messages"),
        ({"once": []}, "/policy/steps/0/once"),
        ({"once": [{"messages_over": 1, "tokens_over": 1}]}, "/policy/steps/0/once/0"),
    ],
)
def test_what_is_no_limit_is_refused_at_its_place(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        policy_of({"steps": [{"step": "recent", **fields}]})
    assert caught.value.problems[0].pointer == pointer
