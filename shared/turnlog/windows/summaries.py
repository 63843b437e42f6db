"""Summaries in windows: how they are told, and what they take; and what a summariser is given of closed loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnlog.domain.events import SummaryEvent
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.text import escaped, fenced

_MESSAGE_OVERHEAD = 4
_JOIN_TOKENS = 4


def summary_body(text: str, facts: Iterable[tuple[int, str]]) -> str:
    """Text and facts as they are told, every fence in them harmless. Its tokens are counted when the summary is made."""
    values = ", ".join(value for _, value in facts)
    return escaped("\n".join(part for part in (text.strip(), f"values: {values}" if values else "") if part))


def summary_text(event: SummaryEvent) -> str:
    """The message that stands for what the summary covers."""
    return fenced(_kind(event), summary_body(event.text, event.facts))


def summary_tokens(event: SummaryEvent | None) -> int:
    """The most that the message takes: the stored count, and a bound for the fence."""
    if event is None:
        return 0
    return event.tokens + upper_bound_tokens(fenced(_kind(event), "")) + _JOIN_TOKENS + _MESSAGE_OVERHEAD


def _kind(event: SummaryEvent) -> str:
    loops: Sequence[int] = (event.first_loop, event.last_loop)
    return f"summary of exchanges {loops[0]} to {loops[1]} of this conversation"
