"""`turnlog compress`: summarise a session by a job, or show its current summary."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Protocol

import typer
from rich.console import Console

from turnlog.cli.jobs import job_line
from turnlog.cli.options import Connection, Json, Session, connected, opened
from turnlog.cli.screen import console, number, plain, print_json, table
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.jobs.models import Job
from turnlog.summaries.models import MAX_SUMMARY_TOKENS, MIN_SUMMARY_TOKENS, SummaryAnswer

WAIT_SECONDS = 300
_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.1, 2.0


class Progress(Protocol):
    """Shows one line of progress."""

    def __call__(self, text: str) -> None: ...


@connected
def compress(
    connection: Connection,
    session: Session,
    wait: Annotated[bool, typer.Option("--wait/--async", help="Wait for the job, or print its id at once.")] = True,
    keep_loops: Annotated[
        int | None,
        typer.Option(
            "--keep-loops",
            metavar="N",
            min=0,
            max=1_000_000,
            help="Number of newest closed loops to leave out of the summary (default: as the policy says).",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=MIN_SUMMARY_TOKENS,
            max=MAX_SUMMARY_TOKENS,
            help="Maximum tokens of the summary, text and facts together (default: 1000).",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the current summary and make no new one.")] = False,
    timeout: Annotated[
        int, typer.Option("--timeout", metavar="S", min=1, help="Wait at most this many seconds.")
    ] = WAIT_SECONDS,
    json: Json = False,
) -> None:
    """Summarise a session's closed loops by a job in the queue, and print what the summary covers."""
    if show and (not wait or keep_loops is not None or max_tokens is not None):
        raise InvalidInputError("--show makes no summary: leave the other options out")
    with opened(connection) as log:
        handle = log.sessions.get(session)
        if show:
            _print_summary(_existing(handle.summary(), session), json=json)
            return
        job = handle.compress(mode="async", keep_loops=keep_loops, max_tokens=max_tokens)
        assert isinstance(job, Job)  # noqa: S101 - the answer of mode async
        if wait:
            with _progress(json=json) as progress:
                job = waited(log, job, progress, seconds=timeout, is_ours=connection.url is None)
        summary = handle.summary() if wait else None
    if json:
        print_json(
            {
                "job": job.model_dump(mode="json"),
                "summary": summary.model_dump(mode="json") if summary is not None else None,
            }
        )
    else:
        _print_outcome(console(), job, summary)
    if wait and not _is_well(job):
        raise typer.Exit(1)


def waited(log: Turnlog, job: Job, progress: Progress, *, seconds: float, is_ours: bool) -> Job:
    """Wait up to ``seconds`` for a job to end, and return its latest state.

    ``is_ours``: run waiting jobs in this process, because no service may be running.
    """
    started, pause = time.monotonic(), _POLL_SECONDS
    while job.status == "queued":
        passed = time.monotonic() - started
        progress(f"{job_line(job)}, {passed:.0f} s")
        if passed >= seconds:
            break
        if not (is_ours and log.run_jobs()):
            time.sleep(min(pause, seconds - passed))
            pause = min(pause * 1.5, _LONGEST_POLL_SECONDS)
        job = log.job(job.job_id)
    return job


def _is_well(job: Job) -> bool:
    return job.status == "done" and (job.result or {}).get("status") in ("published", "unchanged")


@contextmanager
def _progress(*, json: bool) -> Iterator[Progress]:
    """Yield a callback that updates one line on stderr; without a terminal it does nothing."""
    screen = console(stderr=True)
    if json or not screen.is_terminal:
        yield lambda _text: None
        return
    with screen.status("") as status:
        yield lambda text: status.update(plain(text, lines=False))


def _print_outcome(screen: Console, job: Job, summary: SummaryAnswer | None) -> None:
    result = job.result or {}
    screen.print(job_line(job), style="" if job.status == "queued" or _is_well(job) else "bold red", soft_wrap=True)
    if job.status == "queued":
        screen.print(f"look at it with: turnlog jobs show {job.job_id}", style="dim", soft_wrap=True)
    if result.get("status") == "postponed":
        screen.print(
            "the summariser is not available; the session retries by itself, or try again later", soft_wrap=True
        )
    if job.status == "done" and summary is not None:
        _print_numbers(screen, summary)


def _print_summary(summary: SummaryAnswer, *, json: bool) -> None:
    if json:
        print_json(summary.model_dump(mode="json"))
        return
    screen = console()
    _print_numbers(screen, summary)
    screen.print()
    screen.print(plain(summary.text), soft_wrap=True)
    if summary.facts:
        screen.print()
        facts = ", ".join(f"{fact.value} ({fact.position})" for fact in summary.facts)
        screen.print(plain(facts), style="cyan", soft_wrap=True)


def _print_numbers(screen: Console, summary: SummaryAnswer) -> None:
    share = f" ({summary.tokens / summary.source_tokens:.0%})" if summary.source_tokens else ""
    base = f", continues the one at {summary.base}" if summary.base is not None else ""
    grid = table(None, [("", "left"), ("", "left")])
    grid.show_header = False
    grid.add_row("positions", f"{summary.first}–{summary.last}")
    grid.add_row("loops", f"{summary.first_loop}–{summary.last_loop}")
    grid.add_row("messages", number(summary.messages))
    grid.add_row("tokens", f"{number(summary.source_tokens)} -> {number(summary.tokens)}{share}")
    grid.add_row("facts", number(len(summary.facts)))
    grid.add_row("at", f"{summary.position}{base}")
    grid.add_row("by", plain(summary.summariser, lines=False))
    screen.print(grid)


def _existing(summary: SummaryAnswer | None, session_id: str) -> SummaryAnswer:
    if summary is None:
        raise NotFoundError(f"session {session_id!r} has no summary yet", code="no_summary")
    return summary
