"""Restores under a session's own id."""

from __future__ import annotations

from typing import Any

from tests.conftest import Harness
from tests.support.erasing import worked
from turnlog.client.model import Session
from turnlog.core.errors import ConflictError
from turnlog.jobs.models import Job
from turnlog.log.commit import VERIFIED


def expiring(harness: Harness) -> list[Job]:
    return [job for job in harness.log().jobs() if job.kind == "erase" and job.status == "queued"]


def erased(harness: Harness) -> None:
    """What the schedule finds, and both passes of it."""
    harness.app.retain_sessions()
    for job in expiring(harness):
        assert worked(harness, job).status == "done"
    VERIFIED.clear()


def back(harness: Harness, session: Session, snapshot: str = "whole", **how: Any) -> Any:
    """The session is restored: the worker makes room for it, when that was asked for."""
    try:
        return session.restore_snapshot(snapshot, as_="rewind", **how)
    except ConflictError as error:
        assert (error.error_code, error.retry_after_seconds) == ("session_expiring", 10)
    for job in expiring(harness):
        assert worked(harness, job).status == "done"
    return session.restore_snapshot(snapshot, as_="rewind", **how)
