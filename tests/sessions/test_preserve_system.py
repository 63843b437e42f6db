"""A session with `preserve_system: false`, on every engine: what falls out of its windows comes back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.talks import turn
from turnlog import Policy
from turnlog.core.errors import BudgetTooSmallError

FORMATS = ("openai_chat", "openai_responses", "anthropic", "bedrock_converse", "turnlog", "ai_sdk", "openai_agents_js")
RULES = {"role": "system", "content": "The rules of house W-10023. " + "Answer in one sentence. " * 400}
MIDDLE = {"role": "developer", "content": "From here on the rules of house W-20046 hold. " + "Be brief. " * 600}
BUDGET = 1_200
KEPT, RELEASED = (Policy.from_options({"preserve_system": keep}) for keep in (True, False))


@pytest.mark.parametrize("format", FORMATS)
def test_a_system_message_larger_than_the_budget_falls_out_and_comes_back(log: Any, format: str) -> None:
    session = log.sessions.create("s", policy=RELEASED, recall="never")
    session.append(RULES, {"role": "user", "content": "Hello."})
    with pytest.raises(BudgetTooSmallError) as caught:
        session.context(policy=KEPT, budget=BUDGET, format=format)
    needed = caught.value.details["needed"]
    assert session.context(policy=KEPT, budget=needed, format=format).tokens <= needed
    for policy in (RELEASED, *(Policy(preserve_system=False, steps=steps) for steps in ((), KEPT.steps))):
        window = session.context(policy=policy, budget=BUDGET, format=format)
        assert "W-10023" not in str((window.system, window.messages)) and "Hello." in str(window.messages)
        assert [part.reason for part in window.manifest.parts if part.level == "out"]
        assert session.context(build=window.manifest.build).messages == window.messages
    whole = session.context(format=format, budget=needed)
    assert "W-10023" in str((whole.system, whole.messages)), "with room it is in"
    assert "W-10023" in str(session.recall("2"))


def test_one_in_the_current_loop_falls_out_when_nothing_else_fits(log: Any) -> None:
    session = log.sessions.create("s", policy=RELEASED, recall="never")
    session.append({"role": "user", "content": "Hello."}, MIDDLE)
    with pytest.raises(BudgetTooSmallError):
        session.context(policy=KEPT, budget=BUDGET)
    window = session.context(budget=BUDGET)
    assert window.messages[-1]["content"] == "Hello." and "W-20046" not in str(window.messages)
    left_out = [part for part in window.manifest.parts if part.level == "out"]
    assert [(part.kind, part.first, part.reason) for part in left_out] == [("message", 3, "budget")]
    assert "W-20046" in str(session.recall("3"))


def test_under_a_summary_they_are_covered_and_a_preserving_policy_has_them_again(log: Any) -> None:
    session = log.sessions.create("s", policy=RELEASED, recall="never")
    session.append({"role": "system", "content": "The rules of house W-10023."})
    for number in range(1, 7):
        session.append(*turn(number))
    session.compress(keep_loops=2)
    released, kept = session.context(), session.context(policy=KEPT)
    assert {part.reason for part in released.manifest.parts if part.first == 2 and part.kind == "message"} == {
        "summary"
    }
    assert "W-10023" not in str(released.messages) and "W-10023" in str(kept.messages)
