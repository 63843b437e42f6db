"""`TurnlogConversationStore` beside Pydantic AI's own store in memory, and saves that are cut off."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog.core.errors import BudgetTooSmallError, InvalidInputError

stores = pytest.importorskip("pydantic_ai.conversation_store", reason="has an environment of its own: make frameworks")


def store_of(harness: Harness, user: str | None = None) -> Any:
    from turnlog.integrations.pydantic_ai import TurnlogConversationStore

    return TurnlogConversationStore(harness.log(user=user) if user else harness.log())


def turn(number: int) -> list[Any]:
    """A question, a call, its result and an answer."""
    from pydantic_ai import messages as types

    call, result = types.ToolCallPart("price", {"sku": number}, "c1"), types.ToolReturnPart("price", "12.50", "c1")
    return [
        types.ModelRequest([types.UserPromptPart([f"question {number}", "in euros"])]),
        types.ModelResponse([types.ThinkingPart("Look."), call]),
        types.ModelRequest([result]),
        types.ModelResponse([types.TextPart(f"answer {number}")]),
    ]


def shown(conversation: Any) -> list[str] | None:
    """What the parts of a conversation say; ids and times are the store's own."""
    if conversation is None:
        return None
    parts = [part for message in conversation.messages for part in message.parts]
    return [f"{part.part_kind} {getattr(part, 'content', None) or part.args}" for part in parts]


async def told(store: Any) -> list[Any]:
    """What a store tells after a conversation, its fork, and a branch."""
    from pydantic_ai import Conversation

    first = Conversation(conversation_id="desk", messages=turn(1))
    answers: list[Any] = [len(await store.save(first, scope="ada"))]
    stale = await store.load("desk")
    first.messages.extend(turn(2))
    answers.append(len(await store.save(first)))
    stale.messages.extend(turn(3))
    with pytest.raises(stores.ConversationConflict):
        await store.save(stale)
    fork = await store.fork("desk", at=4, new_conversation_id="a / fork")
    fork.messages.extend(turn(4))
    answers.append(len(await store.save(fork)))
    with pytest.raises(stores.ConversationConflict):
        await store.fork("desk", new_conversation_id="a / fork")
    branch = await store.branch("desk", at=4, expected_revision=first.revision)
    branch.messages.extend(turn(5))
    answers.append(len(await store.save(branch)))
    for name, limits in itertools.product(("desk", "a / fork", "none"), ({}, {"limit": 2}, {"scope": "bob"})):
        answers.append(shown(await store.load(name, **limits)))
    for limits in ({}, {"scope": "ada"}, {"scope": "bob"}, {"limit": 1}):
        answers.append(
            [
                (list_conversation.conversation_id, list_conversation.scope)
                for list_conversation in await store.list_conversations(**limits)
            ]
        )
    (left,) = (await store.read_record("desk")).branches
    answers.append([len(await store.read_history(left)), (await store.read_entry(left)).message.parts[0].content])
    await store.delete("desk")
    return [*answers, shown(await store.load("desk")), shown(await store.load("a / fork"))]


@pytest.mark.every_engine
def test_it_tells_what_the_store_in_memory_tells(harness: Harness) -> None:
    assert asyncio.run(told(store_of(harness))) == asyncio.run(told(stores.InMemoryConversationStore()))


def test_a_long_conversation_is_loaded_with_few_requests(harness: Harness) -> None:
    from pydantic_ai import Conversation

    async def run() -> None:
        store, conversation = store_of(harness), Conversation(conversation_id="desk", messages=[])
        for number in range(60):
            conversation.messages.extend(turn(number))
            await store.save(conversation)
        before = harness.faults.calls
        loaded = await store.load("desk")
        assert shown(loaded) == shown(conversation)
        assert harness.faults.calls - before < 60, "240 messages"
        old = await store.branch("desk", at=130, expected_revision=loaded.revision)
        assert shown(old) == shown(Conversation(messages=conversation.messages[:130]))

    asyncio.run(run())


def test_a_save_that_was_cut_off_is_repeated(harness: Harness) -> None:
    from pydantic_ai import Conversation

    async def run(at: int) -> bool:
        store, is_cut = store_of(harness, f"user-{at}"), False
        conversation = Conversation(conversation_id="desk", messages=turn(1))
        harness.faults.fail(at, "before")
        for number in (2, 3):
            try:
                await store.save(conversation)
            except Exception:
                is_cut = True
                harness.faults.clear()
                await store.save(conversation)
            conversation.messages.extend(turn(number))
        harness.faults.clear()
        expected = Conversation(conversation_id="desk", messages=[*turn(1), *turn(2)])
        assert shown(await store.load("desk")) == shown(expected)
        return is_cut

    first_whole = next(at for at in itertools.count(1) if not asyncio.run(run(at)))
    assert first_whole > 2, "each save was cut off somewhere"


