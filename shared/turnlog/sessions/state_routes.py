"""Routes of a session's state, of its agents' execution states, and of its documents: those of the Lambda resource `state`.

Requests and answers of states stand here too; those of documents are in `document_models`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from turnlog.core.limits import MAX_POSITION
from turnlog.core.models import ACTION_PATTERN, Action, Answer, Body, JsonObjectField
from turnlog.routing import JSON_PATCH, MERGE_TYPES, Parameter, Route
from turnlog.sessions.document_models import DocumentsAnswer, ReadDocuments, WriteDocuments, WrittenDocuments
from turnlog.sessions.message_models import LeaseAnswer, LeaseRequest, SendToRun, SentToRun

Version: TypeAlias = Annotated[int, Field(ge=0)]


class ReplaceState(Body):
    """A new state that replaces the current one."""

    state: JsonObjectField
    action: Action | None = Field(default=None, description="Action of the history entry (default state_change)")
    if_version: Version | None = Field(default=None, description="409 unless this is the state's version")


class StateAnswer(Answer):
    """The state of a session. ``version`` is the position of the newest state event, 0 before the first."""

    state: JsonObjectField
    version: int


class AgentState(Answer):
    """The execution state of an agent. ``version`` is the position of the session's newest state event."""

    agent_id: str
    state: JsonObjectField
    version: int


class DecidePending(Body):
    """A decision on an agent's pending action."""

    decision: Literal["approve", "reject"]
    reason: str | None = Field(default=None, max_length=10_000, description="Sent to the model with a rejection")


class Decided(AgentState):
    """The execution state after a decision.

    ``refusal`` is the position of the tool result that rejects the call; null when approved, or when no open call was found.
    """

    refusal: int | None


ROUTES: tuple[Route, ...] = (
    Route(
        "GET /v1/sessions/{session_id}/state",
        "get_state",
        "The state, now or at any moment",
        answers={200: StateAnswer},
        parameters=(Parameter("at", "moment", "As it was at this position, or time (RFC 3339)"),),
    ),
    Route(
        "PUT /v1/sessions/{session_id}/state",
        "put_state",
        "Replace the state",
        ReplaceState,
        {200: StateAnswer},
        writes=True,
    ),
    Route(
        "PATCH /v1/sessions/{session_id}/state",
        "patch_state",
        "Change the state by a JSON Merge Patch or a JSON Patch",
        answers={200: StateAnswer},
        parameters=(
            Parameter("action", "string", "Action of the history entry (default state_change)", pattern=ACTION_PATTERN),
            Parameter("if_version", "integer", "409 unless this is the state's version", 0, MAX_POSITION),
        ),
        writes=True,
        free_body=True,
        media_types=(*MERGE_TYPES, JSON_PATCH),
    ),
    Route(
        "GET /v1/sessions/{session_id}/agents/{agent_id}",
        "get_agent",
        "The execution state of an agent",
        answers={200: AgentState},
    ),
    Route(
        "PATCH /v1/sessions/{session_id}/agents/{agent_id}",
        "patch_agent",
        "Change an agent's execution state by a JSON Merge Patch",
        answers={200: AgentState},
        parameters=(Parameter("lease", "integer", "409 unless this is the token of the run's lease", 1, MAX_POSITION),),
        writes=True,
        free_body=True,
    ),
    Route(
        "POST /v1/sessions/{session_id}/agents/{agent_id}/pending",
        "decide_pending",
        "Approve or reject what an agent waits for",
        DecidePending,
        {200: Decided},
        writes=True,
    ),
    Route(
        "POST /v1/sessions/{session_id}/agents/{agent_id}/inbox",
        "send_to_run",
        "Send messages to the run that has the session",
        SendToRun,
        {201: SentToRun},
        writes=True,
    ),
    Route(
        "POST /v1/sessions/{session_id}/lease",
        "lease_session",
        "Take, renew or release the session for one run",
        LeaseRequest,
        {200: LeaseAnswer},
        writes=True,
    ),
    Route(
        "POST /v1/sessions/{session_id}/documents",
        "put_documents",
        "Write and delete documents: bytes by key, beside the log",
        WriteDocuments,
        {200: WrittenDocuments},
        writes=True,
    ),
    Route(
        "POST /v1/sessions/{session_id}/documents/read",
        "get_documents",
        "Documents by their keys, or a range of them",
        ReadDocuments,
        {200: DocumentsAnswer},
    ),
)
