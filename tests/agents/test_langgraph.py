"""A real graph of LangGraph, whose messages are objects: every message is in the log once, and comes back equal."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.graph_states import bodies, session_of
from turnlog.agents.graph_state.conversion import load_graph_state, save_graph_state
from turnlog.client.model import Turnlog


@pytest.fixture(scope="module")
def graphs() -> Any:
    return importlib.import_module("tests.agents.graphs")


@pytest.fixture
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as made:
        yield made


@pytest.mark.parametrize("is_async", [False, True])
def test_a_graph_with_a_tool_and_a_memory_is_in_the_log_once(log: Turnlog, graphs: Any, is_async: bool) -> None:
    session = session_of(log)
    graph = graphs.agent(session, is_async=is_async)
    config = {"configurable": {"thread_id": "t"}}
    state: Any = None
    for at, question in enumerate(("Where is SKU-1?", "And SKU-2?")):
        values = {"messages": [{"role": "user", "content": question}], "iteration": at}
        state = asyncio.run(graph.ainvoke(values, config)) if is_async else graph.invoke(values, config)
    assert [body["role"] for body in bodies(session)] == ["user", "assistant", "tool", "assistant"] * 2
    assert [loop.reply for loop in session.loops()] == ["It is in aisle 4.", "It is in aisle 4."]
    assert load_graph_state(session).state["messages"] == state["messages"]
    assert state["metadata"]["snapshot_id"] and state["metadata"]["validation_errors"] == []
    assert next(session.history(action="state_conversion")).metadata["direction"] == "from_session"
    for format in ("openai_chat", "anthropic", "bedrock_converse", "openai_responses"):
        window = session.context(format=format)
        assert log.lint(window.messages, format=format).problems == []


def test_message_objects_come_back_equal(log: Turnlog, graphs: Any) -> None:
    session, result = session_of(log), graphs.every_kind()
    for _ in range(2):
        save_graph_state(session, {"messages": result, "handler": print})
    back = load_graph_state(session).state["messages"]
    assert back == result and [type(item) for item in back] == [type(item) for item in result]
    assert [message.id for message in session.messages()] == [item.id for item in result]


def test_a_graph_that_removes_messages_and_summarises_keeps_the_log_whole(log: Turnlog, graphs: Any) -> None:
    session = session_of(log)
    graph = graphs.compressing(session)
    config = {"configurable": {"thread_id": "t"}}
    for at in range(4):
        state = graph.invoke({"messages": [{"role": "user", "content": f"question {at}"}]}, config)
    said = [body["content"] for body in bodies(session) if body["role"] != "system"]
    assert said == [text for at in range(4) for text in (f"question {at}", f"reply to question {at}")]
    assert len(state["messages"]) < len(said)


def test_nodes_side_by_side_lose_and_double_nothing(log: Turnlog, graphs: Any) -> None:
    session = session_of(log)
    graphs.parallel(session).invoke({"messages": [{"role": "user", "content": "all of you"}]})
    said = [body["content"] for body in bodies(session)]
    assert said[0] == "all of you" and sorted(said[1:]) == ["branch 0", "branch 1", "branch 2", "together"]


def test_shorthand_messages_of_nodes_are_in_the_log_once(log: Turnlog, graphs: Any) -> None:
    session = session_of(log)
    state = graphs.shorthand(session).invoke({"messages": "hello"})
    assert [message.content for message in state["messages"]] == ["hello", "one", "and?", "two"]
    assert [body["content"] for body in bodies(session)] == ["hello", "one", "and?", "two"]
    save_graph_state(session, state)
    assert len(bodies(session)) == 4
