"""A linter for message lists: the rules that model providers enforce on a conversation history.

It checks Turnlog's renderers and logs from elsewhere. It uses only the standard library and shares no code with the
renderers (import-linter enforces this), so that one mistake cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a list of messages breaks, and where.

    ``pointer`` is a JSON pointer (RFC 6901) into ``{"messages": [...]}``, e.g. ``/messages/3/tool_calls/0/id``.
    ``message`` says what is wrong there; ``fix`` says how to correct the history.
    ``answer`` is the provider's error for such a request; ``source`` is the URL of the document or public thread that shows it.
    """

    rule: str
    pointer: str
    message: str
    answer: str
    fix: str
    source: str


Checker: TypeAlias = Callable[[object], list[Violation]]


def _openai_chat(messages: object) -> list[Violation]:
    # Imported when called: the checkers import `Violation` from here, and a caller loads only the format it needs.
    from turnlog.linter import openai_chat

    return openai_chat.check(messages)


def _openai_responses(messages: object) -> list[Violation]:
    from turnlog.linter import openai_responses

    return openai_responses.check(messages)


def _anthropic(messages: object) -> list[Violation]:
    from turnlog.linter import anthropic

    return anthropic.check(messages)


def _bedrock_converse(messages: object) -> list[Violation]:
    from turnlog.linter import bedrock_converse

    return bedrock_converse.check(messages)


FORMATS: Mapping[str, Checker] = {
    "anthropic": _anthropic,
    "bedrock_converse": _bedrock_converse,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
}
"""Format name -> its checker, which has the contract of `lint`. To add a format, write its module and add a line here."""


def lint(messages: object, *, format: str) -> list[Violation]:
    """Return every violation of the provider's rules in ``messages``, the message list of a request; empty when it is valid.

    Accepts any JSON value and never raises on one: a value of a wrong type is a violation. Linear in the size of ``messages``.
    Raises `ValueError` when ``format`` is not a format in `FORMATS`.
    """
    checker = FORMATS.get(format)
    if checker is None:
        raise ValueError(f"no rules for format {format!r}; known: {', '.join(sorted(FORMATS))}")
    return checker(messages)
