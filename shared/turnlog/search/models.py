"""Recall and search: what the window has left out, brought back."""

from __future__ import annotations

from typing import Any, Literal

from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.models import Answer, GivenText

MAX_RECALL_TOKENS = 100_000
DEFAULT_RECALL_TOKENS = 2_000


@lazy_dataclass(frozen=True, slots=True)
class RecallQuery:
    """Which call, and which part of its result. Exactly one of ``ref`` and ``call_id``. Lines count from 1."""

    ref: str | None = None
    call_id: str | None = None
    pattern: str | None = None
    from_line: int | None = None
    to_line: int | None = None
    pointer: str | None = None
    max_tokens: int = DEFAULT_RECALL_TOKENS


class Recalled(Answer):
    """A call and its result, or ``found`` false with what to try.

    ``content`` is the part asked for, null while there is no result; ``lines`` how many lines there are to choose from (of
    the result, or of what ``pointer`` names). ``truncated``: cut at ``max_tokens``, with a mark that says how much more.
    ``note`` says why a part is empty. ``other_refs``: asked by call id, the other calls of that id, newest first, among the
    commits that were read for it.
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
    truncated: bool = False
    note: GivenText | None = None
    error: str | None = None
    hint: GivenText | None = None
    newest_refs: list[str] | None = None
    other_refs: list[str] | None = None


@lazy_dataclass(frozen=True, slots=True)
class SearchQuery:
    """Words to look for, and which messages may answer. ``after`` and ``before`` are a position or a time (RFC 3339) each: messages
    behind that position, or of that time and later; before it."""

    q: str
    limit: int = 10
    role: str | None = None
    loop: int | None = None
    tool: str | None = None
    after: int | str | None = None
    before: int | str | None = None


class SearchResult(Answer):
    """``ref`` is the tool call that the message makes or answers, the first if there are several. In ``snippet`` the words that
    match stand between ⟦ and ⟧, which stand there for nothing else."""

    position: int
    loop: int | None
    role: str
    ref: str | None
    snippet: GivenText
    score: float


class SearchAnswer(Answer):
    """Best first. ``searched_from`` is the oldest position in view: all of it is searched. ``reranking`` says whether an embedder
    had a say in the order: off where none is set, failed where it gave no answer, and the order is that of the words."""

    results: list[SearchResult]
    searched_from: int
    reranking: Literal["off", "done", "failed"] = "off"


class FoundInSessions(Answer):
    """What was found in one of an owner's sessions: a message, as in `SearchResult`, a session's summary (``position`` is that of
    its commit), or its title."""

    session_id: str
    title: GivenText | None
    where: Literal["message", "summary", "title"]
    position: int | None = None
    loop: int | None = None
    role: str | None = None
    ref: str | None = None
    snippet: GivenText
    score: float


class SearchSessionsAnswer(Answer):
    """Best first. ``sessions`` were looked through, the newest; of ``unindexed`` ones of them only titles, and messages as of when
    they were indexed last: a job is on its way to them. ``is_complete``: nothing of the owner was left out."""

    results: list[FoundInSessions]
    sessions: int
    unindexed: int
    is_complete: bool
    reranking: Literal["off", "done", "failed"] = "off"
