"""A run of many calls in one loop, seen from outside: what its windows say of themselves while it grows."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import Turnlog


def call_and_result(number: int) -> list[dict[str, Any]]:
    function = {"name": "look", "arguments": "{}"}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} " + "found this and that " * 20},
    ]


@pytest.mark.parametrize("budget", [400, 800, 1_200])
def test_a_window_says_when_steps_of_the_run_went_into_its_note(budget: int) -> None:
    """Each window is within the budget; and it begins as the one before, or says that the note has changed."""
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        session.append({"role": "user", "content": "do it " * 10})
        reasons, before = list[str | None](), list[Any]()
        for number in range(20):
            session.append(*call_and_result(number))
            window = session.context(budget=budget)
            assert window.tokens <= budget
            if window.messages[: len(before)] == before:
                assert window.prefix.reason is None
            reasons.append(window.prefix.reason)
            before = window.messages
    assert {"crossing"} <= set(reasons[1:]) <= {"crossing", "large_result", "tools", None}
