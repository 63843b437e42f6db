"""Jobs: work for later, and the messages that carry it. A message has ids only, never contents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnlog.core.identity import CORRELATION_PATTERN
from turnlog.core.jobs import JobKind, JobStatus
from turnlog.core.models import Answer, Body, JsonObjectField


class JobMessage(Body):
    """A queue's message. ``tenant`` and ``user`` are the ids that stand for them in keys."""

    v: Literal[1]
    job_id: str = Field(max_length=64)
    kind: JobKind
    tenant: str = Field(max_length=64)
    user: str = Field(max_length=64)
    session_id: str = Field(max_length=64, description="Empty for a job of a person")
    correlation_id: str | None = Field(None, pattern=CORRELATION_PATTERN)


class JobError(Answer):
    """Why a job failed, or what it last met while it is still to be tried again."""

    code: str
    detail: str


class Job(Answer):
    """``attempts`` counts tries that have ended. ``result`` says what the job made, without contents; of a job in several parts
    what it has made so far. ``session_id`` is empty for a job of a person. ``correlation_id`` is that of the call which started it.
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
    jobs: list[Job]
    next_cursor: str | None


class Redriven(Answer):
    """What went back into the queues. ``dead_letters`` counts messages; ``jobs`` are those that were asked for by id or
    because they had failed. ``left`` counts dead letters that are no jobs of ours: nobody can do them.
    """

    dead_letters: int
    jobs: list[str]
    left: int
