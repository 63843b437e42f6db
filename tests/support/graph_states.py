"""States of graphs, and the messages and sessions that conversions are tried on."""

from __future__ import annotations

from typing import Any

from turnlog.client.model import Session, Turnlog

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"sku":"SKU-7"}'}}


def messages(count: int) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[at % 2], "content": f"message {at}"} for at in range(count)]


def graph_state(**more: Any) -> dict[str, Any]:
    """As the frameworks keep it; every key that is known, and one that is not."""
    said = [
        {"role": "user", "content": "Where is SKU-7?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "aisle 4"},
    ]
    return {
        "messages": said,
        "full_messages": list(said),
        "system_prompt": "You find things.",
        "tools": [{"name": "find"}],
        "max_iterations": 10,
        "iteration": 2,
        "scratchpad": [{"thought": "aisle"}],
        "callback_meta": {"trace": "t-1"},
        "last_response": {"id": "r", "choices": [None]},
        "last_content": "",
        "tool_calls": [CALL],
        "tool_results": [],
        "finish_reason": "tool_calls",
        "context": {"deep": {"a": None, "b": []}},
        "compression_applied": False,
        "conversation_summary": None,
        "run_id": "r-1",
        "their_own": {"x": [1, None, {"y": 2.5}]},
        **more,
    }


def session_of(log: Turnlog) -> Session:
    return log.sessions.create("s")


def bodies(session: Session) -> list[Any]:
    return [message.body for message in session.messages()]
