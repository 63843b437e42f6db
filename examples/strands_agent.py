"""An agent of Strands over Turnlog, with a scripted model: pip install 'turnlog[strands]'.

python examples/strands_agent.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import RepositorySessionManager

from turnlog import Turnlog
from turnlog.integrations.strands import TurnlogConversationManager, TurnlogRepository


@tool
def price(sku: str) -> str:
    """The price of an article."""
    return f"{sku} costs 12.50"


class Scripted(Model):
    """In your program: `BedrockModel` or another of Strands. This one calls the tool, then says what it answered."""

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *given: Any, **more: Any) -> AsyncIterator[Any]:
        last = messages[-1]["content"][-1]
        is_call = "toolResult" not in last
        yield {"messageStart": {"role": "assistant"}}
        if is_call:
            sku = last["text"].split()[-1].rstrip("?")
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "price", "toolUseId": f"call-{len(messages)}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": f'{{"sku": "{sku}"}}'}}}}
        else:
            yield {"contentBlockDelta": {"delta": {"text": last["toolResult"]["content"][0]["text"]}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if is_call else "end_turn"}}


def main() -> None:
    with Turnlog.open("memory://") as log:
        for question in ("What is the price of SKU-1?", "And of SKU-2?"):
            agent = Agent(
                model=Scripted(),
                tools=[price],
                session_manager=RepositorySessionManager("desk-1", TurnlogRepository(log)),
                conversation_manager=TurnlogConversationManager(log, "desk-1", budget=8_000),
                callback_handler=None,
            )
            print(f"{question}  ->  {str(agent(question)).strip()}")
        kept = log.sessions.get("desk-1")
        window = kept.context(format="bedrock_converse")
        print(f"{sum(1 for _ in kept.messages())} messages kept; a window of {window.tokens} tokens")


if __name__ == "__main__":
    main()
