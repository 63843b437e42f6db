"""What the providers demand of a history, as a linter: an independent judge of our renderers and of strangers' logs.

Standard library only, and nothing shared with any renderer (a contract of import-linter): a mistake in one of the two
cannot hide in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule broken at one place.

    ``pointer`` is a JSON pointer (RFC 6901) into ``{"messages": [...]}``, e.g. ``/messages/3/tool_calls/0/id``.
    ``answer`` is what the provider says to such a request; ``source`` is the address of the document or of the public
    thread that shows it.
    """

    rule: str
    pointer: str
    message: str
    answer: str
    fix: str
    source: str


Checker: TypeAlias = Callable[[object], list[Violation]]


def _openai_chat(messages: object) -> list[Violation]:
    # Imported at the call: the checkers need `Violation` from here, and a caller of one format pays for that one only.
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
"""Format name -> its checker. A checker promises what `lint` promises; a new format is a module and a line here."""


def lint(messages: object, *, format: str) -> list[Violation]:
    """Every violation of the provider's rules in ``messages``, a request's list of messages; empty when it is valid.

    Takes any JSON value and never raises on one: a wrong type is a violation. Linear in the size of ``messages``.
    Raises `ValueError` when there are no rules for ``format``.
    """
    checker = FORMATS.get(format)
    if checker is None:
        raise ValueError(f"no rules for format {format!r}; known: {', '.join(sorted(FORMATS))}")
    return checker(messages)
