"""Borders of run loops: each sentence of "Loop borders" in docs/windows, on the smallest history that shows it."""

from __future__ import annotations

import pytest

from turnlog.core.calls import outline_of
from turnlog.core.loops import Arrival, LoopState
from turnlog.core.messages import Message, Role, ToolCall

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
