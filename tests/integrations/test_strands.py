"""Strands over the log: the contract of its repository, its storage, its own agents and managers, faults, and several processes."""

from __future__ import annotations

import asyncio
import base64
import importlib
import math
import runpy
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import ROOT, Harness
from tests.effort import boundaries
from turnlog.client.model import Session as Log
from turnlog.client.model import Turnlog
from turnlog.core.errors import DocumentChangedError
from turnlog.integrations.strands.storage import PartedValues


@pytest.fixture(scope="module")
def agents() -> Any:
    return importlib.import_module("tests.integrations.strands_agents")


@pytest.fixture(scope="module")
def types() -> Any:
    return importlib.import_module("strands.types.session")


@pytest.fixture(scope="module")
def told() -> Any:
    return importlib.import_module("strands.types.exceptions")


@pytest.fixture
def log() -> Iterator[Turnlog]:
    """What depends on no engine; what does asks for the harness."""
    with Turnlog.open("memory://") as made:
        yield made


def text(said: str, role: str = "user", **more: Any) -> Any:
    return {"role": role, "content": [{"text": said}], **more}


def bodies(session: Log) -> list[Any]:
    return [message.body for message in session.messages()]


def texts(messages: Any) -> list[str]:
    return [block["text"] for message in messages for block in message["content"] if "text" in block]


class Theirs:
    """A repository of Strands or ours, with a session and an agent."""

    def __init__(self, repository: Any, types: Any) -> None:
        self.of, self.types = repository, types
        self.of.create_session(types.Session("s", types.SessionType.AGENT))
        self.of.create_agent("s", types.SessionAgent("a", {"k": b"\x00"}, {"c": 1}))

    def message(self, said: str, at: int, **more: Any) -> Any:
        return self.types.SessionMessage(text(said), at, **more)

    def list(self, **more: Any) -> list[Any]:
        return [
            (list_message.message_id, list_message.to_message())
            for list_message in self.of.list_messages("s", "a", **more)
        ]


@pytest.fixture
def ours(harness: Harness, agents: Any, types: Any) -> Theirs:
    return Theirs(agents.TurnlogRepository(harness.log(), title="Desk"), types)


@pytest.fixture(params=["ours", "files"])
def either(request: pytest.FixtureRequest, tmp_path: Path, log: Turnlog, agents: Any, types: Any) -> Theirs:
    """Ours, and the SDK's own beside it: what is asked of both is the framework's behaviour."""
    if request.param == "ours":
        return Theirs(agents.TurnlogRepository(log), types)
    files = importlib.import_module("strands.session").FileSessionManager("other", storage_dir=str(tmp_path))
    return Theirs(files, types)


def test_the_contract_of_sessions_and_agents(either: Theirs, told: Any) -> None:
    of, types = either.of, either.types
    assert of.read_session("nobody") is None and of.read_agent("s", "nobody") is None
    assert of.read_agent("nobody", "a") is None
    result = of.read_session("s")
    assert (result.session_id, result.session_type) == ("s", types.SessionType.AGENT)
    with pytest.raises(told.SessionException):
        of.create_session(types.Session("s", types.SessionType.AGENT))
    before = of.read_agent("s", "a")
    assert (before.state, before.conversation_manager_state) == ({"k": b"\x00"}, {"c": 1})
    of.update_agent("s", types.SessionAgent("a", {"k": 2}, {}, {"interrupt_state": {}}, created_at="never"))
    after = of.read_agent("s", "a")
    assert (after.state, after.to_dict()["_internal_state"], after.created_at) == (
        {"k": 2},
        {"interrupt_state": {}},
        before.created_at,
    )
    with pytest.raises(told.SessionException):
        of.update_agent("s", types.SessionAgent("nobody", {}, {}))
    with pytest.raises(told.SessionException):
        of.list_messages("s", "nobody")
    for wrong in ("a/b", "a/../b"):
        with pytest.raises(ValueError, match="session_id="):
            of.read_session(wrong)


