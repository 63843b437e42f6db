"""Sessions with calls and results to find again."""

from __future__ import annotations

import json
from typing import Any

from turnlog.client.model import Session, Turnlog

LONG = "\n".join(f"line {at}: {at * 7919:x}" for at in range(1, 2_001))


def calls(*ids: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    made = [{"id": item, "type": "function", "function": {"name": name, "arguments": arguments}} for item in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def filled(log: Turnlog) -> Session:
    """Ids that are empty and that repeat, parallel calls, results in the same commit and later ones, large and small."""
    session = log.sessions.create("s")
    session.append(user("go"))  # 2
    session.append(calls("a", "b", arguments='{"x": 1}'))  # 3
    session.append(result("b", "of b"))  # 4
    session.append(result("a", LONG))  # 5
    session.append(calls("", ""), result("", "first"), result("", "second"))  # 6 to 8
    session.append({"role": "assistant", "content": "done"}, user("again"))  # 9, 10
    session.append(calls("a"))  # 11
    session.append(result("a", json.dumps({"items": [{"id": "x/1", "n~": [1, 2]}]})))  # 12
    session.append(calls("open"))  # 13
    return session
