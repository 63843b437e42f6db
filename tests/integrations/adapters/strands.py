"""An agent of Strands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import RepositorySessionManager

from turnlog.client.model import Session, Turnlog
from turnlog.integrations.strands import TurnlogConversationManager, TurnlogRepository
from turnlog.testing.adapters import BUDGET, Call, Said, ScriptedModel, Shop


class Scripted(Model):
    def __init__(self, script: ScriptedModel) -> None:
        self.script = script

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *given: Any, **more: Any) -> AsyncIterator[Any]:
        reply = self.script.reply([_said(message) for message in messages])
        yield {"messageStart": {"role": "assistant"}}
        for call in reply.calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "price", "toolUseId": call.id}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": f'{{"sku": "{call.sku}"}}'}}}}
            yield {"contentBlockStop": {}}
        if reply.text:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": reply.text}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if reply.calls else "end_turn"}}


def _said(message: Any) -> Said:
    blocks = message["content"]
    uses = [block["toolUse"] for block in blocks if "toolUse" in block]
    results = [block["toolResult"] for block in blocks if "toolResult" in block]
    return Said(
        message["role"],
        "".join(block.get("text", "") for block in blocks),
        [Call(use["toolUseId"], use["input"]["sku"]) for use in uses],
        [(result["toolUseId"], "".join(part.get("text", "") for part in result["content"])) for result in results],
    )


class StrandsAgent:
    can_continue, has_windows, conflicts = True, True, ()

    def __init__(self, log: Turnlog, session_id: str, model: ScriptedModel, shop: Shop) -> None:
        self._log, self._id, self._model, self._shop = log, session_id, model, shop

    def _agent(self) -> Agent:
        shop = self._shop

        @tool
        def price(sku: str) -> str:
            """Price of an article."""
            return shop.price(sku)

        return Agent(
            model=Scripted(self._model),
            tools=[price],
            callback_handler=None,
            session_manager=RepositorySessionManager(self._id, TurnlogRepository(self._log)),
            conversation_manager=TurnlogConversationManager(self._log, self._id, budget=BUDGET, recall=False),
        )

    def ask(self, question: str | None) -> str:
        return str(self._agent()(question)).strip()

    def session(self) -> Session:
        return self._log.sessions.of(self._id)

    def texts(self) -> list[str]:
        if not self._log.sessions.exists(self._id):
            return []
        said = [_said(message.body) for message in self.session().messages(in_view=True)]
        return [item.text for item in said if item.text]

    def delete(self) -> None:
        TurnlogRepository(self._log).delete_session(self._id)

    def forked(self, session_id: str) -> StrandsAgent:
        self.session().fork(session_id)
        return StrandsAgent(self._log, session_id, self._model, self._shop)