def test_the_contract_of_messages(either: Theirs, told: Any) -> None:
    of = either.of
    assert either.list() == [] and of.read_message("s", "a", 0) is None
    for at in (2, 10, 0, 1):
        of.create_message("s", "a", either.message(f"m{at}", at))
    of.create_agent("s", either.types.SessionAgent("b", {}, {}))
    of.create_message("s", "b", either.message("other", 0))
    assert [at for at, _ in either.list()] == [0, 1, 2, 10], "by number, not by text"
    assert [at for at, _ in either.list(limit=2, offset=1)] == [1, 2] and either.list(limit=0) == []
    assert [at for at, _ in either.list(offset=3)] == [10] and either.list(offset=9) == []
    assert of.read_message("s", "a", 2).message == text("m2")
    created = of.read_message("s", "a", 1).created_at
    of.update_message("s", "a", either.message("changed", 1, created_at="never"))
    result = of.read_message("s", "a", 1)
    assert (result.message, result.created_at) == (text("changed"), created)
    of.update_message("s", "a", either.message("m2", 2, redact_message=text("[hidden]")))
    result = of.read_message("s", "a", 2)
    assert (result.message, result.redact_message, result.to_message()) == (
        text("m2"),
        text("[hidden]"),
        text("[hidden]"),
    )
    assert texts(item for _, item in either.list()) == ["m0", "changed", "[hidden]", "m10"]
    assert texts(list_message.to_message() for list_message in of.list_messages("s", "b")) == ["other"]
    for number in (1, 7):
        with pytest.raises(told.SessionException):
            of.update_message("s", "b", either.message("x", number))
    with pytest.raises(ValueError, match="must be an integer"):
        of.read_message("s", "a", "../1")


def test_the_contract_of_multi_agents_and_of_deletion(either: Theirs, told: Any) -> None:
    state = {"id": "team", "state": {"nodes": ["a", {"deep": None}]}}
    team = SimpleNamespace(id="team", serialize_state=lambda: state)
    assert either.of.read_multi_agent("s", "team") is None
    with pytest.raises(told.SessionException):
        either.of.update_multi_agent("s", team)
    either.of.create_multi_agent("s", team)
    assert either.of.read_multi_agent("s", "team") == state
    state["state"] = {"nodes": []}
    either.of.update_multi_agent("s", team)
    assert either.of.read_multi_agent("s", "team") == state
    either.of.delete_session("s")
    assert either.of.read_session("s") is None
    with pytest.raises(told.SessionException):
        either.of.delete_session("s")


def test_messages_come_back_equal_and_are_those_of_the_log(ours: Theirs, harness: Harness) -> None:
    picture = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\x00"}}}
    wide = [10**30, -math.inf, 2**63, True]  # numbers that Turnlog refuses, and some that it takes
    result = {"toolUseId": "t1", "status": "success", "content": [{"json": {"a": [1, None]}}, picture]}
    outcome = [
        {"role": "user", "content": [{"text": "see"}, picture], "tracking_id": "m-0"},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"redactedContent": b"\x01\x02"}},
                {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"bytes": "no base64!", "n": wide}}},
            ],
            "metadata": {"usage": {"inputTokens": 1}, "custom": {"raw": b"\x03"}},
        },
        {"role": "user", "content": [{"toolResult": result}], "tracking_id": "m-2"},
        {"role": "assistant", "content": [{"text": "A picture."}], "tracking_id": "x" * 200},
    ]
    for at, entry in enumerate(outcome):
        ours.of.create_message("s", "a", ours.types.SessionMessage(entry, at))
    assert [item for _, item in ours.list()] == outcome
    session = harness.log().sessions.get("s")
    assert session.info().title == "Desk" and {message.author for message in session.messages()} == {"a"}
    assert {message.format for message in session.messages()} == {"bedrock_converse"}
    assert base64.b64decode(bodies(session)[0]["content"][1]["image"]["source"]["bytes"]) == b"\x89PNG\x00"
    for format in ("bedrock_converse", "anthropic", "openai_chat"):
        window = session.context(format=format)
        assert harness.log().lint(window.messages, format=format).problems == []
    assert session.recall("3.0").found and session.search("picture").results


