"""Borders of run loops and warnings of disorder: each sentence of "Loop borders", each warning on the smallest history."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.core.calls import OpenCalls, outline_of, unanswered_calls
from turnlog.core.loops import Amount, Arrival, Flow, LoopState, accept, repeated_ids
from turnlog.core.messages import Media, Message, Role, Text, Thinking, ToolCall, ToolResult

ROLES: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant", "c": "assistant", "t": "tool", "x": "unknown"}


def fold(script: str, state: LoopState | None = None) -> tuple[list[int], LoopState]:
    """Loop numbers of a script of messages, and the state at its end.

    s system, u user, a assistant, c assistant with calls, t tool, x unknown role; ``!`` behind: an interrupted stream,
    ``~`` in front: after the time-out.
    """
    state, numbers = state or LoopState(), list[int]()
    for at, word in enumerate(script.split()):
        letter = word.strip("!~")
        calls = (ToolCall("id", "f", "{}"),) if letter == "c" else ()
        message = Message(ROLES[letter], tool_calls=calls)
        interrupted, timed_out = word.endswith("!"), word.startswith("~")
        state = state.after(Arrival(at + 1, 0, message, outline_of(message), 0, interrupted, timed_out))
        numbers.append(state.number)
    return numbers, state


@pytest.mark.parametrize(
    ("script", "numbers"),
    [
        pytest.param("u a u", [1, 1, 2], id="a user message opens the next loop after an assistant message"),
        pytest.param("u c t u", [1, 1, 1, 2], id="calls are an assistant message too"),
        pytest.param("u u a", [1, 1, 1], id="a user message joins a loop without an assistant message"),
        pytest.param("u s u t u", [1, 1, 1, 1, 1], id="system and tool messages do not answer"),
        pytest.param("a u a u", [1, 1, 1, 2], id="an assistant message before the first user message does not count"),
        pytest.param("a a u u a u", [1, 1, 1, 1, 1, 2], id="it counts since the loop's first user message"),
        pytest.param("u a u u a u", [1, 1, 2, 2, 2, 3], id="loops count from 1"),
        pytest.param("u a a t s", [1, 1, 1, 1, 1], id="only a user message opens a further loop"),
    ],
)
def test_a_user_message_opens_the_next_loop_or_joins(script: str, numbers: list[int]) -> None:
    assert fold(script)[0] == numbers


@pytest.mark.parametrize("first", ["u", "a", "c", "t", "x"])
def test_the_first_message_that_is_not_system_opens_loop_1_whatever_its_role(first: str) -> None:
    assert fold(f"s s {first}")[0] == [0, 0, 1]


def test_system_messages_before_it_have_no_loop_and_later_ones_belong_to_theirs() -> None:
    assert fold("s s u s a s u s")[0] == [0, 0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("u a", "closed"),
        ("u c t a", "closed"),
        ("u c t", "interrupted"),
        ("u a c", "interrupted"),
        ("u", "interrupted"),
        ("a u", "closed"),
        ("u c t a s t", "closed"),
        ("u c a!", "interrupted"),
        ("u a u", "interrupted"),
        ("u a u a", "closed"),
    ],
)
def test_a_loop_is_closed_if_its_newest_assistant_message_has_no_calls_else_interrupted(
    script: str, status: str
) -> None:
    assert fold(script)[1].final == (status == "closed")


def test_after_the_time_out_a_user_message_opens_a_loop_though_nothing_was_answered() -> None:
    assert fold("u ~u")[0] == [1, 2]
    assert fold("u c ~t ~a ~u")[0] == [1, 1, 1, 1, 2]


def test_after_the_time_out_only_a_user_message_opens_a_loop() -> None:
    assert fold("u ~a ~s ~t ~x")[0] == [1, 1, 1, 1, 1]


def test_an_interrupted_stream_answers_nothing_and_opens_no_further_loop() -> None:
    assert fold("u a! u")[0] == [1, 1, 1]
    assert fold("u a u! a u")[0] == [1, 1, 1, 1, 2]


def test_an_interrupted_stream_may_be_the_first_message() -> None:
    assert fold("a! u a u")[0] == [1, 1, 1, 2]


def test_the_start_is_the_position_of_the_loops_first_message() -> None:
    assert fold("s u a u")[1].start == 4
    assert fold("s u u a")[1].start == 2


@pytest.mark.parametrize("script", ["", "s", "u", "u a", "u c", "a u a u", "u a u c t"])
def test_a_headers_form_of_the_state_reads_back_equal(script: str) -> None:
    state = fold(script)[1]
    assert LoopState.decode(state.encode()) == state


def said(role: Role, text: str = "x", given_role: str = "", **parts: Any) -> Message:
    return Message(role, (Text(text),) if text else (), given_role=given_role or role, **parts)


def called(*ids: str, arguments: str = "{}", given_role: str = "assistant") -> Message:
    return Message("assistant", tool_calls=tuple(ToolCall(item, "f", arguments) for item in ids), given_role=given_role)


def answered(*ids: str, text: str = "x", given_role: str = "tool") -> Message:
    results = tuple(ToolResult(item, (Text(text),)) for item in ids)
    return Message("tool", tool_results=results, given_role=given_role)


def warned(*messages: Message, **of_last: bool) -> list[tuple[str, str]]:
    """Codes and pointers of what the last message is warned of; ``of_last`` are marks of its arrival."""
    flow, warnings = Flow(), list[tuple[str, str]]()
    for index, message in enumerate(messages):
        marks = of_last if index == len(messages) - 1 else {}
        accepted = accept(flow, Arrival(index + 1, index, message, outline_of(message), 1, **marks))
        flow = accepted.flow
        warnings = [(warning.code, warning.pointer.removeprefix(f"/messages/{index}")) for warning in accepted.warnings]
    assert (flow.messages, flow.tokens) == (len(messages), len(messages))
    return warnings


U, A, S = said("user"), said("assistant"), said("system")


@pytest.mark.parametrize(
    ("messages", "code", "pointer"),
    [
        ([said("unknown", given_role="critic")], "unknown_role", "/role"),
        ([U, S], "system_mid", "/role"),
        ([S, S], "system_mid", "/role"),
        ([A], "assistant_first", "/role"),
        ([U, U], "consecutive_user", "/role"),
        ([U, A, A], "consecutive_assistant", "/role"),
        ([said("user", tool_calls=called("a").tool_calls)], "user_tool_calls", "/tool_calls"),
        ([U, called("a"), U], "open_calls", ""),
        ([U, called("a"), said("assistant", given_role="function_call")], "open_calls", ""),
        ([said("user", "")], "empty_content", "/content"),
        ([said("user", " \n")], "empty_content", "/content"),
        ([S, U, Message("assistant", (Thinking("hm"),), given_role="assistant")], "empty_content", "/content"),
        ([U, called("a"), answered("a", text="")], "empty_content", "/content"),
        ([said("user", "a\x00")], "control_chars", "/content"),
        ([U, called("a"), answered("a", text="\x1f")], "control_chars", "/content"),
        ([U, called("")], "missing_id", "/tool_calls/0"),
        ([U, called("a", "")], "missing_id", "/tool_calls/1"),
        ([U, called("a"), answered("")], "missing_id", ""),
        ([U, called("a", "b"), answered("a", "")], "missing_id", "/tool_results/1"),
        ([U, called("a", arguments="[]")], "bad_arguments", "/tool_calls/0"),
        ([U, called("a", arguments="")], "bad_arguments", "/tool_calls/0"),
        ([U, called("a", arguments="[" * 100_000)], "bad_arguments", "/tool_calls/0"),
        ([U, called("a"), answered("x"), called("b"), answered("b")], "result_out_of_order", ""),
        (
            [U, called("a"), answered("x"), called("b", "c"), answered("c", "b")],
            "result_out_of_order",
            "/tool_results/1",
        ),
    ],
)
def test_disorder_is_named_with_its_place(messages: list[Message], code: str, pointer: str) -> None:
    assert (code, pointer) in warned(*messages)


@pytest.mark.parametrize(
    "messages",
    [
        [U],
        [S, U, A, U, A],
        [S, A],
        [U, called("a", "b"), answered("b"), answered("a"), A, U],
        [U, called("a", "b"), answered("b", "a")],
        [U, called("a"), answered("x", "a"), A],
        [U, called("a", given_role="function_call"), called("b", given_role="function_call")],
        [U, A, called("a", given_role="function_call"), answered("a", given_role="function_call_output")],
        [Message("user", (Media("image", url="https://x"),), given_role="user")],
        [U, Message("assistant", (Thinking("hm"),), given_role="reasoning")],
        [U, called("a"), answered("a", text="a\t\n\r")],
        [
            U,
            called("f"),
            Message("tool", tool_results=(ToolResult("", (Text("x"),), "f", by_name=True),), given_role="function"),
        ],
    ],
)
def test_order_has_no_warning(messages: list[Message]) -> None:
    assert warned(*messages) == []


def test_a_message_that_joins_or_continues_is_no_second_one() -> None:
    assert warned(U, U, joins=True) == []
    assert warned(U, A, A, continues=True) == []
    assert warned(U, called("a"), A, continues=True) == []


def test_results_without_ids_are_in_the_order_of_the_calls_without_ids() -> None:
    missing = [("missing_id", ""), ("missing_id", "/tool_results/1")]
    assert warned(U, called("", ""), answered("", "")) == missing
    assert warned(U, called("a"), called("", ""), answered("", "")) == [
        *missing,
        ("result_out_of_order", ""),
        ("result_out_of_order", "/tool_results/1"),
    ]


def test_the_id_of_an_earlier_or_an_open_call_is_repeated_and_no_id_is_not() -> None:
    messages = [called("a", ""), called("", "a"), called("b")]
    arrivals = [Arrival(index + 1, index, message, outline_of(message), 1) for index, message in enumerate(messages)]
    twice, of_before = "/messages/1/tool_calls/1", "/messages/2/tool_calls/0"
    before = OpenCalls(tuple(unanswered_calls(1, outline_of(called("b", "")))))
    assert [warning.pointer for warning in repeated_ids(arrivals, OpenCalls())] == [twice]
    assert [warning.pointer for warning in repeated_ids(arrivals, before)] == [twice, of_before]


def test_a_border_has_the_amounts_before_the_first_loop_and_in_the_loops_since() -> None:
    flow, amounts = Flow(), list[tuple[Amount, Amount]]()
    for index, message in enumerate([S, S, U, A, U, A, A, U]):
        flow = accept(flow, Arrival(index + 1, index, message, outline_of(message), 10)).flow
        amounts.append((flow.lead, flow.closed))
    lead, nothing = Amount(2, 20), Amount()
    assert amounts[1:] == [
        (nothing, nothing),
        *[(lead, nothing)] * 2,
        *[(lead, Amount(2, 20))] * 3,
        (lead, Amount(5, 50)),
    ]


def test_a_call_of_an_earlier_loop_is_not_open() -> None:
    assert warned(U, called("a"), A, U, A) == []
    assert ("open_calls", "") in warned(U, called("a"), A)
