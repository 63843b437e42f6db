"""An agent of LlamaIndex."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    LLMMetadata,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import FunctionTool

from turnlog.client.model import Session, Turnlog
from turnlog.integrations.llama_index import TurnlogChatStore, TurnlogMemory
from turnlog.testing.adapters import BUDGET, Call, Said, ScriptedModel, Shop


class Scripted(FunctionCallingLLM):
    script: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, is_chat_model=True, model_name="scripted")

    def _prepare_chat_with_tools(self, tools: Any, user_msg: Any = None, chat_history: Any = None, **more: Any) -> Any:
        return {"messages": chat_history or []}

    async def achat_with_tools(self, tools: Any, user_msg: Any = None, chat_history: Any = None, **more: Any) -> Any:
        reply = self.script.reply([_said(message) for message in chat_history])
        blocks: list[Any] = [TextBlock(text=reply.text)] if reply.text else []
        blocks += [
            ToolCallBlock(tool_call_id=call.id, tool_name="price", tool_kwargs={"sku": call.sku})
            for call in reply.calls
        ]
        return ChatResponse(message=ChatMessage(blocks, role=MessageRole.ASSISTANT))

    def get_tool_calls_from_response(self, response: Any, error_on_no_tool_call: bool = True, **more: Any) -> Any:
        return [
            ToolSelection(tool_id=block.tool_call_id, tool_name=block.tool_name, tool_kwargs=block.tool_kwargs)
            for block in response.message.blocks
            if isinstance(block, ToolCallBlock)
        ]

    def chat(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError

    achat = complete = acomplete = stream_chat = astream_chat = stream_complete = astream_complete = chat


def _said(message: ChatMessage) -> Said:
    calls = [
        Call(block.tool_call_id, block.tool_kwargs["sku"])
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    if message.role == MessageRole.TOOL:
        return Said("tool", results=[(message.additional_kwargs["tool_call_id"], message.content or "")])
    return Said(message.role.value, message.content or "", calls)


class LlamaAgent:
    can_continue, has_windows, conflicts = False, True, ()

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None:
        self._log, self._id, self._model, self._shop = log, session_id, model, shop
        self._store = TurnlogChatStore(log)
        self._memory = TurnlogMemory.from_defaults(self._store, session_id, budget=BUDGET)
        tool = FunctionTool.from_defaults(fn=shop.price, name="price", description="Price of an article.")
        self._agent = FunctionAgent(llm=Scripted(script=model), tools=[tool], streaming=False)

    def ask(self, question: str | None) -> str:
        async def run() -> str:
            return str(await self._agent.run(question, memory=self._memory))

        return asyncio.run(run())

    def session(self) -> Session:
        return self._store.session(self._id)

    def texts(self) -> list[str]:
        said = [_said(message) for message in self._memory.get_all()]
        return [item.text for item in said if item.text]

    def delete(self) -> None:
        self._memory.reset()

    def forked(self, session_id: str) -> LlamaAgent:
        self.session().fork(session_id)
        return LlamaAgent(self._log, session_id, self._model, self._shop)
