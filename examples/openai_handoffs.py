"""Two agents of the OpenAI Agents SDK on one session, with scripted models: pip install 'turnlog[openai-agents]'.

The desk hands the customer over to billing, which answers this turn and the next one.

python examples/openai_handoffs.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from turnlog import Turnlog
from turnlog.integrations.openai_agents import TurnlogSession


class Scripted(Model):
    """In your program: no model at all, or one of the SDK's. The desk's hands over; the one of billing answers."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        said: Any
        if self.name == "desk":
            said = ResponseFunctionToolCall(
                type="function_call", call_id=f"call-{len(input)}", name="transfer_to_billing", arguments="{}"
            )
        else:
            question = [item["content"] for item in input if item.get("role") == "user"][-1]
            text = ResponseOutputText(type="output_text", text=f"Billing: {question}", annotations=[])
            said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main() -> None:
    billing = Agent(name="billing", model=Scripted("billing"))
    desk = Agent(name="desk", model=Scripted("desk"), handoffs=[billing])
    agents, first = {agent.name: agent for agent in (desk, billing)}, "desk"
    with Turnlog.open("memory://") as log:
        for question in ("My invoice is wrong.", "Thank you."):
            session = TurnlogSession(log, "customer-1")
            kept = log.sessions.get_or_create("customer-1")
            first = str(kept.state().state.get("answers", "desk"))
            result = await Runner.run(
                agents[first], question, session=session, run_config=RunConfig(tracing_disabled=True)
            )
            kept.patch_state({"answers": result.last_agent.name})  # so another process knows who has the customer
            print(f"{first}: {question}  ->  {result.final_output}")
        window = kept.context(format="openai_responses")
        print(f"{sum(1 for _ in kept.messages())} items of both agents kept; a window of {window.tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main())
