"""The Claude Agent SDK's own conformance suite, and what only this adapter does."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog.integrations.claude_agent_sdk import TurnlogSessionStore

sdk = pytest.importorskip("claude_agent_sdk", reason="has an environment of its own: make frameworks")
KEY = {"project_key": "-home-ada-shop", "session_id": "0f6f1c3e-1111-4222-8333-444455556666"}


def said(kind: str, content: Any, uuid: str, **more: Any) -> dict[str, Any]:
    message = {
        "role": kind,
        "content": content,
        **({"id": "msg_1", "stop_reason": None} if kind == "assistant" else {}),
    }
    return {"type": kind, "uuid": uuid, "sessionId": KEY["session_id"], "message": message, **more}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "orders.txt"}}
ENTRIES = [
    {"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-01-01T00:00:00Z"},
    said("user", "Where is order 4711?", "u1", cwd="/home/ada/shop"),
    said("assistant", [{"type": "thinking", "thinking": "Look.", "signature": "s"}], "a1"),
    said("assistant", [CALL], "a2"),
    said(
        "user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "4711: shipped"}], "u2", toolUseResult={}
    ),
    said("assistant", [{"type": "text", "text": "It is shipped."}], "a3"),
    {"type": "summary", "summary": "Order 4711", "leafUuid": "a3"},
]


@pytest.mark.every_engine
def test_the_sdks_conformance_suite_passes(harness: Harness) -> None:
    from claude_agent_sdk.testing import run_session_store_conformance

    users = itertools.count()
    stores = (TurnlogSessionStore(harness.log(user=f"user-{number}")) for number in users)
    asyncio.run(run_session_store_conformance(lambda: next(stores)))


@pytest.mark.every_engine
def test_a_transcript_is_a_session_with_windows_and_search(harness: Harness) -> None:
    async def run() -> None:
        store = TurnlogSessionStore(harness.log())
        await store.append(KEY, ENTRIES[:4])
        await store.append(KEY, ENTRIES[2:])
        loaded = await TurnlogSessionStore(harness.log()).load(KEY)
        assert loaded == ENTRIES, "entries that the transcript has are not appended again"
        assert [list_session["session_id"] for list_session in await store.list_sessions(KEY["project_key"])] == [
            KEY["session_id"]
        ]

    asyncio.run(run())
    log = harness.log()
    session = TurnlogSessionStore(log).session(KEY)
    window = session.context(format="anthropic")
    assert [message["role"] for message in window.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert log.lint(window.messages, format="anthropic").problems == []
    assert session.search("shipped").results


def test_numbers_that_turnlog_refuses_come_back_and_the_rest_of_their_batch(harness: Harness) -> None:
    call = {**CALL, "input": {"offset": 10**30, "limit": -math.inf}}
    entries = [*ENTRIES[:2], said("assistant", [call], "a2", toolUseResult={"size": 10**30}), *ENTRIES[4:]]
    store = TurnlogSessionStore(harness.log())
    asyncio.run(store.append(KEY, entries))
    assert asyncio.run(store.load(KEY)) == entries
    window = store.session(KEY).context(format="anthropic")
    assert window.messages[1]["content"][0]["input"] == {"offset": str(10**30), "limit": "-Infinity"}


def test_an_entry_that_a_batch_has_twice_is_appended_once_and_each_without_a_uuid(harness: Harness) -> None:
    async def run() -> None:
        store = TurnlogSessionStore(harness.log())
        await store.append(KEY, [ENTRIES[1], ENTRIES[0], ENTRIES[2], ENTRIES[1], ENTRIES[0]])
        await store.append(KEY, [ENTRIES[2], ENTRIES[0], ENTRIES[3], ENTRIES[3]])
        order = (1, 0, 2, 0, 0, 3)
        assert await store.load(KEY) == [ENTRIES[index] for index in order]

    asyncio.run(run())


def test_two_processes_append_each_entry_once(harness: Harness) -> None:
    async def run() -> None:
        stores = [TurnlogSessionStore(harness.log()) for _ in range(2)]
        entries = [said("user", f"question {number}", f"u{number}") for number in range(60)]
        await asyncio.gather(
            *(store.append(KEY, entries[start : start + 40]) for store, start in zip(stores, (0, 20), strict=True))
        )
        loaded = await stores[0].load(KEY)
        assert sorted(item["uuid"] for item in loaded) == sorted(entry["uuid"] for entry in entries)

    asyncio.run(run())


def test_an_append_that_was_cut_off_is_completed(harness: Harness) -> None:
    entries = [said("user", f"question {number}", f"u{number}") for number in range(60)]
    for at in range(1, 40):
        store = TurnlogSessionStore(harness.log(user=f"user-{at}"))
        harness.faults.fail(at, "before")
        try:
            asyncio.run(store.append(KEY, entries))
        except Exception:
            asyncio.run(store.append(KEY, entries))
        is_done = harness.faults.is_pending
        harness.faults.clear()
        assert asyncio.run(store.load(KEY)) == entries
        if is_done:
            break
