"""Messages of windows."""

from __future__ import annotations

from typing import Any

from tests.properties.histories import Body, Given, History


def said(role: str, content: Any = None, **extra: Any) -> Body:
    return {"role": role, "content": content if content is not None else f"{role} says", **extra}


def calling(*ids: str, role: str = "assistant") -> Body:
    calls = [{"id": value, "type": "function", "function": {"name": "f", "arguments": "{}"}} for value in ids]
    return {"role": role, "content": None, "tool_calls": calls}


def result(call_id: str, content: str = "done") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def given(*messages: Body) -> History:
    return tuple(Given(message) for message in messages)
