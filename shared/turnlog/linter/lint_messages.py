"""The use case that checks a list of messages against a provider's rules. Nothing is stored or counted as usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.linter import thinking
from turnlog.linter.routes import MAX_PROBLEMS, LintAnswer, LintFormat, LintMessages, RuleBroken
from turnlog.linter.rules import FORMATS, lint
from turnlog.providers import registry


class LintHistories:
    """Use case: check a list of messages against the rules of a provider."""

    def __call__(self, body: LintMessages) -> LintAnswer:
        """Return the violations. Raises `InvalidInputError` when the messages have a format without rules."""
        format = body.format if body.format is not None else format_of(body.messages)
        violations = lint(body.messages, format=format)
        if body.made_behind:
            violations += thinking.check(
                body.messages, body.made_behind, format=format, system=body.system, tools=body.tools
            )
        fingerprint = thinking.fingerprint(body.messages, format=format, system=body.system, tools=body.tools)
        problems = [RuleBroken(**asdict(violation)) for violation in violations[:MAX_PROBLEMS]]
        return LintAnswer(
            valid=not violations, format=format, total=len(violations), problems=problems, fingerprint=fingerprint
        )


def format_of(messages: Sequence[dict[str, Any]]) -> LintFormat:
    """Return the format that most messages have a mark of, or ``openai_chat`` when no message has one.

    Each message is recognised as when it is appended to a session. Raises `InvalidInputError` for Turnlog's own format:
    it belongs to no provider, so it has no rules.
    """
    format_name = registry.format_of(cast("Sequence[JsonObject]", messages))
    if format_name not in FORMATS:
        message = f"the messages are of format {format_name!r}, which has no rules; these have: {', '.join(FORMATS)}"
        raise InvalidInputError.at("/format", message, "no_rules")
    return cast("LintFormat", format_name)
