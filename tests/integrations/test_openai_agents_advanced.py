"""Branches and usage of an OpenAI Agents SDK session, beside the SDK's own `AdvancedSQLiteSession`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner
from agents.extensions.memory import AdvancedSQLiteSession
from agents.usage import Usage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from tests.conftest import ROOT, Harness
from tests.effort import boundaries, examples
from tests.integrations.served import url_of
from turnlog.client.model import Turnlog
from turnlog.core.errors import NotFoundError, UnavailableError
from turnlog.integrations.openai_agents import TurnlogSession
from turnlog.integrations.openai_agents_advanced import TurnlogAdvancedSession

Program = Callable[[Any], Awaitable[Any]]


def said(text: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def called(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


ITEMS: list[dict[str, Any]] = [
    said("What is SKU-1?"),
    said("And SKU-2? " + "long " * 40),
    said(
        [
            {"type": "input_text", "text": "Wie heißt DAS? 你好"},
            {"type": "input_image", "image_url": "http://x.example/a"},
        ]
    ),
    said("In stock.", "assistant"),
    said("Be brief.", "system"),
    {"type": "reasoning", "id": "rs_1", "summary": []},
    called("function_call", call_id="c1", name="look_up", arguments="{}"),
    called("function_call", call_id="c2", name="look_up", namespace="shop", arguments="{}"),
    called("function_call", call_id="c3", name="same", namespace="same", arguments="{}"),
    called("function_call_output", call_id="c1", output="in stock"),
    called("custom_tool_call", call_id="c4", name="grammar", input="x"),
    called("mcp_call", id="m1", name="find", server_label="docs", arguments="{}"),
    called("mcp_approval_request", id="m2", name="find", server_label="", arguments="{}"),
    called("shell_call", call_id="c5", action={"commands": ["ls"]}),
    called("web_search_call", id="w1", status="completed", action={"type": "search", "query": "x"}),
    called("tool_search_call", call_id="t1", arguments={}),
    called("tool_search_output", call_id="t1", tools=[]),
    {"any": ["no item", 1]},
]


def used(requests: int, details: bool = True) -> Any:
    """Return the result of a run that made requests of 10 input and 2 output tokens."""
    usage = Usage(requests=requests, input_tokens=10 * requests, output_tokens=2 * requests, total_tokens=12 * requests)
    if details:
        usage.input_tokens_details = InputTokensDetails(cached_tokens=requests, cache_write_tokens=0)
        usage.output_tokens_details = OutputTokensDetails(reasoning_tokens=1)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))


async def answer(call: Awaitable[Any]) -> Any:
    """Return what a call answers, without times, or the error's text."""
    try:
        return timeless(await call)
    except ValueError as error:
        return str(error)


def timeless(value: Any) -> Any:
    """Return an answer without its times, whose form is checked, and without the clock's part of a made name."""
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, dict):
        for name in {"timestamp", "created_at"} & value.keys():
            assert len(value[name]) == 19 and value[name][10] == " ", value
        return {name: timeless(item) for name, item in value.items() if name not in ("timestamp", "created_at")}
    return value


async def everything(session: Any, branches: Sequence[str | None]) -> list[Any]:
    """Return the answers of all methods that read, for the current branch and others."""
    answers = list[Any]()
    listed = await answer(session.list_branches())
    answers.append(sorted(listed, key=lambda branch: branch["branch_id"]))
    for branch in branches:
        answers += [
            await answer(session.get_items(branch_id=branch)),
            await answer(session.get_items(2, branch_id=branch)),
            await answer(session.get_conversation_turns(branch)),
            await answer(session.find_turns_by_content("sku", branch)),
            await answer(session.find_turns_by_content("das? 你", branch)),
            await answer(session.get_conversation_by_turns(branch)),
            await answer(session.get_tool_usage(branch)),
            await answer(session.get_session_usage(branch)),
            await answer(session.get_turn_usage(branch_id=branch)),
            *[await answer(session.get_turn_usage(turn, branch)) for turn in range(4)],
        ]
    return answers


