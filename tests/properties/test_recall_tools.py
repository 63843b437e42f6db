"""Law 9: the recall tools and their line are in all of a session's windows, in none, or since something is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from turnlog import Turnlog, build_window
from turnlog.core.errors import BudgetTooSmallError
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.linter.rules import lint
from turnlog.providers.blocks import shape_of
from turnlog.providers.registry import codec_of
from turnlog.providers.token_rules import count_tools
from turnlog.windows.budgets import Budget
from turnlog.windows.policy import policy_of
from turnlog.windows.request import (
    RECALL_LINE,
    RECALL_LINE_TOKENS,
    RECALL_TOOLS_TOKENS,
    WindowRequest,
    recall_tools,
    system_cost,
    with_recall,
)

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


def shaped(format: str, name: str, **parameters: Any) -> dict[str, Any]:
    """A tool as somebody writes it who knows one format only."""
    schema = {"type": "object", "properties": parameters}
    if format == "anthropic":
        return {"name": name, "description": "é", "input_schema": schema}
    if format == "bedrock_converse":
        return {"toolSpec": {"name": name, "description": "é", "inputSchema": {"json": schema}}}
    function = {"name": name, "description": "é", "parameters": schema}
    if format == "openai_responses":
        return {"type": "function", **function}
    return {"type": "function", "function": function}


def names(tools: list[Any]) -> list[str]:
    return [(tool.get("function") or tool.get("toolSpec") or tool)["name"] for tool in tools]


def test_the_constants_are_what_the_tokeniser_counts() -> None:
    assert COUNTER.count(RECALL_LINE) == RECALL_LINE_TOKENS
    counts = [count_tools(recall_tools(format), COUNTER) for format in FORMATS]
    assert max(counts) == RECALL_TOOLS_TOKENS and min(counts) > 0.9 * RECALL_TOOLS_TOKENS


def test_W9_they_are_in_every_window_of_a_session_from_the_first_one_on(log: Turnlog) -> None:
    session = log.sessions.create(system="Be brief.", tools=[tool("get_order")], recall="always")
    assert session.info().recall == "always"
    for _ in range(3):
        window = session.context(budget=2_000)
        assert window.messages[0] == {"role": "system", "content": f"Be brief.\n\n{RECALL_LINE}"}
        assert names(window.tools) == ["get_order", "recall_tool_call", "search_history"]
        session.append(HI, {"role": "assistant", "content": "word " * 200})
    bare = log.sessions.create(recall="always")
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
    session = log.sessions.create(tools=[tool("search_history", description="theirs")], recall="always")
    assert names(session.context().tools) == ["search_history", "recall_tool_call"]
    mine = [{"name": "recall_tool_call", "input_schema": {}}, {"toolSpec": {"name": "search_history"}}]
    assert names(session.context(tools=mine).tools) == ["recall_tool_call", "search_history"]


@pytest.mark.parametrize("given", FORMATS)
@pytest.mark.parametrize("sent", FORMATS)
def test_beside_tools_of_any_shape_they_have_the_shape_of_the_format(log: Turnlog, given: str, sent: str) -> None:
    own = [shaped(given, "look", city={"type": "string"}), shaped(given, "search_history")]
    session = log.sessions.create(tools=own, system="You find things.", recall="always")
    session.append(HI)
    for window in (session.context(format=sent), session.context(format=sent, tools=own)):
        assert names(window.tools) == ["look", "search_history", "recall_tool_call"]
        if sent != "turnlog":
            assert window.tools == [*codec_of(sent).tools(own), recall_tools(sent)[0]]
            assert {shape_of(tool) for tool in window.tools} == {sent}
            assert lint(window.messages, format=sent) == []
        is_first = sent in ("openai_chat", "openai_responses")
        result = window.messages[0]["content"] if is_first else window.system
        assert str(result).count("You find things.") == str(result).count(RECALL_LINE) == 1
        assert count_tools(window.tools, COUNTER) <= window.manifest.totals["tools"]


def test_ours_are_not_charged_anew_with_tools_of_another_shape(log: Turnlog) -> None:
    own = [shaped("anthropic", "look")]
    bare, full = log.sessions.create(recall="never", tools=own), log.sessions.create(tools=own, recall="always")
    for format in ("openai_chat", "bedrock_converse"):
        added = (
            full.context(format=format).manifest.totals["tools"] - bare.context(format=format).manifest.totals["tools"]
        )
        assert RECALL_TOOLS_TOKENS <= added <= RECALL_TOOLS_TOKENS + 12


def test_a_tool_that_is_not_sent_takes_no_name(log: Turnlog) -> None:
    """One that another provider runs itself, of a name of ours."""
    session = log.sessions.create(tools=[{"type": "web_search_20250305", "name": "search_history"}], recall="always")
    assert names(session.context(format="anthropic").tools) == ["search_history", "recall_tool_call"]
    assert names(session.context(format="openai_chat").tools) == ["recall_tool_call", "search_history"]


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses"])
def test_a_custom_tool_of_the_same_name_takes_its_place_too(log: Turnlog, format: str) -> None:
    named = {"name": "search_history"}
    own = {"type": "custom", "custom": named} if format == "openai_chat" else {"type": "custom", **named}
    assert len(log.sessions.create(tools=[own], recall="always").context(format=format).tools) == 2


def test_an_empty_system_text_is_none(log: Turnlog) -> None:
    assert log.sessions.create(system="", recall="always").context(format="anthropic").system == RECALL_LINE


def test_they_are_counted_within_the_budget(log: Turnlog) -> None:
    session = log.sessions.create(recall="always")
    session.append(HI)
    window = session.context()
    assert window.manifest.totals["tools"] == RECALL_TOOLS_TOKENS
    assert window.manifest.totals["system"] == system_cost(RECALL_LINE_TOKENS)
    assert session.context(budget=window.tokens).tokens == window.tokens
    with pytest.raises(BudgetTooSmallError):
        session.context(budget=window.tokens - 1)


@settings(max_examples=examples(400), deadline=None, derandomize=not is_full())
@given(st.text(max_size=20) | ENDS, ENDS, st.sampled_from(FORMATS))
@example("", "", "openai_chat")
@example("x'", "'", "anthropic")
@example("日本語" * 40, "", "openai_chat")
@example("", "日本語" * 40, "bedrock_converse")
@example("a ... !!", "a }}}}}", "openai_chat")
def test_joined_with_any_text_they_take_at_most_what_is_counted(system: str, end: str, format: str) -> None:
    given = [
        tool("a"),
        {"name": "b", "description": end, "input_schema": {}},
        {"name": "c", "input_schema": {"z": end}},
    ]
    own = codec_of(format).tools(given)
    request = WindowRequest(
        policy=policy_of("full"),
        budget=Budget(10_000, "given"),
        format=format,
        system=system,
        system_tokens=system_cost(COUNTER.count(system)),
        system_least=system_cost(COUNTER.count(system)),
        tools=own,
        tools_tokens=count_tools(own, COUNTER),
        tools_least=count_tools(own, COUNTER),
    )
    made = with_recall(request)
    assert made.system is not None
    assert made.system_least is not None
    assert made.tools_least is not None
    assert made.system_least <= system_cost(COUNTER.count(made.system)) <= made.system_tokens
    assert made.tools_least <= count_tools(list(made.tools), COUNTER) <= made.tools_tokens
    assert made.tools_tokens - made.tools_least <= 60 + 4 * len(end)
    assert made.tools_tokens - request.tools_tokens < RECALL_TOOLS_TOKENS + 12 + 2 * len(end)
    assert made.system_tokens - request.system_tokens <= RECALL_LINE_TOKENS + 4 + 4 * len(tail(system))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("own", [[], [shaped("openai_chat", "look")], [shaped("openai_chat", "search_history")]])
@pytest.mark.parametrize("system", [None, "", "Be brief."])
def test_a_lower_bound_is_known_just_where_it_was_known_of_the_requests_own_texts(
    system: str | None, own: list[dict[str, Any]], format: str
) -> None:
    tools = codec_of(format).tools(own)
    system_tokens, tools_tokens = system_cost(COUNTER.count(system or "")), count_tools(tools, COUNTER)
    bare = WindowRequest(
        policy=policy_of("full"),
        budget=Budget(10_000, "given"),
        format=format,
        system=system,
        system_tokens=system_tokens,
        tools=tools,
        tools_tokens=tools_tokens,
    )
    without = with_recall(bare)
    assert (without.system_least is None) == bool(system)
    assert without.tools_least is None
    known = with_recall(replace(bare, system_least=system_tokens, tools_least=tools_tokens))
    assert known.system_least is not None and known.system_least >= system_cost(RECALL_LINE_TOKENS)
    assert known.system_least <= system_cost(COUNTER.count(str(known.system))) <= known.system_tokens
    assert known.system_tokens - known.system_least <= 6
    if own:
        counted = count_tools(list(known.tools), COUNTER)
        assert known.tools_least is not None and known.tools_least <= counted
        if "search_history" not in names(own):
            assert known.tools_least >= counted - 60


def test_a_name_that_is_no_text_names_nothing() -> None:
    odd = [{"name": ["search_history"]}, {"name": 5}, {"function": {"name": {}}, "name": "recall_tool_call"}]
    request = WindowRequest(policy=policy_of("full"), budget=Budget(10_000, "given"), format="turnlog", tools=odd)
    assert [_name(made) for made in with_recall(request).tools][len(odd) :] == ["search_history"]


def _name(made: dict[str, Any]) -> object:
    return made["function"]["name"] if "function" in made else made["name"]


def test_without_own_tools_and_with_all_of_ours_nothing_is_charged_but_what_is_sent() -> None:
    request = WindowRequest(policy=policy_of("full"), budget=Budget(10_000, "given"), format="openai_chat")
    assert (with_recall(request).tools_tokens, with_recall(request).tools_least) == (RECALL_TOOLS_TOKENS, None)
    ours = recall_tools("openai_chat")
    full = with_recall(replace(request, tools=ours, tools_tokens=RECALL_TOOLS_TOKENS, tools_least=200))
    assert (full.tools, full.tools_tokens, full.tools_least) == (ours, RECALL_TOOLS_TOKENS, 200)


def tail(text: str) -> str:
    """What stands behind the last letter or digit."""
    return text[len(text) - next((at for at, char in enumerate(reversed(text)) if char.isalnum()), len(text)) :]