def test_what_is_updated_is_in_no_window(ours: Theirs, harness: Harness) -> None:
    for at in range(2):
        ours.of.create_message("s", "a", ours.message(f"secret {at}", at))
    ours.of.update_message("s", "a", ours.message("secret 1", 1, redact_message=text("[hidden]")))
    session = harness.log().sessions.get("s")
    assert "secret 1" not in str(session.context(format="bedrock_converse")) + str(session.search("secret"))
    assert texts(item for _, item in ours.list()) == ["secret 0", "[hidden]"]
    session.redact(2)
    assert texts(item for _, item in ours.list()) == ["[redacted]", "[hidden]"], "whoever redacts, it stays where it is"


def test_a_message_that_is_created_again_is_one_and_of_two_with_one_id_none_is_lost(ours: Theirs) -> None:
    result, other = ours.message("one", 0), ours.message("other", 0)
    for value in (result, result, other):
        ours.of.create_message("s", "a", value)
    assert texts(said for _, said in ours.list()) == ["one", "other"]
    assert ours.of.read_message("s", "a", 0).message == text("other")


def test_of_many_who_create_a_session_one_wins(harness: Harness, agents: Any, types: Any, told: Any) -> None:
    def create(_: int) -> bool:
        try:
            agents.TurnlogRepository(harness.log()).create_session(types.Session("s", types.SessionType.AGENT))
        except told.SessionException:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(create, range(4))) == 1


# Storage


def test_storage_does_what_the_sdks_own_does(harness: Harness, agents: Any, told: Any) -> None:
    theirs = importlib.import_module("strands.storage").InMemoryStorage()
    ours = agents.TurnlogStorage(harness.log(), "s", title="Desk")

    async def run(storage: Any) -> list[Any]:
        answers = [await storage.read("a/b"), await storage.list(""), await storage.delete("a/b")]
        for key in ("b/2", "b//10", "/b/1", "a", "ü/ x"):
            await storage.write(key, key.encode())
        await storage.write("a", b"\x00\xff")
        for prefix in ("", "b", "b/", "b/1", "nobody", "/b"):
            answers.append(await storage.list(prefix))
        answers += [await storage.read(key) for key in ("a", "b/10", "b/1/", "ü/ x", "nobody")]
        await storage.delete("b/2")
        await storage.delete("b/2")
        answers += [await storage.list("b/"), [(item.key, item.score) for item in await storage.search("b")]]
        for wrong in ("", "//", "a/../b", "a\\b"):
            for call in (storage.read(wrong), storage.write(wrong, b""), storage.delete(wrong)):
                with pytest.raises(told.StorageError):
                    await call
        return answers

    assert asyncio.run(run(ours)) == asyncio.run(run(theirs))
    assert harness.log().sessions.get("s").info().title == "Desk"
    protocol = importlib.import_module("strands.storage").Storage
    assert isinstance(ours, protocol)
    with pytest.raises(told.StorageError):
        asyncio.run(ours.write("x" * 600, b""))


def test_a_namespace_is_what_it_is_in_the_sdks_own(harness: Harness, agents: Any, told: Any) -> None:
    memory_stores = importlib.import_module("strands.vended_memory_stores")
    theirs = importlib.import_module("strands.storage").InMemoryStorage()
    ours = agents.TurnlogStorage(harness.log(), "s", title="Desk")

    async def run(whole: Any) -> list[Any]:
        team, deep = whole.namespace("/team//a/"), whole.namespace("team").namespace("a/b")
        await whole.write("team/a/b/1", b"one")
        await team.write("b/2", b"two")
        await deep.write("3", b"three of a team")
        answers = [await value.list("") for value in (whole, team, deep, whole.namespace(""))]
        answers += [await deep.read("1"), await team.read("1"), await deep.list("3"), await whole.read("team/a/b/3")]
        await deep.delete("1")
        answers += [await whole.list("team/"), [(item.key, item.score) for item in await deep.search("team three")]]
        with pytest.raises(told.StorageError):
            whole.namespace("../x")
        await memory_stores.FileMemoryStore(name="facts", storage=team).add("a fact")
        return [*answers, await whole.list("team/")]  # who has a namespace gets no other

    assert asyncio.run(run(ours)) == asyncio.run(run(theirs))
    assert harness.log().sessions.get("s").info().title == "Desk"


