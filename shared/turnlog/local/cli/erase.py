"""`turnlog erase`: a session, or everything of the owner, for good."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from turnlog.client.model import Turnlog
from turnlog.contracts.jobs import Job
from turnlog.domain.errors import InvalidInputError
from turnlog.local.cli.options import Connection, Json, connected, opened
from turnlog.local.cli.screen import console, number, plain, print_json

_POLL_SECONDS, _MOST_POLLS = 0.5, 120


@connected
def erase(
    connection: Connection,
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="The session's id.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Everything of the owner in place of one session.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Erase a session for good, with its snapshots; or with --me everything of the owner."""
    if (session is None) != me:
        raise InvalidInputError("name a session, or everything of the owner with --me")
    with opened(connection) as log:
        found = log.sessions.get(session) if session is not None else None
        what = f"session {session}" if session is not None else "every session and everything else of the owner"
        if not yes and not typer.confirm(f"Erase {what} for good?", err=True):
            raise InvalidInputError("nothing was erased", code="not_confirmed")
        job = found.erase() if found is not None else log.erase_me()
        job = followed(log, connection, job)
    if json:
        print_json(job.model_dump(mode="json"))
        return
    console().print(told(job, what), soft_wrap=True)


def followed(log: Turnlog, connection: Connection, job: Job) -> Job:
    """The job once its first pass is over, or it can't go on by itself."""
    for _ in range(_MOST_POLLS):
        # An engine in this process has nobody else to do it; a service does its own jobs.
        if not connection.url or not connection.url.startswith(("http://", "https://")):
            log.run_jobs()
        job = log.job(job.job_id)
        if job.result is not None or job.error is not None or job.status != "queued":
            break
        time.sleep(_POLL_SECONDS)
    return job


def told(job: Job, what: str) -> str:
    """``session s is erased: 12 commits, ...``"""
    if job.error is not None:
        return plain(f"{what} answers to nobody; {job.error.detail} ({job.error.code}): job {job.job_id} goes on")
    result = job.result or {}
    counts = ", ".join(f"{number(count)} {name}" for name, count in result.items() if isinstance(count, int))
    again = "" if job.status == "done" else f"; job {job.job_id} looks again 15 minutes later"
    return f"{what}: {counts or 'on its way'}{again}"
