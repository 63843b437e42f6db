"""Linting a list of messages by a provider's rules: pure, nothing is stored, nothing is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.json_values import JsonObject
from turnlog.linter.models import (
    MAX_PROBLEMS,
    LintAnswer,
    LintFormat,
    LintMessages,
    RuleBroken,
)
from turnlog.linter.rules import FORMATS, Violation, lint
from turnlog.providers import registry


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
