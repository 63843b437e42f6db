"""One mapping from frameworks' session and thread ids to sessions; what an earlier version stored is found where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from strands.types.session import Session as StrandsSession
from strands.types.session import SessionType

from tests.conftest import Harness
from turnlog import AsyncTurnlog, Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.core.identity import is_session_id
from turnlog.integrations.langgraph import TurnlogSaver, TurnlogStore
from turnlog.integrations.openai_agents import TurnlogSession
from turnlog.integrations.sessions import digest_id, session_id_of
from turnlog.integrations.strands import TurnlogRepository

ADAPTERS: dict[str, Callable[[Any], object]] = {
    "saver": TurnlogSaver,
    "store": TurnlogStore,
    "session": lambda log: TurnlogSession(log, "s"),
    "repository": TurnlogRepository,
}
NAMES = st.text("aZ09_-@:+./ 你\ud83d\0", min_size=1, max_size=300)


@pytest.fixture
def log(harness: Harness) -> Turnlog:
    return harness.log()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_refuses_the_async_client_at_once(log: Turnlog, adapter: str) -> None:
    """It has async methods of its own."""
    with pytest.raises(InvalidInputError, match="needs a Turnlog, not an object of AsyncTurnlog"):
        ADAPTERS[adapter](AsyncTurnlog(log))


@given(st.lists(NAMES, min_size=1, max_size=3), st.lists(NAMES, min_size=1, max_size=3))
@example(["ann\0é"], ["ann", "é"])
@example(["ann\0é"], ['["ann\\u0000\\u00e9"]'])
def test_names_have_legal_ids_and_distinct_names_distinct_ones(first: list[str], second: list[str]) -> None:
    ids = session_id_of(*first), session_id_of(*second)
    assert all(map(is_session_id, ids))
    assert (first == second) == (ids[0] == ids[1])


def config(thread_id: str) -> dict[str, dict[str, str]]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


@pytest.mark.parametrize("name", ["support-42", "ann@example.org", "a user", "你好", "x" * 100, "a/b", "t_1"])
def test_adapters_agree_on_the_session_of_a_name(log: Turnlog, name: str) -> None:
    saver = TurnlogSaver(log)
    saver.put(config(name), empty_checkpoint(), {}, {})  # type: ignore[arg-type]
    assert log.sessions.exists(session_id_of(name))
    assert saver.get_tuple(config(name)) is not None  # type: ignore[arg-type]
    items = TurnlogSession(log, name)
    asyncio.run(items.add_items([{"role": "user", "content": "hi"}]))
    (session,) = log.sessions.list()
    assert session.session_id == session_id_of(name)
    assert [message.body["content"] for message in log.sessions.of(session.session_id).messages()] == ["hi"]


def test_a_thread_that_an_earlier_version_stored_under_a_digest_goes_on_there(log: Turnlog) -> None:
    name = "ann@example.org"
    log.sessions.create(digest_id(name), metadata={"langgraph_thread_id": name})
    saver = TurnlogSaver(log)
    saver.put(config(name), empty_checkpoint(), {}, {})  # type: ignore[arg-type]
    assert [session.session_id for session in log.sessions.list()] == [digest_id(name)]
    again = TurnlogSaver(log)
    assert again.get_tuple(config(name)) is not None  # type: ignore[arg-type]
    assert len(list(again.list(None))) == 1


def test_a_session_that_an_earlier_version_stored_under_its_name_goes_on_there(log: Turnlog) -> None:
    log.sessions.create("team/42").append({"role": "user", "content": "before"})
    items = TurnlogSession(log, "team/42")
    asyncio.run(items.add_items([{"role": "user", "content": "now"}]))
    assert [item["content"] for item in asyncio.run(items.get_items())] == ["before", "now"]
    repository = TurnlogRepository(log)
    log.sessions.create("t_9")
    repository.create_session(StrandsSession("t_9", SessionType.AGENT))
    repository.create_session(StrandsSession("a user", SessionType.AGENT))
    stored = TurnlogRepository(log).read_session("a user")
    assert stored is not None and stored.session_id == "a user"
    assert {session.session_id for session in log.sessions.list()} == {"team/42", "t_9", session_id_of("a user")}


@pytest.mark.parametrize("name", [None, 5])
def test_an_id_that_is_no_text_is_refused_by_name_of_its_type(log: Turnlog, name: object) -> None:
    session = TurnlogSession(log, name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=f"the id of a session must be text, not {type(name).__name__}"):
        asyncio.run(session.get_items())
