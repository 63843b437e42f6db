"""An agent of LangChain over Turnlog, with a scripted model: pip install 'turnlog[langchain]'.

python examples/langchain_agent.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from turnlog import Turnlog
from turnlog.integrations.langchain import TurnlogMiddleware


@tool
def price(sku: str) -> str:
    """The price of an article."""
    return f"{sku} costs 12.50"


class Scripted(BaseChatModel):
    """In your program: a model of LangChain, or its name. This one calls the tool, then says what it answered."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *given: Any, **more: Any) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            said = AIMessage(last.text)
        else:
            sku = last.text.split()[-1].rstrip("?")
            said = AIMessage("", tool_calls=[{"name": "price", "args": {"sku": sku}, "id": f"call-{len(messages)}"}])
        return ChatResult(generations=[ChatGeneration(message=said)])


def main() -> None:
    with Turnlog.open("memory://") as log:
        agent = create_agent(Scripted(), [price], middleware=[TurnlogMiddleware(log, budget=8_000)])
        for question in ("What is the price of SKU-1?", "And of SKU-2?"):
            values: Any = {"messages": [{"role": "user", "content": question}]}
            state = agent.invoke(values, {"configurable": {"thread_id": "desk-1"}})
            print(f"{question}  ->  {state['messages'][-1].text}")
        kept = log.sessions.get("desk-1")
        window = kept.context(format="anthropic")
        print(f"{sum(1 for _ in kept.messages())} messages kept; a window of {window.tokens} tokens")


if __name__ == "__main__":
    main()