def test_runs_with_structured_output_append_each_message_once(harness: Harness) -> None:
    """A run ends with a result of its output tool, and the next run begins with that and the new question as one request."""
    from pydantic_ai import Agent, Conversation
    from pydantic_ai import messages as types
    from pydantic_ai.models.function import FunctionModel

    from turnlog.integrations.pydantic_ai import TurnlogWindow

    def reply(messages: list[Any], info: Any) -> types.ModelResponse:
        return types.ModelResponse([types.ToolCallPart("final_result", {"response": 1.5})])

    async def run() -> None:
        store = store_of(harness)
        agent = Agent(FunctionModel(reply), output_type=float, capabilities=[TurnlogWindow(store, budget=8_000)])
        for number in range(4):
            conversation = await store.load("desk") or Conversation(conversation_id="desk")
            await store.save(await agent.run(f"question {number}", conversation=conversation))
        session = store.session("desk")
        assert [loop.loop for loop in session.loops()] == [4, 3, 2, 1], "each question begins a loop"
        assert len(list(session.messages())) == len(list(session.messages(in_view=True))) == 12
        assert len((await store.load("desk")).messages) == 12

    asyncio.run(run())


def test_the_schema_of_structured_output_counts_in_the_budget(harness: Harness) -> None:
    from pydantic import create_model
    from pydantic_ai import Agent, Conversation
    from pydantic_ai.models.test import TestModel

    from turnlog.integrations.pydantic_ai import TurnlogWindow

    output = create_model("Report", __doc__="What a report has. " * 400, total=(float, 1.0))
    agent = Agent(TestModel(), output_type=output, capabilities=[TurnlogWindow(store_of(harness), budget=1_000)])
    with pytest.raises(BudgetTooSmallError):
        asyncio.run(agent.run("question", conversation=Conversation(conversation_id="desk")))


def test_the_id_of_the_list_of_conversations_is_refused(harness: Harness) -> None:
    from pydantic_ai import Conversation

    store = store_of(harness)
    for call in (
        lambda: store.save(Conversation(conversation_id="pydantic-ai", messages=turn(1))),
        lambda: store.load("pydantic-ai"),
    ):
        with pytest.raises(InvalidInputError, match="pydantic-ai"):
            asyncio.run(call())
    with pytest.raises(InvalidInputError, match="pydantic-ai"):
        store.session("pydantic-ai")


def test_the_system_prompt_is_in_every_call_once_and_counts_in_the_budget(harness: Harness) -> None:
    from pydantic_ai import Agent, Conversation
    from pydantic_ai import messages as types
    from pydantic_ai.models.function import FunctionModel

    from turnlog.integrations.pydantic_ai import TurnlogWindow

    calls = []

    def reply(messages: list[Any], info: Any) -> types.ModelResponse:
        calls.append([part for message in messages for part in message.parts])
        return types.ModelResponse([types.TextPart("because " * 60)])

    async def run(prompt: str) -> None:
        store, calls[:] = store_of(harness, str(len(prompt))), []
        agent = Agent(FunctionModel(reply), system_prompt=prompt, capabilities=[TurnlogWindow(store, budget=700)])
        for number in range(8):
            conversation = await store.load("desk") or Conversation(conversation_id="desk")
            await store.save(await agent.run(f"question {number} {'why ' * 40}", conversation=conversation))

    asyncio.run(run("Never promise a refund."))
    assert all([part.content for part in parts].count("Never promise a refund.") == 1 for parts in calls)
    assert not any("question 0" in part.content for part in calls[-1] if isinstance(part, types.UserPromptPart))
    with pytest.raises(BudgetTooSmallError):
        asyncio.run(run("Never promise a refund. " * 300))


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_run_reads_the_whole_session_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai import Agent, Conversation
    from pydantic_ai import messages as types
    from pydantic_ai.models.function import FunctionModel

    from turnlog.integrations.pydantic_ai import TurnlogConversationStore, TurnlogWindow

    calls, positions, log = list[int](), list[int](), harness.log()

    def reply(messages: list[Any], info: Any) -> types.ModelResponse:
        calls.append(len(messages))
        part = types.TextPart("12.50") if len(calls) == 6 else types.ToolCallPart("price", {}, f"d{len(calls)}")
        return types.ModelResponse([part])

    def price() -> str:
        return "12.50"

    async def run() -> None:
        store = TurnlogConversationStore(log)
        history = [message for number in range(60) for message in turn(number)]
        await store.save(Conversation(conversation_id="desk", messages=history))
        conversation, call = await store.load("desk"), log.backend.call
        assert conversation is not None

        def reading(operation: str, **options: Any) -> Any:
            answer = call(operation, **options)
            if operation == "read_messages":
                positions.extend(message.position for message in answer.messages)
            return answer

        monkeypatch.setattr(log.backend, "call", reading)
        agent = Agent(FunctionModel(reply), tools=[price], capabilities=[TurnlogWindow(store, budget=2_000)])
        await agent.run("And now?", conversation=conversation)
        assert len(calls) == 6 and len(positions) == 240
        assert len(list(store.session("desk").messages(in_view=True))) == 240 + 11

    asyncio.run(run())


