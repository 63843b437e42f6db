"""Linting a list of messages by a provider's rules: pure, nothing is stored, nothing is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

from pydantic import Field

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.json_values import JsonObject
from turnlog.core.models import Answer, Body, GivenText, JsonObjectField
from turnlog.linter.rules import FORMATS, Violation, lint
from turnlog.providers import registry

LintFormat: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "bedrock_converse"]
LINT_FORMATS: tuple[str, ...] = get_args(LintFormat)
MAX_LINTED = 100_000
MAX_PROBLEMS = 1_000


class LintMessages(Body):
    """A list of messages as a provider is sent it; nothing is stored."""

    messages: list[JsonObjectField] = Field(max_length=MAX_LINTED)
    format: LintFormat | None = Field(default=None, description="Whose rules; recognised when left out")


class RuleBroken(Answer):
    """One rule broken at one place. ``pointer`` is a JSON pointer into the request; ``source`` an address that shows it."""

    rule: str
    pointer: GivenText
    message: GivenText
    provider_says: str
    fix: str
    source: str


class LintAnswer(Answer):
    """``problems`` are the first 1,000, in the order in which a reader from the top can know of them; ``total`` are all."""

    valid: bool
    format: LintFormat
    total: int
    problems: list[RuleBroken]


class LintHistories:
    """The use case: every rule that a list of messages breaks."""

    def __call__(self, body: LintMessages) -> LintAnswer:
        """Raises `InvalidInputError` when the messages are of a format that has no rules."""
        format = body.format if body.format is not None else format_of(body.messages)
        return answer_of(format, lint(body.messages, format=format))


def format_of(messages: Sequence[dict[str, Any]]) -> LintFormat:
    """The format that most of the messages have something of; OpenAI Chat where nothing tells.

    One message is recognised as an append does it. Raises `InvalidInputError` for Turnlog's own: no provider, no rules.
    """
    found = registry.format_of(cast("Sequence[JsonObject]", messages))
    if found not in FORMATS:
        message = f"the messages are of format {found!r}, which has no rules; there are some for {', '.join(FORMATS)}"
        raise InvalidInputError(message, problems=[Problem("no_rules", "/format", message)])
    return cast("LintFormat", found)


def answer_of(format: LintFormat, violations: Sequence[Violation]) -> LintAnswer:
    problems = [problem_of(one) for one in violations[:MAX_PROBLEMS]]
    return LintAnswer(valid=not violations, format=format, total=len(violations), problems=problems)


def problem_of(violation: Violation) -> RuleBroken:
    return RuleBroken(
        rule=violation.rule,
        pointer=violation.pointer,
        message=violation.message,
        provider_says=violation.answer,
        fix=violation.fix,
        source=violation.source,
    )
