"""What a session's window has in common with the one before it, where what is stored has changed in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Harness
from tests.support.talks import filled
from turnlog.client.model import Session
from turnlog.core.window_parts import PrefixAnswer
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import count_message
from turnlog.sessions import session_history as build_context
from turnlog.settings import Settings

ASK, ANSWER = {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "All is well."}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


def answered(session: Session, meanwhile: Callable[[], object] = lambda: None, **options: Any) -> PrefixAnswer:
    """The prefix of the next window once the model has answered, something has happened, and the user goes on."""
    session.append(ANSWER)
    meanwhile()
    session.append(ASK)
    return session.context(**options).prefix


def begun(harness: Harness, turns: int = 3, **settings: Any) -> Session:
    session = filled(harness.log(), turns, **({"system": "Be brief.", "tools": [TOOL], "recall": "never"} | settings))
    session.append(ASK)
    return session


def test_between_two_calls_only_what_is_new_is_new(harness: Harness) -> None:
    session = begun(harness)
    before = session.context()
    result = answered(session)
    assert (result.broke_at, result.reason) == (None, None)
    assert result.stable_tokens == before.tokens - 3


def test_the_tools_of_recall_and_their_line_are_counted_with_what_they_stand_behind(harness: Harness) -> None:
    session = begun(harness, recall="always")
    before = session.context()
    result = answered(session)
    assert (result.broke_at, result.reason) == (None, None)
    exact = TiktokenCounter().count(json.dumps(before.tools, separators=(",", ":"))) + sum(
        count_message(CODECS["openai_chat"].parse(message), TiktokenCounter()) for message in before.messages
    )
    assert 0.98 * exact <= result.stable_tokens <= exact


def test_other_tools(harness: Harness) -> None:
    session = begun(harness)
    assert answered(session, lambda: session.update(tools=None)) == PrefixAnswer(0, "tools", "tools")
    assert answered(session).reason is None


@pytest.mark.parametrize("format", ["openai_chat", "anthropic"])
def test_another_system_text(harness: Harness, format: str) -> None:
    session = begun(harness)
    result = answered(session, lambda: session.update(system="Be brief, and kind."), format=format)
    assert (result.broke_at, result.reason) == ("system", "system")
    assert 0 < result.stable_tokens < 60, "the tools come first"
    assert answered(session, format=format).reason is None


def test_another_policy(harness: Harness) -> None:
    session = begun(harness)
    result = answered(session, lambda: session.update(policy="run_loops"))
    assert (result.broke_at, result.reason) == ("base", "policy")
    session = begun(harness, session_id="same")
    reason = answered(session, lambda: session.update(policy="run_loops"), policy="full").reason
    assert reason == "policy", "a change of the session's policy begins an epoch, whatever the call names"


def test_another_policy_that_takes_summaries_where_there_is_one(harness: Harness) -> None:
    session = begun(harness, turns=6, policy="full")
    session.compress(keep_loops=1)
    result = answered(session, lambda: session.update(policy="default", system="Be kind."))
    assert (result.broke_at, result.reason) == ("system", "system")
    session.update(policy="full")
    result = answered(session, lambda: session.update(policy="default", tools=None))
    assert (result.broke_at, result.reason) == ("tools", "tools")
    session.update(policy="full")
    assert answered(session, lambda: session.update(policy="default")).reason == "policy"


def test_a_model_of_another_size(harness: Harness) -> None:
    harness.app.settings = Settings(models={"small": 2_200, "large": 100_000})
    session = begun(harness, turns=6, model="large", output_reserve=1)
    assert answered(session, lambda: session.update(model="small")).reason == "budget"


def test_a_build_says_the_same_of_settings_that_have_changed(harness: Harness) -> None:
    session = begun(harness, turns=5, policy={"steps": [{"step": "turns", "n": 2}]}, model="gpt-4o")
    changes: list[dict[str, Any]] = [
        {"tools": None},
        {"system": "Be kind."},
        {"policy": "run_loops"},
        {"model": "o3", "output_reserve": 100_000},
    ]
    for change in changes:
        answered(session, lambda item=change: session.update(**item))  # type: ignore[misc]
        for options in ({}, {"policy": "full"}, {"budget": 3_000}, {"tools": [TOOL]}, {"format": "anthropic"}):
            window = session.context(**options)  # type: ignore[arg-type]
            again = session.context(build=window.manifest.build, tools=options.get("tools"))  # type: ignore[arg-type]
            assert again == window


def test_a_learned_factor(harness: Harness) -> None:
    session = begun(harness, turns=4)
    window = session.context(budget=4_500)
    usage = {
        "window": {"position": window.head, "tokens": window.tokens},
        "usage": {"input_tokens": 2 * window.tokens, "output_tokens": 1},
    }
    for _ in range(2):
        session.append({"role": "system", "content": "note"}, **usage)
        assert answered(session, budget=4_500).reason is None
    session.append(ANSWER, ASK, **usage)
    result = session.context(budget=4_500)
    assert result.manifest.budget.factor == 2
    assert (result.prefix.broke_at, result.prefix.reason) == ("base", "budget")


def test_a_new_summary(harness: Harness) -> None:
    session = begun(harness, turns=8)
    before = session.context()
    result = answered(session, lambda: session.compress(keep_loops=2))
    assert (result.broke_at, result.reason) == ("summary", "summary")
    assert result.stable_tokens == sum(
        part.tokens for part in before.manifest.parts if part.kind in ("system", "tools")
    )
    assert answered(session).reason is None, "the next one has it already"
    assert answered(session, policy="full").reason is None, "this one never has it"


def test_one_that_covers_the_newest_answer(harness: Harness) -> None:
    session = filled(harness.log(), 8)
    session.append(ASK)
    session.compress(keep_loops=0)
    result = session.context().prefix
    assert (result.broke_at, result.reason) == ("summary", "summary")


def test_a_log_longer_than_what_is_read(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_context, "MAX_PAGES", 1)
    monkeypatch.setattr(build_context, "FIRST_ITEMS", 6)
    session = filled(harness.log(), 1, system="Be brief.", recall="never")
    for _ in range(8):
        session.append(ANSWER)
        session.append(ASK)
    window = session.context()
    assert any(part.reason == "not_read" for part in window.manifest.parts)
    assert (window.prefix.broke_at, window.prefix.reason) == ("base", "not_read")
    assert window.prefix.stable_tokens == window.manifest.totals["system"]


@pytest.mark.parametrize("budget", [100_000, 700, 450])
def test_what_is_stable_where_a_window_reads_a_part_of_the_log(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    monkeypatch.setattr(build_context, "MAX_PAGES", 1)
    monkeypatch.setattr(build_context, "FIRST_ITEMS", 24)
    session = filled(harness.log(), 1, system="Be brief.", recall="never")
    before = session.context(budget=budget)
    for number in range(40):
        session.append({**ASK, "content": f"question {number} " * 8}, {**ANSWER, "content": f"answer {number} " * 8})
        session.append({**ASK, "content": f"and {number}?"})
        window = session.context(budget=budget)
        if window.manifest.epoch == before.manifest.epoch:
            assert window.messages[: len(before.messages)] == before.messages, number
        before = window
        session.append({**ANSWER, "content": f"so {number}"})


def test_no_request_more_but_for_changed_settings(tmp_path: Any) -> None:
    from tests.conftest import sqlite_harness

    with sqlite_harness(tmp_path) as harness:
        session = begun(harness)
        calls = harness.faults.calls
        session.context()
        assert harness.faults.calls - calls == 1
        answered(session, lambda: session.update(policy="run_loops"))
        calls = harness.faults.calls
        session.context()
        assert harness.faults.calls - calls == 1
        session.append(ANSWER, ASK)
        calls = harness.faults.calls
        session.context()
        assert harness.faults.calls - calls == 1
