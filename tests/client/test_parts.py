"""What is more than one append takes goes into several, by number and by bytes, wherever the client appends many at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnlog.client as backend
from tests.support.dual_writes import OldList
from turnlog import import_files
from turnlog.agents.graph_state.conversion import save_graph_state
from turnlog.client.model import Turnlog
from turnlog.core.errors import HeadMismatchError, InvalidInputError, UnavailableError
from turnlog.core.limits import MAX_APPEND_MESSAGES
from turnlog.importers.dual_write import DualWrite
from turnlog.integrations.openai_agents import TurnlogSession

LARGE = [{"role": "user", "content": f"{at} " + "é" * 450_000} for at in range(6)]
"""Each is taken, and five are more than a part has."""


@pytest.fixture
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as made:
        yield made


def stored(log: Turnlog) -> list[Any]:
    return [message.body for message in log.sessions.get("s").messages()]


@given(st.lists(st.integers(0, 1_100), max_size=60))
def test_parts_are_all_of_it_in_order_and_each_as_long_as_may_be(sizes: list[int]) -> None:
    messages = ["x" * size for size in sizes]
    with patch.object(backend, "MAX_PART_BYTES", 1_000):
        result = backend.parts_of(messages, [0] * len(messages))
    assert [item for part in result for item in messages[part]] == messages
    held = [sum(_bytes(item) for item in messages[part]) for part in result]
    for at, part in enumerate(result):
        assert 0 < part.stop - part.start <= MAX_APPEND_MESSAGES
        assert held[at] <= 1_000 or part.stop - part.start == 1
        if at:
            before = result[at - 1]
            is_full = before.stop - before.start == MAX_APPEND_MESSAGES
            assert is_full or held[at - 1] + _bytes(messages[part.start]) > 1_000


def _bytes(message: str) -> int:
    """As JSON on the way to a function, where its two quotes count twice; with the number beside it."""
    return len(message) + 5


def test_what_is_no_json_is_left_to_the_append_to_refuse(log: Turnlog) -> None:
    assert backend.parts_of([object(), float("nan")]) == [slice(0, 2)]
    assert backend.parts_of([]) == []
    with pytest.raises(InvalidInputError):
        log.sessions.create("s").append(object())  # type: ignore[arg-type]


def test_a_dual_write_begins_with_more_than_an_append_takes(log: Turnlog) -> None:
    both = DualWrite(OldList(*LARGE), log.sessions.create("s"))
    both.append({"role": "assistant", "content": "ok"})
    assert stored(log) == [*LARGE, {"role": "assistant", "content": "ok"}]
    assert both.differences == []


def test_a_session_of_the_openai_agents_sdk_takes_them(log: Turnlog) -> None:
    import asyncio

    session = TurnlogSession(log, "s")
    asyncio.run(session.add_items(LARGE))  # type: ignore[arg-type]
    assert asyncio.run(session.get_items()) == LARGE


def test_a_graph_saves_them(log: Turnlog) -> None:
    save_graph_state(log.sessions.create("s"), {"messages": LARGE})
    assert stored(log) == LARGE


def test_an_import_takes_them(log: Turnlog, tmp_path: Path) -> None:
    said = [{"kind": "user", "content": item["content"], "timestamp": 1763683200000} for item in LARGE]
    (tmp_path / "s.json").write_text(json.dumps({"id": "s", "messages": said}), encoding="utf-8")
    assert import_files(log, [tmp_path / "s.json"]).written == len(LARGE)
    assert [item["content"] for item in stored(log)] == [item["content"] for item in LARGE]


def test_an_agent_s_tools_bring_more_than_an_append_takes(log: Turnlog) -> None:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"at": at})}}
        for at in range(6)
    ]
    replies = iter(
        [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "assistant", "content": "Read."}]
    )
    session = log.sessions.create("s")
    with session.run(lambda window: next(replies), tools={"read": lambda at: LARGE[at]["content"]}) as run:
        assert run.send("Read them").text == "Read."
    values = [item for item in stored(log) if item["role"] == "tool"]
    assert [item["content"] for item in values] == [item["content"] for item in LARGE]


def test_a_history_of_any_length_is_appended_and_a_repeated_call_goes_on(log: Turnlog) -> None:
    session = log.sessions.create("s")
    history = [{"role": ("user", "assistant")[at % 2], "content": f"m{at}"} for at in range(60)]
    metas = [{"metadata": {"at": at}} for at in range(60)]
    append, calls = session.append, list[int]()

    def failing(*messages: Any, **options: Any) -> Any:
        calls.append(len(messages))
        if len(calls) == 2:
            raise UnavailableError("down")
        return append(*messages, **options)

    with patch.object(session, "append", failing), pytest.raises(UnavailableError):
        session.extend(history, meta=metas, idempotency_key="k")
    answers = session.extend(history, meta=metas, idempotency_key="k")
    assert [answer.last - answer.first + 1 for answer in answers] == [25, 25, 10]
    assert stored(log) == history
    assert [message.metadata for message in session.messages()] == [{"at": at} for at in range(60)]
    assert session.extend([]) == []


def test_a_history_behind_a_head_is_appended_while_nobody_else_writes(log: Turnlog) -> None:
    session = log.sessions.create("s")
    history = [{"role": "user", "content": str(at)} for at in range(60)]
    head = session.extend(history, if_head=session.info().head)[-1].head
    append = session.append

    def interrupted(*messages: Any, **options: Any) -> Any:
        answer = append(*messages, **options)
        append({"role": "user", "content": "me too"})
        return answer

    with patch.object(session, "append", interrupted), pytest.raises(HeadMismatchError):
        session.extend(history, if_head=head)
    assert session.info().messages == 60 + 25 + 1
    with pytest.raises(HeadMismatchError):
        session.extend(history, if_head=head)


def test_a_history_may_be_any_iterable_and_what_is_none_writes_nothing(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.extend({"role": "user", "content": str(at)} for at in range(30))
    history, before = stored(log), session.info().head
    assert [body["content"] for body in history] == list(map(str, range(30)))
    for wrong, options in (
        (history, {"meta": [{}] * 26}),
        (history, {"idempotency_key": 5}),
        ({"role": "user", "content": "one"}, {}),
        ("text", {}),
    ):
        with pytest.raises(InvalidInputError):
            session.extend(wrong, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="at most 25 messages, not 30; extend takes any number"):
        session.append(*history)
    assert session.info().head == before
