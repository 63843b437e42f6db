"""Graphs of LangGraph. A module of its own: it takes seconds to import."""

from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from turnlog.agents.graph_state.conversion import with_state
from turnlog.client.model import Session


class State(MessagesState):
    iteration: int
    metadata: dict[str, Any]
    errors: list[Any]
    compression_applied: bool


def model(state: State, config: RunnableConfig) -> dict[str, Any]:
    assert config["configurable"]["thread_id"] == "t"
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage("It is in aisle 4.", response_metadata={"model": "scripted"})]}
    call = {"name": "find", "args": {"sku": "SKU-1"}, "id": "c1"}
    return {"messages": [AIMessage("", tool_calls=[call])], "iteration": state["iteration"] + 1}


def tool(state: State) -> dict[str, Any]:
    (call,) = state["messages"][-1].tool_calls
    return {"messages": [ToolMessage("aisle 4", tool_call_id=call["id"], artifact={"shelf": 2})]}


def agent(session: Session, *, is_async: bool) -> Any:
    async def model_async(state: State, config: RunnableConfig) -> dict[str, Any]:
        return model(state, config)

    async def tool_async(state: State) -> dict[str, Any]:
        return tool(state)

    graph = StateGraph(State)
    graph.add_node("model", with_state(model_async if is_async else model, session))
    graph.add_node("tool", with_state(tool_async if is_async else tool, session))
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tool" if state["messages"][-1].tool_calls else END, ["tool", END]
    )
    graph.add_edge("tool", "model")
    return graph.compile(checkpointer=InMemorySaver())


def compressing(session: Session) -> Any:
    """Keeps the newest two messages behind a summary."""

    def reply(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"reply to {state['messages'][-1].content}")]}

    def compress(state: State) -> dict[str, Any]:
        if len(state["messages"]) < 4:
            return {}
        kept = [RemoveMessage(REMOVE_ALL_MESSAGES), SystemMessage("A summary"), *state["messages"][-2:]]
        return {"messages": kept, "compression_applied": True}

    graph = StateGraph(State)
    graph.add_node("reply", with_state(reply, session))
    graph.add_node("compress", with_state(compress, session))
    graph.add_edge(START, "reply")
    graph.add_edge("reply", "compress")
    graph.add_edge("compress", END)
    return graph.compile(checkpointer=InMemorySaver())


class Shared(MessagesState):
    iteration: int


def parallel(session: Session) -> Any:
    def branch(at: int) -> Any:
        def node(state: Shared) -> dict[str, Any]:
            return {"messages": [AIMessage(f"branch {at}")]}

        return with_state(node, session, agent_id=f"agent-{at}")

    graph = StateGraph(Shared)
    for at in range(3):
        graph.add_node(f"branch{at}", branch(at))
        graph.add_edge(START, f"branch{at}")
    graph.add_node("join", with_state(lambda state: {"messages": [AIMessage("together")]}, session))
    graph.add_edge([f"branch{at}" for at in range(3)], "join")
    graph.add_edge("join", END)
    return graph.compile()


def shorthand(session: Session) -> Any:
    """Answers with a pair of role and text, which the graph makes an object of."""
    graph = StateGraph(MessagesState)
    graph.add_node("first", with_state(lambda state: {"messages": ("ai", "one")}, session))
    graph.add_node("second", with_state(lambda state: {"messages": ["and?", ("ai", "two")]}, session))
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return graph.compile()


def every_kind() -> list[AnyMessage | ChatMessage]:
    calls = [{"name": "f", "args": {"a": [1, None]}, "id": "c1"}, {"name": "g", "args": {}, "id": "c2"}]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    return [
        SystemMessage("Be brief.", id="m0"),
        HumanMessage("hi", name="ada", id="m1", additional_kwargs={"x": 1}),
        HumanMessage([{"type": "text", "text": "see"}, picture], id="m2"),
        AIMessage(
            "", tool_calls=calls, id="m3", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        ),
        ToolMessage("one", tool_call_id="c1", id="m4", artifact={"raw": [1, 2]}, name="f"),
        ToolMessage("no", tool_call_id="c2", id="m5", status="error"),
        AIMessage(
            [{"type": "text", "text": "done"}, {"type": "tool_use", "id": "c3", "name": "h", "input": {"b": 1}}],
            id="m6",
        ),
        ChatMessage("aside", role="critic", id="m7"),
        AIMessage("no id", response_metadata={"stop": True}),
    ]
