"""`turnlog jobs`: list and show jobs, and send failed ones back to their queues."""

from __future__ import annotations

from typing import Annotated, Any, cast, get_args

import typer
from rich.console import Group
from rich.text import Text

from turnlog.cli.options import argument, open_without_worker, option, with_log
from turnlog.cli.screen import Column, Output, counted, facts_table, listing_output, one_line, plain, short_time
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import encode_json
from turnlog.jobs.models import Job
from turnlog.ports import JobStatus

_STYLES = {"queued": "yellow", "done": "green", "failed": "bold red"}
_MAX_ERROR = 60

jobs = typer.Typer(help="List the jobs, newest first.", invoke_without_command=True, add_completion=False)
_COLUMNS = (
    Column("job", lambda job: job.job_id),
    Column("kind", lambda job: job.kind, rank=3),
    Column("session", lambda job: job.session_id, rank=1),
    Column("status", lambda job: Text(job.status, style=_STYLES[job.status])),
    Column("tries", lambda job: job.attempts, "right", rank=4),
    Column("updated", lambda job: short_time(job.updated_at), rank=2),
    Column("result", lambda job: one_line(_outcome(job), _MAX_ERROR), is_text=True),
)


def _check_status(*, status: str | None, **_others: Any) -> None:
    if status not in (None, *get_args(JobStatus)):
        raise InvalidInputError(f"--status {status!r} is not one of queued, failed, done")


@jobs.callback(invoke_without_command=True)
@with_log(open_without_worker, check=_check_status)
def listed(
    log: Turnlog,
    status: Annotated[
        str | None, option("--status", "Only jobs with this status: queued, failed or done.", "S")
    ] = None,
    limit: Annotated[int, option("--limit", "Maximum number of jobs.", "N", min=1)] = 20,
) -> Output:
    return listing_output("jobs", log.jobs(status=cast("JobStatus | None", status)), _COLUMNS, limit=limit)


@jobs.command()
@with_log(open_without_worker)
def show(log: Turnlog, job_id: Annotated[str, argument("ID", "The job's id.")]) -> Output:
    """Print one job."""
    job = log.job(job_id)
    facts = {"session": job.session_id, "created": job.created_at, "updated": job.updated_at}
    if job.result is not None:
        facts["result"] = encode_json(job.result).decode()
    if job.error is not None:
        facts["error"] = f"{job.error.detail} ({job.error.code})"
    return Output(job, Group(Text(job_line(job), style=_STYLES[job.status]), facts_table(facts)))


def _check_redrive(*, job_id: str | None, failed: bool) -> None:
    if failed and job_id is not None:
        raise InvalidInputError("--failed is for all failed jobs: leave the id out, or the option")


@jobs.command()
@with_log(open_without_worker, check=_check_redrive)
def redrive(
    log: Turnlog,
    job_id: Annotated[str | None, argument("ID", "One job. By default, all dead letters.")] = None,
    failed: Annotated[
        bool, option("--failed", "Also the owner's failed jobs, and those that wait for an hour.")
    ] = False,
) -> Output:
    """Send failed jobs back to their queues. Needs a data folder or an engine URL; a service refuses it."""
    redriven = log.redrive(job_id, failed=failed)
    shown = list[Text]()
    if redriven.dead_letters or not redriven.jobs:
        shown.append(Text(f"{counted(redriven.dead_letters, 'dead letter')} back in the queue"))
    if redriven.jobs:
        shown.append(Text(f"{counted(len(redriven.jobs), 'job')} queued again: {', '.join(redriven.jobs)}"))
    if redriven.left:
        shown.append(Text(f"{counted(redriven.left, 'dead letter')} left: not jobs of Turnlog", style="yellow"))
    return Output(redriven, Group(*shown))


def job_line(job: Job) -> str:
    """Describe a job in one line, such as ``job ID (compress) is done: published, after 1 try``."""
    outcome = _outcome(job)
    tries = f", after {counted(job.attempts, 'try', 'tries')}" if job.attempts else ""
    return f"job {job.job_id} ({job.kind}) is {job.status}{f': {outcome}' if outcome else ''}{tries}"


def _outcome(job: Job) -> str:
    """Describe the result or the error of a job in a few words; empty while it has neither."""
    if job.error is not None:
        return plain(f"{job.error.detail} ({job.error.code})", lines=False)
    result = job.result or {}
    words = [str(result[name]) for name in ("status", "reason", "snapshot_id") if result.get(name) is not None]
    if "segments" in result:
        words.append(f"segments up to position {result['last']}")
    return plain(", ".join(words), lines=False)
