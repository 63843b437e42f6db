"""An agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from turnlog.client.model import Session, Turnlog
from turnlog.integrations.openai_agents import TurnlogSession
from turnlog.testing.adapters import Call, Said, ScriptedModel, Shop


class Scripted(Model):
    def __init__(self, script: ScriptedModel) -> None:
        self.script = script

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        reply = self.script.reply(_said(input))
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call", call_id=call.id, name="price", arguments=json.dumps({"sku": call.sku})
            )
            for call in reply.calls
        ]
        if not output:
            text = ResponseOutputText(type="output_text", text=reply.text, annotations=[])
            output = [
                ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _said(items: Sequence[Any]) -> list[Said]:
    """Return items as messages: calls in a row are one message, and so are results."""
    said = list[Said]()
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        last = said[-1] if said else Said("")
        if item.get("type") == "function_call":
            call = Call(item["call_id"], json.loads(item["arguments"])["sku"])
            if last.calls:
                said[-1] = Said("assistant", calls=[*last.calls, call])
            else:
                said.append(Said("assistant", calls=[call]))
        elif item.get("type") == "function_call_output":
            result = (item["call_id"], str(item["output"]))
            if last.results:
                said[-1] = Said("tool", results=[*last.results, result])
            else:
                said.append(Said("tool", results=[result]))
        else:
            content = item["content"]
            text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
            said.append(Said(item["role"], text))
    return said


class OpenAIAgent:
    can_continue, has_windows, conflicts = True, False, ()

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None:
        self._log, self._model, self._shop = log, model, shop
        self._session = TurnlogSession(log, session_id)

        @function_tool
        def price(sku: str) -> str:
            """Price of an article."""
            return shop.price(sku)

        self._agent = Agent(name="seller", model=Scripted(model), tools=[price])

    def ask(self, question: str | None) -> str:
        outcome: Any = question if question is not None else []
        config = RunConfig(tracing_disabled=True)
        result = asyncio.run(Runner.run(self._agent, outcome, session=self._session, run_config=config))
        return str(result.final_output)

    def session(self) -> Session:
        return self._log.sessions.of(self._session.session_id)

    def texts(self) -> list[str]:
        return [said.text for said in _said(asyncio.run(self._session.get_items())) if said.text]

    def delete(self) -> None:
        asyncio.run(self._session.clear_session())

    def forked(self, session_id: str) -> OpenAIAgent:
        self.session().fork(session_id)
        return OpenAIAgent(self._log, session_id, self._model, self._shop)