def test_a_search_strategy_is_told_of_writes_and_asked_for_searches(harness: Harness, agents: Any, told: Any) -> None:
    class Strategy:
        def __init__(self) -> None:
            self.indexed = list[Any]()

        async def index(self, storage: Any, key: str, data: bytes) -> None:
            if data == b"refused":
                raise ValueError("no")
            self.indexed.append((await storage.read(key), key))

        async def search(self, storage: Any, query: str) -> list[Any]:
            return [(query, await storage.list(""))]

    strategy = Strategy()
    ours = agents.TurnlogStorage(harness.log(), "s", search_strategy=strategy)

    async def run() -> None:
        await ours.write("//a/1", b"one")
        await ours.namespace("a").write("2", b"two")
        assert strategy.indexed == [(b"one", "a/1"), (b"two", "2")]
        assert await ours.namespace("a").search("what") == [("what", ["1", "2"])]
        with pytest.raises(told.StorageError, match="Wrote 'x' but indexing failed"):
            await ours.write("x", b"refused")
        assert await ours.read("x") == b"refused"

    asyncio.run(run())


def test_large_values_are_whole_and_leave_nothing_behind(harness: Harness, agents: Any) -> None:
    storage = agents.TurnlogStorage(harness.log(), "s")
    values = [b"a" * (4 * 2**20 + 5), b"b" * 20_000, b"c", b"d" * 20_000]

    async def run() -> None:
        for value in values:
            await storage.write("k", value)
            assert await storage.read("k") == value
            assert await storage.list("") == ["k"]
        await storage.delete("k")
        assert await storage.read("k") is None

    asyncio.run(run())
    assert list(harness.log().sessions.get("s").documents.list()) == []


def test_a_large_value_that_is_refused_leaves_nothing_behind(harness: Harness, agents: Any) -> None:
    documents = harness.log().sessions.create("s").documents
    values = PartedValues(documents)
    values.write("k", b"a" * 20_000, if_absent=True)
    before = [document.key for document in documents.list()]
    for _ in range(2):
        with pytest.raises(DocumentChangedError):
            values.write("k", b"b" * 20_000, if_absent=True)
    assert [document.key for document in documents.list()] == before and values.read("k") == b"a" * 20_000


@pytest.mark.parametrize("size", [1, 20_000])
def test_a_change_takes_in_what_another_changed_meanwhile(harness: Harness, agents: Any, size: int) -> None:
    documents = harness.log().sessions.create("s").documents
    values, others = PartedValues(documents), iter([b"b" * size])
    values.write("k", b"a" * size)

    def change(value: bytes) -> bytes:
        for other in others:
            values.change("k", lambda _, other=other: other)  # type: ignore[misc]
        return value + b"c"

    assert values.change("k", change)
    assert values.read("k") == b"b" * size + b"c"
    assert len(list(documents.list())) == (1 if size == 1 else 2), "the value, and its part"


