"""Conversations held by the OpenAI Agents SDK. A module of its own: the SDK takes seconds to import."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import agents
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, EncryptedSession
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

__all__ = ["AdvancedSQLiteSession", "EncryptedSession", "SQLiteSession", "items", "talked"]


class Scripted(Model):
    """Calls the tool once for each question, twice at once, then answers."""

    def __init__(self) -> None:
        self.calls = 0

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        self.calls += 1
        said: list[Any]
        if isinstance(input, list) and input[-1].get("type") == "function_call_output":
            text = ResponseOutputText(type="output_text", text=f"It is {self.calls}.", annotations=[])
            message_id = f"msg_{self.calls}"
            said = [
                ResponseOutputMessage(
                    id=message_id, type="message", role="assistant", status="completed", content=[text]
                )
            ]
        else:
            said = [
                ResponseFunctionToolCall(
                    type="function_call",
                    call_id=f"call_{self.calls}_{at}",
                    name="price",
                    arguments=f'{{"sku": "SKU-{at}"}}',
                )
                for at in (1, 2)
            ]
        return ModelResponse(output=said, usage=Usage(requests=1, input_tokens=10, output_tokens=5), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@agents.function_tool
def price(sku: str) -> str:
    """The price of an article."""
    return f"{sku} costs 12.50"


def talked(session: Any, *questions: str) -> None:
    """A real run of the SDK's loop for each question."""

    async def talk() -> None:
        agent = agents.Agent(name="desk", model=Scripted(), tools=[price])
        for question in questions:
            config = agents.RunConfig(tracing_disabled=True)
            await agents.Runner.run(agent, question, session=session, run_config=config)

    asyncio.run(talk())


def items(session: Any) -> list[Any]:
    outcome: list[Any] = asyncio.run(session.get_items())
    return outcome
