"""Models of linting: a list of messages, and the rules that it breaks."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from pydantic import Field

from turnlog.core.models import Answer, Body, GivenText, JsonObjectField

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