NAMES = ("a", "b", "c", "main", " ")
NAME = st.sampled_from("aabbbccc") | st.sampled_from(NAMES)
STEP = st.one_of(
    st.tuples(st.just("add"), st.lists(st.sampled_from(ITEMS), max_size=4)),
    st.tuples(st.just("add"), st.lists(st.sampled_from(ITEMS[:4]), min_size=26, max_size=30)),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.just("usage"), st.integers(0, 3)),
    st.tuples(st.just("turn"), st.tuples(st.integers(1, 3), NAME)),
    st.tuples(st.just("turn"), st.tuples(st.integers(2, 3), NAME)),
    st.tuples(st.just("content"), st.tuples(st.sampled_from(("sku-2", "heißt", "nowhere")), NAME)),
    st.tuples(st.just("switch"), NAME),
    st.tuples(st.just("delete"), st.tuples(NAME, st.booleans())),
    st.tuples(st.sampled_from(("clear", "pop", "pop", "pop")), st.none()),
)


async def walk(session: Any, steps: Sequence[tuple[str, Any]]) -> list[Any]:
    answers = list[Any]()
    for kind, value in steps:
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "add": lambda value=value: session.add_items(value),
            "pop": lambda: session.pop_item(),
            "usage": lambda value=value: session.store_run_usage(used(value, value != 2)),
            "turn": lambda value=value: session.create_branch_from_turn(*value),
            "content": lambda value=value: session.create_branch_from_content(*value),
            "switch": lambda value=value: session.switch_to_branch(value),
            "delete": lambda value=value: session.delete_branch(*value),
            "clear": lambda: session.clear_session(),
        }
        answers += [kind, await answer(calls[kind]()), await answer(session.get_items(1))]
    return [*answers, *await everything(session, [None, *NAMES])]


def on_theirs(program: Program) -> Any:
    with closing(AdvancedSQLiteSession(session_id="s", create_tables=True)) as session:
        return asyncio.run(program(session))


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=16))
def test_it_does_what_the_sdks_own_session_does(harness: Harness, steps: Sequence[tuple[str, Any]]) -> None:
    ours = TurnlogAdvancedSession(harness.log(), f"s{harness.faults.calls}")
    begun = [("add", ITEMS[:9]), ("usage", 3), *steps]
    assert asyncio.run(walk(ours, begun)) == on_theirs(lambda theirs: walk(theirs, begun))


TALK = [
    said("What is SKU-1?"),
    ITEMS[6],
    ITEMS[9],
    said("In stock.", "assistant"),
    said("And SKU-2?"),
    said("No.", "assistant"),
]
STEPS: list[tuple[str, Any]] = [
    ("turn", (1, "early")),
    ("add", TALK),
    ("usage", 1),
    ("turn", (2, "a")),
    ("usage", 2),
    ("add", [said("And SKU-3?"), *ITEMS[5:]]),
    ("usage", 3),
    ("content", ("sku-3", "b")),
    ("add", [said("And SKU-4?")]),
    ("pop", None),
    ("pop", None),
    ("switch", "a"),
    ("delete", ("a", False)),
    ("switch", "main"),
    ("add", ITEMS[:4] * 10),
    ("turn", (9, "c")),
    ("pop", None),
    ("delete", ("b", False)),
    ("turn", (2, "b")),
]


