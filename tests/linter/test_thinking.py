"""The rules of preserved thinking: a block is refused behind another request than its own, and without the thinking before it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnlog
from tests.effort import examples
from turnlog import Turnlog
from turnlog.linter import thinking

SYSTEM, TOOLS = "Be brief.", [{"name": "get", "input_schema": {"type": "object"}}]


def anthropic(number: int) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"step {number}", "signature": f"sig{number:03d}"}


def bedrock(number: int) -> dict[str, Any]:
    return {"reasoningContent": {"reasoningText": {"text": f"step {number}", "signature": f"sig{number:03d}"}}}


def text(format: str, words: str) -> dict[str, Any]:
    return {"type": "text", "text": words} if format == "anthropic" else {"text": words}


def conversation(format: str, turns: int = 4) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the messages of a conversation, and behind which request each of its blocks was made."""
    made = anthropic if format == "anthropic" else bedrock
    messages, made_behind = list[dict[str, Any]](), dict[str, str]()
    for number in range(1, turns + 1):
        messages.append({"role": "user", "content": [text(format, f"Question {number}")]})
        print_of = thinking.fingerprint(messages, format=format, system=SYSTEM, tools=TOOLS)
        assert print_of is not None
        made_behind[f"sig{number:03d}"] = print_of
        messages.append({"role": "assistant", "content": [made(number), text(format, f"Answer {number}")]})
    messages.append({"role": "user", "content": [text(format, "And now?")]})
    return messages, made_behind


def rules(messages: object, made_behind: dict[str, str], format: str, **request: Any) -> list[tuple[str, str]]:
    request = {"system": SYSTEM, "tools": TOOLS} | request
    return [(match.rule, match.pointer) for match in thinking.check(messages, made_behind, format=format, **request)]


def without(messages: list[dict[str, Any]], *positions: int) -> list[dict[str, Any]]:
    changed = copy.deepcopy(messages)
    for position in positions:
        del changed[position]["content"][0]
    return changed


