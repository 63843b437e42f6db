"""A middleware of LangChain's agents over the log: real agents with a tool, other middleware beside it, sync and async."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import runpy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import ROOT, Harness
from turnlog.agents.graph_state.messages import Newest
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError

THREAD = {"configurable": {"thread_id": "desk"}}


@pytest.fixture(scope="module")
def agents() -> Any:
    return importlib.import_module("tests.integrations.langchain_agents")


@pytest.fixture
def log() -> Iterator[Turnlog]:
    """What depends on no engine; what does asks for the harness."""
    with Turnlog.open("memory://") as made:
        yield made


def asked(agent: Any, *questions: str, config: Any = THREAD, is_async: bool = False, **more: Any) -> Any:
    values = {"messages": [{"role": "user", "content": question} for question in questions], **more}
    return asyncio.run(agent.ainvoke(values, config)) if is_async else agent.invoke(values, config)


def kept(session: Session) -> list[Any]:
    """Messages as objects, as the log has them."""
    from turnlog.agents.graph_state.messages import original_message

    return [original_message(message) for message in session.messages()]


def saver() -> Any:
    return importlib.import_module("langgraph.checkpoint.memory").InMemorySaver()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_real_agent_with_a_tool_is_in_the_log_once_and_as_it_is(
    harness: Harness, agents: Any, is_async: bool
) -> None:
    log, model = harness.log(), agents.Scripted()
    agent = agents.agent(log, model=model, checkpointer=saver(), title="Desk")
    for question in ("What is the price of SKU-1?", "And of SKU-2?"):
        state = asked(agent, question, is_async=is_async)
    session = log.sessions.get("desk")
    assert kept(session) == state["messages"] and len(state["messages"]) == 8
    assert [type(item) for item in kept(session)] == [type(message) for message in state["messages"]]
    assert session.info().title == "Desk"
    assert model.sent[-1] == state["messages"][:-1], "objects as they are, the thinking with its signature"
    assert [len(item) for item in model.sent] == [1, 3, 5, 7]
    assert [loop.reply for loop in session.loops()] == ["SKU-2 costs 12.50", "SKU-1 costs 12.50"]


def test_without_a_checkpointer_the_log_is_the_memory(harness: Harness, agents: Any) -> None:
    log, model = harness.log(), agents.Scripted()
    for question in ("What is the price of SKU-1?", "And of SKU-2?"):
        state = asked(agents.agent(log, model=model), question)
        assert len(state["messages"]) == 4
    said = kept(log.sessions.get("desk"))
    assert len(said) == 8 and said[4:] == state["messages"]
    assert model.sent[-1] == said[:-1], "what the state does not have is read from the log, as it was said"


def test_a_window_is_within_its_budget_and_valid(log: Turnlog, agents: Any) -> None:
    model = agents.Scripted()
    agent = agents.agent(log, model=model, checkpointer=saver(), budget=1_200, system_prompt="Be brief. " * 20)
    for at in range(12):
        state = asked(agent, f"{'Please look well. ' * 20} What is the price of SKU-{at}?")
    assert len(state["messages"]) == 48
    library = importlib.import_module("langchain_core.messages")
    assert set(model.tools[0]) == {"price"}, "the first windows leave nothing out"
    assert set(model.tools[-1]) == {"price", "recall_tool_call", "search_history"}
    for sent in model.sent:
        assert [item.type for item in sent].count("system") == 1 and sent[0].text.startswith("Be brief.")
        body = library.convert_to_openai_messages(sent)
        for entry in body:
            if isinstance(entry["content"], list):
                entry["content"] = [part for part in entry["content"] if part["type"] != "thinking"]
        window = log.build_window(body, tools=[])
        assert window.tokens < 1_200
        assert log.lint(body, format="openai_chat").problems == []
    assert len(model.sent[-1]) < 20
    assert kept(log.sessions.get("desk")) == state["messages"]


def test_a_reply_is_kept_with_its_window_and_what_the_provider_counted(
    log: Turnlog, agents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = list[Newest[Any, Any]]()

    class SeenNewest(Newest[Any, Any]):
        def __init__(self, limit: int) -> None:
            super().__init__(limit)
            caches.append(self)

    monkeypatch.setattr("turnlog.integrations.langchain.Newest", SeenNewest)
    middleware = agents.TurnlogMiddleware(log)
    calls = list[dict[str, Any]]()
    backend = log.backend
    call = backend.call

    def watched(operation: str, **given: Any) -> Any:
        if operation == "append_messages":
            calls.append(given["body"])
        return call(operation, **given)

    backend.call = watched  # type: ignore[method-assign]
    agent = agents.create_agent(agents.Scripted(), [agents.price], middleware=[middleware])
    asked(agent, "What is the price of SKU-1?")
    assert [len(call["messages"]) for call in calls] == [1, 1, 1, 1]
    assert [call.get("usage") for call in calls] == [
        None,
        {"input_tokens": 10, "output_tokens": 5},
        None,
        calls[1]["usage"],
    ]
    assert [bool(call.get("window")) for call in calls] == [False, True, False, True]
    done, ends, sent, begun = caches
    assert (dict(done), list(ends), dict(sent), dict(begun)) == ({}, ["desk"], {}, {}), (
        "of a run only the end of its log stays in memory"
    )


def test_the_tools_bring_back_what_is_left_out(log: Turnlog, agents: Any) -> None:
    log.sessions.create("desk", recall="always")
    model = agents.Scripted()
    agent = agents.agent(log, model=model)
    asked(agent, "What is the price of SKU-1?")
    call = {"name": "search_history", "args": {"q": "SKU-1"}, "id": "s1"}
    wrong = {"name": "recall_tool_call", "args": {}, "id": "s2"}
    model.says += [agents.AIMessage("", tool_calls=[call, wrong]), agents.AIMessage("Found.")]
    state = asked(agent, "What did I ask?")
    value, result = state["messages"][2:4]
    assert "⟦SKU-1⟧" in value.text and value.status == "success" and result.status == "error"
    assert {"recall_tool_call", "search_history", "price"} == set(model.tools[-1])
    recalled = next(log.sessions.get("desk").history(action="tool_recalled"), None)
    assert recalled is not None
    plain = agents.Scripted()
    asked(agents.agent(log, model=plain, recall=False), "Hello SKU-3?", config={"configurable": {"thread_id": "other"}})
    assert plain.tools == [["price"]] * 2 and plain.sent[0][0].type == "human"


def test_which_session_it_is(log: Turnlog, agents: Any) -> None:
    asked(agents.agent(log, session_id="fixed"), "Price of SKU-1?", config={})
    asked(agents.agent(log, session_id=lambda item: f"user-{item['user']}"), "x?", config={"configurable": {"user": 7}})
    assert {item.session_id for item in log.sessions.list()} == {"fixed", "user-7"}
    with pytest.raises(InvalidInputError, match="thread_id"):
        asked(agents.agent(log), "Price of SKU-1?", config={})


def test_a_run_that_failed_goes_on_and_says_nothing_twice(harness: Harness, agents: Any) -> None:
    failures = iter([True, False])

    @agents.tool
    def price(sku: str) -> str:
        """The price of an article."""
        if next(failures):
            raise RuntimeError("no answer")
        return f"{sku} costs 12.50"

    log, model = harness.log(), agents.Scripted()
    agent = agents.agent(log, model=model, tools=[price], checkpointer=saver())
    with pytest.raises(RuntimeError):
        asked(agent, "What is the price of SKU-1?")
    session = log.sessions.get("desk")
    assert [item.type for item in kept(session)] == ["human", "ai"], "the call is in the log before its tool runs"
    state = agent.invoke(None, THREAD)
    assert kept(session) == state["messages"] and len(state["messages"]) == 4 and len(model.sent) == 2


def test_a_fault_anywhere_and_a_retry_say_nothing_twice(harness: Harness, agents: Any) -> None:
    from tests.effort import boundaries
    from turnlog.core.errors import UnavailableError

    before = harness.faults.calls
    asked(agents.agent(harness.log(user="clean")), "What is the price of SKU-1?")
    for at in boundaries(harness.faults.calls - before, harness.name):
        log, when = harness.log(user=f"u{at}"), ("before", "after")[at % 2]
        agent = agents.agent(log, checkpointer=saver())
        harness.faults.fail(at, when)
        try:
            state = asked(agent, "What is the price of SKU-1?")
        except UnavailableError:
            harness.faults.clear()
            state = agent.invoke(None, THREAD)
        harness.faults.clear()
        assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
        assert kept(log.sessions.get("desk")) == state["messages"]


def test_a_question_with_the_id_of_an_earlier_one_is_appended_and_answered(log: Turnlog, agents: Any) -> None:
    from langchain_core.messages import HumanMessage

    model = agents.Scripted()
    agent, session = agents.agent(log, model=model), log.sessions.of("desk")
    for sku in ("SKU-1", "SKU-2", "SKU-2", "SKU-1"):
        question = HumanMessage(f"What is the price of {sku}?", id="1")
        answer = agent.invoke({"messages": [question]}, THREAD)["messages"][-1]
        assert f"{sku} costs" in answer.text
        texts = [message.text for message in kept(session) if message.type == "human"]
    assert [text[-6:-1] for text in texts] == ["SKU-1", "SKU-2", "SKU-1"], "one that is asked again is there"
    assert not list(session.history(action="message_edited"))


def test_a_question_that_another_middleware_edits_is_stored_once_when_the_run_goes_on_elsewhere(
    log: Turnlog, agents: Any
) -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import PIIMiddleware
    from langchain_core.messages import HumanMessage

    class Down(agents.Scripted):  # type: ignore[misc]
        def _generate(self, *arguments: Any, **options: Any) -> Any:
            raise ConnectionError

    checkpoints, asked_once = saver(), {"messages": [HumanMessage("What is the price of SKU-1? a@b.co", id="1")]}
    for model, values in ((Down(), asked_once), (agents.Scripted(), None)):
        middleware = [agents.TurnlogMiddleware(log), PIIMiddleware("email")]
        agent = create_agent(model, [agents.price], middleware=middleware, checkpointer=checkpoints)
        with contextlib.suppress(ConnectionError):
            agent.invoke(values, THREAD)
    texts = [message.text for message in kept(log.sessions.of("desk")) if message.type == "human"]
    assert texts == ["What is the price of SKU-1? a@b.co"]


def test_what_other_middleware_changes_and_removes_is_told_and_the_log_keeps_it(log: Turnlog, agents: Any) -> None:
    from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
    from langchain_core.messages import HumanMessage

    class Edits(AgentMiddleware):  # type: ignore[type-arg]
        def after_model(self, state: Any, runtime: Any) -> Any:
            first = state["messages"][0]
            return {"messages": [HumanMessage("[edited]", id=first.id)]} if first.text.endswith("SKU-0?") else None

    writes = agents.Scripted(says=[agents.AIMessage("a summary")] * 9)
    short = SummarizationMiddleware(writes, trigger=("messages", 5), keep=("messages", 2))
    agent = agents.agent(log, more=[Edits(), short], checkpointer=saver())
    for at in range(3):
        state = asked(agent, f"What is the price of SKU-{at}?")
    session = log.sessions.get("desk")
    assert any("a summary" in message.text for message in state["messages"]) and len(state["messages"]) < 12
    assert [item.type for item in kept(session)] == ["human", "ai", "tool", "ai"] * 3
    assert kept(session)[0].text == "What is the price of SKU-0?"
    (edited,) = [item.metadata for item in session.history(action="message_edited")]
    assert edited is not None and (edited["message_id"], edited["position"]) == (kept(session)[0].id, 2)
    assert sum(item.metadata["count"] for item in session.history(action="messages_removed") if item.metadata) >= 4


def test_what_middleware_around_it_puts_into_a_request_is_sent_and_not_kept(log: Turnlog, agents: Any) -> None:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import HumanMessage

    class Reminds(AgentMiddleware):  # type: ignore[type-arg]
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            last = request.messages[-1]
            changed = last.model_copy(update={"content": last.text + " (now)"})
            return handler(request.override(messages=[HumanMessage("First."), *request.messages[:-1], changed]))

    model = agents.Scripted()
    agent = agents.create_agent(model, [agents.price], middleware=[Reminds(), agents.TurnlogMiddleware(log)])
    asked(agent, "What is the price of SKU-1?")
    assert [item.text for item in model.sent[0]] == ["First.", "What is the price of SKU-1? (now)"]
    assert kept(log.sessions.get("desk"))[0].text == "What is the price of SKU-1?"
    assert len(kept(log.sessions.get("desk"))) == 4


def test_what_is_redacted_before_it_is_never_in_the_log(log: Turnlog, agents: Any) -> None:
    from langchain.agents.middleware import PIIMiddleware

    model = agents.Scripted(says=[agents.AIMessage("I write to eve@example.com.")])
    hides = PIIMiddleware("email", apply_to_input=True, apply_to_output=True)
    agent = agents.create_agent(model, [], middleware=[hides, agents.TurnlogMiddleware(log)])
    asked(agent, "I am ada@example.com")
    said = str(kept(log.sessions.get("desk")))
    assert "@example.com" not in said and said.count("[REDACTED_EMAIL]") == 2
    assert not list(log.sessions.get("desk").history(action="message_edited"))


def test_middleware_that_edits_the_state_behind_it_does_not_change_what_the_model_reads(
    log: Turnlog, agents: Any
) -> None:
    from langchain.agents.middleware import PIIMiddleware

    model = agents.Scripted(says=[agents.AIMessage("Hello")])
    agent = agents.create_agent(model, [], middleware=[agents.TurnlogMiddleware(log), PIIMiddleware("email")])
    state = asked(agent, "I am ada@example.com")
    assert "ada@" not in state["messages"][0].text
    assert "ada@" in model.sent[-1][0].text, "the page on frameworks says which order is needed"


@pytest.mark.parametrize("is_redacted", [True, False])
def test_a_message_over_the_budget_blocks_until_it_is_redacted_or_a_run_has_the_budget(
    log: Turnlog, agents: Any, is_redacted: bool
) -> None:
    from turnlog.core.errors import BudgetTooSmallError

    thread = saver()

    def ask(question: str, budget: int) -> None:
        model = agents.Scripted(says=[agents.AIMessage("Hello")])
        asked(agents.agent(log, model=model, checkpointer=thread, budget=budget), question)

    for question in ("long " * 3_000, "And now?"):
        with pytest.raises(BudgetTooSmallError):
            ask(question, 1_000)
    if is_redacted:
        log.sessions.of("desk").redact(next(iter(log.sessions.of("desk").messages())).position)
    else:
        ask("Again?", 5_000)
    ask("And now?", 1_000)


@pytest.mark.parametrize("first", ["Hello", None])
def test_redacted_messages_at_the_end_of_a_thread_are_not_said_again(
    log: Turnlog, agents: Any, first: str | None
) -> None:
    replies = [agents.AIMessage(text) for text in ("Hello", "I keep 4711", "Done")[0 if first else 1 :]]
    thread, model = saver(), agents.Scripted(says=replies)
    for question in filter(None, (first, "My secret is 4711")):
        asked(agents.agent(log, model=model, checkpointer=thread), question)
    session = log.sessions.get("desk")
    for message in list(session.messages())[-2:]:
        session.redact(message.position)
    asked(agents.agent(log, model=model, checkpointer=thread), "And now?")
    said = [message.body["content"] for message in session.messages()]
    assert said[-4:] == ["[redacted]", "[redacted]", "And now?", "Done"] and not any("4711" in text for text in said)
    assert "4711" not in str(model.sent[-1])


def test_a_call_that_waits_for_a_human_is_in_the_log_when_it_is_decided(log: Turnlog, agents: Any) -> None:
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langgraph.types import Command

    model = agents.Scripted()
    agent = agents.agent(log, model=model, more=[HumanInTheLoopMiddleware({"price": True})], checkpointer=saver())
    assert "__interrupt__" in asked(agent, "What is the price of SKU-1?")
    assert [item.type for item in kept(log.sessions.get("desk"))] == ["human"]
    edited = {"type": "edit", "edited_action": {"name": "price", "args": {"sku": "SKU-9"}}}
    state = agent.invoke(Command(resume={"decisions": [edited]}), THREAD)
    said = kept(log.sessions.get("desk"))
    assert said == state["messages"] and [item.type for item in said] == ["human", "ai", "tool", "ai"]
    assert "SKU-9 costs 12.50" in said[2].text and model.sent[-1] == said[:-1]


def test_runs_side_by_side_on_one_session_lose_nothing(harness: Harness, agents: Any) -> None:
    log = harness.log()
    log.sessions.create("desk")
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(asked, agents.agent(harness.log()), f"What is the price of SKU-{at}?") for at in range(4)]
    ids = [message.id for run in runs for message in run.result()["messages"]]
    stored = [item.id for item in kept(log.sessions.get("desk"))]
    assert len(stored) == len(set(stored)) and set(ids) == set(stored)


def test_a_call_that_could_not_be_read_breaks_no_window(log: Turnlog, agents: Any) -> None:
    wrong: Any = {"name": "price", "args": "{", "id": "c9", "error": "no JSON", "type": "invalid_tool_call"}
    model = agents.Scripted(says=[agents.AIMessage("I try", invalid_tool_calls=[wrong])])
    agent = agents.agent(log, model=model, checkpointer=saver())
    asked(agent, "What is the price of SKU-1?")
    asked(agent, "And of SKU-2?")
    assert not any(item.invalid_tool_calls for item in model.sent[-1] if item.type == "ai")
    body = importlib.import_module("langchain_core.messages").convert_to_openai_messages(model.sent[-1])
    assert log.lint(body, format="openai_chat").problems == []


@pytest.mark.parametrize("is_auto", [False, True])
def test_earlier_structured_output_is_sent_as_the_calls_that_it_is(log: Turnlog, agents: Any, is_auto: bool) -> None:
    strategies = importlib.import_module("langchain.agents.structured_output")
    calls = [{"name": "Place", "args": {"city": city}, "id": f"call-{city}"} for city in ("Rome", "Oslo")]
    model = agents.Scripted(says=[agents.AIMessage("", tool_calls=[call]) for call in calls])
    schema = {"title": "Place", "description": "A place.", "type": "object", "properties": {"city": {"type": "string"}}}
    strategy = strategies.AutoStrategy(schema) if is_auto else strategies.ToolStrategy(schema)
    agent = agents.agent(log, model=model, checkpointer=saver(), response_format=strategy)
    for question in ("Where?", "And now?"):
        state = asked(agent, question)
    assert state["structured_response"] == {"city": "Oslo"}
    assert model.sent[-1] == state["messages"][:4]


def test_a_run_converts_the_newest_messages_of_a_long_list_and_all_when_others_have_written(agents: Any) -> None:
    conversions = list[str]()

    class Question(importlib.import_module("langchain_core.messages").HumanMessage):  # type: ignore[misc]
        def model_dump(self, **options: Any) -> dict[str, Any]:
            conversions.append(self.id)
            return dict(super().model_dump(**options))

    with Turnlog.open("memory://", worker=False) as log:
        agent = agents.agent(log, model=agents.Scripted(says=[agents.AIMessage(f"Answer {n}") for n in range(3)]))
        messages = [Question(f"Question {n}?", id=f"question-{n}") for n in range(300)]
        messages = agent.invoke({"messages": messages}, THREAD)["messages"]
        assert set(conversions) == {f"question-{n}" for n in range(300)}
        conversions.clear()
        messages = agent.invoke({"messages": [*messages, Question("And now?", id="now")]}, THREAD)["messages"]
        assert "now" in conversions and len(set(conversions)) < 60
        session = log.sessions.get("desk")
        assert len(kept(session)) == len(messages) == 303
        session.rewind(10)
        messages = agent.invoke({"messages": [*messages, Question("And later?", id="later")]}, THREAD)["messages"]
        assert [message.id for message in session.messages(in_view=True)] == [message.id for message in messages]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "langchain_agent.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "SKU-1 costs 12.50" in printed and "SKU-2 costs 12.50" in printed
    assert "8 messages kept" in printed
