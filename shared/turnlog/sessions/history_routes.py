"""Routes of the history: list, record, compare, rewind; with their requests and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from turnlog.core.limits import MAX_POSITION
from turnlog.core.models import Action, Answer, At, Body, JsonObjectField
from turnlog.routing import HttpRequest, Parameter, Query, Response, Route
from turnlog.sessions.message_models import StoredMessage
from turnlog.sessions.models import Session

if TYPE_CHECKING:
    from turnlog.app import Application


MAX_ENTRIES = 1_000


class RecordHistory(Body):
    """A history entry of the caller. It changes nothing else."""

    action: Action
    agent_id: str | None = None
    metadata: JsonObjectField | None = None


class HistoryEntry(Answer):
    """An entry of the history: one event of the log.

    ``history_id`` is the event's position, as text; ``first`` and ``last`` are the positions that the entry covers. ``diff`` is
    the patch of a state change: an object is a Merge Patch, a list a JSON Patch. ``metadata`` of a state change has
    ``old_state_keys`` and ``new_state_keys``, at most 100 each; null for old entries without them.
    """

    history_id: str
    agent_id: str | None
    action: str
    created_at: str
    first: int
    last: int
    diff: JsonObjectField | list[Any] | None
    metadata: JsonObjectField


class HistoryPage(Answer):
    """A page of the history. With a filter a page may be short or even empty although another one follows."""

    entries: list[HistoryEntry]
    next: int | None = Field(description="`before` of the next page; null at the end")


class RewindSession(Body):
    """A rewind. ``to`` is the last position in view afterwards; it may be one that an earlier rewind has taken out of view."""

    to: At = Field(description="The last position in view, or a time (RFC 3339)")
    if_head: int | None = Field(default=None, ge=1, description="Rewind only while this is the head")


class Stretch(Answer):
    """The positions from ``first`` to ``last``, both included."""

    first: int
    last: int


class Diff(Answer):
    """The differences between two moments.

    ``messages`` came into view, ``left`` are ranges of positions that left it. ``state`` is a JSON Patch from the
    state at the first moment to that at the second. ``settings`` are the names of settings that differ. ``summary_from`` and
    ``summary_to`` are the positions of the summaries at both moments. ``next`` is the ``after`` of the next page of messages.
    """

    from_position: int
    to_position: int
    messages: list[StoredMessage]
    next: int | None
    left: list[Stretch]
    state: list[Any]
    settings: list[str]
    summary_from: int | None
    summary_to: int | None


def _diff(app: Application, request: HttpRequest, query: Query) -> Response:
    moments = {"from_" if name == "from" else name: value for name, value in query.items()}
    return Response(200, app.compare_moments(request.owner, request.path["session_id"], **moments))


ROUTES: tuple[Route, ...] = (
    Route(
        "GET /v1/sessions/{session_id}/history",
        "read_history",
        "What was done, newest first",
        answers={200: HistoryPage},
        parameters=(
            Parameter("limit", "integer", "Entries a page", 1, MAX_ENTRIES, 100),
            Parameter("before", "integer", "Entries older than this position", 1, MAX_POSITION),
            Parameter("action", "string", "Only entries of this action"),
            Parameter("agent", "string", "Only entries of this agent"),
        ),
    ),
    Route(
        "POST /v1/sessions/{session_id}/history",
        "record_history",
        "Record an entry; nothing changes",
        RecordHistory,
        {201: HistoryEntry},
        writes=True,
    ),
    Route(
        "GET /v1/sessions/{session_id}/diff",
        "diff_session",
        "What is different between two moments",
        answers={200: Diff},
        parameters=(
            Parameter("from", "moment", "This position, or time (RFC 3339)", required=True),
            Parameter("to", "moment", "This position, or time; the head when it is left out"),
            Parameter("after", "integer", "Messages of positions greater than this", 0, MAX_POSITION),
            Parameter("limit", "integer", "Messages a page", 1, 100, 100),
        ),
        endpoint=_diff,
    ),
    Route(
        "POST /v1/sessions/{session_id}/rewind",
        "rewind_session",
        "Go back: later events leave window and state; the log keeps them",
        RewindSession,
        {200: Session},
        writes=True,
    ),
)
