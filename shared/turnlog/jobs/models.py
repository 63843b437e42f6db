"""Models of jobs and of queue messages. A message has ids only, never contents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnlog.core.identity import CORRELATION_PATTERN, MAX_SESSION_ID
from turnlog.core.models import Answer, Body, JsonObjectField
from turnlog.ports import JobKind, JobStatus


class JobMessage(Body):
    """A message of a queue. ``tenant`` and ``user`` are ids as keys hold them."""

    v: Literal[1]
    job_id: str = Field(max_length=64)
    kind: JobKind
    tenant: str = Field(max_length=64)
    user: str = Field(max_length=64)
    session_id: str = Field(max_length=MAX_SESSION_ID, description="Empty for a job about all sessions of a user")
    correlation_id: str | None = Field(None, pattern=CORRELATION_PATTERN)


class JobError(Answer):
    """The reason why a job failed, or why its newest try failed while it will be retried."""

    code: str
    detail: str


class Job(Answer):
    """A job.

    ``attempts`` counts tries that have ended. ``result`` describes the outcome without contents; for a job in several parts,
    the outcome so far. ``session_id`` is empty for a job about all sessions of a user. ``correlation_id`` is that of the call
    which started the job.
    """

    job_id: str
    kind: JobKind
    session_id: str
    status: JobStatus
    created_at: str
    updated_at: str
    attempts: int
    result: JsonObjectField | None
    error: JobError | None
    correlation_id: str | None


class JobPage(Answer):
    """A page of jobs, newest first."""

    jobs: list[Job]
    next_cursor: str | None


class Redriven(Answer):
    """The outcome of a redrive: the dead letters and jobs that were queued again.

    ``dead_letters`` counts messages. ``jobs`` are jobs that were named by id or had failed. ``left`` counts dead letters that
    are not jobs of this service; they stay.
    """

    dead_letters: int
    jobs: list[str]
    left: int
