"""Law 9: the recall tools and their line are in a session's windows from the first one on or never, and are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnlog import Turnlog, build_window
from turnlog.adapters.tokens.tiktoken_counter import TiktokenCounter
from turnlog.codecs.counting import count_tools
from turnlog.domain.errors import BudgetTooSmallError
from turnlog.windows.build import Request, system_cost
from turnlog.windows.models import Budget
from turnlog.windows.policy import policy_of
from turnlog.windows.recall import RECALL_LINE, RECALL_LINE_TOKENS, RECALL_TOOLS_TOKENS, recall_tools, with_recall

COUNTER = TiktokenCounter()
FORMATS = ("openai_chat", "turnlog", "openai_responses", "anthropic", "bedrock_converse")
HI = {"role": "user", "content": "hi"}
ENDS = st.text(
    st.sampled_from(
        ["a", "7", ".", "!", "}", "]", '"', "'", " ", "\n", "\r", "\t", "/", "é", "。", "日", "-", "\u00a0"]
    )
)


@pytest.fixture(scope="module")
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as opened:
        yield opened


def tool(name: str, **extra: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **extra}}


def names(tools: list[Any]) -> list[str]:
    return [one["function"]["name"] for one in tools]


def test_the_constants_are_what_the_tokeniser_counts() -> None:
    assert COUNTER.count(RECALL_LINE) == RECALL_LINE_TOKENS
    counts = [count_tools(recall_tools(format), COUNTER) for format in FORMATS]
    assert max(counts) == RECALL_TOOLS_TOKENS and min(counts) > 0.9 * RECALL_TOOLS_TOKENS


def test_W9_they_are_in_every_window_of_a_session_from_the_first_one_on(log: Turnlog) -> None:
    session = log.sessions.create(system="Be brief.", tools=[tool("get_order")])
    assert session.info().recall == "always"
    for _ in range(3):
        window = session.context(budget=2_000)
        assert window.messages[0] == {"role": "system", "content": f"Be brief.\n\n{RECALL_LINE}"}
        assert names(window.tools) == ["get_order", "recall_tool_call", "search_history"]
        session.append(HI, {"role": "assistant", "content": "word " * 200})
    bare = log.sessions.create()
    bare.append(HI)
    assert bare.context().messages == [{"role": "system", "content": RECALL_LINE}, HI]


def test_W9_or_never(log: Turnlog) -> None:
    session = log.sessions.create(system="Be brief.", recall="never")
    session.append(HI)
    window = session.context()
    assert (window.messages[0]["content"], window.tools) == ("Be brief.", [])
    assert session.info().recall == "never"
    assert build_window([HI]).messages == [HI]
    assert log.build_window([HI]).tools == []


def test_a_tool_of_the_same_name_takes_the_place_of_ours(log: Turnlog) -> None:
    session = log.sessions.create(tools=[tool("search_history", description="theirs")])
    assert names(session.context().tools) == ["search_history", "recall_tool_call"]
    mine = [{"name": "recall_tool_call", "input_schema": {}}, {"toolSpec": {"name": "search_history"}}]
    assert session.context(tools=mine).tools == mine


def test_they_are_counted_within_the_budget(log: Turnlog) -> None:
    session = log.sessions.create()
    session.append(HI)
    window = session.context()
    assert window.manifest.totals["tools"] == RECALL_TOOLS_TOKENS
    assert window.manifest.totals["system"] == system_cost(RECALL_LINE_TOKENS)
    assert session.context(budget=window.tokens).tokens == window.tokens
    with pytest.raises(BudgetTooSmallError):
        session.context(budget=window.tokens - 1)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.text(max_size=20) | ENDS, ENDS, st.sampled_from(FORMATS))
@example("", "", "openai_chat")
@example("x'", "'", "anthropic")
@example("a ... !!", "a }}}}}", "openai_chat")
def test_joined_with_any_text_they_take_at_most_what_is_counted(system: str, end: str, format: str) -> None:
    own = [tool("a"), {"name": "b", "description": end, "x": [{}]}, {"name": "c", "z": end}]
    request = Request(
        policy=policy_of("full"),
        budget=Budget(10_000, "given"),
        format=format,
        system=system,
        system_tokens=system_cost(COUNTER.count(system)),
        tools=own,
        tools_tokens=count_tools(own, COUNTER),
    )
    made = with_recall(request)
    assert made.system is not None
    assert system_cost(COUNTER.count(made.system)) <= made.system_tokens
    assert count_tools(list(made.tools), COUNTER) <= made.tools_tokens
    assert made.tools_tokens - request.tools_tokens < RECALL_TOOLS_TOKENS + 12 + 2 * len(end)