def test_messages_that_are_kept_again_with_a_change_branch_off_and_others_conflict(harness: Harness) -> None:
    from pydantic_ai import messages as types

    store, messages = store_of(harness), turn(1)
    session = store.keep("desk", messages)
    longer = [*messages, *turn(2)]
    store.keep("desk", longer)
    longer[3] = types.ModelResponse([types.TextPart("edited")])
    store.keep("desk", [*longer, *turn(3)])
    texts = [str(message.body) for message in session.messages(in_view=True)]
    assert len(texts) == 12 and "edited" in texts[3] and "answer 2" in texts[7] and "answer 3" in texts[11]
    store_of(harness).keep("desk", [*longer, *turn(3), *turn(4)])
    with pytest.raises(stores.ConversationConflict):
        store.keep("desk", [*longer, *turn(3)])


@pytest.mark.filterwarnings("ignore:.RetryPromptPart. is deprecated")
def test_a_retry_prompt_comes_back_as_pydantic_ai_loads_it(harness: Harness) -> None:
    from pydantic_ai import Conversation, ModelMessagesTypeAdapter
    from pydantic_ai import messages as types

    wrong = [{"type": "missing", "loc": ("sku",), "msg": "Field required", "input": {}}]
    retries = [
        types.RetryPromptPart("It must be even.", tool_name="price", tool_call_id="c1"),
        types.RetryPromptPart(wrong, tool_name="price", tool_call_id="c1"),
        types.RetryPromptPart("Answer in JSON."),
    ]
    store = store_of(harness)
    for number, retry in enumerate(retries):
        messages = [*turn(1)[:2], types.ModelRequest([retry]), turn(1)[-1]]
        asyncio.run(store.save(Conversation(conversation_id=f"desk-{number}", messages=messages)))
        loaded = asyncio.run(store_of(harness).load(f"desk-{number}")).messages
        assert loaded == ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


@pytest.mark.parametrize("change", ["asked again", "reply edited"])
def test_a_saved_conversation_that_its_program_has_changed_goes_on(harness: Harness, change: str) -> None:
    from pydantic_ai import Agent, Conversation
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    from turnlog.integrations.pydantic_ai import TurnlogWindow

    async def run(store: Any, *capabilities: Any) -> list[str]:
        agent = Agent(FunctionModel(lambda messages, info: turn(1)[-1]), capabilities=capabilities)
        conversation = Conversation(conversation_id="desk")
        for question in ("first", "second", "third"):
            if question == "third":
                if change == "asked again":
                    conversation.messages = conversation.messages[:-2]
                else:
                    conversation.messages[-1] = ModelResponse([TextPart("edited")])
            await store.save(await agent.run(question, conversation=conversation))
            conversation = await store.load("desk")
        return [str(part.content) for message in conversation.messages for part in message.parts]

    store = store_of(harness)
    shown_here = asyncio.run(run(store, TurnlogWindow(store, budget=2_000)))
    assert shown_here == asyncio.run(run(stores.InMemoryConversationStore()))


def test_a_run_that_has_not_seen_the_saved_conversation_appends_nothing(harness: Harness) -> None:
    from pydantic_ai import Agent, Conversation
    from pydantic_ai.capabilities import ProcessHistory
    from pydantic_ai.models.function import FunctionModel

    from turnlog.integrations.pydantic_ai import TurnlogWindow

    def reply(messages: list[Any], info: Any) -> Any:
        return turn(1)[-1]

    async def run() -> None:
        store = store_of(harness)
        window, newest_only = TurnlogWindow(store, budget=2_000), ProcessHistory(lambda messages: messages[-1:])

        async def ask(question: str, scope: str, *capabilities: Any, **limits: Any) -> None:
            conversation = await store.load("desk", scope=scope, **limits) or Conversation(conversation_id="desk")
            result = await Agent(FunctionModel(reply), capabilities=capabilities).run(
                question, conversation=conversation
            )
            await store.save(result, scope=scope)

        await ask("I am Ada", "ada", window)
        before = shown(await store.load("desk", scope="ada"))
        with pytest.raises(stores.ConversationConflict):
            await ask("Wire the money", "bob", window)
        session = store.session("desk")
        assert shown(await store.load("desk", scope="ada")) == before and len(list(session.messages())) == 2
        await ask("Go on", "ada", window, limit=1)
        await ask("And on", "ada", newest_only, window)
        texts = [text for text in shown(await store.load("desk")) or () if "user" in text]
        assert [text.removeprefix("user-prompt ") for text in texts] == ["I am Ada", "Go on", "And on"]

    asyncio.run(run())
