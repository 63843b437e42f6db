"""An agent of LangGraph over Turnlog, with a scripted model: pip install 'turnlog[langgraph]'.

It is stopped in front of its tool, and goes on as if in another process: nothing is kept but what is in the log.

python examples/langgraph_agent.py
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from turnlog import Turnlog
from turnlog.integrations.langgraph import TurnlogSaver


@tool
def price(sku: str) -> str:
    """The price of an article."""
    return f"{sku} costs 12.50"


def model(state: MessagesState) -> dict[str, Any]:
    """In your program: a model with tools bound. This one calls the tool, then says what it answered."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(str(last.content))]}
    sku = str(last.content).split()[-1].rstrip("?")
    call = {"name": "price", "args": {"sku": sku}, "id": f"call-{len(state['messages'])}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def agent(log: Turnlog, **options: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([price]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=TurnlogSaver(log, title="Prices"), **options)


def main() -> None:
    config = {"configurable": {"thread_id": "desk-1"}}
    with Turnlog.open("memory://") as log:
        for question in ("What is the price of SKU-1?", "And of SKU-2?"):
            agent(log, interrupt_before=["tools"]).invoke({"messages": [("user", question)]}, config)
            waiting = agent(log).get_state(config).next
            result = agent(log).invoke(None, config)
            print(f"{question}  stops before {waiting[0]}, goes on  ->  {result['messages'][-1].content}")
        history = list(agent(log).get_state_history(config))
        print(
            f"{len(history)} checkpoints of {len(history[0].values['messages'])} messages, the newest after step",
            end=" ",
        )
        print(history[0].metadata["step"])


if __name__ == "__main__":
    main()