@pytest.fixture(params=["anthropic", "bedrock_converse"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_only_appends_is_valid(format: str) -> None:
    messages, made_behind = conversation(format)
    for length in range(len(messages) + 1):
        assert rules(messages[:length], made_behind, format) == []


def test_another_message_before_a_block(format: str) -> None:
    messages, made_behind = conversation(format)
    messages[2]["content"][0]["text"] = "Question 2, but other"
    assert rules(messages, made_behind, format) == [
        ("thinking_bound_elsewhere", "/messages/3/content/0"),
        ("thinking_bound_elsewhere", "/messages/5/content/0"),
        ("thinking_bound_elsewhere", "/messages/7/content/0"),
    ]


@pytest.mark.parametrize(
    "request_", [{"system": "Be kind."}, {"system": None}, {"tools": None}, {"tools": [*TOOLS, *TOOLS]}]
)
def test_another_system_text_or_other_tools(format: str, request_: dict[str, Any]) -> None:
    messages, made_behind = conversation(format)
    assert len(rules(messages, made_behind, format, **request_)) == 4


def test_a_message_that_is_left_out_or_told_in_short(format: str) -> None:
    messages, made_behind = conversation(format)
    assert len(rules(messages[2:], made_behind, format)) == 3


def test_thinking_may_go_from_the_front_only(format: str) -> None:
    messages, made_behind = conversation(format)
    assert rules(without(messages, 1), made_behind, format) == []
    assert rules(without(messages, 1, 3, 5, 7), made_behind, format) == []
    assert rules(without(messages, 3), made_behind, format) == [("thinking_left_out", "/messages/5/content/0")]
    assert rules(without(messages, 3, 5), made_behind, format) == [("thinking_left_out", "/messages/7/content/0")]


def test_blocks_that_nobody_knows_are_not_checked(format: str) -> None:
    messages, _ = conversation(format)
    messages[0]["content"][0]["text"] = "other"
    assert rules(messages, {}, format) == []


def test_several_blocks_of_one_answer_are_bound_to_its_request() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    made = thinking.fingerprint(messages, format="anthropic")
    assert made is not None
    made_behind = {"sig001": made, "sig002": made, "data": made}
    redacted = {"type": "redacted_thinking", "data": "data"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {}}
    messages += [
        {"role": "assistant", "content": [anthropic(1), text("anthropic", "well"), redacted, anthropic(2), call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]},
    ]
    assert thinking.check(messages, made_behind, format="anthropic") == []
    messages[0]["content"] = "stop"
    assert len(thinking.check(messages, made_behind, format="anthropic")) == 3


def test_redacted_thinking_in_bytes_is_thinking_and_no_content() -> None:
    """boto3 gives bytes where the HTTP API has base64."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"text": "go"}]}]
    made = thinking.fingerprint(messages, format="bedrock_converse")
    assert made is not None
    in_bytes, in_text = ({"reasoningContent": {"redactedContent": data}} for data in (b"c2ln", "YzJsbg=="))
    for redacted in (in_bytes, in_text):
        answered = [*messages, {"role": "assistant", "content": [redacted, {"text": "well"}]}]
        assert thinking.check(answered, {"YzJsbg==": made}, format="bedrock_converse") == []
        assert thinking.check(answered, {"YzJsbg==": "other."}, format="bedrock_converse") != []
        assert thinking.fingerprint(answered, format="bedrock_converse") is not None


def test_an_empty_list_of_tools_is_none() -> None:
    assert thinking.fingerprint([], format="anthropic", tools=[]) == thinking.fingerprint([], format="anthropic")


def test_the_same_text_of_another_role_is_another_request() -> None:
    fingerprints = [
        thinking.fingerprint([{"role": role, "content": "x"}], format="anthropic") for role in ("user", "assistant")
    ]
    assert fingerprints[0] != fingerprints[1]


def test_marks_of_the_prompt_cache_and_text_as_a_block_are_no_change() -> None:
    messages, made_behind = conversation("anthropic")
    marked = copy.deepcopy(messages)
    for message in marked:
        message["content"][-1]["cache_control"] = {"type": "ephemeral"}
    marked[0]["content"] = marked[0]["content"][0]["text"]
    system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    assert rules(marked, made_behind, "anthropic", system=system) == []
    others, made_behind = conversation("bedrock_converse")
    others[0]["content"].append({"cachePoint": {"type": "default"}})
    assert rules(others, made_behind, "bedrock_converse") == []


def test_other_formats_have_no_fingerprint() -> None:
    assert thinking.fingerprint([], format="openai_chat") is None
    assert thinking.check([], {"a": "b"}, format="openai_chat") == []


@settings(max_examples=examples(400), deadline=None)
@given(
    messages=st.recursive(
        st.none() | st.text() | st.integers(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(
                st.sampled_from(["role", "content", "type", "signature", "reasoningContent", "text"]), each
            )
        ),
    )
)
def test_no_value_raises(messages: Any) -> None:
    for name in thinking.SIGNED_FORMATS:
        assert thinking.fingerprint(messages, format=name)
        assert thinking.fingerprint([messages], format=name, system=messages, tools=messages)
        assert thinking.check([messages], {"": "x"}, format=name) is not None


@pytest.mark.parametrize("policy", ["default", "run_loops", "classic", "turns(3)"])
@pytest.mark.parametrize("budget", [None, 8_000, 3_000, 1_500])
def test_windows_have_no_block_that_is_bound_elsewhere(policy: str, budget: int | None) -> None:
    """Each answer thinks, uses a tool three times, and gives the epoch back; the linter knows what each block was made behind."""
    made_behind, number = dict[str, str](), 0
    options = {"budget": budget} if budget else {}
    with Turnlog.open("memory://") as log:
        session = log.sessions.create(system=SYSTEM, policy=policy)
        for loop in range(5):
            session.append({"role": "user", "content": f"Question {loop}: what about item {loop}?"})
            for step in range(4):
                window = session.context(format="anthropic", **options)
                request: dict[str, Any] = {"system": window.system, "tools": window.tools}
                checked = turnlog.lint(window.messages, format="anthropic", made_behind=made_behind, **request)
                assert checked.valid, checked.problems
                number += 1
                assert checked.fingerprint is not None
                made_behind[f"sig{number:03d}"] = checked.fingerprint
                call = {"type": "tool_use", "id": f"toolu_{number}", "name": "get", "input": {"id": number}}
                said = call if step < 3 else text("anthropic", f"Answer {loop}")
                session.append({"role": "assistant", "content": [anthropic(number), said]}, window=window)
                if step < 3:
                    result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"row {number} " * 150}
                    session.append({"role": "user", "content": [result]})


def test_the_service_and_the_library_check_alike() -> None:
    messages, made_behind = conversation("anthropic")
    messages[0]["content"][0]["text"] = "other"
    fields: dict[str, Any] = {"format": "anthropic", "system": SYSTEM, "tools": TOOLS, "made_behind": made_behind}
    with Turnlog.open("memory://") as log:
        answers = [turnlog.lint(messages, **fields), log.lint(messages, **fields)]
    assert answers[0] == answers[1]
    assert [problem.rule for problem in answers[0].problems] == ["thinking_bound_elsewhere"] * 4
    assert "block_binding" in answers[0].problems[0].fix
