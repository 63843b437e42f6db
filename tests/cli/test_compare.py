"""The difference between two manifests."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import is_full
from tests.properties.building import Asked, stored, window
from tests.properties.histories import disorderly
from turnlog import Turnlog, build_window
from turnlog.cli.window_tables import Change, compare
from turnlog.core.errors import BudgetTooSmallError
from turnlog.sessions.context_models import WindowAnswer

MESSAGES: list[dict[str, Any]] = [
    message
    for number in range(8)
    for message in (
        {"role": "user", "content": f"Question {number} " + "about the order " * 30},
        {"role": "assistant", "content": f"Answer {number} " + "it has left the house " * 30},
    )
]


def told(before: WindowAnswer, after: WindowAnswer) -> list[tuple[str, str, int | None]]:
    return [
        (item.change, item.part.kind, item.part.loop) for item in compare(before.manifest.parts, after.manifest.parts)
    ]


def test_a_window_does_not_differ_from_itself() -> None:
    result = build_window(MESSAGES, budget=900)
    assert compare(result.manifest.parts, result.manifest.parts) == ()


def test_a_new_exchange_is_new_and_nothing_else() -> None:
    before, after = build_window(MESSAGES[:4]), build_window(MESSAGES[:6])
    assert told(before, after) == [("came", "loop", 3)]
    assert told(after, before) == [("went", "loop", 3)]


def test_a_message_within_a_loop_is_told_with_its_loop() -> None:
    before, after = build_window(MESSAGES[:3]), build_window(MESSAGES[:4])
    changes = compare(before.manifest.parts, after.manifest.parts)
    assert [(change.change, change.part.kind, change.part.first) for change in changes] == [
        ("tokens", "loop", 3),
        ("came", "message", 4),
    ]
    assert {change.tokens for change in changes} == {after.tokens - before.tokens}


def test_a_result_that_leaves_the_messages_before_the_first_loop_counts_once() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "a", "content": "found"}
    history = [{"role": "system", "content": None, "tool_calls": [call]}, MESSAGES[0], result]
    before, after = build_window(history), build_window([*history, result])
    changes = compare(before.manifest.parts, after.manifest.parts)
    own = [change for change in changes if not _is_within_a_loop(change)]
    assert {(change.change, change.part.first) for change in own} == {("went", 3), ("came", 4)}
    assert sum(change.tokens for change in own) == after.tokens - before.tokens


def test_a_crossing_is_told_by_loops_with_levels_and_tokens() -> None:
    before, after = build_window(MESSAGES), build_window(MESSAGES, budget=1_000)
    changes = compare(before.manifest.parts, after.manifest.parts)
    levels = [
        (change.part.loop, change.before.level, change.after.level)
        for change in changes
        if change.before and change.after
    ]
    assert levels and {level for _, _, level in levels} <= {"digest", "out"}
    assert all(change.tokens < 0 and change.part.kind == "loop" for change in changes if change.change == "level")
    assert {change.change for change in changes} <= {"level", "came", "went"}, "a line may come"
    assert all(change.part.kind == "loop" for change in changes if change.change == "went"), (
        "the part older stands for it"
    )
    assert sum(change.tokens for change in changes) == after.tokens - before.tokens


def test_a_summary_comes_where_it_is_sent() -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", system="Be brief.")
        for question, answer in zip(MESSAGES[::2], MESSAGES[1::2], strict=True):
            session.append(question, answer)
        head = session.info().head
        session.compress(keep_loops=1)
        result = told(session.context(at=head), session.context())
    assert ("came", "summary", None) in result
    assert {change for change, kind, _ in result if kind == "loop"} <= {"went", "level"}


@settings(max_examples=60, derandomize=not is_full(), deadline=None)
@given(disorderly(max_size=30), st.integers(300, 3000), st.integers(0, 30))
def test_the_changes_of_loops_and_single_parts_add_up(history: Any, budget: int, upto: int) -> None:
    held = stored(history)
    try:
        before, after = window(held, Asked("full", 10_000_000), upto=upto), window(held, Asked("default", budget))
    except BudgetTooSmallError:
        return
    changes = compare(before.manifest.parts, after.manifest.parts)
    assert sum(change.tokens for change in changes if not _is_within_a_loop(change)) == after.tokens - before.tokens
    back = compare(after.manifest.parts, before.manifest.parts)
    assert sorted(item.tokens for item in back) == sorted(-change.tokens for change in changes)


def _is_within_a_loop(change: Change) -> bool:
    return change.part.kind == "message" and change.part.loop is not None
