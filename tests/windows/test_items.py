"""An answer of several items, as OpenAI Responses gives it, is in or out of a window as a whole; the manifest names each."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import Turnlog, build_window
from turnlog.linter.rules import lint
from turnlog.sessions.context_models import WindowAnswer

Item = dict[str, Any]
RESPONSES: dict[str, Any] = {"input_format": "openai_responses", "format": "openai_responses"}


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def reply(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def reasoning(number: int) -> Item:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "Z0FB"}


def call(call_id: str) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def output(call_id: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": "found"}


SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
STEP = [reasoning(1), call("a"), call("b"), output("a"), output("b")]
HISTORY = [user("one"), *STEP, reply("done"), user("two")]
"""Positions 1 to 8: the calls of 3 and 4 are one answer with the reasoning before them."""


def window(policy: str, messages: list[Item] = HISTORY, **options: Any) -> WindowAnswer:
    asked = {**RESPONSES, **options}
    answer = build_window(messages, policy=policy, **asked)
    assert lint(answer.messages, format=asked["format"]) == []
    return answer


def levels(answer: WindowAnswer) -> dict[int, str]:
    return {part.first: part.level for part in answer.manifest.parts if part.kind == "message" and part.first}


@pytest.mark.parametrize(
    ("limit", "kept"), [(0, []), (1, [7]), (5, [7]), (6, [2, 3, 4, 5, 6, 7]), (7, [1, 2, 3, 4, 5, 6, 7])]
)
def test_an_answer_and_its_results_stay_or_go_together(limit: int, kept: list[int]) -> None:
    answer = window(f"messages({limit})")
    shown = [item for item in answer.messages if item not in (HISTORY[7],) and "not shown here" not in str(item)]
    assert shown == [HISTORY[position - 1] for position in kept]
    if kept:
        assert sorted(position for position, level in levels(answer).items() if level == "whole") == [*kept, 8]


def test_everything_comes_back_as_it_was_and_every_item_is_named_once() -> None:
    answer = window("full")
    assert answer.messages == HISTORY
    assert levels(answer) == dict.fromkeys(range(1, 9), "whole")
    loops = {part.loop: part.tokens for part in answer.manifest.parts if part.kind == "loop"}
    parts = [part for part in answer.manifest.parts if part.kind == "message"]
    assert {loop: sum(part.tokens for part in parts if part.loop == loop) for loop in loops} == loops


def test_in_another_format_an_answer_is_one_message() -> None:
    answer = window("full", format="openai_chat")
    assert [message["role"] for message in answer.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]
    assert [made["id"] for made in answer.messages[1]["tool_calls"]] == ["a", "b"]


def test_calls_after_a_text_are_another_answer_and_reasoning_belongs_to_what_follows() -> None:
    history = [
        user("one"),
        reasoning(1),
        reply("I look."),
        reasoning(2),
        call("a"),
        output("a"),
        reply("done"),
        user("two"),
    ]
    assert [item for item in window("messages(4)", history).messages if "not shown" not in str(item)] == history[3:]
    assert [item for item in window("messages(5)", history).messages if "not shown" not in str(item)] == history[3:]
    assert [item for item in window("messages(6)", history).messages if "not shown" not in str(item)] == history[1:]


def test_reasoning_without_what_it_belongs_to_is_never_sent() -> None:
    history = [user("one"), reasoning(1), user("two"), reply("yes"), reasoning(2)]
    answer = window("full", history)
    assert answer.messages == [history[0], history[2], history[3]]
    values = {part.first: part.reason for part in answer.manifest.parts if part.level == "out"}
    assert values == {2: "reasoning_alone", 5: "reasoning_alone"}


@pytest.mark.parametrize("format", ["anthropic", "bedrock_converse", "openai_responses", "openai_chat"])
def test_the_neutral_messages_that_a_format_may_need_are_a_part_of_the_manifest(format: str) -> None:
    answer = window("full", [user("one"), reply("yes"), user("two")], format=format)
    frames = [part for part in answer.manifest.parts if part.reason == "frame"]
    assert len(frames) == (format in ("anthropic", "bedrock_converse", "openai_responses"))
    assert all((part.kind, part.level, part.first) == ("omission_notice", "whole", None) for part in frames)
    assert answer.manifest.totals["omission_notice"] == sum(part.tokens for part in frames)
    charged = answer.manifest.totals
    assert answer.tokens == 3 + sum(charged.values())


@pytest.mark.parametrize("is_reasoned", [False, True])
def test_calls_that_the_provider_ran_one_after_the_other_are_one_answer_only_behind_reasoning(
    is_reasoned: bool,
) -> None:
    action = {"type": "search", "query": "q"}
    searches = [{"type": "web_search_call", "id": f"ws_{n}", "status": "completed", "action": action} for n in range(2)]
    thought = [reasoning(1)] if is_reasoned else []
    answer = window("messages(2)", [user("one"), *thought, *searches, reply("done"), user("two")])
    assert [item in answer.messages for item in searches] == [False, not is_reasoned]


@pytest.mark.parametrize("said_by", ["authors", "windows"])
def test_a_call_that_waits_hides_no_answer_of_another_author_or_window(log: Turnlog, said_by: str) -> None:
    session = log.sessions.create("s", recall="never")
    session.append(user("pay the bill, and book the room"), format="openai_responses")

    def answer(author: str, *items: Item) -> None:
        options: dict[str, Any] = {"meta": [{"author": author}] * len(items)}
        if said_by == "windows":
            options = {"window": session.context(format="openai_responses")}
        session.append(*items, format="openai_responses", **options)

    answer("clerk", call("waits"))
    answer("agent", call("a"), call("b"))
    session.append(output("a"), output("b"), format="openai_responses")
    messages = session.context(format="openai_responses").messages
    assert messages[-4:] == STEP[1:], "parallel calls of one answer are together"
    assert messages[1] == call("waits") and messages[2]["call_id"] == "waits"


@pytest.mark.parametrize("reply", [[call("b"), call("c")], [SEARCH, reply("hm")], [SEARCH, call("b")]])
def test_an_answer_behind_a_call_that_got_a_neutral_result_leaves_the_window_as_it_was(
    log: Turnlog, reply: list[Item]
) -> None:
    session = log.sessions.create("s", recall="never")
    options: dict[str, Any] = {"format": "openai_responses", "answer_open_calls": True}
    session.append(user("go"), call("a"), format="openai_responses")
    before = session.context(**options)
    session.append(*reply, format="openai_responses", window=before)
    after = session.context(**options)
    assert after.messages[: len(before.messages)] == before.messages
    assert after.prefix.broke_at is None


def test_a_call_behind_one_that_the_provider_ran_leaves_it_in_the_window(log: Turnlog) -> None:
    session = log.sessions.create("s", recall="never")
    ran = {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "find", "arguments": "{}", "output": "x"}
    session.append(user("go"), ran, format="openai_responses")
    before = session.context(format="openai_responses")
    session.append(call("a"), format="openai_responses")
    assert session.context(format="openai_responses").messages == before.messages
    session.append(output("a"), format="openai_responses")
    after = session.context(format="openai_responses")
    assert after.messages == [user("go"), ran, call("a"), output("a")] and after.prefix.broke_at is None
