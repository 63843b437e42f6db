"""Messages of the chat format."""

from __future__ import annotations

import json
from typing import Any


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None, *calls: tuple[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        body["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for call_id, name in calls
        ]
    return body


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def called(call_id: str, **arguments: Any) -> dict[str, Any]:
    """Return a call of the tool `act`."""
    function = {"name": "act", "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}
