"""The texts that windows add to a conversation: marks, neutral messages, fenced data, and summaries with their tokens.

Text in a fence (`turnlog.providers.blocks`) is data.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Container, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from turnlog.core.calls import MessageOutline, Ref
from turnlog.core.events import SummaryEvent
from turnlog.core.messages import Message, Opaque, ToolCall
from turnlog.core.scripts import Script, main_script
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.blocks import escaped, fenced, placeholder_text
from turnlog.providers.token_rules import MESSAGE_OVERHEAD

SETTLEMENT = "result unavailable; do not assume it ran"
SETTLEMENT_TOKENS = upper_bound_tokens(SETTLEMENT) + MESSAGE_OVERHEAD
NO_REPLY = "(interrupted: no final reply)"
NOTHING_SAID = "[nothing has been said in this conversation yet]"
VALUES = "\nvalues: "
VALUES_TOKENS = upper_bound_tokens(VALUES)
_SEPARATOR_TOKENS = 3
"""The most tokens of a comma and a space between two values, with what their borders may add."""

_JOIN_TOKENS = 4
_SCRIPT_CHARS = 1_000
"""Characters of the text from which its language is detected. A change needs a new `RENDERER_VERSION`."""
_LABELS: dict[Script, str] = {"chinese": "前文摘要：", "japanese": "これまでの要約：", "korean": "이전 대화 요약:"}
"""Label before the text, by its script; other texts need none, because the fence is in English."""


def cut(text: str, limit: int) -> str:
    """Return the text, or its first ``limit`` characters and a mark with the number of missing ones."""
    return text[:limit] + truncation_mark(len(text) - limit)


def truncation_mark(missing: int) -> str:
    """Return the mark at the end of a cut text; an empty string where nothing is missing."""
    return f"...[truncated {missing} characters]" if missing > 0 else ""


def one_line(text: str, limit: int, more: str = "...") -> str:
    """Return the text in one line; of a longer line its first ``limit`` characters and ``more``."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit] + more


@lru_cache(maxsize=4096)
def value_cost(value: str) -> int:
    """Return the most tokens that one more value takes in a note."""
    return upper_bound_tokens(escaped(value)) + _SEPARATOR_TOKENS


def left_out_line(*, loops: int, messages: int) -> str:
    """Return the line that says how many messages are not shown, so that no gap goes unnoticed."""
    what = f"{messages} earlier message{'s' if messages != 1 else ''}"
    if loops:
        what += f" ({loops} earlier exchange{'s' if loops != 1 else ''})"
    return f"[{what} of this conversation not shown here]"


_CALLS_KIND = "earlier tool calls"
_CALLS_FENCE_TOKENS = upper_bound_tokens(fenced(_CALLS_KIND, "")) + MESSAGE_OVERHEAD
_JOINTS = 6
"""Places of a call's text where strings that are counted apart are joined: each takes up to `_JOIN_TOKENS` more."""


def calls_text(calls: Iterable[tuple[Ref, ToolCall, str]]) -> str:
    """Return tool calls, each with the text of its result, as fenced text."""
    lines = [f"{ref} {call.name} {call.arguments}".rstrip() + f"\n-> {result}" for ref, call, result in calls]
    return fenced(_CALLS_KIND, "\n".join(lines))


def most_tokens_of_calls(refs: Iterable[Ref], outlines: Iterable[MessageOutline]) -> int:
    """Return the most tokens that calls and results take as text beyond the stored counts of their messages."""
    tokens = _CALLS_FENCE_TOKENS + sum(upper_bound_tokens(str(ref)) + _JOINTS * _JOIN_TOKENS for ref in refs)
    texts = [call.arguments for outline in outlines for call in outline.calls]
    texts += [result.text for outline in outlines for result in outline.results]
    return tokens + sum(upper_bound_tokens(escaped(text)) for text in texts if escaped(text) != text)


def most_tokens_of_blocks(message: Message, formats: Container[str] = ()) -> int:
    """Return the most tokens that blocks of other formats than these take as text."""
    others = [block for block in message.blocks if isinstance(block, Opaque) and block.format not in formats]
    return sum(upper_bound_tokens(placeholder_text(block)) for block in others)


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
    return _line(label if label is not None else _label_for(event.text[:_SCRIPT_CHARS]))


@lru_cache(maxsize=64)
def _label_for(text: str) -> str:
    """Return the label in the text's language; empty for other languages and for texts of fewer than two words."""
    script = main_script(text)
    return _LABELS.get(script, "") if script else ""


def _line(label: str) -> str:
    return f"{escaped(label)}\n" if label else ""


def _kind(event: SummaryEvent) -> str:
    loops = f"exchanges {event.first_loop} to {event.last_loop}"
    steps = f"earlier steps of exchange {event.last_loop + 1}"
    if event.parted is not None:
        loops = f"{loops} and {steps}" if event.last_loop >= event.first_loop else steps
    return f"summary of {loops} of this conversation"


Facts: TypeAlias = "tuple[tuple[int, str], ...]"
_LINE = re.compile(r"^(?=.)", re.M)
_WORD = re.compile(r"(?<=[\s。！？；，、])(?=\S)")
_FACTS_SHARE = 0.5
"""Least share of the room for values, as when the summary is made."""


def shortened_summary(event: SummaryEvent, max_tokens: int, label: str | None) -> SummaryEvent:
    """Return the newest lines and values of the summary within ``max_tokens``, after a line that says how much is missing.

    The text is cut at the beginning of a line, else of a word, else of a character. Charged with upper bounds, because the rest
    has no stored count.
    """
    text = event.text.strip()
    mark_tokens = upper_bound_tokens(_mark(len(text), len(event.facts)) + "\n")
    room = max_tokens - most_tokens_around(event, label) - mark_tokens
    facts, facts_tokens = _newest(event.facts, max(int(room * _FACTS_SHARE), room - _tokens(text)))
    start = _start(text, room - facts_tokens)
    left = text[start:].strip()
    mark = _mark(len(text) - len(left), len(event.facts) - len(facts))
    shown = "\n".join(part for part in (mark, left) if part)
    return replace(event, text=shown, facts=facts, tokens=mark_tokens + _tokens(left) + facts_tokens)


def _newest(facts: Facts, room: int) -> tuple[Facts, int]:
    """Return the newest values that fit into ``room`` tokens, and the most that they take together."""
    tokens, first = VALUES_TOKENS, len(facts)
    while first and tokens + value_cost(facts[first - 1][1]) <= room:
        first -= 1
        tokens += value_cost(facts[first][1])
    return facts[first:], tokens if first < len(facts) else 0


def _start(text: str, room: int) -> int:
    """Return the index from which the rest of the text takes at most ``room`` tokens."""
    for starts in (_starts(_LINE, text), _starts(_WORD, text), range(len(text))):
        index = bisect_left(starts, True, key=lambda start: _tokens(text[start:].strip()) <= room)
        if index < len(starts):
            return starts[index]
    return len(text)


def _starts(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.start() for match in pattern.finditer(text)]


def _tokens(text: str) -> int:
    return upper_bound_tokens(escaped(text))


def _mark(chars: int, values: int) -> str:
    return f"[shortened: {chars} characters and {values} values of this summary are not shown here]"
