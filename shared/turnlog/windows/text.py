"""The texts that windows add to a conversation: marks, neutral messages, fenced data. All have the user role.

Text in a fence (`turnlog.providers.blocks`) is data.
"""

from __future__ import annotations

from turnlog.core.calls import CallOutline
from turnlog.providers.blocks import escaped, fenced

__all__ = [
    "NOTHING_SAID",
    "SETTLEMENT",
    "cut",
    "escaped",
    "fenced",
    "left_out_line",
    "truncation_mark",
    "user_call_text",
]

SETTLEMENT = "result unavailable; do not assume it ran"
NO_REPLY = "(interrupted: no final reply)"
NOTHING_SAID = "[nothing has been said in this conversation yet]"


def cut(text: str, limit: int) -> str:
    """Return the text, or its first ``limit`` characters and a mark with the number of missing ones."""
    if len(text) <= limit:
        return text
    return text[:limit] + truncation_mark(len(text) - limit)


def truncation_mark(missing: int) -> str:
    """Return the mark at the end of a cut text."""
    return f"...[truncated {missing} characters]"


def left_out_line(*, loops: int, messages: int) -> str:
    """Return the line that says how many messages are not shown, so that no gap goes unnoticed."""
    what = f"{messages} earlier message{'s' if messages != 1 else ''}"
    if loops:
        what += f" ({loops} earlier exchange{'s' if loops != 1 else ''})"
    return f"[{what} of this conversation not shown here]"


def user_call_text(calls: list[tuple[CallOutline, str | None]]) -> str:
    """Return a user's own tool calls with their results, as fenced text."""
    lines = list[str]()
    for call, result in calls:
        lines.append(f"{call.name} {call.arguments}".rstrip())
        lines.append(f"-> {result if result is not None else SETTLEMENT}")
    return fenced("user tool calls", "\n".join(lines))
