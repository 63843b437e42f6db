"""A session of the OpenAI Agents SDK over the log: the SDK's own runner, its SQLite session beside it, faults, and two writers."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT, Harness
from tests.effort import boundaries, examples
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, TurnlogError, UnavailableError
from turnlog.integrations.openai_agents import TurnlogSession


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


ITEMS: list[dict[str, Any]] = [
    said("What is SKU-1?"),
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look_up", "arguments": '{"sku": "SKU-1"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "in stock"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "In stock.", "annotations": [], "logprobs": []}],
    },
]


def many(count: int) -> list[dict[str, Any]]:
    return [said(f"number {at}") for at in range(count)]


def test_it_is_what_the_protocol_asks_for(harness: Harness) -> None:
    from agents.memory import Session

    assert isinstance(TurnlogSession(harness.log(), "s"), Session)


def test_items_come_back_equal_in_order_and_as_many_as_are_asked_for(harness: Harness) -> None:
    from agents.memory import SessionSettings

    async def run() -> None:
        session = TurnlogSession(harness.log(), "s")
        assert await session.get_items() == [] and await session.pop_item() is None
        await session.clear_session()
        await session.add_items([])
        assert not harness.log().sessions.exists("s"), "nothing was said"
        await session.add_items(ITEMS[:3])
        await session.add_items(ITEMS[3:])
        assert await session.get_items() == ITEMS
        assert await session.get_items(2) == ITEMS[-2:]
        assert await session.get_items(0) == await session.get_items(-1) == []
        assert await session.get_items(99) == ITEMS
        limited = TurnlogSession(harness.log(), "s", session_settings=SessionSettings(limit=1))
        assert await limited.get_items() == ITEMS[-1:]
        assert await limited.get_items(3) == ITEMS[-3:]

    asyncio.run(run())


def test_settings_in_a_dictionary_are_the_sdks_own(harness: Harness) -> None:
    from agents.memory import SessionSettings

    assert TurnlogSession(harness.log(), "s").session_settings == SessionSettings()
    made = TurnlogSession(harness.log(), "s", session_settings={"limit": 2})
    assert made.session_settings == SessionSettings(limit=2)
    with pytest.raises(TypeError, match="limitt"):
        TurnlogSession(harness.log(), "s", session_settings={"limitt": 2})


def test_what_is_no_item_is_kept_as_it_is_and_shown_in_no_window(harness: Harness) -> None:
    given = [{"any": ["zebra", 1, None]}, said("hi"), {"__enc__": 1, "payload": "gAAAA" * 3_000}, {"role": 7}]

    async def run() -> None:
        session = TurnlogSession(harness.log(), "s")
        await session.add_items(given)
        assert await session.get_items() == given and await session.get_items(2) == given[2:]
        await session.add_items([{"n": at} for at in range(30)])
        assert await session.get_items() == [*given, *({"n": at} for at in range(30))]
        assert await session.pop_item() == {"n": 29}

    asyncio.run(run())
    window = harness.log().sessions.get("s").context(format="openai_responses", budget=50_000)
    assert "gAAAA" not in str(window.messages) and "zebra" not in str(window.messages)
    assert said("hi")["content"] in str(window.messages)


def test_the_sdks_encryption_works_over_it_and_the_log_has_no_word_of_it(harness: Harness) -> None:
    pytest.importorskip("cryptography")
    from agents.extensions.memory import EncryptedSession

    async def run() -> None:
        for _ in range(2):
            inside = TurnlogSession(harness.log(), "s")
            session = EncryptedSession("s", inside, encryption_key="a key of a test", ttl=600)
            if not await session.get_items():
                await session.add_items(ITEMS)
            assert await session.get_items() == ITEMS and await session.get_items(2) == ITEMS[-2:]
        assert await session.pop_item() == ITEMS[-1]
        assert await session.get_items() == ITEMS[:-1]
        other = EncryptedSession("s", TurnlogSession(harness.log(), "s"), encryption_key="another key", ttl=600)
        assert await other.get_items() == []
        assert await session.get_items() == ITEMS[:-1]

    asyncio.run(run())
    kept = [(message.body, message.metadata) for message in harness.log().sessions.get("s").messages()]
    assert len(kept) == len(ITEMS) and "SKU-1" not in str(kept)


def test_what_is_popped_or_cleared_stays_in_the_log(harness: Harness) -> None:
    async def run() -> None:
        session, other = TurnlogSession(harness.log(), "s"), TurnlogSession(harness.log(), "s")
        await session.add_items(ITEMS)
        assert await other.pop_item() == ITEMS[-1]
        assert await other.pop_item() == ITEMS[-2]
        await other.add_items([said("again")])
        assert await session.get_items() == [*ITEMS[:3], said("again")]
        assert await session.pop_item() == said("again")
        assert await session.pop_item() == ITEMS[2]
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None
        await session.add_items([said("new")])
        assert await other.get_items() == [said("new")]

    asyncio.run(run())
    kept = [message.body for message in harness.log().sessions.get("s").messages()]
    assert kept == [*ITEMS, said("again"), said("new")]


@pytest.mark.parametrize("count", [26, 60])
def test_a_batch_of_more_than_a_commit_takes(harness: Harness, count: int) -> None:
    async def run() -> None:
        session = TurnlogSession(harness.log(), "s")
        await session.add_items([said("before")])
        await session.add_items(many(count))
        assert await session.get_items() == [said("before"), *many(count)]
        for at in range(3):
            assert await session.pop_item() == said(f"number {count - 1 - at}")
        assert await session.get_items() == [said("before"), *many(count - 3)], "what is left of it is whole"

    asyncio.run(run())


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_batch_is_there_whole_or_not_at_all(harness: Harness, when: str) -> None:
    async def run(session: TurnlogSession) -> None:
        await session.add_items(many(60))

    clean = TurnlogSession(harness.log(user="clean"), "s")
    asyncio.run(clean.add_items([said("before")]))
    before = harness.faults.calls
    asyncio.run(run(clean))
    for at in boundaries(harness.faults.calls - before, harness.name):
        session = TurnlogSession(harness.log(user=f"u{when}{at}"), "s")
        asyncio.run(session.add_items([said("before")]))
        harness.faults.fail(at, when)
        is_told = False
        try:
            asyncio.run(run(session))
        except UnavailableError:
            is_told = True
        harness.faults.clear()
        outcome = asyncio.run(session.get_items())
        whole, nothing = [said("before"), *many(60)], [said("before")]
        assert outcome in ([nothing, whole] if is_told else [whole])
        asyncio.run(session.add_items([said("after")]))
        assert asyncio.run(session.get_items()) == [*outcome, said("after")]
        assert asyncio.run(session.pop_item()) == said("after")


def test_many_writers_and_poppers_lose_nothing(harness: Harness) -> None:
    async def run() -> list[Any]:
        sessions = [TurnlogSession(harness.log(), "s") for _ in range(4)]
        await sessions[0].add_items([said("first")])
        await asyncio.gather(*(session.add_items([said(f"{at}")]) for at, session in enumerate(sessions)))
        popped = await asyncio.gather(*(session.pop_item() for session in sessions[:2]))
        left = await sessions[0].get_items()
        return [*popped, *left]

    texts = [item["content"] for item in asyncio.run(run())]
    assert sorted(texts) == sorted(["first", "0", "1", "2", "3"])


def test_a_cancelled_addition_is_done_and_then_the_cancellation_is_told(harness: Harness) -> None:
    session = TurnlogSession(harness.log(), "s")

    async def run() -> None:
        task = asyncio.create_task(session.add_items(ITEMS))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert asyncio.run(session.get_items()) == ITEMS


STEP = st.one_of(
    st.tuples(st.just("add"), st.lists(st.sampled_from(ITEMS), max_size=4)),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.just("get"), st.none() | st.integers(0, 6)),
    st.tuples(st.just("clear"), st.none()),
)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=12))
def test_it_does_what_the_sdks_own_session_does(harness: Harness, steps: Sequence[tuple[str, Any]]) -> None:
    from agents import SQLiteSession

    name = f"s{harness.faults.calls}"

    async def run(session: Any) -> list[Any]:
        answers = list[Any]()
        for kind, value in steps:
            if kind == "add":
                answers.append(await session.add_items(value))
            elif kind == "pop":
                answers.append(await session.pop_item())
            elif kind == "get":
                answers.append(await session.get_items(value))
            else:
                answers.append(await session.clear_session())
        return [*answers, await session.get_items()]

    with contextlib.closing(SQLiteSession(name)) as theirs:
        assert asyncio.run(run(TurnlogSession(harness.log(), name))) == asyncio.run(run(theirs))


@pytest.mark.every_engine
@pytest.mark.parametrize("harness", ["sqlite", "moto"], indirect=True)
def test_a_real_agent_with_a_tool_goes_on_in_another_process(harness: Harness) -> None:
    from tests.importers.sdk import talked

    first = TurnlogSession(harness.log(), "desk")
    talked(first, "What is SKU-1?")
    before = asyncio.run(first.get_items())
    assert {item.get("type", "message") for item in before} == {"message", "function_call", "function_call_output"}
    again = TurnlogSession(harness.log(), "desk")
    talked(again, "And SKU-2?")
    after = asyncio.run(again.get_items())
    assert after[: len(before)] == before and len(after) == 2 * len(before)
    window = harness.log().sessions.get("desk").context(format="openai_responses")
    assert window.messages and not window.open_calls


def test_settings_are_those_of_a_session_and_its_errors_are_told(tmp_path: Path) -> None:
    with Turnlog.open(f"sqlite:///{tmp_path}/agent.db") as log:
        asyncio.run(TurnlogSession(log, "s", title="Desk").add_items(ITEMS))
        assert log.sessions.get("s").info().title == "Desk"
        with pytest.raises(TurnlogError):
            asyncio.run(TurnlogSession(log, "other", title=5).add_items(ITEMS))


@pytest.mark.parametrize("items", [ITEMS[0], "Hello", ["Hello"]])
def test_items_that_are_no_list_of_objects_are_refused_with_what_to_give(harness: Harness, items: Any) -> None:
    session = TurnlogSession(harness.log(), "s")
    with pytest.raises(InvalidInputError, match="add_items takes a list of objects; an item is str"):
        asyncio.run(session.add_items(items))
    assert asyncio.run(session.get_items()) == []


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "openai_agents.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "SKU-1 costs 12.50" in printed and "SKU-2 costs 12.50" in printed
    assert "8 items kept" in printed
