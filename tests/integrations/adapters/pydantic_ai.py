"""An agent of Pydantic AI."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel

from turnlog.client.model import Session, Turnlog
from turnlog.integrations.pydantic_ai import TurnlogConversationStore, TurnlogWindow
from turnlog.testing.adapters import BUDGET, Call, Said, ScriptedModel, Shop


def _said(message: ModelMessage) -> Said:
    parts = message.parts
    return Said(
        "assistant" if isinstance(message, ModelResponse) else "user",
        "".join(
            part.content
            for part in parts
            if isinstance(part, TextPart | UserPromptPart) and isinstance(part.content, str)
        ),
        [Call(part.tool_call_id, part.args_as_dict()["sku"]) for part in parts if isinstance(part, ToolCallPart)],
        [
            (
                part.tool_call_id,
                part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response(),
            )
            for part in parts
            if isinstance(part, ToolReturnPart | RetryPromptPart)
        ],
    )


class PydanticAgent:
    can_continue, has_windows, conflicts = True, True, (ConversationConflict,)

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None:
        self._log, self._id, self._model, self._shop = log, session_id, model, shop
        self._store = TurnlogConversationStore(log)

        def reply(messages: list[ModelMessage], info: Any) -> ModelResponse:
            said = model.reply([_said(message) for message in messages])
            calls = [ToolCallPart("price", {"sku": call.sku}, call.id) for call in said.calls]
            return ModelResponse([*([TextPart(said.text)] if said.text else []), *calls])

        window = TurnlogWindow(self._store, budget=BUDGET)
        self._agent = Agent(FunctionModel(reply), tools=[Tool(self._price, name="price")], capabilities=[window])

    def _price(self, sku: str) -> str:
        """Price of an article."""
        try:
            return self._shop.price(sku)
        except ValueError as error:
            return str(error)

    def ask(self, question: str | None) -> str:
        return asyncio.run(self._ask(question))

    async def _ask(self, question: str | None) -> str:
        conversation = await self._store.load(self._id) or Conversation(conversation_id=self._id)
        result = await self._agent.run(question, conversation=conversation)
        await self._store.save(result)
        return str(result.output)

    def session(self) -> Session:
        return self._store.session(self._id)

    def texts(self) -> list[str]:
        conversation = asyncio.run(self._store.load(self._id))
        said = [_said(message) for message in conversation.messages] if conversation is not None else []
        return [item.text for item in said if item.text]

    def delete(self) -> None:
        async def delete() -> None:
            record = await self._store.read_record(self._id)
            await self._store.delete_record(self._id, expected_revision=record.revision)

        asyncio.run(delete())

    def forked(self, session_id: str) -> PydanticAgent:
        fork = asyncio.run(self._store.fork(self._id))
        return PydanticAgent(self._log, fork.conversation_id, self._model, self._shop)
