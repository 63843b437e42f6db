"""Queries and answers of recall and search, which bring back what a window has left out."""

from __future__ import annotations

from typing import Any, Literal

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import Answer, GivenText, JsonObjectField, ListAnswer

MAX_QUESTION_CHARS = 1_000
MAX_RECALL_TOKENS = 100_000
DEFAULT_RECALL_TOKENS = 2_000


@lazy_dataclass(frozen=True, slots=True)
class RecallQuery:
    """The tool call or message to return, and the part of its result or text. Lines count from 1.

    Exactly one of ``ref`` and ``call_id`` is set. A ``ref`` that is a position means the first call of the message, or the message
    itself when it has no calls.
    """

    ref: str | None = None
    call_id: str | None = None
    pattern: str | None = None
    from_line: int | None = None
    to_line: int | None = None
    pointer: str | None = None
    max_tokens: int = DEFAULT_RECALL_TOKENS


class Recalled(Answer):
    """A tool call and its result, or a message; if ``found`` is false, ``error`` and ``hint`` instead.

    ``content`` is the requested part of the result, null while there is no result. ``lines`` counts the lines of the result, or of
    the value that ``pointer`` names. ``truncated`` means that the text was cut at ``max_tokens``; a mark says how much is missing.
    ``media`` are images, files and sounds of the result as blocks of the format `turnlog`, beside ``tokens``; null for a part of
    the text. ``note`` says why a part is empty. ``other_refs``, for a query by call id, lists other calls of that id, newest first,
    among the commits that were read; for one by position, the message's other calls. A message without calls has ``ref``,
    ``position``, ``called_at`` (its time), ``content`` and ``media``.
    """

    found: bool
    ref: GivenText | None
    call_id: GivenText | None = None
    name: GivenText | None = None
    arguments: Any = None
    loop: int | None = None
    called_at: str | None = None
    position: int | None = None
    is_error: bool | None = None
    content: GivenText | None = None
    lines: int | None = None
    tokens: int = 0
    media: list[JsonObjectField] | None = None
    truncated: bool = False
    note: GivenText | None = None
    error: str | None = None
    hint: GivenText | None = None
    newest_refs: list[str] | None = None
    other_refs: list[str] | None = None


@lazy_dataclass(frozen=True, slots=True)
class SearchQuery:
    """A question, and the filters that results must pass.

    ``after`` and ``before`` are each a position or a time (RFC 3339). Results are after the position ``after``, or not earlier
    than the time ``after``; and before ``before``.
    """

    q: str
    limit: int = 10
    role: str | None = None
    loop: int | None = None
    tool: str | None = None
    after: int | str | None = None
    before: int | str | None = None


class SearchResult(Answer):
    """A message that matches a question.

    ``ref`` is the tool call that the message makes or answers, the first if there are several. In ``snippet``, ⟦ and ⟧ enclose each
    word that matches, and nothing else.
    """

    position: int
    loop: int | None
    role: str
    ref: str | None
    snippet: GivenText
    score: float


class SearchAnswer(ListAnswer):
    """Messages of a session that match a question, best first.

    All visible messages are searched; ``searched_from`` is the oldest visible position. ``reranking`` is ``done`` if an embedder
    took part in the order. It is ``off`` if no embedder is set, and ``failed`` if the embedder gave no answer; then words alone
    decide the order.
    """

    results: list[SearchResult]
    searched_from: int
    reranking: Literal["off", "done", "failed"] = "off"


class FoundInSessions(Answer):
    """A message, a summary or a title that matches a question, in one of the owner's sessions.

    A message has the fields of `SearchResult`. For a summary, ``position`` is that of its commit.
    """

    session_id: str
    title: GivenText | None
    where: Literal["message", "summary", "title"]
    position: int | None = None
    loop: int | None = None
    role: str | None = None
    ref: str | None = None
    snippet: GivenText
    score: float


class SearchSessionsAnswer(ListAnswer):
    """Matches in the owner's sessions, best first.

    ``sessions`` counts the sessions that were searched, the newest ones. ``unindexed`` of them were searched by title and by the
    messages of their last indexing only; a job indexes them. ``is_complete``: nothing of the owner was left out.
    """

    results: list[FoundInSessions]
    sessions: int
    unindexed: int
    is_complete: bool
    reranking: Literal["off", "done", "failed"] = "off"
