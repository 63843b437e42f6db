"""An agent of LangChain with the middleware."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from turnlog.client.model import Session, Turnlog
from turnlog.integrations.langchain import TurnlogMiddleware
from turnlog.testing.adapters import BUDGET, Call, Said, ScriptedModel, Shop


class Scripted(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **more: Any) -> Scripted:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        reply = self.script.reply([_said(message) for message in messages])
        calls = [{"name": "price", "args": {"sku": call.sku}, "id": call.id} for call in reply.calls]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply.text, tool_calls=calls))])


def _said(message: BaseMessage) -> Said:
    if isinstance(message, ToolMessage):
        return Said("tool", results=[(message.tool_call_id, message.text)])
    calls = [Call(call["id"], call["args"]["sku"]) for call in getattr(message, "tool_calls", ())]
    return Said("assistant" if message.type == "ai" else "user", message.text, calls)


class LangChainAgent:
    can_continue, has_windows, conflicts = True, True, ()

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None:
        self._log, self._id, self._model, self._shop = log, session_id, model, shop

        @tool
        def price(sku: str) -> str:
            """Price of an article."""
            try:
                return shop.price(sku)
            except ValueError as error:
                return str(error)

        middleware = TurnlogMiddleware(log, budget=BUDGET, recall=False)
        self._agent = create_agent(
            Scripted(script=model), [price], middleware=[middleware], checkpointer=self._checkpointer()
        )

    def _checkpointer(self) -> Any:
        return None

    def _given(self, question: str | None) -> Any:
        return {"messages": [HumanMessage(question)] if question is not None else []}

    def ask(self, question: str | None) -> str:
        state = self._agent.invoke(self._given(question), {"configurable": {"thread_id": self._id}})
        return str(state["messages"][-1].text)

    def session(self) -> Session:
        return self._log.sessions.of(self._id)

    def texts(self) -> list[str]:
        if not self._log.sessions.exists(self._id):
            return []
        bodies = [message.body for message in self.session().messages(in_view=True) if message.body["role"] != "tool"]
        return [body["content"] for body in bodies if body["content"]]

    def delete(self) -> None:
        self.session().erase()

    def forked(self, session_id: str) -> LangChainAgent:
        self.session().fork(session_id)
        return type(self)(self._log, session_id, self._model, self._shop)
