"""Sessions of adapters with ``ttl_days``: what is used stays, what is quiet expires, and the index that lists both stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Harness

DAYS = 7


def day_by_day(harness: Harness, use: Callable[[int], Any]) -> list[Any]:
    answers = []
    for day in range(DAYS):
        answers.append(use(day))
        harness.clock.advance(86_410)
    return answers


@pytest.mark.every_engine
def test_pydantic_ai_keeps_the_conversation_that_is_used(harness: Harness) -> None:
    pytest.importorskip("pydantic_ai", reason="has an environment of its own: make frameworks")
    from pydantic_ai import Conversation
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    from turnlog.integrations.pydantic_ai import TurnlogConversationStore

    async def use(day: int) -> tuple[int, list[str]]:
        store = TurnlogConversationStore(harness.log(), ttl_days=3)
        if day == 1:
            await store.save(await store.fork("used", new_conversation_id="quiet"))
        conversation = await store.load("used") or Conversation(conversation_id="used")
        conversation.messages.append(ModelRequest([UserPromptPart(f"day {day}")]))
        await store.save(conversation)
        listed = sorted(record.conversation_id for record in await store.list_conversations())
        assert (await store.load("quiet") is not None) == ("quiet" in listed)
        return len(conversation.messages), listed

    used, both = ["used"], ["quiet", "used"]
    assert day_by_day(harness, lambda day: asyncio.run(use(day))) == [
        (1, used),
        *((count, both) for count in (2, 3, 4)),
        *((count, used) for count in (5, 6, 7)),
    ]


@pytest.mark.every_engine
def test_pydantic_ai_keeps_a_fork_when_its_parent_expires(harness: Harness) -> None:
    pytest.importorskip("pydantic_ai", reason="has an environment of its own: make frameworks")
    from pydantic_ai import Conversation
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    from turnlog.integrations.pydantic_ai import TurnlogConversationStore

    async def use(day: int) -> int:
        store = TurnlogConversationStore(harness.log(), ttl_days=3)
        if day == 0:
            await store.save(Conversation(conversation_id="parent", messages=[ModelRequest([UserPromptPart("hello")])]))
            await store.save(await store.fork("parent", new_conversation_id="fork"))
        conversation = await store.load("fork")
        assert conversation is not None
        conversation.messages.append(ModelRequest([UserPromptPart(f"day {day}")]))
        await store.save(conversation)
        return len(conversation.messages)

    assert day_by_day(harness, lambda day: asyncio.run(use(day))) == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.every_engine
def test_llama_index_lists_the_keys_that_are_used(harness: Harness) -> None:
    pytest.importorskip("llama_index.core", reason="has an environment of its own: make frameworks")
    from llama_index.core.llms import ChatMessage

    from turnlog.integrations.llama_index import TurnlogChatStore

    store = TurnlogChatStore(harness.log(), ttl_days=3)

    def use(day: int) -> tuple[int, list[str]]:
        store.add_message("used", ChatMessage("x", role="user"))
        if day % 4 == 0:
            store.add_message(f"key-{day // 4}", ChatMessage("x", role="user"))
        return len(store.get_messages("used")), sorted(store.get_keys())

    first, second = ["key-0", "used"], ["key-1", "used"]
    keys = [first, first, first, ["used"], second, second, second]
    assert day_by_day(harness, use) == list(enumerate(keys, 1))
    assert store.delete_messages("key-0") == []
    assert store.delete_messages("key-0") is None


@pytest.mark.every_engine
def test_claude_agent_sdk_keeps_the_transcript_that_is_used(harness: Harness) -> None:
    pytest.importorskip("claude_agent_sdk", reason="has an environment of its own: make frameworks")
    from turnlog.integrations.claude_agent_sdk import TurnlogSessionStore

    store: Any = TurnlogSessionStore(harness.log(), ttl_days=3)

    async def use(day: int) -> tuple[int, int, int]:
        main = {"project_key": "p", "session_id": "main"}
        entry = {"type": "user", "uuid": f"u{day}", "message": {"role": "user", "content": "x"}}
        await store.append({"project_key": "p", "session_id": f"day-{day}"}, [entry])
        if day == 0:
            await store.append(main, [entry])
        await store.append({**main, "subpath": "subagents/a"}, [entry])
        listed = await store.list_sessions("p")
        return len(await store.load(main)), len(await store.load({**main, "subpath": "subagents/a"})), len(listed)

    assert day_by_day(harness, lambda day: asyncio.run(use(day))) == [(1, day + 1, min(day + 2, 4)) for day in range(7)]
