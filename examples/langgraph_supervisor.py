"""A supervisor of LangGraph with two workers side by side on one session, with scripted models: pip install 'turnlog[langgraph]'.

python examples/langgraph_supervisor.py
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send

from turnlog import Turnlog, with_state
from turnlog.client.model import Session

WORKERS = ("flights", "hotels")


def worker(name: str) -> Any:
    def work(state: MessagesState) -> dict[str, Any]:
        """In your program: a model. This one answers what the user has asked for."""
        asked = next(message.content for message in state["messages"] if message.type == "human")
        return {"messages": [AIMessage(f"{name}: found for {asked!r}", name=name)]}

    return work


def supervise(state: MessagesState) -> Command[Any]:
    """Send both workers off; when both have answered, end with a summary."""
    answers = [message for message in state["messages"] if message.name in WORKERS]
    if not answers:
        return Command(goto=[Send(name, state) for name in WORKERS])
    return Command(goto=END, update={"messages": [AIMessage(f"I have {len(answers)} offers.")]})


def team(session: Session) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("supervisor", with_state(supervise, session), destinations=(*WORKERS, END))
    graph.add_edge(START, "supervisor")
    for name in WORKERS:
        graph.add_node(name, with_state(worker(name), session, agent_id=name))
        graph.add_edge(name, "supervisor")
    return graph.compile()


def main() -> None:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("trip-1")
        result = team(session).invoke({"messages": [("user", "Lisbon in May")]})
        print(result["messages"][-1].content)
        print("; ".join(str(message.body["content"]) for message in session.messages()))
        agents = sorted(str(name) for name in session.state().state["agents"])
        print(f"{sum(1 for _ in session.messages())} messages kept, each once; states of {', '.join(agents)}")


if __name__ == "__main__":
    main()
