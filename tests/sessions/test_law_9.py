"""W9 on every engine, in every format: the recall tools and their line are in all windows, in none, or since one is partial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.talks import AMPLE, turn
from turnlog.client.model import Session
from turnlog.sessions.context_models import WindowAnswer
from turnlog.windows.request import RECALL_LINE, recall_tools

FORMATS = ("openai_chat", "openai_responses", "anthropic", "bedrock_converse")
OWN = {"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}
BUDGET = 1_500


def front(window: WindowAnswer, format: str) -> tuple[Any, Any]:
    """What comes first in every provider's cache: the tools and the system text."""
    is_first = format.startswith("openai")
    return window.tools, window.messages[0] if is_first else window.system


def windows(session: Session, format: str) -> Iterator[WindowAnswer]:
    """The windows of a session that grows: empty, whole, under a budget that presses, summarised, of the past, rebuilt."""
    yield session.context(format=format)
    for number in range(1, 9):
        session.append(*turn(number))
        yield session.context(format=format, budget=(AMPLE, BUDGET)[number % 2])
        if number in (4, 7):
            session.compress(keep_loops=1)
            for policy in ("default", "run_loops", "buffer", "turns(2)"):
                yield session.context(format=format, policy=policy, budget=AMPLE)
    newest = session.context(format=format)
    assert {part.kind for part in newest.manifest.parts} >= {"summary", "loop"}
    yield newest
    yield session.context(format=format, at=6)
    yield session.context(build=newest.manifest.build)
    yield session.context(format=format, include_current_loop=False, answer_open_calls=True)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("system", ["Be brief.", None])
def test_W9_the_recall_tools_and_their_line_are_in_every_window(log: Any, format: str, system: str | None) -> None:
    session = log.sessions.create("s", tools=[OWN], system=system, recall="always")
    fronts = [front(window, format) for window in windows(session, format)]
    tools, result = fronts[0]
    assert tools[-2:] == recall_tools(format) and len(tools) == 3
    assert str(result).count(RECALL_LINE) == 1
    assert fronts == [fronts[0]] * len(fronts)
    again = log.sessions.create("s", recall="never", if_exists="return")
    assert again.info().recall == "always" and front(again.context(format=format), format) == fronts[0]


@pytest.mark.parametrize("format", FORMATS)
def test_W9_or_in_none(log: Any, format: str) -> None:
    session = log.sessions.create("s", tools=[OWN], system="Be brief.", recall="never")
    for window in windows(session, format):
        assert "recall_tool_call" not in str(window.tools) and len(window.tools) == 1
        assert RECALL_LINE not in str(window.messages) + str(window.system)
    again = log.sessions.create("s", recall="always", if_exists="return")
    assert again.info().recall == "never" and len(again.context(format=format).tools) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_W9_tools_of_the_call_have_them_behind_them(log: Any, format: str) -> None:
    session = log.sessions.create("s", tools=[OWN], recall="always")
    session.append(*turn(1))
    for own in ([], [OWN], [OWN, {**OWN, "function": {**OWN["function"], "name": "other"}}]):  # type: ignore[dict-item]
        window = session.context(format=format, tools=own)
        assert window.tools[len(own) :] == recall_tools(format)
        assert session.context(build=window.manifest.build, tools=own) == window


def has_recall(window: WindowAnswer) -> bool:
    assert ("recall_tool_call" in str(window.tools)) == (RECALL_LINE in str(window.messages) + str(window.system))
    return "recall_tool_call" in str(window.tools)


@pytest.mark.parametrize("format", FORMATS)
def test_W9_by_default_they_come_with_the_first_window_that_leaves_something_out_and_stay(
    log: Any, format: str
) -> None:
    session = log.sessions.create("s", tools=[OWN], system="Be brief.")
    bare = log.sessions.create("bare", tools=[OWN], system="Be brief.", recall="never")
    assert session.info().recall == "auto"
    result = list[WindowAnswer]()
    for number in range(1, 8):
        for message in turn(number):
            if message["role"] == "assistant":
                result.append(session.context(format=format, budget=BUDGET))
                if not has_recall(result[-1]):
                    assert result[-1].messages == bare.context(format=format, budget=BUDGET).messages
            session.append(message)
            bare.append(message)
    have = [has_recall(window) for window in result]
    first = have.index(True)
    assert first >= 1 and have == [False] * first + [True] * (len(have) - first)
    assert (result[first].prefix.broke_at, result[first].prefix.stable_tokens) == ("tools", 0)
    assert all(window.prefix.broke_at != "tools" for window in result[first + 1 :])
    assert len({window.manifest.epoch.id for window in result}) > 2, "tools that came do not go with a later epoch"
    rebuilt = session.context(build=result[first].manifest.build)
    assert has_recall(rebuilt) and not has_recall(session.context(build=result[first - 1].manifest.build))


def test_W9_a_summary_brings_them_too(log: Any) -> None:
    session = log.sessions.create("s", tools=[OWN])
    for number in range(1, 5):
        session.append(*turn(number))
    assert not has_recall(session.context(budget=AMPLE))
    session.compress(keep_loops=1)
    window = session.context(budget=AMPLE)
    assert has_recall(window)
    assert (window.prefix.broke_at, window.prefix.reason) == ("tools", "summary")
    session.append({"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Yes."})
    again = session.context(budget=AMPLE)
    assert has_recall(again) and again.prefix.broke_at is None


def test_W9_policies_that_leave_out_by_rule_have_them_in_every_window(log: Any) -> None:
    session = log.sessions.create("s", policy="run_loops")
    session.append({"role": "user", "content": "Hello."})
    assert has_recall(session.context())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_a_window_of_which_nothing_can_be_sent_is_no_empty_request(log: Any, format: str, system: str | None) -> None:
    """Recall's line is not sent before something is left out, so it does not stand for a message."""
    session = log.sessions.create("s", system=system)
    late = {"role": "tool", "tool_call_id": "of nobody", "content": "late"}
    for messages in ((), (late,)):
        if messages:
            session.append(*messages)
        window = session.context(format=format)
        assert window.messages and log.lint(window.messages, format=format).problems == []
