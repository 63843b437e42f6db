"""An agent of the OpenAI Agents SDK over Turnlog, with a scripted model: pip install 'turnlog[openai-agents]'.

python examples/openai_agents.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from turnlog import Turnlog
from turnlog.integrations.openai_agents import TurnlogSession


@function_tool
def price(sku: str) -> str:
    """The price of an article."""
    return f"{sku} costs 12.50"


class Scripted(Model):
    """In your program: no model at all, or one of the SDK's. This one calls the tool, then says what it answered."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        last = input[-1]
        said: Any
        if last.get("type") == "function_call_output":
            text = ResponseOutputText(type="output_text", text=last["output"], annotations=[])
            said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        else:
            sku = last["content"].split()[-1].rstrip("?")
            arguments = f'{{"sku": "{sku}"}}'
            said = ResponseFunctionToolCall(
                type="function_call", call_id=f"call-{len(input)}", name="price", arguments=arguments
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main() -> None:
    agent = Agent(name="desk", model=Scripted(), tools=[price])
    with Turnlog.open("memory://") as log:
        for question in ("What is the price of SKU-1?", "And of SKU-2?"):
            session = TurnlogSession(log, "desk-1")
            result = await Runner.run(agent, question, session=session, run_config=RunConfig(tracing_disabled=True))
            print(f"{question}  ->  {result.final_output}")
        kept = log.sessions.get("desk-1")
        window = kept.context(format="openai_responses")
        print(f"{sum(1 for _ in kept.messages())} items kept; a window of {window.tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())
