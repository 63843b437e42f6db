"""The texts that windows put beside what was said: marks, neutral lines, fenced data. All in the user role, all neutral.

What stands in a fence (`turnlog.providers.blocks`) is data.
"""

from __future__ import annotations

from turnlog.core.calls import CallFact
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
    """The text, or its first ``limit`` characters and the mark that says how many are missing. No character is split."""
    if len(text) <= limit:
        return text
    return text[:limit] + truncation_mark(len(text) - limit)


def truncation_mark(missing: int) -> str:
    return f"...[truncated {missing} characters]"


def left_out_line(*, loops: int, messages: int) -> str:
    """Says that something is not shown, so that no hole is silent."""
    what = f"{messages} earlier message{'s' if messages != 1 else ''}"
    if loops:
        what += f" ({loops} earlier exchange{'s' if loops != 1 else ''})"
    return f"[{what} of this conversation not shown here]"


def user_call_text(calls: list[tuple[CallFact, str | None]]) -> str:
    """A user's own tool calls with their results, as fenced text."""
    lines = list[str]()
    for call, result in calls:
        lines.append(f"{call.name} {call.arguments}".rstrip())
        lines.append(f"-> {result if result is not None else SETTLEMENT}")
    return fenced("user tool calls", "\n".join(lines))
