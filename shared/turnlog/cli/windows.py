"""`turnlog context` and `turnlog compress`: a session's window, the difference of two windows, and the summary in it."""

from __future__ import annotations

from typing import Annotated, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from turnlog.cli.jobs import job_line
from turnlog.cli.options import (
    Budget,
    Connection,
    Format,
    Json,
    Policy,
    Session,
    open_client,
    option,
    policy_value,
    with_connection,
    with_log,
)
from turnlog.cli.screen import (
    Output,
    as_json,
    facts_table,
    format_number,
    message_text,
    plain,
    print_output,
    status_line,
)
from turnlog.cli.window_tables import difference, window_table
from turnlog.client.model import Turnlog
from turnlog.client.states import await_job
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.jobs.models import Job
from turnlog.summaries.routes import MAX_SUMMARY_TOKENS, MIN_SUMMARY_TOKENS, SummaryAnswer

T = TypeVar("T", bound=str | None)
Model = Annotated[
    str | None, option("--model", "A model name; its context size is the budget when --budget is not given.", "M")
]

At = Annotated[str | None, option("--at", "Treat the log as ending at this position or time (RFC 3339).", "P")]
Against = Annotated[
    str | None, option("--against", "Compare with the window at this position or time (RFC 3339).", "Q")
]


Query = Annotated[str | None, option("--query", "What the step recall looks for, in place of the user's message.", "Q")]
WAIT_SECONDS = 300


@with_log(open_client)
def context(  # noqa: PLR0913
    log: Turnlog,
    session: Session,
    policy: Policy = None,
    budget: Budget = None,
    format: Format = None,
    model: Model = None,
    query: Query = None,
    at: At = None,
    against: Against = None,
    messages: Annotated[bool, option("--messages", "Print the messages too.")] = False,
) -> Output:
    """Show the window of the next model call, with a bar for each part."""
    options = {"policy": policy_value(policy), "budget": budget, "format": format, "model": model, "query": query}
    handle = log.sessions.of(session)
    window = handle.context(at=parse_moment(at), **options)  # type: ignore[arg-type]
    if against is not None:
        other = handle.context(at=parse_moment(against), **options)  # type: ignore[arg-type]
        answers = dict(zip(("window", "against"), as_json([window, other]), strict=True))
        return Output(answers, difference(other, window, title=f"Window of {session}"))
    shown = [window_table(window, title=f"Window of {session}")]
    if messages:
        shown.append(Text())
        if isinstance(window.system, str):
            shown.append(Text(plain(window.system), style="cyan"))
        shown += [message_text(body, heading=f"{index}") for index, body in enumerate(window.messages, start=1)]
    return Output(window, Group(*shown))


def parse_moment(text: T) -> int | T:
    """Return digits as a position, and other text, a time, unchanged."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


@with_connection
def compress(
    connection: Connection,
    session: Session,
    wait: Annotated[bool, option("--wait/--async", "Wait for the job, or print its id at once.")] = True,
    keep_loops: Annotated[
        int | None,
        option(
            "--keep-loops",
            "Number of newest closed loops to leave out of the summary (default: as the policy says).",
            "N",
            min=0,
            max=1_000_000,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        option(
            "--max-tokens",
            "Maximum tokens of the summary, text and facts together (default: 1000).",
            "N",
            min=MIN_SUMMARY_TOKENS,
            max=MAX_SUMMARY_TOKENS,
        ),
    ] = None,
    show: Annotated[bool, option("--show", "Print the current summary and make no new one.")] = False,
    timeout: Annotated[int, option("--timeout", "Wait at most this many seconds.", "S", min=1)] = WAIT_SECONDS,
    json: Json = False,
) -> None:
    """Summarise a session's closed loops by a job in the queue, and print what the summary covers."""
    if show and (not wait or keep_loops is not None or max_tokens is not None):
        raise InvalidInputError("--show makes no summary: leave the other options out")
    with open_client(connection, worker=None if wait else False) as log:
        handle = log.sessions.of(session)
        if show:
            current = handle.summary()
            if current is None:
                raise NotFoundError(f"session {session!r} has no summary yet", code="no_summary")
            print_output(Output(current, _summary_shown(current)), json=json)
            return
        job = handle.compress(mode="async", keep_loops=keep_loops, max_tokens=max_tokens)
        assert isinstance(job, Job)  # noqa: S101 - the answer of mode async
        if wait:
            with status_line("", json=json) as progress:

                def show_wait(job: Job, seconds: float) -> None:
                    progress(f"{job_line(job)}, {seconds:.0f} s")

                job = await_job(log.backend, job, seconds=timeout, meanwhile=show_wait)
        summary = handle.summary() if wait else None
    answer = {"job": job.model_dump(mode="json"), "summary": summary and summary.model_dump(mode="json")}
    output = Output(answer, _outcome_shown(job, summary), exit_code=1 if wait and not _is_well(job) else 0)
    print_output(output, json=json)


def _is_well(job: Job) -> bool:
    return job.status == "done" and (job.result or {}).get("status") in ("published", "unchanged")


def _outcome_shown(job: Job, summary: SummaryAnswer | None) -> RenderableType:
    style = "" if job.status == "queued" or _is_well(job) else "bold red"
    shown: list[RenderableType] = [Text(job_line(job), style=style)]
    if job.status == "queued":
        shown.append(Text(f"look at it with: turnlog jobs show {job.job_id}", style="dim"))
    if (job.result or {}).get("status") == "postponed":
        shown.append("the summariser is not available; the session retries by itself, or try again later")
    if job.status == "done" and summary is not None:
        shown.append(_numbers_table(summary))
    return Group(*shown)


def _summary_shown(summary: SummaryAnswer) -> RenderableType:
    facts = ", ".join(f"{fact.value} ({fact.position})" for fact in summary.facts)
    shown: list[RenderableType] = [_numbers_table(summary), Text(), plain(summary.text)]
    return Group(*shown, *([Text(), Text(plain(facts), style="cyan")] if facts else []))


def _numbers_table(summary: SummaryAnswer) -> Table:
    share = f" ({summary.tokens / summary.source_tokens:.0%})" if summary.source_tokens else ""
    base = f", continues the one at {summary.base}" if summary.base is not None else ""
    facts = {
        "positions": f"{summary.first}–{summary.last}",
        "loops": f"{summary.first_loop}–{summary.last_loop}",
        "messages": format_number(summary.messages),
        "tokens": f"{format_number(summary.source_tokens)} -> {format_number(summary.tokens)}{share}",
        "facts": format_number(len(summary.facts)),
        "at": f"{summary.position}{base}",
        "by": summary.summariser,
    }
    return facts_table(facts)
