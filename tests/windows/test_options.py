"""Options that people know from elsewhere: what policy each asks for, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

import turnlog
from turnlog import Policy, Turnlog, build_window
from turnlog.core.errors import InvalidInputError
from turnlog.windows.policy import PRESETS, policy_of
from turnlog.windows.steps import Loops, Recent, Summary
from turnlog.windows.triggers import Clause, Trigger

CLASSIC: dict[str, Any] = {
    "window_size": 20,
    "max_tokens": 4000,
    "summarize": True,
    "compress_threshold": 30,
    "token_threshold": 3000,
    "preserve_system": True,
}
RUN_LOOPS: dict[str, Any] = {"max_run_loops": 10, "max_message_length": 500, "max_time_range": 604_800_000}


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (CLASSIC, PRESETS["classic"]),
        ({"summarize": True}, PRESETS["classic"]),
        (RUN_LOOPS, PRESETS["run_loops"]),
        ({"max_run_loops": 10}, PRESETS["run_loops"]),
        ({"buffer_config": {"max_messages": 20, "max_tokens": 4000}}, Policy(steps=(Recent(),))),
        ({"buffer_config": {}}, Policy(steps=(Recent(messages=20, tokens=4000),))),
        ({"window_size": 7}, policy_of("classic(7)")),
        ({"max_run_loops": 3}, policy_of("run_loops(3)")),
    ],
)
def test_the_defaults_are_the_presets(options: dict[str, Any], policy: Policy) -> None:
    assert Policy.from_options(options) == policy


def test_each_option_of_classic_has_its_place() -> None:
    options = {"window_size": 5, "max_tokens": 600, "compress_threshold": 8, "token_threshold": 900}
    over = (Clause(messages_over=8), Clause(tokens_over=900))
    recent = Recent(messages=5, tokens=600, once=over)
    assert Policy.from_options(options) == Policy(steps=(Summary(), recent), compress=Trigger(any=over, counts="past"))
    assert Policy.from_options({**options, "summarize": False}) == Policy(steps=(recent,))
    released = Policy.from_options({**options, "preserve_system": False})
    assert released == Policy.from_options(options).model_copy(update={"preserve_system": False})
    assert policy_of(released.model_dump(mode="json")) == released
    assert "preserve_system" not in Policy.from_options(options).model_dump(mode="json"), "builds stay as they were"


def test_each_option_of_run_loops_has_its_place_and_milliseconds_become_seconds_rounded_up() -> None:
    result = Policy.from_options({"max_run_loops": 4, "max_message_length": 90, "max_time_range": 1_001})
    assert result.steps == (Summary(), Loops(max=4, max_message_chars=90, max_age_seconds=2))
    assert result.compress is not None and result.compress.any[0] == Clause(loops_over=4)


def test_camel_case_is_the_same() -> None:
    camel = {"windowSize": 5, "maxTokens": 600, "compressThreshold": 8, "preserveSystem": True}
    snake = {"window_size": 5, "max_tokens": 600, "compress_threshold": 8, "preserve_system": True}
    assert Policy.from_options(camel) == Policy.from_options(snake)
    assert Policy.from_options({"bufferConfig": {"maxMessages": 3}}) == Policy.from_options(
        {"buffer_config": {"max_messages": 3}}
    )


@pytest.mark.parametrize(
    ("options", "pointer", "message"),
    [
        (
            {"window_sizes": 3},
            "/window_sizes",
            "option 'window_sizes' is not known; known are window_size, max_tokens, ",
        ),
        ({"windowSizes": 3}, "/windowSizes", "option 'windowSizes' is not known"),
        ({"window_size": "20"}, "/window_size", "option 'window_size': .*integer"),
        ({"window_size": 20.0}, "/window_size", "option 'window_size': .*integer"),
        ({"window_size": True}, "/window_size", "option 'window_size': .*integer"),
        ({"window_size": None}, "/window_size", "option 'window_size': .*integer"),
        ({"window_size": -1}, "/window_size", "option 'window_size': window_size is less than 0"),
        ({"windowSize": "20"}, "/windowSize", "option 'windowSize': .*integer"),
        ({"summarize": 1}, "/summarize", "option 'summarize': summarize is neither true nor false"),
        ({"preserve_system": 0}, "/preserve_system", "option 'preserve_system': .* is neither true nor false"),
        ({"max_time_range": 0}, "/max_time_range", "option 'max_time_range': max_time_range is less than 1"),
        ({"window_size": 3, "windowSize": 3}, "/windowSize", "option 'window_size' is given twice"),
        (
            {"window_size": 3, "max_run_loops": 3},
            "/max_run_loops",
            "options 'window_size' and 'max_run_loops' don't mix: one is of classic, the other of run_loops",
        ),
        (
            {"max_time_range": 3, "summarize": False},
            "/summarize",
            "options 'max_time_range' and 'summarize' don't mix: one is of run_loops, the other of classic",
        ),
        (
            {"buffer_config": {}, "max_tokens": 3},
            "/max_tokens",
            "'buffer_config' and 'max_tokens' don't mix: one is of buffer_config, the other of classic",
        ),
        ({"buffer_config": 20}, "/buffer_config", "option 'buffer_config': .*object"),
        ({"buffer_config": {"max_messages": "x"}}, "/buffer_config/max_messages", "option 'max_messages': .*integer"),
        (
            {"buffer_config": {"max_turns": 3}},
            "/buffer_config/max_turns",
            "option 'max_turns' of 'buffer_config' is not known; known are max_messages, max_tokens",
        ),
        (
            {"buffer_config": {"max_tokens": 3, "maxTokens": 3}},
            "/buffer_config/maxTokens",
            "option 'max_tokens' is given twice",
        ),
        ({}, "", "there is no option to choose a policy by; known are window_size, "),
    ],
)
def test_what_can_not_be_kept_is_refused_and_the_option_named(
    options: dict[str, Any], pointer: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        Policy.from_options(options)
    assert caught.value.error_code == "invalid_policy"
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


@pytest.mark.parametrize(
    ("option", "least", "largest"),
    [
        ("window_size", 0, 1_000_000),
        ("max_tokens", 0, 100_000_000),
        ("compress_threshold", 0, 1_000_000),
        ("token_threshold", 0, 100_000_000),
        ("max_run_loops", 1, 1_000_000),
        ("max_message_length", 1, 1_000_000),
        ("max_time_range", 1, 10**15),
        ("buffer_config/max_messages", 0, 1_000_000),
        ("buffer_config/max_tokens", 0, 100_000_000),
    ],
)
def test_a_number_is_taken_to_its_limits_and_refused_beyond_by_its_own_name(
    option: str, least: int, largest: int
) -> None:
    outer, _, inner = option.partition("/")

    def options(number: int) -> dict[str, Any]:
        return {outer: {inner: number} if inner else number}

    for number in (least, largest):
        assert Policy.from_options(options(number)).steps
    for number in (least - 1, largest + 1):
        with pytest.raises(InvalidInputError, match=f"option {inner or outer!r}: ") as caught:
            Policy.from_options(options(number))
        assert [problem.pointer for problem in caught.value.problems] == [f"/{option}"]


@pytest.mark.parametrize(
    "options",
    [None, [], "classic", {1: 2}, {"window_size": float("nan")}, {"summarize": object()}, {"max_run_loops": "\ud83d"}],
)
def test_what_is_no_mapping_of_json_is_refused(options: Any) -> None:
    with pytest.raises(InvalidInputError):
        Policy.from_options(options)


# ---------------------------------------------------------------- in the library


def test_a_policy_is_taken_wherever_a_name_is() -> None:
    messages = [{"role": role, "content": f"{role} {at}"} for at in range(30) for role in ("user", "assistant")]
    policy = Policy.from_options({"window_size": 4, "compress_threshold": 6, "summarize": False})
    window = build_window(messages, policy=policy)
    assert [message["content"] for message in window.messages[1:]] == [
        *(f"{role} {at}" for at in (27, 28) for role in ("user", "assistant")),
        "user 29",
        "assistant 29",
    ]
    with Turnlog.open("memory://") as log:
        assert log.build_window(messages, policy=policy).messages == window.messages
        session = log.sessions.create("s", policy=policy, recall="never")
        for start in range(0, 60, 20):
            session.append(*messages[start : start + 20])
        assert session.context().messages == window.messages
        assert session.context(policy=policy).messages == window.messages
        assert session.info().policy == policy.model_dump(mode="json")
        assert policy_of(session.info().policy) == policy


def test_the_name_is_loaded_when_it_is_used() -> None:
    assert "Policy" in dir(turnlog)
    assert turnlog.Policy is Policy
