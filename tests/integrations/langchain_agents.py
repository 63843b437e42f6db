"""Agents of LangChain with a scripted model and a tool. A module of its own: LangChain takes seconds to import.

Run, it is an agent that goes on where the log stops: ``langchain_agents.py URL THREAD FOLDER [QUESTION]``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from turnlog.client.model import Turnlog
from turnlog.integrations.langchain import TurnlogMiddleware


@tool
def price(sku: str) -> str:
    """The price of an article."""
    return f"{sku} costs 12.50"


class Scripted(BaseChatModel):
    """Asks the tool for the last word of the question, then says what it answered; or says what it is told to. ``sent`` is what
    each call was sent."""

    sent: list[list[BaseMessage]] = Field(default_factory=list)
    tools: list[list[str]] = Field(default_factory=list)
    says: list[AIMessage] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        return self.bind(names=[tool["name"] if isinstance(tool, dict) else tool.name for tool in tools])

    def _generate(self, messages: list[BaseMessage], *given: Any, **more: Any) -> ChatResult:
        self.sent.append(list(messages))
        self.tools.append(more.get("names", []))
        return ChatResult(generations=[ChatGeneration(message=self._said(messages))])

    def _said(self, messages: list[BaseMessage]) -> AIMessage:
        counted: Any = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        if self.says:
            return self.says.pop(0)
        last = messages[-1]
        if isinstance(last, ToolMessage):
            thinking = {"type": "thinking", "thinking": "It is known now.", "signature": "sig"}
            return AIMessage([thinking, {"type": "text", "text": last.text}], usage_metadata=counted)
        sku = last.text.split()[-1].rstrip("?")
        call = {"name": "price", "args": {"sku": sku}, "id": f"call-{len(messages)}-{sku}"}
        return AIMessage("", tool_calls=[call], usage_metadata=counted)


def agent(log: Turnlog, *, model: Scripted | None = None, more: Sequence[Any] = (), **options: Any) -> Any:
    names = ("checkpointer", "system_prompt", "tools", "response_format")
    values = {name: options.pop(name) for name in names if name in options}
    tools = values.pop("tools", [price])
    return create_agent(model or Scripted(), tools, middleware=[TurnlogMiddleware(log, **options), *more], **values)


def begun(log: Turnlog) -> None:
    log.sessions.create("desk")


def main(url: str, thread: str, folder: str, *question: str) -> None:
    @tool
    def price(sku: str) -> str:
        """The price of an article."""
        with (Path(folder) / "executed").open("a") as executed:
            executed.write(f"{sku}\n")
        if not (Path(folder) / "again").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{sku} costs 12.50"

    model = Scripted()
    with Turnlog.open(url) as log:
        values = {"messages": [{"role": "user", "content": item} for item in question]}
        answer = agent(log, model=model, tools=[price]).invoke(values, {"configurable": {"thread_id": thread}})
    ids = [message.id for message in answer["messages"]]
    print(json.dumps({"answer": answer["messages"][-1].text, "calls": len(model.sent), "ids": ids}))


if __name__ == "__main__":
    main(*sys.argv[1:])
