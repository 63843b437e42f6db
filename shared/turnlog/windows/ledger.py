"""The value ledger: identifiers and scalar values of tool calls and results, verbatim, in order of first appearance.

The digest of a past loop keeps these values, because later tool calls need them: ids, e-mail addresses, paths, amounts. The
extractor has a version, which cards store beside the values.
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
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_NAME_PART = r"(?:[A-Z][\w'’-]*[a-z][\w'’-]*|[A-Z]{2,}\b)"
_NAMES = rf"{_NAME_PART}(?: (?:(?:of|de|van|von|the|and|&) )?{_NAME_PART})*"
_SAID = re.compile(
    rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b)(?:,? \d{{4}})?"  # a day
    r"|(?:\d+ ?[年月日号點点时分元块岁%％])+"
    r"|[$€£¥₩₹] ?\d(?:[\d,.]*\d)?"  # an amount
    r"|\b\d{1,2}:\d{2}(?: ?[ap]m\b)?|\b\d{1,2} ?[ap]m\b"  # a time
    rf"|\b\d{{1,5}} {_NAMES}"  # an address
    rf"|{_IDENTIFIER.pattern}"  # numbers too
    r"|《[^》\n]{1,40}》"  # a title
    rf"|(?<=[a-z0-9,;:'’)\"] ){_NAMES}"  # a name within a sentence
)


def ledger_of_message(message: Message) -> tuple[str, ...]:
    """Return at most `MAX_VALUES` distinct values of a message's tool calls and results."""
    texts = [call.arguments for call in message.tool_calls] + [result.text for result in message.tool_results]
    return distinct((value for text in texts for value in values_of(text)), MAX_VALUES)


def ledger_of_facts(facts: MessageOutline) -> tuple[str, ...]:
    """Return at most `MAX_VALUES` distinct values of the calls and results in an outline that holds whole texts."""
    texts = [call.arguments for call in facts.calls] + [result.text for result in facts.results]
    return distinct((value for text in texts for value in values_of(text)), MAX_VALUES)


def values_of(text: str) -> Iterator[str]:
    """Yield the values of one text.

    For a JSON object or list these are its short scalars and the identifiers in its long strings, otherwise all identifiers.
    """
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


def said_values(text: str) -> Iterator[str]:
    """Return the values of a text that somebody said: identifiers, names, dates, times, amounts and numbers."""
    values = (match[0].rstrip(".:- ") for match in _SAID.finditer(text))
    return (value for value in values if 1 < len(value) <= _MAX_VALUE_CHARS)


def is_identifier(value: str) -> bool:
    """Return whether the whole value is one identifier."""
    return _IDENTIFIER.fullmatch(value) is not None and len(value) >= _MIN_IDENTIFIER


def chosen(values: Iterable[str], limit: int) -> list[str]:
    """Return at most ``limit`` of the values, in order. Identifiers come before other scalars, which are easier to find again.

    Reads no further than to the last identifier that it returns, if there are enough.
    """
    identifiers, others = list[tuple[int, str]](), list[tuple[int, str]]()
    for place in enumerate(values) if limit else ():
        if is_identifier(place[1]):
            identifiers.append(place)
            if len(identifiers) == limit:
                break
        elif len(others) < limit:
            others.append(place)
    return [value for _, value in sorted([*identifiers, *others[: limit - len(identifiers)]])]


def is_said(value: str, text: str) -> bool:
    """Return whether the text has the value as a whole word or number."""
    index = text.find(value)
    while index >= 0:
        before, after = text[index - 1 : index], text[index + len(value) : index + len(value) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        index = text.find(value, index + 1)
    return False


def bounded(values: Iterable[str]) -> tuple[str, ...]:
    """Return as many of the values as fit into a card, so that a card and its body give the same values."""
    size, kept = 0, list[str]()
    for value in values:
        size += len(value.encode("utf-8", "surrogatepass"))
        if size > MAX_BYTES:
            break
        kept.append(value)
    return tuple(kept)


def distinct(values: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return the first ``limit`` distinct values, in order."""
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
    # An identifier has no white space and is not letters alone, so most of prose is skipped.
    for chunk in text.split():
        if len(chunk) < _MIN_IDENTIFIER or chunk.isalpha():
            continue
        for match in _IDENTIFIER.finditer(chunk):
            value = match[0].rstrip(".:-")
            if _MIN_IDENTIFIER <= len(value) <= _MAX_VALUE_CHARS:
                yield value
