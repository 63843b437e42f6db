"""The HTTP routes of summaries: make, show and discard; with their requests and answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnlog.core.models import Answer, Body, GivenText
from turnlog.jobs.models import Job
from turnlog.routing import Route

MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS = 64, 8_000


class CompressSession(Body):
    """Make one summary of closed loops. It never covers the open loop and the newest ``keep_loops`` closed loops before it.

    Without ``keep_loops``, the summary ends where the windows of the session's policy begin to show loops in full, and before the
    newest 2 closed loops. When that place lies in the open loop, the summary also covers closed steps of it.
    """

    mode: Literal["async", "sync"] = Field(
        default="async", description="async: answer with a job; sync: answer when it is done"
    )
    keep_loops: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Newest closed loops to leave out; by default those that the policy's windows show in full, at least 2",
    )
    max_tokens: int = Field(
        default=1_000,
        ge=MIN_SUMMARY_TOKENS,
        le=MAX_SUMMARY_TOKENS,
        description="Tokens of the summary at most: its text and facts together",
    )


class Fact(Answer):
    """A verbatim value that a summary covers, from tool calls or what was said, and the position of its first occurrence."""

    position: int
    value: GivenText


class SummaryAnswer(Answer):
    """A summary of the positions ``first`` to ``last`` and the loops ``first_loop`` to ``last_loop``.

    Where ``last`` lies behind these loops, the summary also covers the steps of the next loop up to there.
    ``tokens`` counts text and facts; ``source_tokens`` and ``messages`` count the messages that the summary covers. ``base`` is the
    position of the summary that this summary continues. The log keeps every message that the summary covers.
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
    """The result of a compression.

    ``status`` is ``unchanged`` if there was nothing to cover or a summary would not be smaller; ``reason`` says which.
    ``summary`` is the current summary.
    """

    status: Literal["published", "unchanged"]
    reason: Literal["nothing_to_cover", "not_worth_it"] | None
    summary: SummaryAnswer | None


ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/sessions/{session_id}/compress",
        "compress_session",
        "Summarise closed loops; the log keeps them",
        CompressSession,
        {200: Compressed, 202: Job},
        writes=True,
        optional_body=True,
    ),
    Route("GET /v1/sessions/{session_id}/summary", "get_summary", "The current summary", answers={200: SummaryAnswer}),
    Route(
        "DELETE /v1/sessions/{session_id}/summary",
        "discard_summary",
        "Discard the current summary, and make a new one from the history",
        answers={202: Job},
        writes=True,
    ),
)
