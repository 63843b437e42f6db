"""Summaries of sessions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnlog.core.models import Answer, Body, GivenText

MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS = 64, 8_000


class CompressSession(Body):
    """Make one summary of closed loops. The open loop and the newest ``keep_loops`` before it are never covered.

    Without ``keep_loops`` it ends where the session's policy begins to show loops as they were: at the border of its crossing,
    before its recent messages; and never inside the newest 2.
    """

    mode: Literal["async", "sync"] = Field(default="async", description="async: a job; sync: done when it answers")
    keep_loops: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Newest closed loops that stay out of it; left out: what the policy's windows show whole, at least 2",
    )
    max_tokens: int = Field(
        default=1_000, ge=MIN_SUMMARY_TOKENS, le=MAX_SUMMARY_TOKENS, description="The summary's text and facts together"
    )


class Fact(Answer):
    """A value of a covered tool call, verbatim, and the position where it stood first."""

    position: int
    value: GivenText


class SummaryAnswer(Answer):
    """What stands for the positions ``first`` to ``last``, the loops ``first_loop`` to ``last_loop``.

    ``tokens`` is of text and facts; ``source_tokens`` and ``messages`` count what is covered. ``base`` is the position of
    the summary that it continues. The log keeps everything that it covers.
    """

    position: int
    first: int
    last: int
    first_loop: int
    last_loop: int
    text: GivenText
    facts: list[Fact]
    tokens: int
    source_tokens: int
    messages: int
    base: int | None
    summariser: str
    created_at: str


class Compressed(Answer):
    """``unchanged``: there was nothing to cover, or a summary of it would not be smaller (``reason``).

    ``summary`` is the one that is in force now.
    """

    status: Literal["published", "unchanged"]
    reason: Literal["nothing_to_cover", "not_worth_it"] | None
    summary: SummaryAnswer | None
