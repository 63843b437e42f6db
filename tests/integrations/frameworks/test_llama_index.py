"""`TurnlogMemory` in workflows of LlamaIndex."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog.core.errors import InvalidInputError

pytest.importorskip("llama_index.core", reason="has an environment of its own: make frameworks")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Skipping serialization")
def test_a_saved_context_is_loaded_and_the_memory_given_again_goes_on(harness: Harness) -> None:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from llama_index.core.workflow import Context

    from turnlog.integrations.llama_index import TurnlogChatStore, TurnlogMemory

    def memory() -> TurnlogMemory:
        return TurnlogMemory.from_defaults(TurnlogChatStore(harness.log()), "s", budget=4_000)

    class Scripted(MockFunctionCallingLLM):
        async def achat_with_tools(self, *args: Any, **options: Any) -> ChatResponse:
            return ChatResponse(message=ChatMessage("Yes.", role=MessageRole.ASSISTANT))

    async def run() -> None:
        agent = FunctionAgent(llm=Scripted(), tools=[], streaming=False)
        context = Context(agent)
        await agent.run("First?", ctx=context, memory=memory())
        loaded = Context.from_dict(agent, context.to_dict())
        await agent.run("Second?", ctx=loaded, memory=memory())
        assert [message.content for message in memory().get_all()] == ["First?", "Yes.", "Second?", "Yes."]

    asyncio.run(run())


def test_the_key_of_the_list_of_keys_is_refused(harness: Harness) -> None:
    from llama_index.core.llms import ChatMessage

    from turnlog.integrations.llama_index import TurnlogChatStore

    store = TurnlogChatStore(harness.log())
    for call in (store.session, store.get_messages, lambda key: store.add_message(key, ChatMessage("Hello"))):
        with pytest.raises(InvalidInputError, match="llama-index"):
            call("llama-index")


def test_an_edit_that_the_body_does_not_show_is_stored(harness: Harness) -> None:
    from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock

    from turnlog.integrations.llama_index import TurnlogChatStore

    def messages(url: str, **kwargs: Any) -> list[ChatMessage]:
        picture = ChatMessage(blocks=[TextBlock(text="Look."), ImageBlock(url=url)], additional_kwargs=kwargs)
        return [ChatMessage("Hello"), picture, ChatMessage("Nice.", role="assistant")]

    store = TurnlogChatStore(harness.log())
    for edited in (
        messages("https://a.example/1"),
        messages("https://a.example/2"),
        messages("https://a.example/2", n=5),
    ):
        store.set_messages("s", edited)
        assert store.get_messages("s") == edited
    head = store.session("s").info().head
    store.set_messages("s", store.get_messages("s"))
    assert store.session("s").info().head == head, "nothing was edited"
