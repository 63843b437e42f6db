"""Summaries in windows: their text, and the tokens that they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnlog.core.events import SummaryEvent
from turnlog.core.scripts import Script, main_script
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.text import escaped, fenced

_JOIN_TOKENS = 4
_TOLD_CHARS = 1_000
"""Characters of the text from which its language is detected. A change needs a new `RENDERER_VERSION`."""
_LABELS: dict[Script, str] = {
    "chinese": "前文摘要：",
    "japanese": "これまでの要約：",
    "korean": "이전 대화 요약:",
}
"""Label before the text, by its script; other texts need none, because the fence is in English."""


def summary_body(text: str, facts: Iterable[tuple[int, str]]) -> str:
    """Return text and facts as they are sent, with every fence in them escaped.

    Its tokens are counted when the summary is made.
    """
    values = ", ".join(value for _, value in facts)
    return escaped("\n".join(part for part in (text.strip(), f"values: {values}" if values else "") if part))


def summary_text(event: SummaryEvent, label: str | None = None) -> str:
    """Return the message of a summary. ``label`` introduces the text; None: a label in the text's language."""
    return fenced(_kind(event), _label(event, label) + summary_body(event.text, event.facts))


def summary_tokens(event: SummaryEvent | None, label: str | None = None) -> int:
    """Return the most that the summary's message takes: its stored count and a bound for the fence. 0 without a summary."""
    if event is None:
        return 0
    around = upper_bound_tokens(fenced(_kind(event), _label(event, label)))
    return event.tokens + around + _JOIN_TOKENS + MESSAGE_OVERHEAD


def most_tokens_around(event: SummaryEvent, label: str | None = None) -> int:
    """Return the most that the message takes besides text and values, in any language."""
    labels = (_line(label),) if label is not None else ("", *map(_line, _LABELS.values()))
    return max(upper_bound_tokens(fenced(_kind(event), label)) for label in labels) + _JOIN_TOKENS + MESSAGE_OVERHEAD


MOST_AROUND = 64
"""Approximate upper bound of the message's tokens besides text and values."""


def _label(event: SummaryEvent, label: str | None) -> str:
    if label is not None:
        return _line(label)
    script = main_script(event.text[:_TOLD_CHARS])
    return _line(_LABELS.get(script, "")) if script else ""


def _line(label: str) -> str:
    return f"{escaped(label)}\n" if label else ""


def _kind(event: SummaryEvent) -> str:
    loops: Sequence[int] = (event.first_loop, event.last_loop)
    return f"summary of exchanges {loops[0]} to {loops[1]} of this conversation"
