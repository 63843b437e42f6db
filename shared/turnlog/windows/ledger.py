"""The value ledger: identifiers and scalar values of tool calls and results, verbatim, in order of first appearance.

A past loop's digest keeps them, because later tool calls need them: ids, e-mail addresses, paths, amounts. The extractor
is versioned: cards store its version beside what it found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from turnlog.core.calls import MessageOutline
from turnlog.core.messages import Message

EXTRACTOR_VERSION = 1
MAX_VALUES = 100
MAX_BYTES = 2 * 1024
_MAX_VALUE_CHARS = 80
_MAX_TEXT_CHARS = 200_000
_IDENTIFIER = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # e-mail
    r"|(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?"  # path
    r"|[A-Za-z0-9_#][A-Za-z0-9_.:#-]*[0-9][A-Za-z0-9_.:#-]*"  # token with a digit
)
_MIN_IDENTIFIER = 5


def ledger_of_message(message: Message) -> tuple[str, ...]:
    """At most `MAX_VALUES` distinct values of a message's tool calls and results."""
    texts = [call.arguments for call in message.tool_calls] + [result.text for result in message.tool_results]
    return distinct((value for text in texts for value in values_of(text)), MAX_VALUES)


def ledger_of_facts(facts: MessageOutline) -> tuple[str, ...]:
    """The same from facts that hold whole texts."""
    texts = [call.arguments for call in facts.calls] + [result.text for result in facts.results]
    return distinct((value for text in texts for value in values_of(text)), MAX_VALUES)


def values_of(text: str) -> Iterator[str]:
    """The values of one text: short scalar leaves when it is a JSON object or list, identifiers otherwise and inside leaves."""
    text = text[:_MAX_TEXT_CHARS]
    stripped = text.lstrip()
    if stripped[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            yield from _leaves(value)
            return
    yield from _identifiers(text)


def is_identifier(value: str) -> bool:
    """Whether a value is one identifier and nothing else."""
    return _IDENTIFIER.fullmatch(value) is not None and len(value) >= _MIN_IDENTIFIER


def chosen(values: list[str], limit: int) -> list[str]:
    """At most ``limit`` of the values, in their order: identifiers before other scalars, which are easier to come by again."""
    if len(values) <= limit:
        return values
    ranked = sorted(range(len(values)), key=lambda at: (not is_identifier(values[at]), at))
    return [values[at] for at in sorted(ranked[:limit])]


def is_said(value: str, text: str) -> bool:
    """Whether the text has the value on its own, not as a part of a longer word or number."""
    at = text.find(value)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(value) : at + len(value) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        at = text.find(value, at + 1)
    return False


def bounded(values: Iterable[str]) -> tuple[str, ...]:
    """As many of the values as a card has room for, so that a card and its body say the same."""
    size, kept = 0, list[str]()
    for value in values:
        size += len(value.encode("utf-8", "surrogatepass"))
        if size > MAX_BYTES:
            break
        kept.append(value)
    return tuple(kept)


def distinct(values: Iterable[str], limit: int) -> tuple[str, ...]:
    seen = dict[str, None]()
    for value in values:
        seen.setdefault(value)
        if len(seen) >= limit:
            break
    return tuple(seen)


def _leaves(root: object) -> Iterator[str]:
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            stack.extend(reversed(value))
        elif isinstance(value, str):
            if 1 < len(value) <= _MAX_VALUE_CHARS and "\n" not in value:
                yield value
            else:
                yield from _identifiers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            text = json.dumps(value)
            if len(text) > 1:
                yield text


def _identifiers(text: str) -> Iterator[str]:
    # None has white space in it, and none is letters alone, which most of prose is.
    for chunk in text.split():
        if len(chunk) < _MIN_IDENTIFIER or chunk.isalpha():
            continue
        for match in _IDENTIFIER.finditer(chunk):
            value = match[0].rstrip(".:-")
            if _MIN_IDENTIFIER <= len(value) <= _MAX_VALUE_CHARS:
                yield value
