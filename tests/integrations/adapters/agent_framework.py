"""An agent of the Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import NotFoundError
from turnlog.integrations.agent_framework import TurnlogHistoryProvider
from turnlog.testing.adapters import BUDGET, Call, Said, ScriptedModel, Shop


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]
    def __init__(self, script: ScriptedModel) -> None:
        super().__init__()
        self.script = script

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **more: Any
    ) -> ChatResponse:
        reply = self.script.reply([_said(message) for message in messages])
        contents = [Content.from_text(reply.text)] if reply.text else []
        contents += [Content.from_function_call(call.id, "price", arguments={"sku": call.sku}) for call in reply.calls]
        return ChatResponse(messages=[Message("assistant", contents)])


def _said(message: Message) -> Said:
    calls = [content for content in message.contents if content.type == "function_call"]
    results = [content for content in message.contents if content.type == "function_result"]
    return Said(
        str(message.role),
        message.text,
        [Call(call.call_id, call.parse_arguments()["sku"]) for call in calls],
        [(result.call_id, str(result.result or result.exception)) for result in results],
    )


class FrameworkAgent:
    can_continue, has_windows, conflicts = False, True, ()

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None:
        self._log, self._id, self._model, self._shop = log, session_id, model, shop
        self._history = TurnlogHistoryProvider(log, budget=BUDGET)

        def price(sku: str) -> str:
            """Price of an article."""
            return shop.price(sku)

        self._agent = Agent(
            Scripted(model),
            tools=[price],
            context_providers=[self._history],
            require_per_service_call_history_persistence=True,
        )

    def ask(self, question: str | None) -> str:
        async def run() -> str:
            return (await self._agent.run(question, session=self._agent.create_session(session_id=self._id))).text

        return asyncio.run(run())

    def session(self) -> Session:
        return self._history.session(self._id)

    def texts(self) -> list[str]:
        try:
            return [message.text for message in self._history.all_messages(self._id) if message.text]
        except NotFoundError:
            return []

    def delete(self) -> None:
        self.session().erase()

    def forked(self, session_id: str) -> FrameworkAgent:
        self.session().fork(session_id)
        return FrameworkAgent(self._log, session_id, self._model, self._shop)
