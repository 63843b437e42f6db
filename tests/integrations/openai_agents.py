"""An agent of the OpenAI Agents SDK with a scripted model and a tool.

Run, it is an agent that goes on where the log stops: ``openai_agents.py URL THREAD FOLDER [QUESTION]``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from turnlog.client.model import Turnlog
from turnlog.integrations.openai_agents import TurnlogSession


class Scripted(Model):
    """Asks the tool for the last word of the question, then says what it answered."""

    def __init__(self) -> None:
        self.calls = 0

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        self.calls += 1
        last = input[-1]
        said: Any
        if last.get("type") == "function_call_output":
            text = ResponseOutputText(type="output_text", text=last["output"], annotations=[])
            said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        else:
            sku = last["content"].split()[-1].rstrip("?")
            call_id = f"call-{len(input)}-{sku}"
            arguments = json.dumps({"sku": sku})
            said = ResponseFunctionToolCall(type="function_call", call_id=call_id, name="price", arguments=arguments)
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def begun(log: Turnlog) -> None:
    log.sessions.create("desk")


def main(url: str, thread: str, folder: str, *question: str) -> None:
    @function_tool
    def price(sku: str) -> str:
        """The price of an article."""
        with (Path(folder) / "executed").open("a") as executed:
            executed.write(f"{sku}\n")
        if not (Path(folder) / "again").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{sku} costs 12.50"

    model = Scripted()
    agent = Agent(name="desk", model=model, tools=[price])
    with Turnlog.open(url) as log:
        outcome: Any = question[0] if question else []
        session, config = TurnlogSession(log, thread), RunConfig(tracing_disabled=True)
        result = asyncio.run(Runner.run(agent, outcome, session=session, run_config=config))
        items = asyncio.run(session.get_items())
    print(json.dumps({"answer": result.final_output, "calls": model.calls, "items": items}))


if __name__ == "__main__":
    main(*sys.argv[1:])
