"""Policies as data: names, bodies, and what each step leaves of a session; the budget and where it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.window_levels import TURNS, counted, levels
from turnlog import build_window
from turnlog.core.errors import BudgetTooSmallError, InvalidInputError
from turnlog.windows.budgets import budget_for, context_of
from turnlog.windows.policy import PRESETS, Policy, policy_of, stored_policy
from turnlog.windows.registry import known_steps
from turnlog.windows.steps import DigestWhenFull, Loops, Messages, Summary, Tokens, Turns
from turnlog.windows.triggers import Clause, Trigger

# ---------------------------------------------------------------- names and bodies


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("turns", Policy(steps=(Turns(n=10),))),
        ("tokens", Policy(steps=(Tokens(n=4000),))),
        ("buffer", Policy(steps=(Messages(n=20),))),
        ("full", Policy()),
        (
            "run_loops",
            Policy(
                steps=(
                    Summary(),
                    Loops(max=10, max_age_seconds=604_800, max_message_chars=500, whole=0),
                ),
                compress=Trigger(any=(Clause(loops_over=10), Clause(fraction_over=0.8))),
            ),
        ),
        (
            "default",
            Policy(
                steps=(
                    Summary(),
                    DigestWhenFull(high=0.7, low=0.35, max_message_chars=500),
                ),
                compress=Trigger(any=(Clause(fraction_over=0.8),)),
            ),
        ),
        ("turns(3)", Policy(steps=(Turns(n=3),))),
        ("messages(0)", Policy(steps=(Messages(n=0),))),
        ("tokens(100000000)", Policy(steps=(Tokens(n=100_000_000),))),
        ({"steps": []}, Policy()),
        (
            {"steps": [{"step": "loops", "max": None, "whole": 2}, {"step": "tokens"}]},
            Policy(steps=(Loops(max=None, whole=2), Tokens())),
        ),
    ],
)
def test_a_policy_is_a_presets_name_a_call_or_a_body(value: Any, policy: Policy) -> None:
    assert policy_of(value) == policy


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_presets_body_gives_the_preset(name: str) -> None:
    assert policy_of(PRESETS[name].model_dump(mode="json")) == PRESETS[name]


def test_a_policys_body_has_the_names_that_a_request_has() -> None:
    step = {"step": "summary", "max_tokens": 128, "as": "assistant", "label": "Earlier:"}
    assert policy_of({"steps": [step]}).model_dump(mode="json")["steps"] == [step]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ("", "/policy"),
        ("fulll", "/policy"),
        ("Full", "/policy"),
        ("turns()", "/policy"),
        ("turns(-1)", "/policy"),
        ("turns( 3)", "/policy"),
        ("turns(３)", "/policy"),
        ("turns(1000001)", "/policy"),
        ("messages(999999999)", "/policy"),
        ("tokens(999999999)", "/policy"),
        ("tokens(9999999999)", "/policy"),
        ("buffer(3)", "/policy"),
        ("turns(3)\n", "/policy"),
        ({"steps": {}}, "/policy/steps"),
        ({"step": []}, "/policy/step"),
        ({"a/b~c": 1}, "/policy/a~1b~0c"),
        ({"steps": [5]}, "/policy/steps/0"),
        ({"steps": [{}]}, "/policy/steps/0"),
        ({"steps": [{"step": "nap"}]}, "/policy/steps/0"),
        ({"steps": [{"step": "turns", "n": "3"}]}, "/policy/steps/0/n"),
        ({"steps": [{"step": "turns", "n": 3.0}]}, "/policy/steps/0/n"),
        ({"steps": [{"step": "turns", "n": True}]}, "/policy/steps/0/n"),
        ({"steps": [{"step": "full"}]}, "/policy/steps/0"),
        ({"steps": [{"step": "turns"}, {"step": "loops", "whole": -1}]}, "/policy/steps/1/whole"),
        ({"steps": [{"step": "loops", "max_message_chars": 0}]}, "/policy/steps/0/max_message_chars"),
        ({"steps": [{"step": "loops", "depth": 1}]}, "/policy/steps/0/depth"),
        ({"steps": [{"step": "digest_when_full", "high": 1.5}]}, "/policy/steps/0/high"),
        ({"steps": [{"step": "digest_when_full", "high": 0.5, "low": 0.5}]}, "/policy/steps/0"),
        ({"steps": [{"step": "turns"}] * 9}, "/policy/steps"),
    ],
)
def test_any_other_value_is_refused_with_a_pointer(value: Any, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        policy_of(value)
    assert raised.value.error_code == "invalid_policy"
    assert raised.value.problems[0].pointer == pointer


@pytest.mark.parametrize("policy", ["fulll", "turns(1000001)", {"steps": [{"step": "nap"}]}, 5, ["full"]])
def test_build_window_refuses_it_too(policy: Any) -> None:
    with pytest.raises(InvalidInputError) as raised:
        build_window(TURNS, policy=policy)
    assert raised.value.problems[0].pointer.startswith("/policy")


# ---------------------------------------------------------------- what steps leave


def test_full_keeps_everything() -> None:
    assert build_window(TURNS, policy="full").messages == TURNS


def test_turns_keeps_the_newest_past_loops_whole_and_the_rest_is_out() -> None:
    answer = build_window(TURNS, policy="turns(3)")
    assert counted(answer) == {"whole": 4, "digest": 0, "out": 11}
    assert levels(answer)[11] == ("out", "turns")
    assert answer.messages[1:] == TURNS[-13:]
    assert answer.messages[0] == {
        "role": "user",
        "content": "[44 earlier messages (11 earlier exchanges) of this conversation not shown here]",
    }


def test_turns_0_keeps_the_current_loop_only() -> None:
    assert build_window(TURNS, policy="turns(0)").messages[1:] == TURNS[-1:]


def test_messages_counts_past_messages_and_never_splits_a_pair() -> None:
    assert build_window(TURNS, policy="messages(3)").messages[1:] == TURNS[-4:]
    assert build_window(TURNS, policy="messages(2)").messages[1:] == TURNS[-2:]
    assert build_window(TURNS, policy="messages(4)").messages[1:] == TURNS[-5:]


def test_the_buffer_is_20_messages_besides_the_current_loop() -> None:
    assert build_window(TURNS, policy="buffer").messages[1:] == TURNS[-21:]


def test_tokens_counts_past_messages_only() -> None:
    answer = build_window(TURNS, policy="tokens(60)")
    past = sum(part.tokens for part in answer.manifest.parts if part.kind == "message" and part.loop != 15)
    assert 40 <= past <= 60
    assert answer.messages[-1] == TURNS[-1]


def test_run_loops_makes_digests_of_user_and_reply_and_keeps_ten() -> None:
    answer = build_window(TURNS, policy="run_loops")
    assert counted(answer) == {"whole": 1, "digest": 10, "out": 4}
    assert (levels(answer)[4], levels(answer)[5]) == (("out", "max_loops"), ("digest", "past_loop"))
    note = "<turnlog-data kind='notes on exchange 5'>\n18.0 f {}\n</turnlog-data>"
    said = [message["content"] for message in answer.messages[1:5]]
    assert said == ["question 5", "answer 5", note, "question 6"]


def test_loops_can_keep_the_newest_whole() -> None:
    answer = build_window(TURNS, policy={"steps": [{"step": "loops", "whole": 2, "max": None}]})
    assert counted(answer) == {"whole": 3, "digest": 12, "out": 0}
    assert answer.messages[-9:] == TURNS[-9:]


def test_steps_compose() -> None:
    answer = build_window(TURNS, policy={"steps": [{"step": "turns", "n": 5}, {"step": "loops", "whole": 1}]})
    assert counted(answer) == {"whole": 2, "digest": 4, "out": 9}


def test_limits_count_a_digest_as_what_it_is_and_take_it_whole() -> None:
    digests = {"step": "loops", "max": None}
    answer = build_window(TURNS, policy={"steps": [digests, {"step": "messages", "n": 7}]})
    assert counted(answer) == {"whole": 1, "digest": 2, "out": 12}, "a digest is a question, a reply and a note"
    assert levels(answer)[12] == ("out", "messages")
    assert "exchange 12" not in str(answer.messages)
    each = next(part.tokens for part in answer.manifest.parts if part.kind == "loop" and part.level == "digest")
    some = build_window(TURNS, policy={"steps": [digests, {"step": "tokens", "n": 4 * each}]})
    assert counted(some) == {"whole": 1, "digest": 4, "out": 10}


def test_default_is_whole_up_to_the_high_mark_then_digests_then_out() -> None:
    def words(number: int) -> str:
        return f"{number} The quick brown fox jumps over the lazy dog. " * 20

    messages = [{"role": role, "content": words(n)} for n in range(20) for role in ("user", "assistant")]
    messages.append({"role": "user", "content": "and now?"})
    total = build_window(messages, policy="full").tokens
    assert counted(build_window(messages, budget=total * 2))["whole"] == 21
    result = build_window(messages, budget=total // 2)
    order = [level for level, _ in levels(result).values()]
    assert order == sorted(order, key=["out", "digest", "whole"].index)
    assert {"digest", "whole"} <= set(order)
    assert result.tokens <= total // 2
    assert {reason for level, reason in levels(result).values() if level == "digest"} == {"high_mark"}


def test_errors_of_a_body_list_what_is_known() -> None:
    with pytest.raises(InvalidInputError, match="step 'nap' is not one of turns, messages, tokens, "):
        policy_of({"steps": [{"step": "nap"}]})
    with pytest.raises(InvalidInputError, match="a step is an object with step, one of turns, "):
        policy_of({"steps": ["turns"]})


def test_a_stored_policy_may_name_a_step_as_earlier_versions_did() -> None:
    digest = {"step": "digest_when_full", "high": 0.6}
    assert stored_policy({"steps": [{"step": "turns"}, {**digest, "step": "crossing"}]}) == policy_of(
        {"steps": [{"step": "turns"}, digest]}
    )
    assert stored_policy("turns(2)") == policy_of("turns(2)")
    for odd in ({"steps": [{"step": 5}]}, {"steps": ["crossing"]}, {"steps": 5}, "crossing"):
        with pytest.raises(InvalidInputError):
            stored_policy(odd)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'crossing' is not one of"):
        policy_of({"steps": [{"step": "crossing"}]})


def test_the_schema_describes_every_step_by_its_name() -> None:
    described = Policy.model_json_schema()["properties"]["steps"]["items"]["oneOf"]
    assert [item["properties"]["step"]["const"] for item in described] == list(known_steps())
    assert all(item["required"] == ["step"] for item in described)


# ---------------------------------------------------------------- budgets


CONTEXTS = {
    8_192: "gpt-4",
    16_385: "gpt-3.5-turbo-0125",
    32_768: "gpt-4-32k",
    128_000: "gpt-4o gpt-4o-mini-2024-07-18 gpt-4-turbo gpt-4-0125-preview gpt-4-1106-preview gpt-4-vision-preview gpt-4.5 "
    "gpt-5-chat-latest gpt-5.1-chat gpt-5.2-chat gpt-5.3-chat amazon.nova-micro-v1:0 deepseek-chat mistral-large-2411 "
    "meta.llama3-1-70b-instruct-v1:0 qwen3-max",
    200_000: "o1 o3-mini o4-mini Claude-3-5-Haiku claude-opus-4-5-20251101 anthropic.claude-3-haiku-20240307-v1:0 "
    "us.anthropic.claude-sonnet-4-20250514-v1:0",
    272_000: "openai/gpt-5-mini gpt-5.1",
    300_000: "eu.amazon.nova-pro-v1:0",
    1_000_000: "claude-opus-4-6 claude-opus-4-7 claude-opus-4-8 claude-sonnet-4-6 claude-opus-5 claude-sonnet-5 claude-haiku-5 "
    "claude-fable claude-mythos us.anthropic.claude-opus-5-v1:0 anthropic.claude-sonnet-4-6",
    1_047_576: "gpt-4.1-nano",
    1_048_576: "gemini-2.5-pro",
}


@pytest.mark.parametrize(
    ("model", "context"),
    [(model, context) for context, models in CONTEXTS.items() for model in models.split()] + [("my-own-model", None)],
)
def test_a_models_context_is_known_by_its_longest_prefix(model: str, context: int | None) -> None:
    assert context_of(model) == context


def test_the_budget_is_given_or_the_models_context_without_the_reserve() -> None:
    assert budget_for(budget=50, model="gpt-4o", output_reserve=9) == (50, "given")
    assert budget_for(budget=None, model="gpt-4o", output_reserve=1000) == (127_000, "model")
    assert budget_for(budget=None, model="my-own", output_reserve=4096) == (123_904, "default")
    assert budget_for(budget=None, model=None, output_reserve=4096) == (123_904, "default")
    assert build_window([], model="gpt-4o", output_reserve=8000).manifest.budget.tokens == 120_000


@pytest.mark.parametrize("model", ["gpt-4o", "my-own"])
def test_a_reserve_as_large_as_the_context_leaves_a_budget_of_one_token(model: str) -> None:
    reserved = [
        budget_for(budget=None, model=model, output_reserve=reserve).tokens for reserve in range(127_998, 128_003)
    ]
    assert reserved == [2, 1, 1, 1, 1]


@pytest.mark.parametrize("model", ["gpt-4o", None])
def test_the_error_of_a_reserve_that_leaves_too_little_names_it(model: str | None) -> None:
    messages = [{"role": "user", "content": "How far is the moon?"}]
    with pytest.raises(BudgetTooSmallError, match="output_reserve leaves 1 of the model's context") as caught:
        build_window(messages, model=model, output_reserve=128_000)
    assert caught.value.details["budget"] == 1
    with pytest.raises(BudgetTooSmallError, match="the budget is 3"):
        build_window(messages, budget=3, model=model, output_reserve=128_000)


@pytest.mark.parametrize(
    ("model", "context"),
    [
        ("my-own", 32_000),
        ("My-Own-2", 32_000),
        ("openrouter/vendor/my-own", 32_000),
        ("gpt-4o", 1_000),
        ("gpt-4o-mini", 2_000),
        ("gpt-5", 272_000),
        ("acme/exact", 64_000),
        ("unknown", None),
    ],
)
def test_own_models_add_to_the_table_and_replace_what_it_has(model: str, context: int | None) -> None:
    own = {"my-own": 32_000, "gpt-4o": 1_000, "GPT-4o-mini": 2_000, "acme/exact": 64_000}
    assert context_of(model, own) == context


def test_a_budget_wins_over_own_models() -> None:
    own = {"my-own": 32_000}
    assert budget_for(budget=None, model="my-own", output_reserve=1_000, own=own) == (31_000, "model")
    assert budget_for(budget=50, model="my-own", output_reserve=1_000, own=own) == (50, "given")
