"""An agent of Google's ADK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.errors import StaleSessionError
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types

from turnlog.client.model import Session, Turnlog
from turnlog.integrations.google_adk import TurnlogSessionService, TurnlogWindowPlugin
from turnlog.testing.adapters import BUDGET, Call, Said, ScriptedModel, Shop

APP, USER = "desk", "ada"


class Scripted(BaseLlm):
    script: Any

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        reply = self.script.reply([_said(content) for content in llm_request.contents])
        parts = [types.Part(text=reply.text)] if reply.text else []
        parts += [
            types.Part(function_call=types.FunctionCall(id=call.id, name="price", args={"sku": call.sku}))
            for call in reply.calls
        ]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def _said(content: types.Content) -> Said:
    parts = content.parts or []
    calls = [part.function_call for part in parts if part.function_call]
    results = [part.function_response for part in parts if part.function_response]
    return Said(
        "assistant" if content.role == "model" else "user",
        "".join(part.text or "" for part in parts),
        [Call(call.id, call.args["sku"]) for call in calls],
        [(result.id, str((result.response or {}).get("result", result.response))) for result in results],
    )


class AdkAgent:
    can_continue, has_windows, conflicts = False, True, (StaleSessionError,)

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None:
        self._log, self._id, self._model, self._shop = log, session_id, model, shop
        self._service = TurnlogSessionService(log)

        def price(sku: str) -> str:
            """Price of an article."""
            try:
                return shop.price(sku)
            except ValueError as error:
                return str(error)

        agent = LlmAgent(name="seller", model=Scripted(model="scripted", script=model), tools=[price])
        app = App(name=APP, root_agent=agent, plugins=[TurnlogWindowPlugin(self._service, budget=BUDGET)])
        self._runner = Runner(app=app, session_service=self._service, auto_create_session=True)

    def ask(self, question: str | None) -> str:
        return asyncio.run(self._ask(question or ""))

    async def _ask(self, question: str) -> str:
        message = types.Content(role="user", parts=[types.Part(text=question)])
        texts = [
            part.text
            async for event in self._runner.run_async(user_id=USER, session_id=self._id, new_message=message)
            for part in (event.content.parts if event.content else None) or []
            if part.text
        ]
        return texts[-1] if texts else ""

    def session(self) -> Session:
        return self._service.log_of(APP, USER, self._id)

    def texts(self) -> list[str]:
        session = asyncio.run(self._service.get_session(app_name=APP, user_id=USER, session_id=self._id))
        events = session.events if session is not None else []
        parts = [part for event in events if event.content for part in event.content.parts or []]
        return [part.text for part in parts if part.text]

    def delete(self) -> None:
        asyncio.run(self._service.delete_session(app_name=APP, user_id=USER, session_id=self._id))

    def forked(self, session_id: str) -> AdkAgent:
        asyncio.run(self._service.fork_session(APP, USER, self._id, session_id))
        return AdkAgent(self._log, session_id, self._model, self._shop)
