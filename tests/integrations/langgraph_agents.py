"""Agents of LangGraph with a scripted model. A module of its own: it takes seconds to import.

As a program it runs one in a process that is killed, or goes on after that:

    python -m tests.integrations.langgraph_agents URL THREAD [crash]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import cycle
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from typing_extensions import TypedDict

from tests.conftest import SAMPLES
from turnlog.client.model import Turnlog
from turnlog.integrations.langgraph import TurnlogSaver


class Texts:
    """Text of the project's samples, a piece after the other."""

    def __init__(self, size: int) -> None:
        names = ("support-agent", "coding-agent")
        messages = [
            message for name in names for message in json.loads((SAMPLES / f"{name}.json").read_text())["messages"]
        ]
        whole = " ".join(str(message.get("content") or "") for message in messages)
        self._pieces = cycle([whole[at : at + size] for at in range(0, len(whole) - size, size)])

    def __call__(self) -> str:
        return next(self._pieces)


class Scripted(BaseChatModel):
    """Calls the tool so many times at once, then answers."""

    text: Any
    calls: int = 1

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        usage = {"input_tokens": 1000 + len(messages), "output_tokens": 200, "total_tokens": 1200 + len(messages)}
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage(self.text(), usage_metadata=usage)
        else:
            calls = [
                {"name": "look_up", "args": {"sku": f"SKU-{at}"}, "id": f"call-{len(messages)}-{at}"}
                for at in range(self.calls)
            ]
            said = AIMessage(self.text(), tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=said)])


def agent(saver: Any, text: Any, *, calls: int = 1, crash: Any = lambda: None) -> Any:
    """A model and a tool, in turn. ``crash`` is called in the tool."""

    @tool
    def look_up(sku: str) -> str:
        """Where an article is."""
        crash()
        return f"{sku}: {text()}"

    model = Scripted(text=text, calls=calls)
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver)


class Asked(TypedDict):
    answers: Annotated[list[str], lambda old, new: old + new]


def asking(saver: Any) -> Any:
    """Waits for a human in a subgraph, and writes beside it at the same time."""

    def ask(state: Asked) -> Any:
        return {"answers": [interrupt({"question": "Go on?"})]}

    inner = StateGraph(Asked)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    outer = StateGraph(Asked)
    outer.add_node("human", inner.compile())
    outer.add_node("beside", lambda state: {"answers": ["beside"]})
    outer.add_node("after", lambda state: {"answers": ["after"]})
    outer.add_edge(START, "human")
    outer.add_edge(START, "beside")
    outer.add_edge(["human", "beside"], "after")
    outer.add_edge("after", END)
    return outer.compile(checkpointer=saver)


def joined(old: list[str], new: list[list[str]]) -> list[str]:
    return [*old, *(item for part in new for item in part)]


class Sparse(TypedDict):
    said: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=5)]


def sparse(saver: Any) -> Any:
    """Its channel is stored each fifth time; what was written says the rest."""
    graph = StateGraph(Sparse)
    graph.add_node("say", lambda state: {"said": [f"said {len(state['said'])}"]})
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    return graph.compile(checkpointer=saver)


def main(url: str, thread: str, crash: bool) -> None:
    def killed() -> None:
        if crash:
            os.kill(os.getpid(), signal.SIGKILL)

    with Turnlog.open(url) as log:
        graph = agent(TurnlogSaver(log), lambda: "aisle 4", crash=killed)
        config = {"configurable": {"thread_id": thread}}
        result = None if graph.get_state(config).next else {"messages": [("user", "Where is it?")]}
        state = graph.invoke(result, config, durability="sync")
        print(json.dumps([[message.type, message.content] for message in state["messages"]]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], len(sys.argv) > 3)
