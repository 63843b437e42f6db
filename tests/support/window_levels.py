"""Turns, and the levels of their loops in a window."""

from __future__ import annotations

from typing import Any

from turnlog.sessions.context_models import WindowAnswer

TURNS = [
    message
    for number in range(1, 15)
    for message in (
        {"role": "user", "content": f"question {number}"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number}"},
        {"role": "assistant", "content": f"answer {number}"},
    )
] + [{"role": "user", "content": "question 15"}]


def levels(answer: WindowAnswer) -> dict[int, tuple[str, str | None]]:
    """Level and reason of every loop."""
    loops = {
        part.loop: (part.level, part.reason) for part in answer.manifest.parts if part.kind == "loop" and part.loop
    }
    older = [part for part in answer.manifest.parts if part.kind == "older"]
    return {number: ("out", part.reason) for part in older for number in range(1, (part.loop or 0) + 1)} | loops


def counted(answer: WindowAnswer) -> dict[str, int]:
    values = levels(answer).values()
    return {level: sum(item[0] == level for item in values) for level in ("whole", "digest", "out")}


def past_in(window: WindowAnswer, current: int) -> list[Any]:
    """Return the parts of whole messages of other loops than the current one."""
    return [
        part
        for part in window.manifest.parts
        if part.kind == "message" and part.level == "whole" and part.loop not in (None, current)
    ]
