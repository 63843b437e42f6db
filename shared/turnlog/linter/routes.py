"""The request, the answer and the HTTP route of the linter: a list of messages, and the rules that it breaks."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from turnlog.core.models import Answer, Body, GivenText, JsonObjectField
from turnlog.routing import Response, Route, read_body

LintFormat: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "bedrock_converse"]
MAX_LINTED = 100_000
MAX_PROBLEMS = 1_000


class LintMessages(Body):
    """A list of messages as a provider would receive it. Nothing is stored."""

    messages: list[JsonObjectField] = Field(max_length=MAX_LINTED)
    format: LintFormat | None = Field(default=None, description="Format whose rules apply; detected when left out")
    system: GivenText | list[JsonObjectField] | None = Field(default=None, description="System text of the request")
    tools: list[JsonObjectField] | None = Field(default=None, description="Tools of the request")
    made_behind: dict[str, str] | None = Field(
        default=None,
        max_length=MAX_LINTED,
        description="Signature of a thinking block -> `fingerprint` of the request that it was made by; such blocks are checked",
    )


class RuleBroken(Answer):
    """A rule that the messages break, and where.

    ``pointer`` is a JSON pointer into the request; ``source`` is the URL of a page that shows the provider's answer.
    """

    rule: str
    pointer: GivenText
    message: GivenText
    provider_says: str
    fix: str
    source: str


class LintAnswer(Answer):
    """The result of a check.

    ``problems`` holds the first 1,000 violations, in the order of the messages; ``total`` counts all of them.
    ``fingerprint`` stands for the request: keep it with the signatures of the thinking in its answer. null for a format without
    signed thinking.
    """

    valid: bool
    format: LintFormat
    total: int
    problems: list[RuleBroken]
    fingerprint: str | None = None


ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/lint",
        "lint_messages",
        "Check a list of messages against a provider's rules; nothing is stored",
        LintMessages,
        {200: LintAnswer},
        endpoint=lambda app, request, query: Response(200, app.lint_messages(read_body(request.body, LintMessages))),
    ),
)