@pytest.mark.parametrize("harness", ["sqlite", pytest.param("moto", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize("ended", [(), (("clear", None), ("add", TALK[:2]), ("turn", (1, "a")))], ids=["", "cleared"])
def test_a_program_has_the_same_answers_on_every_engine(harness: Harness, ended: tuple[tuple[str, Any], ...]) -> None:
    steps = [*STEPS, *ended]
    ours = TurnlogAdvancedSession(harness.log(), "s")
    assert asyncio.run(walk(ours, steps)) == on_theirs(lambda theirs: walk(theirs, steps))
    again = TurnlogAdvancedSession(harness.log(), "s")
    names = [None, *NAMES]
    assert asyncio.run(everything(again, names)) == asyncio.run(everything(ours, names)), (
        "another process goes on there"
    )


def test_it_is_what_the_protocol_asks_for_and_has_every_public_method(harness: Harness) -> None:
    from agents.memory import Session

    session = TurnlogAdvancedSession(harness.log(), "s", session_settings={"limit": 1})
    assert isinstance(session, Session)
    theirs = {name for name in vars(AdvancedSQLiteSession) if not name.startswith("_")}
    assert theirs <= set(dir(TurnlogAdvancedSession))
    asyncio.run(session.add_items(TALK))
    assert asyncio.run(session.get_items()) == TALK[-1:]


def test_names_are_made_for_branches_without_one(harness: Harness) -> None:
    session = TurnlogAdvancedSession(harness.log(), "s")

    async def run() -> list[str]:
        await session.add_items(TALK)
        names = list[str]()
        for _ in range(3):
            await session.switch_to_branch("main")
            names.append(await session.create_branch_from_turn(2))
        return names

    names = asyncio.run(run())
    assert len(set(names)) == 3 and all(name.startswith("branch_from_turn_2_") for name in names)


def test_a_branch_is_a_session_with_windows_and_search(harness: Harness) -> None:
    log = harness.log()
    session = TurnlogAdvancedSession(log, "s", title="Desk")

    async def run() -> None:
        await session.add_items(TALK)
        await session.create_branch_from_turn(2, "a")
        await session.add_items([said("Is a zebra in stock?"), said("Yes.", "assistant")])

    asyncio.run(run())
    branch = session.session()
    assert branch.id != "s" and branch.info().title == "Desk" and branch.info().forked_from == "s"
    assert session.session("main").id == "s"
    shown = str(branch.context(format="openai_responses").messages)
    assert "zebra" in shown and "What is SKU-1?" in shown and "SKU-2" not in shown
    assert "zebra" not in str(log.sessions.get("s").context(format="openai_responses").messages)
    assert [hit.position for hit in branch.search("zebra").results] and not log.sessions.get("s").search(
        "zebra"
    ).results
    assert asyncio.run(TurnlogSession(log, "s").get_items()) == TALK, "a plain session has the items of main"
    with pytest.raises(ValueError, match="'nowhere' does not exist"):
        session.session("nowhere")


def test_usage_is_in_the_history_where_turnlog_keeps_it(harness: Harness) -> None:
    session = TurnlogAdvancedSession(harness.log(), "s")

    async def run() -> dict[str, int] | None:
        await session.store_run_usage(used(9))  # there is no turn yet
        await session.add_items(TALK[:4])
        await session.store_run_usage(used(1))
        await session.add_items(TALK[4:])
        await session.store_run_usage(used(2))
        return await session.get_session_usage()

    total = asyncio.run(run())
    recorded = [entry.metadata["usage"] for entry in session.session().history(action="openai_agents_usage")]
    assert total == {**{name: sum(usage[name] for usage in recorded) for name in list(total)[:-1]}, "total_turns": 2}
    assert total["input_tokens"] == 30 and recorded[0]["input_tokens_details"]["cached_tokens"] == 2


def test_writers_on_two_branches_and_on_one_lose_nothing(harness: Harness) -> None:
    log = harness.log()
    first, second = TurnlogAdvancedSession(log, "s"), TurnlogAdvancedSession(log, "s")

    async def run() -> None:
        await first.add_items(TALK)
        assert await second.get_items() == TALK
        await first.create_branch_from_turn(2, "a")
        assert await second.get_items() == TALK, "it stays where it is"
        await asyncio.gather(
            *(
                item.add_items([said(f"{name}{number}")])
                for name, item in (("a", first), ("m", second))
                for number in range(4)
            )
        )
        third = TurnlogAdvancedSession(log, "s")
        await asyncio.gather(*(third.add_items([said(f"a{number}")]) for number in range(4, 8)))
        await asyncio.gather(first.pop_item(), third.pop_item())

    asyncio.run(run())
    main, branch = asyncio.run(second.get_items()), asyncio.run(first.get_items())
    assert main[:6] == TALK and sorted(item["content"] for item in main[6:]) == ["m0", "m1", "m2", "m3"]
    assert branch[:4] == TALK[:4] and len(branch) == 10
    assert {item["content"] for item in branch[4:]} < {f"a{number}" for number in range(8)}


def test_one_of_two_creators_of_a_name_is_told_and_leaves_no_session(harness: Harness) -> None:
    log = harness.log()
    both = [TurnlogAdvancedSession(log, "s") for _ in range(2)]
    asyncio.run(both[0].add_items(TALK))
    assert [branch_names(item) for item in both] == [["main"]] * 2, "both have read what branches there are"

    async def run() -> list[Any]:
        calls = [item.create_branch_from_turn(2, "a") for item in both]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(run())
    assert sorted(map(str, answers)) == ["Branch ID 'a' has already been used. Choose a new branch ID.", "a"]
    assert len(list(log.sessions.list())) == 2
    assert [branch_names(item) for item in both] == [["a", "main"]] * 2


def branch_names(session: TurnlogAdvancedSession) -> list[str]:
    return sorted(branch["branch_id"] for branch in asyncio.run(session.list_branches()))


def test_a_branch_that_another_process_deletes_takes_no_items(harness: Harness) -> None:
    log = harness.log()
    first, second = TurnlogAdvancedSession(log, "s"), TurnlogAdvancedSession(log, "s")

    async def run() -> None:
        await first.add_items(TALK)
        await first.create_branch_from_turn(2, "a")
        await second.switch_to_branch("a")
        await first.switch_to_branch("main")
        await first.delete_branch("a")
        with pytest.raises(NotFoundError):
            await second.add_items([said("lost?")])
        assert await first.get_items() == TALK and await second.get_items() == []
        await second.switch_to_branch("main")
        assert await TurnlogAdvancedSession(log, "s").get_items() == TALK

    asyncio.run(run())


def test_a_clear_brings_every_process_to_main(harness: Harness) -> None:
    log = harness.log()
    first, second = TurnlogAdvancedSession(log, "s"), TurnlogAdvancedSession(log, "s")

    async def run() -> None:
        await first.add_items(TALK)
        await first.create_branch_from_turn(2, "a")
        branch = first.session()
        await second.clear_session()
        assert await first.get_items() == [] and not list(branch.messages(in_view=True))
        await first.add_items(TALK[:1])
        assert await second.get_items() == await first.get_items(branch_id="main") == TALK[:1]

    asyncio.run(run())


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_branch_of_a_torn_batch_and_a_whole_one_has_the_items_in_view(harness: Harness, when: str) -> None:
    many = [said(f"number {number}") for number in range(60)]

    async def add(session: TurnlogAdvancedSession) -> None:
        await session.add_items(many)

    counted = TurnlogAdvancedSession(harness.log(user="counted"), "s")
    asyncio.run(counted.add_items(TALK))
    before = harness.faults.calls
    asyncio.run(add(counted))
    for call in boundaries(harness.faults.calls - before, harness.name):
        session = TurnlogAdvancedSession(harness.log(user=f"u{when}{call}"), "s")
        asyncio.run(session.add_items(TALK))
        harness.faults.fail(call, when)
        with suppress(UnavailableError):
            asyncio.run(add(session))
        harness.faults.clear()
        asyncio.run(session.add_items(many))
        items = asyncio.run(session.get_items())
        users = [index for index, item in enumerate(items) if item.get("role") == "user"]
        for turn in (2, 3, 30, 40):
            asyncio.run(session.switch_to_branch("main"))
            asyncio.run(session.create_branch_from_turn(turn))
            assert asyncio.run(session.get_items()) == items[: users[turn - 1]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_branch_is_made_whole_or_not_at_all(harness: Harness, when: str) -> None:
    counted = TurnlogAdvancedSession(harness.log(user="counted"), "s")
    asyncio.run(counted.add_items(TALK))
    before = harness.faults.calls
    asyncio.run(counted.create_branch_from_turn(2, "a"))
    for call in boundaries(harness.faults.calls - before, harness.name):
        session = TurnlogAdvancedSession(harness.log(user=f"u{when}{call}"), "s")
        asyncio.run(session.add_items(TALK))
        harness.faults.fail(call, when)
        is_told = False
        try:
            asyncio.run(session.create_branch_from_turn(2, "a"))
        except UnavailableError:
            is_told = True
        harness.faults.clear()
        again = TurnlogAdvancedSession(harness.log(user=f"u{when}{call}"), "s")
        names, items = branch_names(again), asyncio.run(again.get_items())
        assert (names, items) in (
            [(["main"], TALK), (["a", "main"], TALK[:4])] if is_told else [(["a", "main"], TALK[:4])]
        )
        assert asyncio.run(again.get_items(branch_id="main")) == TALK


def test_a_real_agent_on_branches_does_the_same_as_on_the_sdks_own_session(harness: Harness) -> None:
    from tests.importers.sdk import Scripted, price

    async def run(session: Any) -> list[Any]:
        agent = Agent(name="desk", model=Scripted(), tools=[price])
        for question in ("What is SKU-1?", "And SKU-2?"):
            await ask(session, agent, question)
        await session.create_branch_from_turn(2, "politer")
        await ask(session, agent, "And SKU-2, please?")
        assert len(await session.get_tool_usage()) == 2
        return await everything(session, [None, "main", "politer"])

    async def ask(session: Any, agent: Any, question: str) -> None:
        config = RunConfig(tracing_disabled=True)
        await session.store_run_usage(await Runner.run(agent, question, session=session, run_config=config))

    ours = asyncio.run(run(TurnlogAdvancedSession(harness.log(), "s")))
    assert ours == on_theirs(run)
    assert "And SKU-2, please?" in str(ours)


AGENT = """
import asyncio, os, signal, sys
from agents import Agent, RunConfig, Runner, function_tool
from tests.importers.sdk import Scripted
from turnlog import Turnlog
from turnlog.integrations.openai_agents_advanced import TurnlogAdvancedSession

_, url, question = sys.argv

@function_tool
def price(sku: str) -> str:
    if question:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{sku} costs 12.50"

async def run(session, *questions):
    agent = Agent(name="desk", model=Scripted(), tools=[price])
    for asked in questions:
        result = await Runner.run(agent, asked, session=session, run_config=RunConfig(tracing_disabled=True))
        await session.store_run_usage(result)

with Turnlog.open(url) as log:
    session = TurnlogAdvancedSession(log, "desk")
    if question:
        asyncio.run(session.add_items([{"role": "user", "content": "Hello"}, {"role": "user", "content": "Wrong"}]))
        asyncio.run(session.create_branch_from_content("wrong", "again"))
        asyncio.run(run(session, question))
    asyncio.run(run(session, []))
    print(asyncio.run(session.get_turn_usage(2))["requests"])
"""


@pytest.mark.network
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("moto", marks=pytest.mark.full)])
def test_an_agent_that_is_killed_goes_on_on_its_branch_in_a_new_process(tmp_path: Path, engine: str) -> None:
    def ran(url: str, question: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", AGENT, url, question]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)

    with url_of(engine, tmp_path) as url:
        killed = ran(url, "What is SKU-1?")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        resumed = ran(url, "")
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout.strip() == "2"
        with Turnlog.open(url) as log:
            session = TurnlogAdvancedSession(log, "desk")
            turns = asyncio.run(session.get_conversation_turns())
            assert [turn["full_content"] for turn in turns] == ["Hello", "What is SKU-1?"]
            assert [turn["full_content"] for turn in asyncio.run(session.get_conversation_turns("main"))] == [
                "Hello",
                "Wrong",
            ]
            assert (asyncio.run(session.get_items(1)))[0]["role"] == "assistant"


@pytest.mark.every_engine
def test_a_branch_that_is_used_keeps_the_session_from_expiring(harness: Harness) -> None:
    async def use(day: int) -> list[int]:
        session = TurnlogAdvancedSession(harness.log(), "s", ttl_days=3)
        await session.add_items([said("What is SKU-1?")])
        if day == 1:
            await session.create_branch_from_turn(2, "politer")
        return [branch["message_count"] for branch in await session.list_branches()]

    counts = []
    for day in range(7):
        counts.append(asyncio.run(use(day)))
        harness.clock.advance(86_400)
    assert counts == [[1], [2, 1], [2, 2], [2, 3], [2, 4], [2, 5], [2, 6]]
