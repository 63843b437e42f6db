"""Sessions with turns of one length, to compress."""

from __future__ import annotations

from typing import Any

from turnlog.client.model import Session

AMPLE = 1_000_000


def turn(number: int, *, words: int = 60) -> list[dict[str, Any]]:
    """A loop with a tool call whose result holds a value of its own."""
    call = {
        "id": f"call-{number}",
        "type": "function",
        "function": {"name": "look_up", "arguments": f'{{"n": {number}}}'},
    }
    return [
        {"role": "user", "content": f"Question {number}: " + "what about this order " * words},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call-{number}", "content": f'{{"order_id": "ORD-{number:05d}"}}'},
        {"role": "assistant", "content": f"Answer {number}. " + "It has left the warehouse " * words},
    ]


def filled(log: Any, turns: int, session_id: str = "s", **settings: Any) -> Session:
    session: Session = log.sessions.create(session_id, **settings)
    for number in range(1, turns + 1):
        session.append(*turn(number))
    return session


def texts(window: Any) -> str:
    return "\n".join(str(message.get("content")) for message in window.messages)
