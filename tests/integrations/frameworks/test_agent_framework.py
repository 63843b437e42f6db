"""`TurnlogHistoryProvider` in runs of the Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import Harness

framework = pytest.importorskip("agent_framework", reason="has an environment of its own: make frameworks")


@pytest.mark.parametrize("per_call", [False, True], ids=["per run", "per call"])
@pytest.mark.parametrize("approved", [False, True])
def test_agent_framework_executes_the_other_call_of_a_reply_with_an_approval(
    harness: Harness, per_call: bool, approved: bool
) -> None:
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatMiddlewareLayer,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        InMemoryHistoryProvider,
        Message,
        tool,
    )

    from turnlog.integrations.agent_framework import TurnlogHistoryProvider

    sent, executed = list[Any](), list[str]()

    class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]
        async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> ChatResponse:
            types = [
                [content.type for content in message.contents if "approval" not in content.type] for message in messages
            ]
            sent.append(types)
            names = ("pay", "look") if len(sent) == 1 else ()
            calls = [Content.from_function_call(f"c-{name}", name, arguments={"order": 7}) for name in names]
            return ChatResponse(messages=[Message("assistant", calls or [Content.from_text("Done.")])])

    @tool(approval_mode="never_require")
    def look(order: int) -> str:
        """Look."""
        executed.append("look")
        return "looked"

    @tool(approval_mode="always_require")
    def pay(order: int) -> str:
        """Pay."""
        executed.append("pay")
        return "paid"

    async def run(history: Any) -> list[Any]:
        sent.clear()
        executed.clear()
        agent = Agent(
            Scripted(),
            tools=[look, pay],
            context_providers=[history],
            require_per_service_call_history_persistence=per_call,
        )
        session = agent.create_session(session_id="s")
        answer = await agent.run("Pay order 7.", session=session)
        approvals = [request.to_function_approval_response(approved) for request in answer.user_input_requests]
        await agent.run(Message("user", approvals), session=session)
        await agent.run("Thanks.", session=session)
        return [sorted(executed), sent[1]]

    expected = asyncio.run(run(InMemoryHistoryProvider()))
    assert expected[0] == (["look", "pay"] if approved else ["look"])
    history = TurnlogHistoryProvider(harness.log(), budget=8_000)
    assert asyncio.run(run(history)) == expected
    assert sent[2][-1] == ["text"]