def test_a_cancelled_write_ends_before_the_cancellation_goes_on(
    harness: Harness, agents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, write = agents.TurnlogStorage(harness.log(), "s"), PartedValues.write

    def slow(*arguments: Any) -> None:
        time.sleep(0.2)
        write(*arguments)

    monkeypatch.setattr(PartedValues, "write", slow)

    async def run() -> bytes | None:
        task = asyncio.create_task(storage.write("k", b"v"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return cast("bytes | None", await storage.read("k"))

    assert asyncio.run(run()) == b"v"


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_value_is_the_old_one_or_the_new_one(harness: Harness, agents: Any, told: Any, when: str) -> None:
    old, new = b"o" * 20_000, b"n" * 30_000
    storage = agents.TurnlogStorage(harness.log(), "s")
    asyncio.run(storage.write("k", old))
    before = harness.faults.calls
    asyncio.run(storage.write("k", new))
    for at in boundaries(harness.faults.calls - before, harness.name):
        asyncio.run(storage.write("k", old))
        harness.faults.fail(at, when)
        is_told = False
        try:
            asyncio.run(storage.write("k", new))
        except told.StorageError:
            is_told = True
        harness.faults.clear()
        assert asyncio.run(storage.read("k")) in ([old, new] if is_told else [new])


# Agents


def test_a_real_agent_with_a_tool_goes_on_as_another(harness: Harness, agents: Any) -> None:
    log, model = harness.log(), agents.Scripted()
    first = agents.agent(log, model=model, agent_id="desk", system_prompt="Be brief.")
    first.state.set("seen", ["SKU-1"])
    assert agents.asked(first, ["What is the price of SKU-1?"]) == ["SKU-1 costs 12.50"]
    again = agents.agent(log, model=model, agent_id="desk", system_prompt="Be brief.")
    assert again.messages == first.messages and again.state.get("seen") == ["SKU-1"]
    assert agents.asked(again, ["And of SKU-2?"]) == ["SKU-2 costs 12.50"]
    session = log.sessions.get("desk")
    assert [message.id for message in session.messages()] == [message["tracking_id"] for message in again.messages], (
        "each once"
    )
    assert [body["role"] for body in bodies(session)] == ["user", "assistant"] * 4
    assert [len(item) for item in model.sent] == [1, 3, 5, 7]
    assert set(model.systems) == {"Be brief."} and set(model.tools[-1]) == {"price"}, "nothing is left out"


def test_a_fault_anywhere_and_another_agent_say_nothing_twice(harness: Harness, agents: Any) -> None:
    question = "What is the price of SKU-1?"
    agents.asked(agents.agent(harness.log(user="warm")), [question])
    before = harness.faults.calls
    agents.asked(agents.agent(harness.log(user="clean")), [question])
    for at in boundaries(harness.faults.calls - before, harness.name):
        log = harness.log(user=f"u{at}")
        harness.faults.fail(at, ("before", "after")[at % 2])
        try:
            agents.asked(agents.agent(log), [question])
        except Exception:
            harness.faults.clear()
            again = agents.agent(log)
            last = again.messages[-1] if again.messages else None
            if last is None or last["role"] == "user" or "toolUse" in last["content"][-1]:
                agents.asked(again, [None if last else question])
        harness.faults.clear()
        said = list(log.sessions.get("desk").messages())
        assert [item.body["role"] for item in said] == ["user", "assistant"] * 2
        assert [message["tracking_id"] for message in agents.agent(log).messages] == [item.id for item in said]


@pytest.mark.parametrize("kept", [False, True])
def test_a_window_is_within_its_budget_and_the_log_has_everything(log: Turnlog, agents: Any, kept: bool) -> None:
    model, options = agents.Scripted(), {"budget": 1_500, "keep": 6, "system_prompt": "Be brief. " * 20}
    agent = agents.agent(log, model=model, kept=kept, **options)
    for at in range(12):
        agents.asked(agent, [f"{'Please look well. ' * 20} What is the price of SKU-{at}?"])
        assert len(agent.messages) <= 8
    session = log.sessions.get("desk")
    said = list(session.messages())
    assert len(said) == 48 and len({item.id for item in said}) == 48
    for sent, system in zip(model.sent, model.systems, strict=True):
        window = log.build_window(sent, system=system, format="bedrock_converse")
        assert window.tokens < 1_500 and log.lint(sent, format="bedrock_converse").problems == []
    assert len(model.sent[-1]) < 30
    if kept:
        again = agents.agent(log, model=model, **options)
        assert again.messages == agent.messages and again.conversation_manager.removed_message_count == 48 - len(
            agent.messages
        )


def test_the_call_is_in_the_log_before_its_tool_runs(log: Turnlog, agents: Any) -> None:
    seen = list[int]()

    @agents.tool
    def price(sku: str) -> str:
        """The price of an article."""
        seen.append(len(bodies(log.sessions.get("desk"))))
        return f"{sku} costs 12.50"

    agents.asked(agents.agent(log, kept=False, tools=[price]), ["What is the price of SKU-1?"])
    assert seen == [2] and len(bodies(log.sessions.get("desk"))) == 4


def test_a_call_that_another_agent_answers_while_its_tool_runs_has_the_tools_result_in_later_windows(
    log: Turnlog, agents: Any
) -> None:
    @importlib.import_module("strands").tool
    def price(sku: str) -> str:
        """The price of an article."""
        agents.asked(agents.agent(log, model=agents.Scripted({"text": "Hello."})), ["Hello?"])
        return f"{sku} costs 12.50"

    call = {"name": "price", "id": "call-1", "input": '{"sku": "SKU-1"}'}
    model = agents.Scripted(call, {"text": "It costs 12.50."})
    agents.asked(agents.agent(log, tools=[price], model=model), ["What is the price of SKU-1?"])
    session = log.sessions.of("desk")
    results = [
        message.body["content"] for message in session.messages(format="openai_chat") if message.body["role"] == "tool"
    ]
    # Strands answers an open call with an error when another agent is asked; the tool's own result is in the log, too.
    assert len(results) == 2 and results[1] == "SKU-1 costs 12.50"
    window = session.context(format="openai_chat")
    assert log.lint(window.messages, format="openai_chat").problems == [] and not window.open_calls
    assert [message["content"] for message in window.messages if message["role"] == "tool"] == ["SKU-1 costs 12.50"]


def test_an_overflow_makes_windows_smaller_until_none_is_possible(log: Turnlog, agents: Any, told: Any) -> None:
    model = agents.Scripted(most=4_000)
    agent = agents.agent(log, model=model, kept=False)
    for at in range(8):
        assert agents.asked(agent, [f"{'Please look well. ' * 30} What is the price of SKU-{at}?"])
    assert all(len(str(item)) <= 4_000 for item in model.sent)
    assert len(bodies(log.sessions.get("desk"))) == 32
    model.most = 10
    with pytest.raises(told.ContextWindowOverflowException):
        agents.asked(agent, ["What is the price of SKU-9?"])


def test_an_overflow_is_recovered_beside_a_long_system_text_in_steps(log: Turnlog, agents: Any) -> None:
    """The system text can't be made smaller, so only the messages' share is."""
    model = agents.Scripted()
    agent = agents.agent(log, model=model, kept=False, budget=50_000)
    agent.system_prompt = "You are a bank's agent. Be exact. " * 900
    for at in range(8):
        agents.asked(agent, [f"{'Please look well. ' * 30} What is the price of SKU-{at}?"])
    whole = len(str(model.sent[-1]))
    model.most = whole * 2 // 3
    assert agents.asked(agent, ["What is the price of SKU-9?"])
    assert whole // 4 < len(str(model.sent[-1])) <= model.most, "not the least window at once"
    model.most = 600
    assert agents.asked(agent, ["What is the price of SKU-10?"]), "the least window still fits"


def test_the_models_limit_is_the_budget(log: Turnlog, agents: Any) -> None:
    model = agents.Scripted(limit=3_000)
    agent = agents.agent(log, model=model, kept=False, output_reserve=1_000)
    for at in range(12):
        agents.asked(agent, [f"{'Please look well. ' * 30} What is the price of SKU-{at}?"])
    assert log.build_window(model.sent[-1], system=model.systems[-1], format="bedrock_converse").tokens < 2_000


def test_the_tools_bring_back_what_was_said(log: Turnlog, agents: Any) -> None:
    call = {"name": "search_history", "id": "s1", "input": '{"q": "SKU-1"}'}
    model = agents.Scripted()
    agent = agents.agent(log, model=model)
    agents.asked(agent, ["What is the price of SKU-1?"])
    model.says += [call, {"name": "recall_tool_call", "id": "s2", "input": "{}"}, {"text": "Found."}]
    assert agents.asked(agent, ["What did I ask?"]) == ["Found."]
    results = [
        message["content"][0]["toolResult"] for message in agent.messages if "toolResult" in message["content"][0]
    ]
    assert [result["status"] for result in results] == ["success", "success", "error"]
    assert "⟦SKU-1⟧" in results[1]["content"][0]["text"]
    plain = agents.Scripted()
    agents.asked(agents.agent(log, "other", model=plain, kept=False, recall=False), ["What is the price of SKU-1?"])
    assert plain.tools == [["price"]] * 2 and plain.systems == [None, None]


@pytest.mark.parametrize("kept", [False, True])
def test_what_a_guardrail_redacts_is_sent_no_more(log: Turnlog, agents: Any, kept: bool) -> None:
    redacts = {"redactContent": {"redactUserContentMessage": "[hidden]"}}
    model = agents.Scripted(redacts)
    agent = agents.agent(log, model=model, kept=kept)
    agents.asked(agent, ["my secret", "What is the price of SKU-1?"])
    session = log.sessions.get("desk")
    assert "my secret" in str(model.sent[0]) and "my secret" not in str(model.sent[1:]) + str(bodies(session))
    assert len(bodies(session)) == 6
    if kept:
        assert "[hidden]" in str(agents.agent(log).messages)


def test_snapshots_of_an_agent_are_kept_in_the_storage(harness: Harness, agents: Any) -> None:
    log = harness.log()

    def made() -> Any:
        storage = agents.TurnlogStorage(log, "desk")
        return agents.agent(log, session_manager=agents.SnapshotSessionManager("desk", storage=storage))

    first = made()
    agents.asked(first, ["What is the price of SKU-1?"])
    again = made()
    assert again.messages == first.messages
    agents.asked(again, ["And of SKU-2?"])
    assert len(bodies(log.sessions.get("desk"))) == 8, "the manager has what the snapshots have, each once"


def test_a_graph_of_agents_goes_on_where_it_was(log: Turnlog, agents: Any) -> None:
    multi = importlib.import_module("strands.multiagent")
    sessions = importlib.import_module("strands.session")

    def graph(*models: Any) -> Any:
        builder = multi.GraphBuilder()
        for at, model in enumerate(models):
            builder.add_node(agents.agent(log, kept=False, model=model, session=f"desk-{at}"), f"n{at}")
        builder.add_edge("n0", "n1")
        builder.set_max_node_executions(9)
        builder.set_session_manager(sessions.RepositorySessionManager("desk", agents.TurnlogRepository(log)))
        return builder.build()

    class Fails(agents.Scripted):  # type: ignore[misc]
        async def stream(self, *given: Any, **more: Any) -> Any:
            raise RuntimeError("no answer")
            yield

    with pytest.raises(RuntimeError):
        graph(agents.Scripted(), Fails())("What is the price of SKU-1?")
    first, second = agents.Scripted(), agents.Scripted({"text": "Done."})
    answer = graph(first, second)("What is the price of SKU-1?")
    assert first.sent == [] and str(answer.results["n1"].result).strip() == "Done."
    assert len(bodies(log.sessions.get("desk-0"))) == 4


@pytest.mark.parametrize("names", [["a", "b", "c"], ["a", "a", "a"]], ids=["several", "the same"])
def test_agents_of_one_session_lose_nothing(harness: Harness, agents: Any, names: list[str]) -> None:
    for name in dict.fromkeys(names):
        agents.agent(harness.log(), agent_id=name, window=False)
    mine = [agents.agent(harness.log(), agent_id=name, window=False) for name in names]

    def run(agent: Any) -> list[str]:
        agents.asked(agent, ["What is the price of SKU-1?", "And of SKU-2?"])
        return [message["tracking_id"] for message in agent.messages]

    with ThreadPoolExecutor(3) as pool:
        ids = [item for match in pool.map(run, mine) for item in match]
    stored = [message.id for message in harness.log().sessions.get("desk").messages()]
    assert sorted(ids) == sorted(str(item) for item in stored) and len(stored) == 24
    repository = agents.TurnlogRepository(harness.log())
    values = [list_message for name in dict.fromkeys(names) for list_message in repository.list_messages("desk", name)]
    assert sorted(item.message["tracking_id"] for item in values) == sorted(ids)
    assert agents.asked(agents.agent(harness.log(), agent_id="a"), ["And of SKU-3?"]) == ["SKU-3 costs 12.50"]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "strands_agent.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "SKU-1 costs 12.50" in printed and "SKU-2 costs 12.50" in printed
    assert "8 messages kept" in printed
