"""Summaries in windows: how they are told, and what they take; and what a summariser is given of closed loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnlog.core.events import SummaryEvent
from turnlog.core.text import Script, main_script
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.text import escaped, fenced

_JOIN_TOKENS = 4
_TOLD_CHARS = 1_000
"""So much of the text tells its language. Part of what makes a window: see `RENDERER_VERSION`."""
_LABELS: dict[Script, str] = {
    "chinese": "前文摘要：",
    "japanese": "これまでの要約：",
    "korean": "이전 대화 요약:",
}
"""What comes before the text, in its language. The fence says it in English."""


def summary_body(text: str, facts: Iterable[tuple[int, str]]) -> str:
    """Text and facts as they are told, every fence in them harmless. Its tokens are counted when the summary is made."""
    values = ", ".join(value for _, value in facts)
    return escaped("\n".join(part for part in (text.strip(), f"values: {values}" if values else "") if part))


def summary_text(event: SummaryEvent, label: str | None = None) -> str:
    """The message that stands for what the summary covers. ``label`` introduces the text; None: one in its language."""
    return fenced(_kind(event), _label(event, label) + summary_body(event.text, event.facts))


def summary_tokens(event: SummaryEvent | None, label: str | None = None) -> int:
    """The most that the message takes: the stored count, and a bound for the fence."""
    if event is None:
        return 0
    around = upper_bound_tokens(fenced(_kind(event), _label(event, label)))
    return event.tokens + around + _JOIN_TOKENS + MESSAGE_OVERHEAD


def most_tokens_around(event: SummaryEvent, label: str | None = None) -> int:
    """The most that the message takes beside text and values, in whatever language these turn out to be."""
    labels = (_line(label),) if label is not None else ("", *map(_line, _LABELS.values()))
    return max(upper_bound_tokens(fenced(_kind(event), label)) for label in labels) + _JOIN_TOKENS + MESSAGE_OVERHEAD


MOST_AROUND = 64
"""About the most that the message takes beside text and values."""


def _label(event: SummaryEvent, given: str | None) -> str:
    if given is not None:
        return _line(given)
    script = main_script(event.text[:_TOLD_CHARS])
    return _line(_LABELS.get(script, "")) if script else ""


def _line(label: str) -> str:
    return f"{escaped(label)}\n" if label else ""


def _kind(event: SummaryEvent) -> str:
    loops: Sequence[int] = (event.first_loop, event.last_loop)
    return f"summary of exchanges {loops[0]} to {loops[1]} of this conversation"
